//! [`ProtectionDomain`]: what groups memory and queue pairs.
//!
//! # Safety
//!
//! `Inner::pd` came from `ibv_alloc_pd`, `ibv_alloc_parent_domain` or, if `Inner::imported`, `ibv_import_pd`, and is freed or let go of only
//! when `Inner` is dropped, or is alive as long as `Inner::lender` is. Every object made in the domain holds the `Inner`.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::context::Context;
use crate::error::Result;
use crate::ffi;
use crate::lender::Lender;
use crate::parent_domain::Parts;
use crate::returns::null_and_errno;
use crate::thread_domain::ThreadDomain;

struct Inner {
    pd: NonNull<ffi::ibv_pd>,
    imported: bool,
    lender: Option<Lender>,
    // Freed after a parent domain is: libibverbs refuses to free what it was made of.
    parts: Option<Parts>,
    // Closed after the domain is freed.
    context: Context,
}

// SAFETY: a domain is only passed to libibverbs, which does not write to it.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.imported {
            // SAFETY: the domain was imported, and every object made in it held us and is gone.
            unsafe { ffi::ibv_unimport_pd(self.pd.as_ptr()) };
        } else if self.lender.is_none() {
            // SAFETY: the domain is alive, and every object made in it held us and is gone.
            let _ = unsafe { ffi::ibv_dealloc_pd(self.pd.as_ptr()) };
        }
    }
}

/// `struct ibv_pd`: a protection domain. A queue pair can use the memory regions of its own domain only, and its peers
/// reach no other memory through it.
///
/// A clone is another handle to the same domain.
#[doc(alias = "ibv_pd")]
#[derive(Clone)]
pub struct ProtectionDomain {
    inner: Arc<Inner>,
}

impl From<Inner> for ProtectionDomain {
    fn from(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }
}

impl Context {
    /// `ibv_alloc_pd`: makes a protection domain.
    ///
    /// # Errors
    ///
    /// `ENOMEM`: the device has no more of them.
    ///
    /// # References
    ///
    /// [ibv_alloc_pd(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_pd.3.html)
    #[doc(alias = "ibv_alloc_pd")]
    pub fn create_protection_domain(&self) -> Result<ProtectionDomain> {
        // SAFETY: the context is open.
        let pd = null_and_errno(unsafe { ffi::ibv_alloc_pd(self.as_raw()) })
            .map_err(|errno| errno.of("ibv_alloc_pd", self.device().name()))?;
        Ok(Inner { pd, imported: false, lender: None, parts: None, context: self.clone() }.into())
    }

    /// `ibv_import_pd`: a protection domain of the process that the device was [imported](Self::import) from, by the number that
    /// [`handle`](ProtectionDomain::handle) shows there. Dropping it leaves the domain alone.
    ///
    /// Whoever made the domain frees it, once nothing in it is left; if that is done too early, what is made in it here fails.
    ///
    /// # Errors
    ///
    /// * `ENOENT`, `EINVAL`: the device has no such domain.
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the provider cannot (rxe).
    ///
    /// # References
    ///
    /// [ibv_import_pd(3)](https://man7.org/linux/man-pages/man3/ibv_import_pd.3.html)
    #[doc(alias = "ibv_import_pd")]
    #[doc(alias = "ibv_unimport_pd")]
    pub fn import_protection_domain(&self, handle: u32) -> Result<ProtectionDomain> {
        // SAFETY: the context is open. The kernel looks whether there is such a domain.
        let pd = null_and_errno(unsafe { ffi::ibv_import_pd(self.as_raw(), handle) })
            .map_err(|errno| errno.of("ibv_import_pd", format_args!("{}, handle {handle}", self.device().name())))?;
        Ok(Inner { pd, imported: true, lender: None, parts: None, context: self.clone() }.into())
    }
}

impl ProtectionDomain {
    /// # Safety
    ///
    /// `pd` came from `ibv_alloc_parent_domain` in `context`, with these parts, and nobody else frees it.
    pub(crate) unsafe fn from_parts(pd: NonNull<ffi::ibv_pd>, parts: Parts, context: Context) -> Self {
        Inner { pd, imported: false, lender: None, parts: Some(parts), context }.into()
    }

    /// Takes over a domain that was made by other means. It is freed when the last handle and the last object made in it are gone.
    ///
    /// # Safety
    ///
    /// * `pd` is alive, was made in `context`, and nobody else frees it.
    /// * Objects that were made in it by other means are gone before the last handle is.
    /// * If it is a parent domain, what it was made of outlives the last handle. If it is in a thread domain, the rule of
    ///   [thread domains](Self::create_parent_domain_in) holds.
    pub unsafe fn from_raw(pd: NonNull<ffi::ibv_pd>, context: &Context) -> Self {
        Inner { pd, imported: false, lender: None, parts: None, context: context.clone() }.into()
    }

    /// A handle to a domain that belongs to another library, such as that of an `rdma_cm_id`. It is never freed by this crate.
    ///
    /// `lender` is dropped when the last handle and the last object made in it are gone, and may then have it freed. `context` is
    /// let go after that.
    ///
    /// # Safety
    ///
    /// * `pd` is alive as long as `lender` lives, and was made in `context`.
    /// * If it is in a thread domain, the rule of [thread domains](Self::create_parent_domain_in) holds.
    pub unsafe fn lent(pd: NonNull<ffi::ibv_pd>, context: &Context, lender: impl Send + Sync + 'static) -> Self {
        let (lender, context) = (Some(Lender::new(lender)), context.clone());
        Inner { pd, imported: false, lender, parts: None, context }.into()
    }

    /// The thread domain that what is made in this domain is in; `None`: it can be used by several threads at once.
    pub fn thread_domain(&self) -> Option<&ThreadDomain> {
        self.inner.parts.as_ref().and_then(Parts::thread_domain)
    }

    /// The context in which the domain was made.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The domain's number, by which another process can [import](Context::import_protection_domain) it.
    pub fn handle(&self) -> u32 {
        // SAFETY: the domain is alive, and its number does not change.
        unsafe { self.inner.pd.as_ref().handle }
    }

    /// The domain in libibverbs' terms; valid as long as `self`, and not to be freed.
    #[inline]
    pub fn as_raw(&self) -> *mut ffi::ibv_pd {
        self.inner.pd.as_ptr()
    }
}

impl fmt::Debug for ProtectionDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtectionDomain").field("device", &self.context().device().name()).finish()
    }
}
