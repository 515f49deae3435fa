//! [`QueuePair`]: a send queue and a receive queue.
//!
//! # Safety
//!
//! `QueuePair::qp` is of transport `T`. It came from `ibv_create_qp` and is destroyed only when the `QueuePair` is dropped, or is alive
//! as long as `QueuePair::lender` is. The queues and the domain that it uses are held until then. `QueuePair::post_recv` is [`receive::function`]'s.
#![allow(unsafe_code)]

mod activate;
mod atomic_write;
mod attributes;
mod builder;
mod connect;
mod connect_options;
mod creation_flags;
mod data_in_order;
mod datagram_receive;
mod datagrams;
mod diagnose;
mod ece;
mod extended;
mod extended_table;
#[cfg(rdma_core_45)]
mod flush;
mod local;
mod modification;
mod modify;
mod multicast;
mod post;
mod raw;
mod receive;
mod state;
mod transition;

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::completion_queue::CompletionQueue;
use crate::ffi;
use crate::lender::Lender;
use crate::memory_window::BoundWindows;
use crate::object_id::{Identity, ObjectId};
use crate::protection_domain::ProtectionDomain;
use crate::shared_receive_queue::SharedReceiveQueue;
use crate::transport::Transport;

use datagrams::Datagrams;
use multicast::Attachments;

pub use atomic_write::AtomicWriteRequest;
pub use attributes::{AlternatePath, PathMigrationState, QueuePairAttributes};
pub use builder::{QueuePairBuilder, QueuePairCapabilities};
pub use connect_options::ConnectOptions;
pub use creation_flags::QueuePairCreationFlags;
pub use data_in_order::{DataOrder, OrderedOperation};
pub use ece::EnhancedConnection;
pub use extended::ExtendedSend;
pub(crate) use extended_table::optional;
#[cfg(rdma_core_45)]
pub use flush::{FlushRequest, PlacementType, SelectivityLevel};
pub use modification::QueuePairModification;
pub use multicast::{MULTICAST_QPN, MulticastAttachment};
pub use state::QueuePairState;

/// `struct ibv_qp`: a send queue and a receive queue of transport `T`.
///
/// Dropping it destroys the queue pair; requests in flight end without a completion.
///
/// # Examples
///
/// ```no_run
/// use verbs::{ConnectOptions, Endpoint, GidFilter, QueuePair, Rc};
///
/// # fn exchange(local: Endpoint) -> Endpoint { local }
/// # fn main() -> verbs::Result<()> {
/// let context = verbs::devices()?.find(None)?.open()?;
/// let pd = context.create_protection_domain()?;
/// let cq = context.create_completion_queue(64)?;
/// let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).max_send_wr(32).max_recv_wr(32).build()?;
/// let local = qp.local_endpoint(1, &GidFilter::default())?;
/// let remote = exchange(local.endpoint); // by TCP, say
/// qp.connect(&local, &remote, &ConnectOptions::default())?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_qp")]
pub struct QueuePair<T: Transport> {
    qp: NonNull<ffi::ibv_qp>,
    post_recv: receive::Function,
    capabilities: QueuePairCapabilities,
    extended: Option<extended_table::Extended>,
    // Behind pointers, as what changes has to be: the compiler may then keep the other fields in registers from one post to the next,
    // which is worth three instructions.
    /// UD: how many bytes a message has at most, which is known once the port is.
    datagrams: Box<Datagrams>,
    /// UD: the multicast groups.
    multicast: Option<Arc<Attachments>>,
    /// The memory windows of type 2 that it has bound.
    windows: Box<BoundWindows>,
    lender: Option<Lender>,
    // All released after the queue pair is destroyed: libibverbs refuses to destroy what it still uses.
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    pd: ProtectionDomain,
    identity: Identity,
    transport: PhantomData<T>,
}

// SAFETY: libibverbs takes the queue pair's locks in every verb that is given it, and we reach `qp` only through verbs, but
// for fields that do not change.
unsafe impl<T: Transport> Send for QueuePair<T> {}
// SAFETY: as above.
unsafe impl<T: Transport> Sync for QueuePair<T> {}

impl<T: Transport> Drop for QueuePair<T> {
    fn drop(&mut self) {
        if let Some(attachments) = &self.multicast {
            attachments.close();
        }
        self.windows.free(self.identity.id());
        match self.lender.take() {
            Some(lender) => drop(lender),
            None => {
                // SAFETY: the queue pair is alive, and is destroyed only here.
                let _ = unsafe { ffi::ibv_destroy_qp(self.qp.as_ptr()) };
            }
        }
    }
}

impl<T: Transport> QueuePair<T> {
    /// Begins to make a queue pair in `pd` whose completions go to `send_cq` and `recv_cq`, which may be the same.
    pub fn builder(pd: &ProtectionDomain, send_cq: &CompletionQueue, recv_cq: &CompletionQueue) -> QueuePairBuilder<T> {
        QueuePairBuilder::new(pd, send_cq, recv_cq)
    }

    /// The number of the queue pair, 24 bits; unique on its device as long as it lives.
    pub fn qp_num(&self) -> u32 {
        // SAFETY: the queue pair is alive, and its number does not change.
        unsafe { self.qp.as_ref().qp_num }
    }

    /// The number by which an [`AsyncEvent`](crate::AsyncEvent) names the queue pair. Other than [`qp_num`](Self::qp_num), it is
    /// never used again.
    pub fn id(&self) -> ObjectId {
        self.identity.id()
    }

    /// How many requests and scatter/gather entries the queues hold. The device may hold more than it tells.
    pub fn capabilities(&self) -> QueuePairCapabilities {
        self.capabilities
    }

    /// The domain in which the queue pair was made.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// Where the completions of sends go.
    pub fn send_cq(&self) -> &CompletionQueue {
        &self.send_cq
    }

    /// Where the completions of receives go.
    pub fn recv_cq(&self) -> &CompletionQueue {
        &self.recv_cq
    }

    /// The shared receive queue that the queue pair takes its receives from; `None`: it has a receive queue of its own.
    pub fn shared_receive_queue(&self) -> Option<&SharedReceiveQueue> {
        self.srq.as_ref()
    }

    pub(crate) fn bound_windows(&self) -> &BoundWindows {
        &self.windows
    }

    /// The queue pair in libibverbs' terms; valid as long as `self`, and not to be destroyed.
    #[inline]
    pub fn as_raw(&self) -> *mut ffi::ibv_qp {
        self.qp.as_ptr()
    }
}

impl<T: Transport> fmt::Debug for QueuePair<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.pd.context().device().name();
        write!(f, "QueuePair({} {:#x} on {device})", T::NAME, self.qp_num())
    }
}
