//! [`ListenerOptions`].

use crate::connection_options::{ConnectionOptions, Deadline};
use crate::datagram::DatagramListener;
use crate::error::Result;
use crate::event_channel::EventChannel;
use crate::listener::Listener;
use crate::lookup::ToAddress;
use crate::port_space::PortSpace;

/// How an address is listened at.
///
/// That others may have the [address](crate::Id::set_reuse_address) is none of it: the kernel wants a listener's for itself.
///
/// ```no_run
/// # fn main() -> cm::Result<()> {
/// let mut options = cm::ListenerOptions::default();
/// options.backlog = 1024;
/// options.ipv6_only = Some(true);
/// options.connections.private_data = b"version 3".to_vec();
/// let listener = options.bind("[::]:7471")?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListenerOptions {
    /// How many connection requests wait at most; more are refused. Default: 128.
    pub backlog: u32,
    /// Whether a listener on `::` is for IPv6 only. Default: the kernel's setting (`net.ipv6.bindv6only`, usually no).
    #[doc(alias = "RDMA_OPTION_ID_AFONLY")]
    pub ipv6_only: Option<bool>,
    /// The options of the connections that are [accepted](Listener::accept).
    pub connections: ConnectionOptions,
}

impl Default for ListenerOptions {
    fn default() -> Self {
        Self { backlog: 128, ipv6_only: None, connections: ConnectionOptions::default() }
    }
}

impl ListenerOptions {
    /// Listens for connections at an address: `0.0.0.0` or `::` for every device, port 0 for any free port.
    ///
    /// # Errors
    ///
    /// As those of [`Listener::bind`].
    #[doc(alias = "rdma_bind_addr")]
    #[doc(alias = "rdma_listen")]
    pub fn bind(&self, address: impl ToAddress) -> Result<Listener> {
        self.bind_in(PortSpace::TCP, &address)
    }

    /// Listens for those who ask for the queue pair of a datagram service.
    ///
    /// # Errors
    ///
    /// As those of [`Listener::bind`].
    pub fn bind_datagram(&self, address: impl ToAddress) -> Result<DatagramListener> {
        self.bind_in(PortSpace::UDP, &address).map(DatagramListener::new)
    }

    fn bind_in(&self, space: PortSpace, address: &dyn ToAddress) -> Result<Listener> {
        let deadline = Deadline::after(self.connections.timeout);
        address.to_address().try_each(&deadline, |address, _| {
            let channel = EventChannel::create()?;
            let id = channel.create_id(space)?;
            if let Some(only) = self.ipv6_only {
                id.set_ipv6_only(only)?;
            }
            id.bind(address)?;
            id.listen(self.backlog)?;
            Ok(Listener::new(id, channel, self.connections.clone()))
        })
    }
}
