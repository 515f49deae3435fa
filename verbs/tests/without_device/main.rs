//! Tests of the crate's own logic on the null provider: on any machine, in milliseconds.

#[path = "../null_provider/mod.rs"]
mod null_provider;
#[path = "../readiness/mod.rs"]
mod readiness;

mod async_events;
mod batch;
mod completion_queue;
mod creation;
mod creation_flags;
mod datagram;
mod datagram_length;
mod descriptors;
mod destruction;
mod device_memory;
mod domains;
mod event_loop;
mod every_verb;
mod extended;
mod facts;
mod files;
mod flow;
mod forgotten;
mod fork;
mod imports;
mod inline;
mod leaks;
mod lies;
mod memory;
mod memory_window;
mod modify;
mod multicast;
mod polling;
mod posting;
mod prepared;
mod provider;
mod questions;
mod receive_slots;
mod reregistration;
mod shared_receive_queue;
mod signaling;
mod taken_over;
mod valgrind;
mod waiting;
mod way_down;
mod window_owner;
mod work_queue;
mod xrc;

use std::time::Duration;

use verbs::*;

use null_provider::NullProvider;

/// A provider and one object of each kind on it; the queue pair is connected, to nobody.
struct Bench {
    // Declared before the provider, which looks for what is left behind.
    qp: QueuePair<Rc>,
    region: MemoryRegion<Vec<u8>>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    context: Context,
    provider: NullProvider,
}

impl Bench {
    fn new() -> Self {
        Self::build(|builder| builder)
    }

    fn build(configure: impl FnOnce(QueuePairBuilder<Rc>) -> QueuePairBuilder<Rc>) -> Self {
        let provider = NullProvider::new();
        let context = provider.open();
        let pd = context.create_protection_domain().unwrap();
        let region = pd.register(vec![0; 4096], AccessFlags::LOCAL_WRITE).unwrap();
        let channel = context.create_completion_channel().unwrap();
        let cq = CompletionQueueBuilder::new(&context, 64).channel(&channel).build().unwrap();
        let qp = configure(QueuePair::builder(&pd, &cq, &cq)).build().unwrap();
        connect(&qp);
        Self { qp, region, cq, pd, context, provider }
    }

    /// The identifiers of the completions that wait in the queue.
    fn polled(&self) -> Vec<u64> {
        self.completions().iter().map(WorkCompletion::wr_id).collect()
    }

    fn completions(&self) -> Vec<WorkCompletion> {
        let mut room = [WorkCompletion::default(); 64];
        self.cq.poll(&mut room).unwrap().to_vec()
    }
}

fn connect(qp: &QueuePair<Rc>) {
    let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
    qp.connect(&local, &local.endpoint, &ConnectOptions::default()).unwrap();
}

/// Takes the event of the completion of what `post` posts from the queue's channel, and with it the completion.
fn take_event(provider: &NullProvider, cq: &CompletionQueue, post: impl FnOnce()) {
    cq.arm(Notify::Any).unwrap();
    post();
    // The wait polls before it arms and before it sleeps; if it found the completion, it would not look for the event.
    provider.poll_returns(0);
    provider.poll_returns(0);
    let mut room = [WorkCompletion::default(); 1];
    assert_eq!(cq.wait(&mut room, Some(LONG)).unwrap().len(), 1);
}

/// How long a test waits for what has to come.
const LONG: Duration = Duration::from_secs(60);

/// The error numbers that a test tries: one that has advice, one that has none, one that means "unsupported".
const ERRNOS: [i32; 4] = [libc::ENOMEM, libc::EINVAL, libc::EIO, libc::EOPNOTSUPP];
