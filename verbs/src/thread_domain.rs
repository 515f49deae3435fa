//! [`ThreadDomain`]: objects that one thread at a time uses.
//!
//! # Safety
//!
//! `Inner::td` came from `ibv_alloc_td`, is freed only when `Inner` is dropped, and every parent domain with it holds the
//! `Inner`.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::context::{Context, must_be_made_of};
use crate::error::Result;
use crate::ffi;
use crate::returns::null_and_errno;

struct Inner {
    td: NonNull<ffi::ibv_td>,
    // Closed after the domain is freed.
    context: Context,
}

// SAFETY: a thread domain is only passed to libibverbs, which counts its users atomically.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the domain is alive, and every parent domain with it held us and is gone.
        let _ = unsafe { ffi::ibv_dealloc_td(self.td.as_ptr()) };
    }
}

/// `struct ibv_td`: a thread domain. Objects in it are used by one thread at a time, so the provider takes no locks for them.
///
/// Objects are put into it by a [parent domain](crate::ProtectionDomain::create_parent_domain_in). A clone is another handle to the
/// same domain.
#[doc(alias = "ibv_td")]
#[derive(Clone)]
pub struct ThreadDomain {
    inner: Arc<Inner>,
}

impl Context {
    /// `ibv_alloc_td`: makes a thread domain.
    ///
    /// # Errors
    ///
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the provider has none (rxe).
    /// * `ENOMEM`, `ENOSPC`: the device has no more of them.
    ///
    /// # References
    ///
    /// [ibv_alloc_td(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_td.3.html)
    #[doc(alias = "ibv_alloc_td")]
    pub fn create_thread_domain(&self) -> Result<ThreadDomain> {
        let mut attributes = ffi::ibv_td_init_attr { comp_mask: 0 };
        // SAFETY: the context is open, and `attributes` outlives the call.
        let td = null_and_errno(unsafe { ffi::ibv_alloc_td(self.as_raw(), &mut attributes) })
            .map_err(|errno| errno.of("ibv_alloc_td", self.device().name()))?;
        Ok(ThreadDomain { inner: Arc::new(Inner { td, context: self.clone() }) })
    }
}

impl ThreadDomain {
    /// Takes over a thread domain that was made by other means. It is destroyed when the last handle, and the last object that holds it,
    /// are gone.
    ///
    /// # Safety
    ///
    /// * `td` is alive, and nobody else destroys it.
    /// * Parent domains that were made with it by other means are gone before the last handle is.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument): it was made in another context. It then still belongs to the caller.
    pub unsafe fn from_raw(td: NonNull<ffi::ibv_td>, context: &Context) -> Result<Self> {
        // SAFETY: the caller says that it is alive.
        must_be_made_of("ibv_alloc_td", &[("context", unsafe { td.as_ref().context } == context.as_raw())])?;
        Ok(Self { inner: Arc::new(Inner { td, context: context.clone() }) })
    }

    /// The context in which the domain was made.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The domain in libibverbs' terms; valid as long as `self`, and not to be freed.
    pub fn as_raw(&self) -> *mut ffi::ibv_td {
        self.inner.td.as_ptr()
    }
}

impl fmt::Debug for ThreadDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadDomain").field("device", &self.context().device().name()).finish()
    }
}
