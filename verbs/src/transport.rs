//! [`Transport`]: the service type of a queue pair, as a type.

use crate::address_handle::AddressHandle;
use crate::ffi;
use crate::ffi::ibv_qp_create_send_ops_flags as Ops;

pub(crate) mod sealed {
    /// What only this crate has to know of a transport.
    pub trait Sealed {
        /// Where a request that is kept for many posts sends to, if the queue pair does not say it.
        type Destination: Send + Sync;

        /// Whether each request names its destination, and a message is one packet.
        const DATAGRAM: bool;

        /// Whether it has atomics.
        const ATOMIC: bool;
    }
}

/// The transport service of a queue pair. An operation that a transport does not have does not compile.
///
/// | | [`Rc`] | [`Uc`] | [`Ud`] |
/// |---|---|---|---|
/// | SEND, receive | yes | yes | yes, to an [`AddressHandle`], one packet a message |
/// | RDMA WRITE | yes | yes | |
/// | RDMA READ, atomics, SEND with invalidate, atomic write, flush | yes | | |
/// | multicast | | | yes |
/// | a message may get lost | | unnoticed | unnoticed |
pub trait Transport: sealed::Sealed + 'static {
    /// The name by which the specification knows it.
    const NAME: &'static str;

    /// The type in libibverbs' terms.
    const TYPE: ffi::ibv_qp_type;

    /// The operations of its send queue, for the extended interface.
    #[doc(hidden)]
    const SEND_OPERATIONS: u64;
}

/// A connected transport service, [`Rc`] or [`Uc`]: a queue pair has one peer, and a message can have many packets.
///
/// # References
///
/// InfiniBand Architecture Specification, volume 1, chapter 3.6.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not connected: it has no RDMA, and each SEND names its destination",
    label = "not an operation of `{Self}`",
    note = "a datagram is sent by `SendRequest::send_to` and its like"
)]
pub trait Connected: Transport + sealed::Sealed<Destination = ()> {}

/// What both connected transports have.
const CONNECTED_OPERATIONS: u64 = (Ops::IBV_QP_EX_WITH_SEND.0
    | Ops::IBV_QP_EX_WITH_SEND_WITH_IMM.0
    | Ops::IBV_QP_EX_WITH_RDMA_WRITE.0
    | Ops::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM.0
    | Ops::IBV_QP_EX_WITH_LOCAL_INV.0) as u64;

/// Reliable connection (RC): two queue pairs, each message delivered once and in order, with RDMA and atomics.
///
/// # References
///
/// InfiniBand Architecture Specification, volume 1, chapter 9.7.
#[doc(alias = "IBV_QPT_RC")]
#[derive(Clone, Copy, Debug)]
pub enum Rc {}

impl sealed::Sealed for Rc {
    type Destination = ();
    const DATAGRAM: bool = false;
    const ATOMIC: bool = true;
}

impl Transport for Rc {
    const NAME: &'static str = "RC";
    const TYPE: ffi::ibv_qp_type = ffi::ibv_qp_type::IBV_QPT_RC;
    const SEND_OPERATIONS: u64 = CONNECTED_OPERATIONS
        | (Ops::IBV_QP_EX_WITH_RDMA_READ.0
            | Ops::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP.0
            | Ops::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD.0
            | Ops::IBV_QP_EX_WITH_SEND_WITH_INV.0) as u64;
}

impl Connected for Rc {}

/// Unreliable connection (UC): two queue pairs, without acknowledgements. A message of which a packet is lost, or for which no
/// receive is posted, is dropped; neither end is told. There is RDMA WRITE; there is neither RDMA READ nor atomics:
///
/// ```compile_fail,E0308
/// # use verbs::{LocalSlice, QueuePair, RemoteSlice, SendRequest, Uc};
/// # fn example(qp: &QueuePair<Uc>, slices: &[LocalSlice<'_>], remote: RemoteSlice) -> verbs::Result<()> {
/// qp.post_send(&SendRequest::rdma_read(1, slices, remote))?;
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0308
/// # use verbs::{LocalSlice, QueuePair, RemoteSlice, SendRequest, Uc};
/// # fn example(qp: &QueuePair<Uc>, slices: &[LocalSlice<'_>], remote: RemoteSlice) -> verbs::Result<()> {
/// qp.post_send(&SendRequest::fetch_and_add(1, slices, remote, 1))?;
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0308
/// # use verbs::{LocalSlice, QueuePair, RemoteSlice, SendRequest, Uc};
/// # fn example(qp: &QueuePair<Uc>, slices: &[LocalSlice<'_>], remote: RemoteSlice) -> verbs::Result<()> {
/// qp.post_send(&SendRequest::compare_and_swap(1, slices, remote, 1, 2))?;
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0308
/// # use verbs::{LocalSlice, QueuePair, SendRequest, Uc};
/// # fn example(qp: &QueuePair<Uc>, slices: &[LocalSlice<'_>]) -> verbs::Result<()> {
/// qp.post_send(&SendRequest::send_with_invalidate(1, slices, 0x1234))?;
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0599
/// # use verbs::{AtomicWriteRequest, QueuePair, RemoteSlice, Uc};
/// # fn example(qp: &QueuePair<Uc>, remote: RemoteSlice) -> verbs::Result<()> {
/// let extended = qp.extended().unwrap();
/// extended.post_atomic_write(&AtomicWriteRequest::new(1, remote, [0; 8]))?;
/// # Ok(()) }
/// ```
///
/// Nor are there destinations in its requests, or multicast groups:
///
/// ```compile_fail,E0308
/// # use verbs::{AddressHandle, LocalSlice, QueuePair, SendRequest, Uc};
/// # fn example(qp: &QueuePair<Uc>, slices: &[LocalSlice<'_>], ah: &AddressHandle) -> verbs::Result<()> {
/// qp.post_send(&SendRequest::send_to(1, slices, ah, 0x11, 0x1111_1111))?;
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0599
/// # use verbs::{Gid, QueuePair, Uc};
/// # fn example(qp: &QueuePair<Uc>, group: Gid) -> verbs::Result<()> {
/// qp.attach_multicast(group, 0)?;
/// # Ok(()) }
/// ```
///
/// # References
///
/// InfiniBand Architecture Specification, volume 1, chapter 9.8.2.
#[doc(alias = "IBV_QPT_UC")]
#[derive(Clone, Copy, Debug)]
pub enum Uc {}

impl sealed::Sealed for Uc {
    type Destination = ();
    const DATAGRAM: bool = false;
    const ATOMIC: bool = false;
}

impl Transport for Uc {
    const NAME: &'static str = "UC";
    const TYPE: ffi::ibv_qp_type = ffi::ibv_qp_type::IBV_QPT_UC;
    const SEND_OPERATIONS: u64 = CONNECTED_OPERATIONS;
}

impl Connected for Uc {}

/// Unreliable datagram (UD): a queue pair that sends to any other, one packet a message. A message that is lost, whose Q_Key is
/// not that of the receiver, or for which no receive is posted, is dropped; neither end is told.
///
/// What arrives begins with 40 bytes for a [`Grh`](crate::Grh): a receive has to be that much larger than its message.
///
/// A message needs a destination:
///
/// ```compile_fail,E0277
/// # use verbs::{LocalSlice, QueuePair, SendRequest, Ud};
/// # fn example(qp: &QueuePair<Ud>, slices: &[LocalSlice<'_>]) -> verbs::Result<()> {
/// qp.post_send(&SendRequest::send(1, slices))?;
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0061
/// # use verbs::{LocalSlice, QueuePair, SendRequest, Ud};
/// # fn example(qp: &QueuePair<Ud>, slices: &[LocalSlice<'_>]) -> verbs::Result<()> {
/// qp.post_send(&SendRequest::send_to(1, slices))?;
/// # Ok(()) }
/// ```
///
/// There is no RDMA, and there are no atomics:
///
/// ```compile_fail,E0277
/// # use verbs::{LocalSlice, QueuePair, RemoteSlice, SendRequest, Ud};
/// # fn example(qp: &QueuePair<Ud>, slices: &[LocalSlice<'_>], remote: RemoteSlice) -> verbs::Result<()> {
/// qp.post_send(&SendRequest::rdma_write(1, slices, remote))?;
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0308
/// # use verbs::{LocalSlice, QueuePair, RemoteSlice, SendRequest, Ud};
/// # fn example(qp: &QueuePair<Ud>, slices: &[LocalSlice<'_>], remote: RemoteSlice) -> verbs::Result<()> {
/// qp.post_send(&SendRequest::rdma_read(1, slices, remote))?;
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0308
/// # use verbs::{LocalSlice, QueuePair, RemoteSlice, SendRequest, Ud};
/// # fn example(qp: &QueuePair<Ud>, slices: &[LocalSlice<'_>], remote: RemoteSlice) -> verbs::Result<()> {
/// qp.post_send(&SendRequest::compare_and_swap(1, slices, remote, 1, 2))?;
/// # Ok(()) }
/// ```
///
/// The same holds for requests that are prepared, and in batches:
///
/// ```compile_fail,E0277
/// # use verbs::{HeldSlice, PreparedSend, QueuePair, Ud};
/// # fn example(qp: &QueuePair<Ud>, slice: HeldSlice) -> verbs::Result<()> {
/// qp.post_prepared_send(&PreparedSend::send(1, [slice]))?;
/// # Ok(()) }
/// ```
///
/// ```compile_fail,E0277
/// # use verbs::{LocalSlice, QueuePair, SendBatch, SendRequest, Ud};
/// # fn example(qp: &QueuePair<Ud>, slices: &[LocalSlice<'_>]) -> verbs::Result<()> {
/// let mut batch = SendBatch::with_capacity(1);
/// let mut chain = batch.begin();
/// chain.push(SendRequest::send(1, slices));
/// qp.post_send_chain(&mut chain)?;
/// # Ok(()) }
/// ```
///
/// And a UD queue pair is not connected:
///
/// ```compile_fail,E0599
/// # use verbs::{ConnectOptions, LocalEndpoint, QueuePair, Ud};
/// # fn example(qp: &QueuePair<Ud>, local: &LocalEndpoint) -> verbs::Result<()> {
/// qp.connect(local, &local.endpoint, &ConnectOptions::default())?;
/// # Ok(()) }
/// ```
///
/// # References
///
/// InfiniBand Architecture Specification, volume 1, chapter 9.8.3.
#[doc(alias = "IBV_QPT_UD")]
#[derive(Clone, Copy, Debug)]
pub enum Ud {}

impl sealed::Sealed for Ud {
    type Destination = AddressHandle;
    const DATAGRAM: bool = true;
    const ATOMIC: bool = false;
}

impl Transport for Ud {
    const NAME: &'static str = "UD";
    const TYPE: ffi::ibv_qp_type = ffi::ibv_qp_type::IBV_QPT_UD;
    const SEND_OPERATIONS: u64 = (Ops::IBV_QP_EX_WITH_SEND.0 | Ops::IBV_QP_EX_WITH_SEND_WITH_IMM.0) as u64;
}
