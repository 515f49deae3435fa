//! Shared receive queues of extended reliable connections.
//!
//! # Safety
//!
//! `ibv_create_srq_ex` is given a domain, an XRC domain and a completion queue that are alive and of one context.
#![allow(unsafe_code)]

use super::{SharedReceiveQueue, SharedReceiveQueueBuilder, remedy};
use crate::completion_queue::CompletionQueue;
use crate::error::Result;
use crate::ffi;
use crate::ffi::ibv_srq_init_attr_mask as Mask;
use crate::returns::{Errno, null_and_errno};
use crate::xrc_domain::XrcDomain;

/// What such a queue is made of besides its protection domain.
pub(super) struct Xrc {
    pub(super) domain: XrcDomain,
    pub(super) cq: CompletionQueue,
}

impl SharedReceiveQueueBuilder {
    /// `ibv_create_srq_ex`: makes a queue of extended reliable connections. A peer names it by its [number](SharedReceiveQueue::number);
    /// its receives complete in `cq`.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): the domain or the queue comes from another
    ///   [`Context`](crate::Context).
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the provider has none (rxe).
    /// * As those of [`build`](Self::build).
    ///
    /// # References
    ///
    /// [ibv_create_srq_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_srq_ex.3.html); InfiniBand Architecture Specification,
    /// volume 1, annex A14.
    #[doc(alias = "ibv_create_srq_ex")]
    #[doc(alias = "IBV_SRQT_XRC")]
    pub fn build_xrc(self, domain: &XrcDomain, cq: &CompletionQueue) -> Result<SharedReceiveQueue> {
        const VERB: &str = "ibv_create_srq_ex";
        let Self { pd, max_wr, max_sge } = self;
        let context = pd.context();
        context.must_be(domain.context(), VERB, "xrcd")?;
        context.must_be(cq.context(), VERB, "cq")?;
        let arguments = format!("XRC, max_wr {max_wr}, max_sge {max_sge}");
        // SAFETY: the context is open.
        let Some(post) = (unsafe { (*context.as_raw()).ops.post_srq_recv }) else {
            return Err(Errno(libc::EOPNOTSUPP).of(VERB, arguments));
        };
        // SAFETY: all zeroes are a valid structure.
        let mut attributes: ffi::ibv_srq_init_attr_ex = unsafe { std::mem::zeroed() };
        attributes.attr = ffi::ibv_srq_attr { max_wr, max_sge, srq_limit: 0 };
        attributes.comp_mask = Mask::IBV_SRQ_INIT_ATTR_TYPE.0
            | Mask::IBV_SRQ_INIT_ATTR_PD.0
            | Mask::IBV_SRQ_INIT_ATTR_XRCD.0
            | Mask::IBV_SRQ_INIT_ATTR_CQ.0;
        attributes.srq_type = ffi::ibv_srq_type::IBV_SRQT_XRC;
        attributes.pd = pd.as_raw();
        attributes.xrcd = domain.as_raw();
        attributes.cq = cq.as_raw();
        // SAFETY: the context is open, what the queue is made of is alive, and `attributes` outlives the call.
        let srq = null_and_errno(unsafe { ffi::ibv_create_srq_ex(context.as_raw(), &mut attributes) })
            .map_err(|errno| errno.with_remedy(VERB, arguments, remedy(context, errno, max_wr, max_sge)))?;
        let xrc = Xrc { domain: domain.clone(), cq: cq.clone() };
        // SAFETY: the queue was made just now of these, nobody else has it, and `post` is their context's.
        Ok(unsafe { SharedReceiveQueue::new(srq, post, &pd, attributes.attr.max_sge, None, Some(xrc)) })
    }
}

impl SharedReceiveQueue {
    /// The XRC domain that the queue is in; `None`: it is none of extended reliable connections, or was made by other means.
    pub fn xrc_domain(&self) -> Option<&XrcDomain> {
        self.inner.xrc.as_ref().map(|xrc| &xrc.domain)
    }

    /// Where its receives complete, if it is one of extended reliable connections; otherwise their queue pair's queue is it.
    pub fn xrc_completion_queue(&self) -> Option<&CompletionQueue> {
        self.inner.xrc.as_ref().map(|xrc| &xrc.cq)
    }
}
