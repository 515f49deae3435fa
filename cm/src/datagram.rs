//! Finding the queue pair of a datagram service by its address (`RDMA_PS_UDP`).

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use verbs::{AddressHandle, CompletionQueue, ProtectionDomain, QueuePair, Ud};

use crate::connection_options::{ConnectionOptions, Deadline, unexpected};
use crate::connection_request::ConnectionRequest;
use crate::error::{Error, Result};
use crate::event::{DatagramPeer, EventKind};
use crate::id::Id;
use crate::listener::Listener;
use crate::listener_options::ListenerOptions;
use crate::lookup::ToAddress;
use crate::port_space::{Carrier, PortSpace};

/// A queue pair for datagrams, and how to reach a service with it. Made by [`ConnectionOptions::connect_datagram`].
#[derive(Debug)]
pub struct DatagramConnection {
    address_handle: AddressHandle,
    queue_pair: QueuePair<Ud>,
    peer: DatagramPeer,
    id: Id,
}

impl ConnectionOptions {
    /// Asks a datagram service for its queue pair, and makes one to talk to it. No connection comes of it: either end may send to whom
    /// it likes, and datagrams may get lost. Several addresses are tried as in [`connect`](Self::connect).
    ///
    /// # Errors
    ///
    /// * As those of [`connect`](Self::connect), but for [`Error::Rejected`](crate::Error::Rejected).
    /// * [`Error::DatagramRejected`](crate::Error::DatagramRejected): nobody listens, or the service refuses.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn main() -> cm::Result<()> {
    /// use verbs::{AccessFlags, SendRequest};
    ///
    /// let service = cm::ConnectionOptions::default().connect_datagram("192.0.2.1:7174")?;
    /// let region = service.protection_domain().register(b"hello".to_vec(), AccessFlags::empty())?;
    /// let message = [region.slice(..)?];
    /// service.queue_pair().post_send(&service.send(1, &message).signaled())?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "RDMA_PS_UDP")]
    pub fn connect_datagram(&self, address: impl ToAddress) -> Result<DatagramConnection> {
        let deadline = Deadline::after(self.timeout);
        PortSpace::UDP.check(Carrier::Request, "rdma_connect", &self.private_data)?;
        address.to_address().try_each(&deadline, |address, deadline| self.connect_datagram_to(address, deadline))
    }

    fn connect_datagram_to(&self, address: SocketAddr, deadline: &Deadline) -> Result<DatagramConnection> {
        let id = self.resolve_route(PortSpace::UDP, address, deadline)?;
        let queue_pair = self.build::<Ud>(&id)?;
        id.activate_queue_pair(&queue_pair)?;
        id.connect(&self.parameters(&queue_pair))?;
        let peer = match id.wait_for_event(deadline, "rdma_connect, until the service answers")? {
            EventKind::DatagramEstablished(peer) => peer,
            other => return Err(unexpected(other, address)),
        };
        let address_handle = queue_pair.protection_domain().create_address_handle(&peer.address)?;
        Ok(DatagramConnection { address_handle, queue_pair, peer, id })
    }
}

impl DatagramConnection {
    /// The queue pair, ready to send.
    pub fn queue_pair(&self) -> &QueuePair<Ud> {
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

    /// How to reach the service, and what it said.
    pub fn peer(&self) -> &DatagramPeer {
        &self.peer
    }

    /// The handle of the path to the service.
    pub fn address_handle(&self) -> &AddressHandle {
        &self.address_handle
    }

    /// A request to send a datagram to the service. It borrows the connection, whose path it takes:
    ///
    /// ```compile_fail,E0505
    /// # fn send(service: cm::DatagramConnection) {
    /// let request = service.send(1, &[]);
    /// drop(service);
    /// drop(request);
    /// # }
    /// ```
    pub fn send<'a>(&'a self, wr_id: u64, slices: &'a [verbs::LocalSlice<'a>]) -> verbs::SendRequest<'a, Ud> {
        verbs::SendRequest::send_to(wr_id, slices, &self.address_handle, self.peer.qp_num, self.peer.qkey)
    }

    /// The id that asked.
    pub fn id(&self) -> &Id {
        &self.id
    }
}

/// Tells those who ask at an address which queue pair serves datagrams there.
///
/// ```no_run
/// # fn main() -> cm::Result<()> {
/// use std::collections::btree_map::{BTreeMap, Entry};
///
/// let listener = cm::DatagramListener::bind("0.0.0.0:7174")?;
/// let options = cm::ConnectionOptions::default();
/// // Requests may come through each port of each device, and there goes the answer.
/// let mut services = BTreeMap::new();
/// while let Some(request) = listener.next_request(None)? {
///     let device = request.id().context()?.device().name().to_owned();
///     let queue_pair = match services.entry((device, request.id().port())) {
///         Entry::Occupied(known) => known.into_mut(),
///         Entry::Vacant(new) => new.insert(request.create_queue_pair(&options)?),
///     };
///     request.accept(queue_pair, b"welcome")?;
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct DatagramListener {
    listener: Listener,
}

impl DatagramListener {
    /// Listens at an address: `0.0.0.0` or `::` for every device, port 0 for any free port. The ports are others than those of
    /// [`Listener`].
    ///
    /// # Errors
    ///
    /// As those of [`Listener::bind`].
    pub fn bind(address: impl ToAddress) -> Result<Self> {
        ListenerOptions::default().bind_datagram(address)
    }

    pub(crate) fn new(listener: Listener) -> Self {
        Self { listener }
    }

    /// The address, with the port that was chosen.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.listener.local_addr()
    }

    /// The next request. `None`: there was none when `timeout` was over; without a timeout it waits for ever.
    ///
    /// # Errors
    ///
    /// As those of [`Listener::next_request`].
    pub fn next_request(&self, timeout: Option<Duration>) -> Result<Option<DatagramRequest>> {
        Ok(self.listener.next_request(timeout)?.map(|request| DatagramRequest { request }))
    }

    /// The id that listens.
    pub fn id(&self) -> &Id {
        self.listener.id()
    }
}

impl AsFd for DatagramListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

/// Somebody asks for the queue pair of a datagram service. Dropped, the request is refused.
#[derive(Debug)]
#[must_use = "a request that is dropped is refused"]
pub struct DatagramRequest {
    request: ConnectionRequest,
}

impl DatagramRequest {
    /// The peer's bytes, and zeroes behind them up to 180.
    pub fn private_data(&self) -> &[u8] {
        self.request.private_data()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.request.peer_addr()
    }

    /// The id of this request.
    pub fn id(&self) -> &Id {
        self.request.id()
    }

    /// Makes a queue pair on the device that the request came through, ready to receive and to send. It can serve all who ask through the
    /// same [port](Id::port) of this device.
    ///
    /// # Errors
    ///
    /// Those of its making.
    pub fn create_queue_pair(&self, options: &ConnectionOptions) -> Result<QueuePair<Ud>> {
        let queue_pair = options.build::<Ud>(self.id())?;
        self.id().activate_queue_pair(&queue_pair)?;
        Ok(queue_pair)
    }

    /// Tells the peer the queue pair, whose Q_Key has to be that of librdmacm, as [`create_queue_pair`](Self::create_queue_pair)'s is.
    /// Messages of the peer may arrive from then on: post receives before.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: the queue pair is of another [context](Id::context) or of another [port](Id::port) than the request,
    ///   which is refused. The peer would send its datagrams to nobody.
    /// * As those of [`Id::accept`].
    pub fn accept(self, queue_pair: &QueuePair<Ud>, private_data: &[u8]) -> Result<()> {
        const CALL: &str = "rdma_accept";
        self.id().check_context(CALL, queue_pair)?;
        // One in RESET is of no port yet.
        let (port, own) = (queue_pair.query()?.port(), self.id().port());
        if port != 0 && port != own {
            let rule = format!("the request came through port {own}");
            return Err(Error::invalid(CALL, "the queue pair", format!("of port {port}"), rule));
        }
        let options = ConnectionOptions { private_data: private_data.to_vec(), ..ConnectionOptions::default() };
        self.request.id().accept(&options.parameters(queue_pair))?;
        // What is left to answer is gone with the id.
        drop(self.request.into_id());
        Ok(())
    }

    /// Refuses, and says why.
    ///
    /// # Errors
    ///
    /// As those of [`Id::reject`].
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        self.request.reject(private_data)
    }
}
