//! [`WorkQueue`]: a receive queue that is no part of a queue pair.
//!
//! # Safety
//!
//! `Inner::wq` came from `ibv_create_wq`, is destroyed only when `Inner` is dropped, and every indirection table with it holds the
//! `Inner`.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::completion_queue::CompletionQueue;
use crate::context::must_be_made_of;
use crate::error::Result;
use crate::ffi;
use crate::open_enum::open_enum;
use crate::protection_domain::ProtectionDomain;
use crate::returns::{null_and_errno, zero_or_errno};

open_enum! {
    /// `enum ibv_wq_state`: the state of a work queue.
    #[doc(alias = "ibv_wq_state")]
    WorkQueueState(u32) {
        /// It takes no requests.
        RESET = ffi::ibv_wq_state::IBV_WQS_RESET.0, "reset";
        /// It takes requests, and what arrives.
        READY = ffi::ibv_wq_state::IBV_WQS_RDY.0, "ready";
        /// Its requests complete with an error.
        ERROR = ffi::ibv_wq_state::IBV_WQS_ERR.0, "error";
    }
}

bitflags::bitflags! {
    /// `enum ibv_wq_flags`: what a work queue does with what arrives.
    #[doc(alias = "ibv_wq_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WorkQueueFlags: u32 {
        /// Takes off the customer's VLAN tag.
        const CVLAN_STRIPPING = ffi::ibv_wq_flags::IBV_WQ_FLAGS_CVLAN_STRIPPING.0;
        /// Writes the frame check sequence too.
        const SCATTER_FCS = ffi::ibv_wq_flags::IBV_WQ_FLAGS_SCATTER_FCS.0;
        /// Lets packets wait for a request.
        const DELAY_DROP = ffi::ibv_wq_flags::IBV_WQ_FLAGS_DELAY_DROP.0;
        /// Pads what it writes to whole cache lines.
        const PCI_WRITE_END_PADDING = ffi::ibv_wq_flags::IBV_WQ_FLAGS_PCI_WRITE_END_PADDING.0;
    }
}

struct Inner {
    wq: NonNull<ffi::ibv_wq>,
    // Let go after the queue is destroyed.
    cq: CompletionQueue,
    pd: ProtectionDomain,
}

// SAFETY: libibverbs takes the queue's lock in every verb that is given it, and we reach it only through verbs, but for its number,
// which does not change.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the queue is alive, is destroyed only here, and no table has it: each held us and is gone.
        let _ = unsafe { ffi::ibv_destroy_wq(self.wq.as_ptr()) };
    }
}

/// `struct ibv_wq`: a receive queue that is no part of a queue pair, for an [`IndirectionTable`](crate::IndirectionTable).
///
/// The crate has no data path for it: [`as_raw`](Self::as_raw) leads to that of libibverbs. A clone is another handle to the same
/// queue.
#[doc(alias = "ibv_wq")]
#[derive(Clone)]
pub struct WorkQueue {
    inner: Arc<Inner>,
}

/// `ibv_create_wq` and its arguments.
#[derive(Clone, Debug)]
#[must_use = "a builder makes nothing before `build` is called"]
pub struct WorkQueueBuilder {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    max_wr: u32,
    max_sge: u32,
    flags: WorkQueueFlags,
}

impl WorkQueueBuilder {
    /// A queue in `pd` for at least `max_wr` requests, which complete in `cq`.
    pub fn new(pd: &ProtectionDomain, cq: &CompletionQueue, max_wr: u32) -> Self {
        Self { pd: pd.clone(), cq: cq.clone(), max_wr, max_sge: 1, flags: WorkQueueFlags::empty() }
    }

    /// How many scatter/gather entries a request can have. Default: 1.
    pub fn max_sge(mut self, entries: u32) -> Self {
        self.max_sge = entries;
        self
    }

    /// What it does with what arrives. Default: nothing of it.
    pub fn flags(mut self, flags: WorkQueueFlags) -> Self {
        self.flags = flags;
        self
    }

    /// `ibv_create_wq`: makes the queue, in state RESET.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): the completion queue comes from another
    ///   [`Context`](crate::Context).
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the provider has none (rxe), or lacks one of the flags.
    /// * `EINVAL`: a size is beyond the device's limit.
    ///
    /// # References
    ///
    /// [ibv_create_wq(3)](https://man7.org/linux/man-pages/man3/ibv_create_wq.3.html)
    #[doc(alias = "ibv_create_wq")]
    pub fn build(self) -> Result<WorkQueue> {
        const VERB: &str = "ibv_create_wq";
        let Self { pd, cq, max_wr, max_sge, flags } = self;
        let context = pd.context();
        context.must_be(cq.context(), VERB, "cq")?;
        // SAFETY: all zeroes are a valid structure.
        let mut attributes: ffi::ibv_wq_init_attr = unsafe { std::mem::zeroed() };
        attributes.wq_type = ffi::ibv_wq_type::IBV_WQT_RQ;
        (attributes.max_wr, attributes.max_sge) = (max_wr, max_sge);
        (attributes.pd, attributes.cq) = (pd.as_raw(), cq.as_raw());
        if !flags.is_empty() {
            attributes.comp_mask = ffi::ibv_wq_init_attr_mask::IBV_WQ_INIT_ATTR_FLAGS.0;
            attributes.create_flags = flags.bits();
        }
        // SAFETY: the context is open, the domain and the queue are alive and of it, and `attributes` outlives the call.
        let wq = null_and_errno(unsafe { ffi::ibv_create_wq(context.as_raw(), &mut attributes) })
            .map_err(|errno| errno.of(VERB, format_args!("max_wr {max_wr}, max_sge {max_sge}, {flags}")))?;
        Ok(WorkQueue { inner: Arc::new(Inner { wq, cq, pd }) })
    }
}

impl WorkQueue {
    /// Takes over a queue that was made by other means. It is destroyed when the last handle, and the last indirection table with it, are
    /// gone.
    ///
    /// # Safety
    ///
    /// * `wq` is alive, and nobody else destroys it.
    /// * Indirection tables that have it by other means are gone before the last handle is.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument): it was made in another domain, or on another completion queue. It then still
    /// belongs to the caller.
    pub unsafe fn from_raw(wq: NonNull<ffi::ibv_wq>, pd: &ProtectionDomain, cq: &CompletionQueue) -> Result<Self> {
        // SAFETY: the queue is alive.
        let raw = unsafe { wq.as_ref() };
        must_be_made_of("ibv_create_wq", &[("pd", raw.pd == pd.as_raw()), ("cq", raw.cq == cq.as_raw())])?;
        Ok(Self { inner: Arc::new(Inner { wq, cq: cq.clone(), pd: pd.clone() }) })
    }

    /// `ibv_modify_wq`: changes the state of the queue.
    ///
    /// # Errors
    ///
    /// `EINVAL`: there is no such transition.
    ///
    /// # References
    ///
    /// [ibv_modify_wq(3)](https://man7.org/linux/man-pages/man3/ibv_modify_wq.3.html)
    #[doc(alias = "ibv_modify_wq")]
    pub fn set_state(&self, state: WorkQueueState) -> Result<()> {
        // SAFETY: all zeroes are a valid structure.
        let mut attributes: ffi::ibv_wq_attr = unsafe { std::mem::zeroed() };
        attributes.attr_mask = ffi::ibv_wq_attr_mask::IBV_WQ_ATTR_STATE.0;
        attributes.wq_state = ffi::ibv_wq_state(state.as_raw());
        // SAFETY: the queue is alive, and `attributes` outlives the call.
        zero_or_errno(unsafe { ffi::ibv_modify_wq(self.as_raw(), &mut attributes) })
            .map_err(|errno| errno.of("ibv_modify_wq", format_args!("{self:?}, to {state}")))
    }

    /// The number of the queue, by which an [`AsyncEvent`](crate::AsyncEvent) names it.
    pub fn number(&self) -> u32 {
        // SAFETY: the queue is alive, and its number does not change.
        unsafe { self.inner.wq.as_ref().wq_num }
    }

    /// Where its receives complete.
    pub fn completion_queue(&self) -> &CompletionQueue {
        &self.inner.cq
    }

    /// The domain in which the queue was made.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// The queue in libibverbs' terms; valid as long as `self`, and not to be destroyed.
    pub fn as_raw(&self) -> *mut ffi::ibv_wq {
        self.inner.wq.as_ptr()
    }
}

impl fmt::Debug for WorkQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkQueue({:#x} on {})", self.number(), self.inner.pd.context().device().name())
    }
}
