//! [`connect`], in one call and in steps: [`Route`], [`OutgoingConnection`].

use std::net::SocketAddr;

use verbs::{Context, ProtectionDomain, QueuePair, Rc};

use crate::connection::Connection;
use crate::connection_options::{ConnectionOptions, Deadline, unexpected};
use crate::ece;
use crate::error::Result;
use crate::event::EventKind;
use crate::id::Id;
use crate::lookup::ToAddress;
use crate::port_space::{Carrier, PortSpace};
use crate::queue_pair::TransitionOptions;

/// Connects to an address, such as `"192.0.2.1:7471"` or `("storage.example.net", 7471)`, with the defaults of [`ConnectionOptions`].
///
/// # Errors
///
/// As those of [`ConnectionOptions::connect`].
///
/// # Examples
///
/// ```no_run
/// # fn main() -> cm::Result<()> {
/// use verbs::{AccessFlags, SendRequest, WorkCompletion};
///
/// let connection = cm::connect("192.0.2.1:7471")?;
/// let mut region = connection.protection_domain().register(b"Hello, RDMA!".to_vec(), AccessFlags::empty())?;
/// let message = [region.slice(..)?];
/// connection.queue_pair().post_send(&SendRequest::send(1, &message).signaled())?;
/// let mut completions = [WorkCompletion::default(); 1];
/// for completion in connection.completion_queue().wait(&mut completions, None)? {
///     completion.success()?;
/// }
/// connection.disconnect()?;
/// # Ok(()) }
/// ```
#[doc(alias = "rdma_connect")]
pub fn connect(address: impl ToAddress) -> Result<Connection> {
    ConnectionOptions::default().connect(address)
}

impl ConnectionOptions {
    /// Connects to an address. Of the addresses of a name each is tried in turn, until one connects; each has an equal share of the
    /// [time](Self::timeout) that is left.
    ///
    /// Where the peer may send before this end has posted receives, [`prepare`](Self::prepare) the connection, and post them before
    /// connecting. (With [`rnr_retry_count`](Self::rnr_retry_count) at 7, the peer's messages only wait.)
    ///
    /// # Errors
    ///
    /// * [`Error::NoDevice`](crate::Error::NoDevice): the machine has no RDMA device.
    /// * [`Error::Lookup`](crate::Error::Lookup): the name has no address.
    /// * [`Error::AddressUnresolved`](crate::Error::AddressUnresolved), [`Error::RouteUnresolved`](crate::Error::RouteUnresolved): nobody can
    ///   be reached there.
    /// * [`Error::Rejected`](crate::Error::Rejected): nobody listens, or the peer refuses.
    /// * [`Error::TimedOut`](crate::Error::TimedOut): the peer neither accepts nor refuses, or its host has died just now. The kernel asks
    ///   again and again for more than a minute before it says [`Error::Unreachable`](crate::Error::Unreachable): with a shorter
    ///   [timeout](Self::timeout), as by default, that is never seen.
    /// * [`Error::Verbs`](crate::Error::Verbs): the queue pair could not be made.
    #[doc(alias = "rdma_connect")]
    pub fn connect(&self, address: impl ToAddress) -> Result<Connection> {
        self.try_each(&address, |route, deadline| route.prepare()?.connect_until(deadline))
    }

    /// As [`connect`](Self::connect), up to where receives can be posted.
    ///
    /// Of the addresses of a name it is the first one that there is a route to; whether anybody listens there, only
    /// [`OutgoingConnection::connect`] finds out, which has the whole [time](Self::timeout) once more.
    ///
    /// # Errors
    ///
    /// As those of [`connect`](Self::connect), but for the peer's answer.
    pub fn prepare(&self, address: impl ToAddress) -> Result<OutgoingConnection> {
        self.try_each(&address, |route, _| route.prepare())
    }

    /// As [`connect`](Self::connect), up to where the device that leads to the peer is known, and objects can be made on it.
    ///
    /// What [`prepare`](Self::prepare) says of several addresses and of the time holds here, too.
    ///
    /// # Errors
    ///
    /// As those of [`connect`](Self::connect), but for the queue pair and the peer's answer.
    pub fn resolve(&self, address: impl ToAddress) -> Result<Route> {
        self.try_each(&address, |route, _| Ok(route))
    }

    /// Finds a route to one address after another, until `attempt` succeeds with one.
    fn try_each<R>(
        &self,
        address: &dyn ToAddress,
        mut attempt: impl FnMut(Route, &Deadline) -> Result<R>,
    ) -> Result<R> {
        PortSpace::TCP.check(Carrier::Request, "rdma_connect", &self.private_data)?;
        let deadline = Deadline::after(self.timeout);
        address.to_address().try_each(&deadline, |address, deadline| {
            let id = self.resolve_route(PortSpace::TCP, address, deadline)?;
            attempt(Route { id, address, options: self.clone() }, deadline)
        })
    }
}

/// A peer to which there is a route. Made by [`ConnectionOptions::resolve`].
#[derive(Debug)]
pub struct Route {
    id: Id,
    address: SocketAddr,
    options: ConnectionOptions,
}

impl Route {
    /// The id that is to be connected.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// The device that leads to the peer.
    ///
    /// # Errors
    ///
    /// As those of [`Id::context`].
    pub fn context(&self) -> Result<Context> {
        self.id.context()
    }

    /// librdmacm's protection domain on the device.
    ///
    /// # Errors
    ///
    /// As those of [`Id::protection_domain`].
    pub fn protection_domain(&self) -> Result<ProtectionDomain> {
        self.id.protection_domain()
    }

    /// The options, to add objects that were made on the device.
    pub fn options_mut(&mut self) -> &mut ConnectionOptions {
        &mut self.options
    }

    /// Makes a queue pair, to which receives can then be posted.
    ///
    /// # Errors
    ///
    /// Those of the queue pair's making.
    pub fn prepare(self) -> Result<OutgoingConnection> {
        let queue_pair = self.options.build(&self.id)?;
        self.prepare_with(queue_pair)
    }

    /// Takes a queue pair that is in RESET.
    ///
    /// # Errors
    ///
    /// As those of [`Id::init_queue_pair`].
    pub fn prepare_with(self, queue_pair: QueuePair<Rc>) -> Result<OutgoingConnection> {
        self.id.init_queue_pair(&queue_pair)?;
        let Self { id, address, options } = self;
        Ok(OutgoingConnection { id, queue_pair, address, options })
    }
}

/// A connection that is about to be asked for: its queue pair takes receives. Made by [`ConnectionOptions::prepare`].
#[derive(Debug)]
pub struct OutgoingConnection {
    id: Id,
    queue_pair: QueuePair<Rc>,
    address: SocketAddr,
    options: ConnectionOptions,
}

impl OutgoingConnection {
    /// The id that is to be connected.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// The queue pair, in INIT.
    pub fn queue_pair(&self) -> &QueuePair<Rc> {
        &self.queue_pair
    }

    /// The domain of the queue pair, for the memory of its receives.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        self.queue_pair.protection_domain()
    }

    /// The options, to change what is told to the peer, such as the key of memory that was registered just now.
    pub fn options_mut(&mut self) -> &mut ConnectionOptions {
        &mut self.options
    }

    /// Asks the peer, and waits for its answer: as long as the options' [timeout](ConnectionOptions::timeout) says, whatever the steps
    /// before took.
    ///
    /// # Errors
    ///
    /// As those of [`ConnectionOptions::connect`].
    pub fn connect(self) -> Result<Connection> {
        let deadline = Deadline::after(self.options.timeout);
        self.connect_until(&deadline)
    }

    fn connect_until(self, deadline: &Deadline) -> Result<Connection> {
        let Self { id, queue_pair, address, options } = self;
        ece::offer(&id, &queue_pair)?;
        id.connect(&options.parameters(&queue_pair))?;
        let peer = match id.wait_for_event(deadline, "rdma_connect, until the peer accepts")? {
            EventKind::ConnectResponse(peer) => peer,
            other => return Err(unexpected(other, address)),
        };
        let transition = TransitionOptions {
            access: Some(options.access),
            min_rnr_timer: Some(options.min_rnr_timer),
            ..TransitionOptions::default()
        };
        ece::take(&id, &queue_pair)?;
        id.connect_queue_pair(&queue_pair, &transition)?;
        id.establish()?;
        Ok(Connection::new(id, queue_pair, peer))
    }
}
