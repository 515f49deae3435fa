//! [`XrcSendQueuePair`] and [`XrcReceiveQueuePair`]: the ends of an extended reliable connection.
//!
//! # Safety
//!
//! The queue pair of an end came from `ibv_create_qp_ex` or `ibv_open_qp`, and is destroyed only when the end is dropped. What it was
//! made of is held until then.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;

use crate::completion_queue::CompletionQueue;
use crate::context::{Context, must_be_made_of};
use crate::error::Result;
use crate::ffi;
use crate::ffi::{ibv_qp_init_attr_mask as Mask, ibv_qp_open_attr_mask as OpenMask};
use crate::protection_domain::ProtectionDomain;
use crate::returns::null_and_errno;
use crate::xrc_domain::XrcDomain;

const CREATE: &str = "ibv_create_qp_ex";

/// The queue pair of either end.
struct Owned(NonNull<ffi::ibv_qp>);

// SAFETY: libibverbs takes the queue pair's locks in every verb that is given it, and we reach it only through verbs, but for its
// number, which does not change.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl Owned {
    fn number(&self) -> u32 {
        // SAFETY: the queue pair is alive, and its number does not change.
        unsafe { self.0.as_ref().qp_num }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the queue pair is alive, and is destroyed only here.
        let _ = unsafe { ffi::ibv_destroy_qp(self.0.as_ptr()) };
    }
}

/// A queue pair of type `IBV_QPT_XRC_SEND`: the sending end of an extended reliable connection, without a receive queue.
///
/// The crate has no data path for it: [`as_raw`](Self::as_raw) leads to that of libibverbs.
#[doc(alias = "IBV_QPT_XRC_SEND")]
#[must_use = "dropping it destroys the queue pair"]
pub struct XrcSendQueuePair {
    qp: Owned,
    // Let go after the queue pair is destroyed.
    cq: CompletionQueue,
    pd: ProtectionDomain,
}

impl XrcSendQueuePair {
    /// `ibv_create_qp_ex`: makes a sending end in `pd` for at least `max_send_wr` requests of `max_send_sge` scatter/gather entries each,
    /// which complete in `cq`.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): the queue comes from another [`Context`].
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the provider has none (rxe).
    /// * `EINVAL`: a size is beyond the device's limit.
    ///
    /// # References
    ///
    /// [ibv_create_qp_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html); InfiniBand Architecture Specification,
    /// volume 1, annex A14.
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn new(pd: &ProtectionDomain, cq: &CompletionQueue, max_send_wr: u32, max_send_sge: u32) -> Result<Self> {
        let context = pd.context();
        context.must_be(cq.context(), CREATE, "send_cq")?;
        // SAFETY: all zeroes are a valid structure.
        let mut attributes: ffi::ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
        attributes.qp_type = ffi::ibv_qp_type::IBV_QPT_XRC_SEND;
        attributes.send_cq = cq.as_raw();
        attributes.cap.max_send_wr = max_send_wr;
        attributes.cap.max_send_sge = max_send_sge;
        attributes.comp_mask = Mask::IBV_QP_INIT_ATTR_PD.0;
        attributes.pd = pd.as_raw();
        // SAFETY: the context is open, the domain and the queue are alive and of it, and `attributes` outlives the call.
        let qp =
            null_and_errno(unsafe { ffi::ibv_create_qp_ex(context.as_raw(), &mut attributes) }).map_err(|errno| {
                errno.of(CREATE, format_args!("XRC_SEND, max_send_wr {max_send_wr}, max_send_sge {max_send_sge}"))
            })?;
        Ok(Self { qp: Owned(qp), cq: cq.clone(), pd: pd.clone() })
    }

    /// Takes over a sending end that was made by other means. Dropping it destroys it.
    ///
    /// # Safety
    ///
    /// `qp` is alive, and nobody else destroys it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument): it is of another type, or was made with another domain or queue. It then
    /// still belongs to the caller.
    pub unsafe fn from_raw(qp: NonNull<ffi::ibv_qp>, pd: &ProtectionDomain, cq: &CompletionQueue) -> Result<Self> {
        // SAFETY: the queue pair is alive, and these fields do not change.
        let raw = unsafe { qp.as_ref() };
        let parts = [
            ("qp_type", raw.qp_type == ffi::ibv_qp_type::IBV_QPT_XRC_SEND),
            ("pd", raw.pd == pd.as_raw()),
            ("send_cq", raw.send_cq == cq.as_raw()),
        ];
        must_be_made_of(CREATE, &parts)?;
        Ok(Self { qp: Owned(qp), cq: cq.clone(), pd: pd.clone() })
    }

    /// The number of the queue pair, 24 bits.
    pub fn qp_num(&self) -> u32 {
        self.qp.number()
    }

    /// Where its requests complete.
    pub fn send_cq(&self) -> &CompletionQueue {
        &self.cq
    }

    /// The domain in which it was made.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.pd
    }

    /// The queue pair in libibverbs' terms; valid as long as `self`, and not to be destroyed.
    pub fn as_raw(&self) -> *mut ffi::ibv_qp {
        self.qp.0.as_ptr()
    }
}

impl fmt::Debug for XrcSendQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "XrcSendQueuePair({:#x} on {})", self.qp_num(), self.pd.context().device().name())
    }
}

/// A queue pair of type `IBV_QPT_XRC_RECV`: the receiving end of an extended reliable connection. It has no queues: what arrives goes to
/// the [shared receive queue](crate::SharedReceiveQueueBuilder::build_xrc) of its domain that the message names.
#[doc(alias = "IBV_QPT_XRC_RECV")]
#[must_use = "dropping it destroys the queue pair, or closes it if others have it open"]
pub struct XrcReceiveQueuePair {
    qp: Owned,
    // Closed after the queue pair is destroyed.
    domain: XrcDomain,
}

impl XrcReceiveQueuePair {
    /// `ibv_create_qp_ex`: makes a receiving end in `domain`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported): the provider has none.
    ///
    /// # References
    ///
    /// [ibv_create_qp_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html)
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn new(domain: &XrcDomain) -> Result<Self> {
        // SAFETY: all zeroes are a valid structure.
        let mut attributes: ffi::ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
        attributes.qp_type = ffi::ibv_qp_type::IBV_QPT_XRC_RECV;
        attributes.comp_mask = Mask::IBV_QP_INIT_ATTR_XRCD.0;
        attributes.xrcd = domain.as_raw();
        // SAFETY: the context is open, the domain is open and of it, and `attributes` outlives the call.
        let qp = null_and_errno(unsafe { ffi::ibv_create_qp_ex(domain.context().as_raw(), &mut attributes) })
            .map_err(|errno| errno.of(CREATE, "XRC_RECV"))?;
        Ok(Self { qp: Owned(qp), domain: domain.clone() })
    }

    /// `ibv_open_qp`: opens a receiving end that another process, which shares `domain`, made.
    ///
    /// # Errors
    ///
    /// * `ENOENT`, `EINVAL`: there is no such queue pair in the domain.
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the provider has none.
    ///
    /// # References
    ///
    /// [ibv_open_qp(3)](https://man7.org/linux/man-pages/man3/ibv_open_qp.3.html)
    #[doc(alias = "ibv_open_qp")]
    pub fn open(domain: &XrcDomain, qp_num: u32) -> Result<Self> {
        let mut attributes = ffi::ibv_qp_open_attr {
            comp_mask: OpenMask::IBV_QP_OPEN_ATTR_NUM.0
                | OpenMask::IBV_QP_OPEN_ATTR_XRCD.0
                | OpenMask::IBV_QP_OPEN_ATTR_TYPE.0,
            qp_num,
            xrcd: domain.as_raw(),
            qp_context: std::ptr::null_mut(),
            qp_type: ffi::ibv_qp_type::IBV_QPT_XRC_RECV,
        };
        // SAFETY: the context is open, the domain is open and of it, and `attributes` outlives the call.
        let qp = null_and_errno(unsafe { ffi::ibv_open_qp(domain.context().as_raw(), &mut attributes) })
            .map_err(|errno| errno.of("ibv_open_qp", format_args!("XRC_RECV {qp_num:#x}")))?;
        Ok(Self { qp: Owned(qp), domain: domain.clone() })
    }

    /// Takes over a receiving end that was made, or opened, by other means, in `domain`. Dropping it destroys it, or closes it.
    ///
    /// # Safety
    ///
    /// `qp` is alive, was made in `domain`, and nobody else destroys it.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument): it is of another type or context. It then still belongs to the caller.
    pub unsafe fn from_raw(qp: NonNull<ffi::ibv_qp>, domain: &XrcDomain) -> Result<Self> {
        // SAFETY: the queue pair is alive, and these fields do not change.
        let raw = unsafe { qp.as_ref() };
        let parts = [
            ("qp_type", raw.qp_type == ffi::ibv_qp_type::IBV_QPT_XRC_RECV),
            ("context", raw.context == domain.context().as_raw()),
        ];
        must_be_made_of(CREATE, &parts)?;
        Ok(Self { qp: Owned(qp), domain: domain.clone() })
    }

    /// The number of the queue pair, 24 bits.
    pub fn qp_num(&self) -> u32 {
        self.qp.number()
    }

    /// The domain in which it was made.
    pub fn xrc_domain(&self) -> &XrcDomain {
        &self.domain
    }

    /// The context in which it was made.
    pub fn context(&self) -> &Context {
        self.domain.context()
    }

    /// The queue pair in libibverbs' terms; valid as long as `self`, and not to be destroyed.
    pub fn as_raw(&self) -> *mut ffi::ibv_qp {
        self.qp.0.as_ptr()
    }
}

impl fmt::Debug for XrcReceiveQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "XrcReceiveQueuePair({:#x} on {})", self.qp_num(), self.context().device().name())
    }
}
