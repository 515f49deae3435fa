//! [`SharedReceiveQueue`] from what C made.
//!
//! # Safety
//!
//! The caller says that the queue is alive, and until when.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use super::xrc::Xrc;
use super::{Function, Inner, SharedReceiveQueue};
use crate::error::{Error, Result};
use crate::ffi;
use crate::lender::Lender;
use crate::object_id::Identity;
use crate::protection_domain::ProtectionDomain;
use crate::returns::{Errno, zero_or_errno};

impl SharedReceiveQueue {
    /// # Safety
    ///
    /// The queue is alive, in `pd` and made of `xrc`, and `post` is the function in its context's operation table. Without a lender nobody
    /// else destroys it; with one it is alive as long as the lender.
    pub(super) unsafe fn new(
        srq: NonNull<ffi::ibv_srq>,
        post: Function,
        pd: &ProtectionDomain,
        max_sge: u32,
        lender: Option<Lender>,
        xrc: Option<Xrc>,
    ) -> Self {
        let identity = Identity::new(pd.context(), srq.as_ptr());
        Self { srq, post, inner: Arc::new(Inner { srq, max_sge, identity, lender, xrc, pd: pd.clone() }) }
    }

    /// Takes over a queue that was made by other means. It is destroyed when the last handle and the last queue pair on it are gone.
    ///
    /// # Safety
    ///
    /// * `srq` is alive, and nobody else destroys it.
    /// * What it was made of besides `pd` (an XRC domain, a completion queue) outlives the last handle.
    /// * Queue pairs that are on it by other means are gone before the last handle is.
    /// * Memory that requests name which were posted by other means stays valid until they have completed.
    ///
    /// # Errors
    ///
    /// The queue then still belongs to the caller.
    ///
    /// * [`Error::InvalidArgument`]: it was made in another domain.
    /// * [`Error::Unsupported`]: the provider lacks the verb to post to it.
    /// * The error of `ibv_query_srq`.
    pub unsafe fn from_raw(srq: NonNull<ffi::ibv_srq>, pd: &ProtectionDomain) -> Result<Self> {
        // SAFETY: as the caller says.
        unsafe { Self::foreign(srq, pd, None) }
    }

    /// A handle to a queue that belongs to another library, such as one made by `rdma_create_srq`. It is never destroyed by this crate.
    ///
    /// `lender` is dropped when the last handle and the last queue pair on it are gone, and may then have it destroyed. `pd` is let go
    /// after that.
    ///
    /// # Safety
    ///
    /// * `srq` is alive as long as `lender` lives.
    /// * Memory that requests name which were posted by other means stays valid until they have completed.
    ///
    /// # Errors
    ///
    /// As those of [`from_raw`](Self::from_raw). `lender` is then dropped.
    pub unsafe fn lent(
        srq: NonNull<ffi::ibv_srq>,
        pd: &ProtectionDomain,
        lender: impl Send + Sync + 'static,
    ) -> Result<Self> {
        // SAFETY: as the caller says.
        unsafe { Self::foreign(srq, pd, Some(Lender::new(lender))) }
    }

    /// # Safety
    ///
    /// As that of [`from_raw`](Self::from_raw) without a lender, and of [`lent`](Self::lent) with one.
    unsafe fn foreign(srq: NonNull<ffi::ibv_srq>, pd: &ProtectionDomain, lender: Option<Lender>) -> Result<Self> {
        const VERB: &str = "ibv_create_srq";
        // SAFETY: the queue is alive.
        if unsafe { srq.as_ref().pd } != pd.as_raw() {
            return Err(Error::invalid(
                VERB,
                "pd",
                "of another domain",
                "a queue belongs to the domain it was made in",
            ));
        }
        // SAFETY: the context is open.
        let Some(post) = (unsafe { (*pd.context().as_raw()).ops.post_srq_recv }) else {
            return Err(Errno(libc::EOPNOTSUPP).of(VERB, pd.context().device().name()));
        };
        let mut attr = ffi::ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 0 };
        // SAFETY: the queue is alive, and `attr` outlives the call.
        zero_or_errno(unsafe { ffi::ibv_query_srq(srq.as_ptr(), &mut attr) })
            .map_err(|errno| errno.of("ibv_query_srq", pd.context().device().name()))?;
        // SAFETY: as the caller says; `post` is the context's.
        Ok(unsafe { Self::new(srq, post, pd, attr.max_sge, lender, None) })
    }
}
