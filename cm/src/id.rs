//! [`Id`]: one end of a connection, step by step.
//!
//! # Safety
//!
//! Calls are given an id that is alive, under the lock of its channel ([`RawId`]'s), and structures that outlive them. Those that would
//! look at the id's device are made only if it has one.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fmt;
use std::net::SocketAddr;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use verbs::AsyncEventType;

use crate::address::RawAddress;
use crate::error::{Error, Result};
use crate::event_channel::EventChannel;
use crate::ffi;
use crate::parameters::ConnectionParameters;
use crate::port_space::{Carrier, PortSpace};
use crate::raw_id::{IdKey, RawId};
use crate::returns::Errno;

/// `struct rdma_cm_id`: one end of a connection, or a listener, or a member of multicast groups.
///
/// Each step is one call, and most are answered by an [event](crate::EventKind) on the id's channel. [`connect`](crate::connect()) and
/// [`Listener`](crate::Listener) take the steps for you.
///
/// The id does not own the queue pair: that is an ordinary [`verbs::QueuePair`] of the id's [context](Self::context), made ready by
/// [`queue_pair_modification`](Self::queue_pair_modification) and named in the [`ConnectionParameters`].
///
/// Dropping an id ends its connection: the peer is told.
///
/// # Examples
///
/// The end that accepts, step by step; [`EventChannel`] has the other one.
///
/// ```no_run
/// # fn main() -> cm::Result<()> {
/// use cm::{ConnectionParameters, Depth, EventChannel, EventKind, PortSpace, TransitionOptions};
/// use verbs::{QueuePair, Rc};
///
/// let channel = EventChannel::create()?;
/// let listener = channel.create_id(PortSpace::TCP)?;
/// listener.bind("0.0.0.0:7471".parse().unwrap())?;
/// listener.listen(16)?;
/// // The channel has the events of the listener and of all connections.
/// let mut connections = Vec::new();
/// while let Some(event) = channel.next_event(None)? {
///     let key = event.id();
///     match event.into_kind() {
///         EventKind::ConnectRequest(request) => {
///             let asked = request.parameters().clone();
///             let id = request.into_id();
///             let pd = id.protection_domain()?;
///             let cq = id.context()?.create_completion_queue(16)?;
///             let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).build()?;
///             // From here on, receives can be posted.
///             id.init_queue_pair(&qp)?;
///             let mut transition = TransitionOptions::default();
///             transition.responder_resources = Some(asked.responder_resources.min(16));
///             transition.initiator_depth = Some(asked.initiator_depth.min(16));
///             id.connect_queue_pair(&qp, &transition)?;
///             let mut answer = ConnectionParameters::new(qp.qp_num());
///             answer.responder_resources = Depth::Exactly(asked.responder_resources.min(16));
///             answer.initiator_depth = Depth::Exactly(asked.initiator_depth.min(16));
///             id.accept(&answer)?;
///             connections.push((id, qp));
///         }
///         EventKind::Established(_) => println!("connection {key} stands"),
///         EventKind::Disconnected => {
///             println!("connection {key} has ended");
///             connections.retain(|(id, _)| id.key() != key);
///         }
///         other => println!("{key}: {other}"),
///     }
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "rdma_cm_id")]
pub struct Id {
    inner: Arc<RawId>,
}

impl Id {
    pub(crate) fn create(channel: &EventChannel, space: PortSpace) -> Result<Self> {
        Ok(Self::of(RawId::create(channel, space)?))
    }

    pub(crate) fn of(id: RawId) -> Self {
        Self { inner: Arc::new(id) }
    }

    /// Takes over an id that was made by librdmacm.
    ///
    /// # Safety
    ///
    /// * `id` came from `rdma_create_id` with this channel, not from `rdma_create_ep` or a connection request, does not listen, has no queue
    ///   pair of librdmacm's, and is in no multicast group.
    /// * No event of it waits to be acknowledged.
    /// * From now on nobody else uses or destroys it.
    pub unsafe fn from_raw(id: NonNull<ffi::rdma_cm_id>, channel: &EventChannel) -> Self {
        // SAFETY: as the caller says.
        Self::of(unsafe { RawId::from_raw(id, channel) })
    }

    /// Another handle to the same id.
    pub(crate) fn share(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }

    pub(crate) fn raw(&self) -> &RawId {
        &self.inner
    }

    /// Which id events are of.
    pub fn key(&self) -> IdKey {
        self.inner.key()
    }

    /// The port space in which the id was made.
    pub fn port_space(&self) -> PortSpace {
        self.inner.space()
    }

    /// The channel on which the id's events arrive.
    pub fn channel(&self) -> EventChannel {
        self.inner.channel()
    }

    /// `rdma_migrate_id`: has the id's events arrive on another channel, those that have not been taken yet too.
    ///
    /// Who waits for the other channel's events, on a thread or with its descriptor, sees to those that came along.
    ///
    /// # Errors
    ///
    /// * [`Error::WrongState`]: the id listens. Migrate it before: the kernel would lose connection requests that come meanwhile.
    /// * [`Error::WrongState`]: the device was removed while the id was leaving a multicast group; it can only be dropped.
    /// * The kernel's, such as `ENXIO`: the device is gone.
    ///
    /// # References
    ///
    /// [rdma_migrate_id(3)](https://man7.org/linux/man-pages/man3/rdma_migrate_id.3.html)
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&self, channel: &EventChannel) -> Result<()> {
        self.inner.migrate(channel)
    }

    /// `rdma_bind_addr`: gives the id a local address. One of an interface chooses its device; an unspecified one (`0.0.0.0`, `::`) is for
    /// listening on every device. Port 0: any port that is free.
    ///
    /// # Errors
    ///
    /// * [`Error::AddressInUse`]: another id listens there.
    /// * `ENODEV`: the interface has no RDMA device. `EADDRNOTAVAIL`: no interface has the address.
    /// * `EINVAL`: the id has an address already.
    ///
    /// # References
    ///
    /// [rdma_bind_addr(3)](https://man7.org/linux/man-pages/man3/rdma_bind_addr.3.html)
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind(&self, address: SocketAddr) -> Result<()> {
        let mut raw = RawAddress::from(address);
        // SAFETY: the id is alive, and the address outlives the call.
        self.inner.call(|id| unsafe { ffi::rdma_bind_addr(id, raw.as_mut_ptr()) }).map_err(|errno| match errno.0 {
            libc::EADDRINUSE => Error::AddressInUse { call: "rdma_bind_addr", address },
            libc::ENODEV => {
                errno.with_remedy("rdma_bind_addr", address, "no RDMA device is on an interface with this address")
            }
            _ => errno.of("rdma_bind_addr", address),
        })
    }

    /// `rdma_resolve_addr`: finds the device that leads to an address. [`AddressResolved`](crate::EventKind::AddressResolved) or
    /// [`AddressError`](crate::EventKind::AddressError) tells the outcome, after `timeout` at the latest.
    ///
    /// # Errors
    ///
    /// * [`Error::AddressInUse`]: another id has the port of `source`.
    /// * [`Error::AddressUnresolved`], with `ENETUNREACH` if there is no route, or `EINVAL` if the id has been used already.
    ///
    /// # References
    ///
    /// [rdma_resolve_addr(3)](https://man7.org/linux/man-pages/man3/rdma_resolve_addr.3.html)
    #[doc(alias = "rdma_resolve_addr")]
    pub fn resolve_addr(&self, source: Option<SocketAddr>, address: SocketAddr, timeout: Duration) -> Result<()> {
        let mut raw_source = source.map(RawAddress::from);
        let from = raw_source.as_mut().map_or(ptr::null_mut(), RawAddress::as_mut_ptr);
        let mut raw = RawAddress::from(address);
        self.inner
            // SAFETY: the id is alive, and the addresses outlive the call.
            .call(|id| unsafe { ffi::rdma_resolve_addr(id, from, raw.as_mut_ptr(), milliseconds(timeout)) })
            .map_err(|errno| match (errno.0, source) {
                (libc::EADDRINUSE, Some(address)) => Error::AddressInUse { call: "rdma_resolve_addr", address },
                (errno, _) => Error::AddressUnresolved { address, errno },
            })
    }

    /// `rdma_resolve_route`: finds the path to the address. [`RouteResolved`](crate::EventKind::RouteResolved) or
    /// [`RouteError`](crate::EventKind::RouteError) tells the outcome, after `timeout` at the latest.
    ///
    /// # Errors
    ///
    /// * [`Error::WrongState`]: no address was resolved.
    /// * [`Error::RouteUnresolved`], with `ENODEV` if the address is of the loopback interface, or `EINVAL` for a timeout of 0, which newer
    ///   kernels refuse.
    ///
    /// # References
    ///
    /// [rdma_resolve_route(3)](https://man7.org/linux/man-pages/man3/rdma_resolve_route.3.html)
    #[doc(alias = "rdma_resolve_route")]
    pub fn resolve_route(&self, timeout: Duration) -> Result<()> {
        // SAFETY: the id is alive, and has a device.
        let called = self
            .inner
            .call_on_device("rdma_resolve_route", |id| unsafe { ffi::rdma_resolve_route(id, milliseconds(timeout)) })?;
        called.map_err(|errno| match self.peer_addr() {
            Some(address) => Error::RouteUnresolved { address, errno: errno.0 },
            None => errno.of("rdma_resolve_route", format_args!("{self:?}")),
        })
    }

    /// `rdma_listen`: asks for connection requests, which arrive as [events](crate::EventKind::ConnectRequest), at most `backlog` at a
    /// time.
    ///
    /// # Errors
    ///
    /// * [`Error::AddressInUse`]: another id listens at the same port.
    /// * `EINVAL`: the id has no address, or listens already.
    ///
    /// # References
    ///
    /// [rdma_listen(3)](https://man7.org/linux/man-pages/man3/rdma_listen.3.html)
    #[doc(alias = "rdma_listen")]
    pub fn listen(&self, backlog: u32) -> Result<()> {
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        self.inner.listen(backlog).map_err(|errno| match (errno.0, self.local_addr()) {
            (libc::EADDRINUSE, Some(address)) => Error::AddressInUse { call: "rdma_listen", address },
            _ => errno.of("rdma_listen", format_args!("backlog {backlog}")),
        })
    }

    /// `rdma_connect`: asks the peer for a connection, or, in a datagram port space, for its queue pair. The answer is one of
    /// [`ConnectResponse`](crate::EventKind::ConnectResponse), [`DatagramEstablished`](crate::EventKind::DatagramEstablished),
    /// [`Rejected`](crate::EventKind::Rejected), [`DatagramRejected`](crate::EventKind::DatagramRejected) and
    /// [`Unreachable`](crate::EventKind::Unreachable). A peer that neither accepts nor refuses gives none for a long time.
    ///
    /// # Errors
    ///
    /// * [`Error::WrongState`]: no address was resolved.
    /// * [`Error::InvalidArgument`]: a value does not fit its field, or the private data is too long. Nothing was sent, and the call can be
    ///   made again.
    /// * `EINVAL`: the route was not resolved, or a depth is beyond the device's limit.
    ///
    /// # References
    ///
    /// [rdma_connect(3)](https://man7.org/linux/man-pages/man3/rdma_connect.3.html)
    #[doc(alias = "rdma_connect")]
    pub fn connect(&self, parameters: &ConnectionParameters) -> Result<()> {
        let mut raw = parameters.to_raw("rdma_connect", self.port_space(), Carrier::Request)?;
        // SAFETY: the id is alive and has a device; the parameters and their private data outlive the call.
        let called = self.inner.call_on_device("rdma_connect", |id| unsafe { ffi::rdma_connect(id, &mut raw) })?;
        called.map_err(|errno| self.depth_error(errno, "rdma_connect", parameters))
    }

    /// `rdma_accept`: accepts the request that this id came with. Make the queue pair ready to send before;
    /// [`Established`](crate::EventKind::Established) then tells that the peer is too. In a datagram port space it tells the peer the
    /// queue pair, and that is all.
    ///
    /// # Errors
    ///
    /// * [`Error::WrongState`]: the id came with no request, or the request was accepted.
    /// * [`Error::InvalidArgument`]: a value does not fit its field, or the private data is too long. Nothing was sent, and the call can be
    ///   made again.
    /// * `EINVAL`: the request was refused or its peer has gone, or a depth is beyond the device's limit.
    /// * `ENOTCONN`, or others: the peer has gone.
    ///
    /// # References
    ///
    /// [rdma_accept(3)](https://man7.org/linux/man-pages/man3/rdma_accept.3.html)
    #[doc(alias = "rdma_accept")]
    pub fn accept(&self, parameters: &ConnectionParameters) -> Result<()> {
        let mut raw = parameters.to_raw("rdma_accept", self.port_space(), Carrier::Accept)?;
        // SAFETY: the id is alive, and that of a request has a device; the parameters and their private data outlive the call.
        let called = self.inner.answer("rdma_accept", true, |id| unsafe { ffi::rdma_accept(id, &mut raw) })?;
        called.map_err(|errno| self.depth_error(errno, "rdma_accept", parameters))
    }

    /// `rdma_reject`: refuses the request that this id came with, and says why.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: the private data is too long. Nothing was sent, and the call can be made again.
    /// * [`Error::WrongState`]: the id came with no request, or the request was accepted.
    /// * `EINVAL`: the request was refused, or its peer has gone.
    ///
    /// # References
    ///
    /// [rdma_reject(3)](https://man7.org/linux/man-pages/man3/rdma_reject.3.html)
    #[doc(alias = "rdma_reject")]
    pub fn reject(&self, private_data: &[u8]) -> Result<()> {
        let length = self.port_space().check(Carrier::Reject, "rdma_reject", private_data)?;
        let bytes = private_data.as_ptr().cast();
        // SAFETY: the id is alive, and the bytes outlive the call.
        let called = self.inner.answer("rdma_reject", false, |id| unsafe { ffi::rdma_reject(id, bytes, length) })?;
        called.map_err(|errno| errno.of("rdma_reject", format_args!("{self:?}")))
    }

    /// `rdma_establish`: tells the peer, which has accepted, that the queue pair at this end is ready too.
    ///
    /// # Errors
    ///
    /// * [`Error::WrongState`]: the id came with a connection request.
    /// * `EINVAL`: no peer has accepted.
    ///
    /// # References
    ///
    /// [rdma_establish(3)](https://man7.org/linux/man-pages/man3/rdma_establish.3.html)
    #[doc(alias = "rdma_establish")]
    pub fn establish(&self) -> Result<()> {
        self.inner.establish()?.map_err(|errno| errno.of("rdma_establish", format_args!("{self:?}")))
    }

    /// `rdma_notify`: tells the connection manager of an asynchronous event of the queue pair.
    /// [`AsyncEventType::COMMUNICATION_ESTABLISHED`] says that the first message has come, so that the peer is ready whether or not its
    /// word for it arrives.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the event means nothing here, or there is no connection.
    ///
    /// # References
    ///
    /// [rdma_notify(3)](https://man7.org/linux/man-pages/man3/rdma_notify.3.html)
    #[doc(alias = "rdma_notify")]
    pub fn notify(&self, event: AsyncEventType) -> Result<()> {
        self.inner.notify(verbs::ffi::ibv_event_type(event.as_raw())).map_err(|errno| errno.of("rdma_notify", event))
    }

    /// `rdma_disconnect`: ends the connection, or answers the peer that has ended it. The peer gets
    /// [`Disconnected`](crate::EventKind::Disconnected) at once, this end once the peer has answered: wait for it with a timeout.
    ///
    /// Move the queue pair to [ERROR](verbs::QueuePair::move_to_error) too, so that what was posted ends.
    ///
    /// # Errors
    ///
    /// * [`Error::WrongState`]: the id belongs to no device.
    /// * `EINVAL`: there is no connection.
    ///
    /// # References
    ///
    /// [rdma_disconnect(3)](https://man7.org/linux/man-pages/man3/rdma_disconnect.3.html)
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<()> {
        self.inner.disconnect()?.map_err(|errno| errno.of("rdma_disconnect", format_args!("{self:?}")))
    }

    /// The id in librdmacm's terms; valid as long as `self`, and not to be destroyed. Whoever passes it to librdmacm sees to it that no
    /// other thread uses the id or takes events from its channel meanwhile.
    pub fn as_raw(&self) -> *mut ffi::rdma_cm_id {
        self.inner.as_raw()
    }

    fn depth_error(&self, errno: Errno, call: &'static str, parameters: &ConnectionParameters) -> Error {
        let asked = format!("{:?}, qp_num {:#x}", self.inner, parameters.qp_num);
        let remedy = match self.context().and_then(|context| Ok(context.device_attributes()?)) {
            Ok(device) if errno.0 == libc::EINVAL => format!(
                "responder_resources is {:?} and initiator_depth {:?}; the device has {} and {}",
                parameters.responder_resources,
                parameters.initiator_depth,
                device.max_qp_rd_atom(),
                device.max_qp_init_rd_atom(),
            ),
            _ => String::new(),
        };
        errno.with_remedy(call, asked, remedy)
    }
}

/// A timeout as librdmacm has it, rounded up.
fn milliseconds(timeout: Duration) -> c_int {
    timeout.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(c_int::MAX)
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)?;
        let (local, peer) = (self.local_addr(), self.peer_addr());
        match (local, peer) {
            (Some(local), Some(peer)) => write!(f, ", {local} to {peer}"),
            (Some(local), None) => write!(f, ", {local}"),
            _ => Ok(()),
        }
    }
}
