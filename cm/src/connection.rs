//! [`Connection`], and a connection before it stands.

use std::net::SocketAddr;
use std::time::Duration;

use verbs::{CompletionQueue, Context, ProtectionDomain, QueuePair, Rc};

use crate::connection_options::{ConnectionOptions, Deadline, unexpected};
use crate::connection_request::ConnectionRequest;
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::id::Id;
use crate::lookup::ToAddress;
use crate::parameters::{Depth, PeerParameters};
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
    /// Connects to an address. Of the addresses of a name each is tried in turn, until one connects.
    ///
    /// Where the peer may send before this end has posted receives, [`prepare`](Self::prepare) the connection, and post them before
    /// connecting. (With [`rnr_retry_count`](Self::rnr_retry_count) at 7, the peer's messages only wait.)
    ///
    /// # Errors
    ///
    /// * [`Error::NoDevice`]: the machine has no RDMA device.
    /// * [`Error::Lookup`]: the name has no address.
    /// * [`Error::AddressUnresolved`], [`Error::RouteUnresolved`], [`Error::Unreachable`]: nobody can be reached there.
    /// * [`Error::Rejected`]: nobody listens, or the peer refuses.
    /// * [`Error::TimedOut`]: the peer neither accepts nor refuses.
    /// * [`Error::Verbs`]: the queue pair could not be made.
    #[doc(alias = "rdma_connect")]
    pub fn connect(&self, address: impl ToAddress) -> Result<Connection> {
        let deadline = Deadline::after(self.timeout);
        self.prepare_until(address, &deadline)?.connect_until(&deadline)
    }

    /// As [`connect`](Self::connect), up to where receives can be posted.
    ///
    /// # Errors
    ///
    /// As those of [`connect`](Self::connect), but for the peer's answer.
    pub fn prepare(&self, address: impl ToAddress) -> Result<OutgoingConnection> {
        self.prepare_until(address, &Deadline::after(self.timeout))
    }

    fn prepare_until(&self, address: impl ToAddress, deadline: &Deadline) -> Result<OutgoingConnection> {
        self.resolve_until(address, deadline)?.prepare()
    }

    /// As [`connect`](Self::connect), up to where the device that leads to the peer is known, and objects can be made on it.
    ///
    /// # Errors
    ///
    /// As those of [`connect`](Self::connect), but for the queue pair and the peer's answer.
    pub fn resolve(&self, address: impl ToAddress) -> Result<Route> {
        self.resolve_until(address, &Deadline::after(self.timeout))
    }

    fn resolve_until(&self, address: impl ToAddress, deadline: &Deadline) -> Result<Route> {
        PortSpace::TCP.check(Carrier::Request, "rdma_connect", &self.private_data)?;
        let target = address.to_address();
        let mut last = None;
        for address in target.look_up(deadline)? {
            match self.resolve_route(PortSpace::TCP, address, deadline) {
                Ok(id) => return Ok(Route { id, address, options: self.clone() }),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| target.no_address()))
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

    /// Asks the peer, and waits for its answer.
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
        id.connect_queue_pair(&queue_pair, &transition)?;
        id.establish()?;
        Ok(Connection { id, queue_pair, peer })
    }
}

impl ConnectionRequest {
    /// Accepts, with a queue pair made as `options` say, and waits until the peer is ready too.
    ///
    /// Where the peer may send before this end has posted receives, [`prepare`](Self::prepare) the connection, and post them before
    /// accepting. (With the peer's `rnr_retry_count` at 7, its messages only wait.)
    ///
    /// # Errors
    ///
    /// * [`Error::TimedOut`], [`Error::Unreachable`], [`Error::Disconnected`]: the peer has gone.
    /// * [`Error::Verbs`]: the queue pair could not be made; the peer is refused.
    #[doc(alias = "rdma_accept")]
    pub fn accept(self, options: &ConnectionOptions) -> Result<Connection> {
        self.prepare(options)?.accept()
    }

    /// Makes a queue pair for the connection, to which receives can then be posted.
    ///
    /// # Errors
    ///
    /// * [`Error::Disconnected`]: the peer has gone.
    /// * Those of the queue pair's making; the peer is refused.
    pub fn prepare(self, options: &ConnectionOptions) -> Result<IncomingConnection> {
        PortSpace::TCP.check(Carrier::Accept, "rdma_accept", &options.private_data)?;
        let queue_pair = options.build(self.id())?;
        self.prepare_with(queue_pair, options)
    }

    /// Takes a queue pair that is in RESET, and made of the [context](Id::context) of this request's id.
    ///
    /// # Errors
    ///
    /// * [`Error::Disconnected`]: the peer has gone.
    /// * As those of [`Id::init_queue_pair`]; the peer is refused.
    pub fn prepare_with(self, queue_pair: QueuePair<Rc>, options: &ConnectionOptions) -> Result<IncomingConnection> {
        self.id().init_queue_pair(&queue_pair).map_err(|error| match error {
            // A request that came is far enough for this, unless it is gone.
            Error::Call { call: "rdma_init_qp_attr", errno: libc::EINVAL, .. } => Error::Disconnected,
            error => error,
        })?;
        Ok(IncomingConnection { request: self, queue_pair, options: options.clone() })
    }
}

/// A connection that is about to be accepted: its queue pair takes receives. Made by [`ConnectionRequest::prepare`]; dropped, the
/// request is rejected.
#[derive(Debug)]
#[must_use = "a connection request that is dropped is rejected"]
pub struct IncomingConnection {
    request: ConnectionRequest,
    queue_pair: QueuePair<Rc>,
    options: ConnectionOptions,
}

impl IncomingConnection {
    /// What the peer asked for.
    pub fn request(&self) -> &ConnectionRequest {
        &self.request
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

    /// Refuses after all, and says why.
    ///
    /// # Errors
    ///
    /// As those of [`ConnectionRequest::reject`].
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        self.request.reject(private_data)
    }

    /// Accepts, and waits until the peer is ready too.
    ///
    /// # Errors
    ///
    /// As those of [`ConnectionRequest::accept`].
    pub fn accept(self) -> Result<Connection> {
        let Self { request, queue_pair, options } = self;
        let deadline = Deadline::after(options.timeout);
        let address = request.peer_addr().unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
        let device = queue_pair.protection_domain().context().device_attributes()?;
        let asked = request.parameters();
        let mut parameters = options.parameters(&queue_pair);
        let depth = |wanted: Depth, asked: u8, limit: u32| match wanted {
            Depth::Exactly(depth) => depth,
            Depth::Max => asked.min(u8::try_from(limit).unwrap_or(254)),
        };
        let responder_resources =
            depth(options.responder_resources, asked.responder_resources, device.max_qp_rd_atom());
        let initiator_depth = depth(options.initiator_depth, asked.initiator_depth, device.max_qp_init_rd_atom());
        parameters.responder_resources = Depth::Exactly(responder_resources);
        parameters.initiator_depth = Depth::Exactly(initiator_depth);
        let transition = TransitionOptions {
            access: Some(options.access),
            min_rnr_timer: Some(options.min_rnr_timer),
            responder_resources: Some(responder_resources),
            initiator_depth: Some(initiator_depth),
        };
        request.id().connect_queue_pair(&queue_pair, &transition)?;
        request.id().accept(&parameters)?;
        let (id, peer) = request.into_parts();
        match id.wait_for_event(&deadline, "rdma_accept, until the peer is ready")? {
            EventKind::Established(_) => Ok(Connection { id, queue_pair, peer }),
            other => Err(unexpected(other, address)),
        }
    }
}

/// A reliable connection: an ordinary queue pair, and the id that connected it. Dropping it ends the connection; the peer is told.
#[derive(Debug)]
pub struct Connection {
    // The peer is told before the queue pair goes.
    id: Id,
    queue_pair: QueuePair<Rc>,
    peer: PeerParameters,
}

impl Connection {
    /// The queue pair, ready to send.
    pub fn queue_pair(&self) -> &QueuePair<Rc> {
        &self.queue_pair
    }

    /// The domain of the queue pair, in which memory for it is registered.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        self.queue_pair.protection_domain()
    }

    /// Where completions of receives go; by default those of sends, too.
    pub fn completion_queue(&self) -> &CompletionQueue {
        self.queue_pair.recv_cq()
    }

    /// The id: its addresses, its events.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// What the peer told when the connection was made.
    pub fn peer_parameters(&self) -> &PeerParameters {
        &self.peer
    }

    /// The peer's bytes, and zeroes behind them up to the size of the message that carried them: 56 bytes at the end that accepted, 196 at
    /// the one that connected.
    pub fn private_data(&self) -> &[u8] {
        &self.peer.private_data
    }

    /// The local address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.id.local_addr()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.id.peer_addr()
    }

    /// Ends the connection: what was posted and is not done is flushed, and the peer is told. Wait for the completions that matter before.
    ///
    /// # Errors
    ///
    /// The kernel's. A connection that the peer has ended already can be ended all the same.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<()> {
        self.queue_pair.move_to_error()?;
        self.id.disconnect()
    }

    /// Waits until the peer ends the connection, or has answered that this end did, and ends this end too. `false`: it had not when
    /// `timeout` was over; `None` waits for ever.
    ///
    /// # Errors
    ///
    /// * [`Error::DeviceRemoved`].
    /// * As those of [`disconnect`](Self::disconnect).
    #[doc(alias = "RDMA_CM_EVENT_DISCONNECTED")]
    pub fn wait_disconnected(&self, timeout: Option<Duration>) -> Result<bool> {
        let deadline = Deadline::after(timeout.unwrap_or(Duration::MAX));
        loop {
            match self.id.wait_for_event(&deadline, "RDMA_CM_EVENT_DISCONNECTED") {
                Ok(EventKind::Disconnected | EventKind::TimewaitExit) => {
                    self.disconnect()?;
                    return Ok(true);
                }
                Ok(EventKind::DeviceRemoval) => return Err(Error::DeviceRemoved),
                Ok(_) => {}
                Err(Error::TimedOut { .. }) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    /// The parts: the connection lasts as long as the id, and the queue pair may outlive it.
    pub fn into_parts(self) -> (Id, QueuePair<Rc>) {
        (self.id, self.queue_pair)
    }
}
