//! What the provider says in place of the truth.

use verbs::ffi;

type Lie<T> = Option<Box<dyn Fn(&mut T) + Send>>;

/// What changes an answer before it is given.
#[derive(Default)]
pub(super) struct Lies {
    pub(super) port: Lie<ffi::ibv_port_attr>,
    pub(super) device: Lie<ffi::ibv_device_attr>,
    pub(super) extended_device: Lie<ffi::ibv_device_attr_ex>,
    pub(super) queue_pair: Lie<ffi::ibv_qp_attr>,
    /// What a queue pair is made with.
    pub(super) capabilities: Lie<ffi::ibv_qp_cap>,
    /// The next completion.
    pub(super) completion: Lie<ffi::ibv_wc>,
    /// How many GIDs there are.
    pub(super) gids: Option<isize>,
}

pub(super) fn tell<T>(lie: &Lie<T>, answer: &mut T) {
    if let Some(lie) = lie {
        lie(answer);
    }
}

macro_rules! lies {
    ($($(#[$meta:meta])* $name:ident: $field:ident($type:ident);)*) => {
        impl super::NullProvider {
            $($(#[$meta])*
            pub(crate) fn $name(&self, lie: impl Fn(&mut ffi::$type) + Send + 'static) {
                self.shared.lock().lies.$field = Some(Box::new(lie));
            })*

            /// What it says of how many GIDs there are.
            pub(crate) fn tell_gids(&self, count: isize) {
                self.shared.lock().lies.gids = Some(count);
            }

            /// From now on, the truth.
            pub(crate) fn tell_the_truth(&self) {
                self.shared.lock().lies = Lies::default();
            }
        }
    };
}

lies! {
    /// What it says of its port from now on.
    lie_about_port: port(ibv_port_attr);
    /// What it says of the device from now on.
    lie_about_device: device(ibv_device_attr);
    /// What it says of the device, to the extended question, from now on.
    lie_about_extended_device: extended_device(ibv_device_attr_ex);
    /// What it says of queue pairs from now on.
    lie_about_queue_pairs: queue_pair(ibv_qp_attr);
    /// What it says of the sizes of queue pairs that are made from now on.
    lie_about_capabilities: capabilities(ibv_qp_cap);
    /// What the completions of requests that are posted from now on say.
    lie_in_completions: completion(ibv_wc);
}
