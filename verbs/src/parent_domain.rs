//! Parent domains: protection domains with more to them.
//!
//! # Safety
//!
//! `ibv_alloc_parent_domain` is given domains that are alive and of one context. A parent domain is an `ibv_pd`, which
//! `ibv_dealloc_pd` frees, before what it was made of.
#![allow(unsafe_code)]

use std::ptr;

use crate::error::Result;
use crate::ffi;
use crate::protection_domain::ProtectionDomain;
use crate::returns::null_and_errno;
use crate::thread_domain::ThreadDomain;

const VERB: &str = "ibv_alloc_parent_domain";

/// What a parent domain was made of.
pub(crate) struct Parts {
    // Freed in any order, both after the parent domain.
    _pd: ProtectionDomain,
    thread_domain: Option<ThreadDomain>,
}

impl Parts {
    pub(crate) fn thread_domain(&self) -> Option<&ThreadDomain> {
        self.thread_domain.as_ref()
    }
}

impl ProtectionDomain {
    /// `ibv_alloc_parent_domain`: makes a domain that is the same protection domain, as an object of its own: what is registered or
    /// made in either of them can be used with the other.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported): the provider has none (rxe).
    ///
    /// # References
    ///
    /// [ibv_alloc_parent_domain(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_parent_domain.3.html)
    #[doc(alias = "ibv_alloc_parent_domain")]
    pub fn create_parent_domain(&self) -> Result<ProtectionDomain> {
        // SAFETY: there is no thread domain.
        unsafe { self.parent_domain(None) }
    }

    /// `ibv_alloc_parent_domain` with a thread domain: what is made in the new domain is in that thread domain, and the provider takes
    /// no locks for it.
    ///
    /// # Safety
    ///
    /// As long as they exist, no two threads are at the same time in calls that have to do with objects made in domains of the same
    /// thread domain, even if with different objects. That includes their being made and dropped. (Objects of this crate can be sent
    /// to and shared with other threads without a word of `unsafe`.)
    ///
    /// ```compile_fail,E0133
    /// # fn example(pd: &verbs::ProtectionDomain, thread_domain: &verbs::ThreadDomain) -> verbs::Result<()> {
    /// let domain = pd.create_parent_domain_in(thread_domain)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): the thread domain comes from another
    ///   [`Context`](crate::Context).
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the provider has none (rxe).
    ///
    /// # References
    ///
    /// [ibv_alloc_parent_domain(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_parent_domain.3.html),
    /// [ibv_alloc_td(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_td.3.html)
    #[doc(alias = "ibv_alloc_parent_domain")]
    pub unsafe fn create_parent_domain_in(&self, thread_domain: &ThreadDomain) -> Result<ProtectionDomain> {
        self.context().must_be(thread_domain.context(), VERB, "td")?;
        // SAFETY: the caller keeps the rule of thread domains, and this one is of our context.
        unsafe { self.parent_domain(Some(thread_domain)) }
    }

    /// # Safety
    ///
    /// The thread domain is of our context, and objects in it are used by one thread at a time.
    unsafe fn parent_domain(&self, thread_domain: Option<&ThreadDomain>) -> Result<ProtectionDomain> {
        let context = self.context();
        let mut attributes = ffi::ibv_parent_domain_init_attr {
            pd: self.as_raw(),
            td: thread_domain.map_or(ptr::null_mut(), ThreadDomain::as_raw),
            comp_mask: 0,
            alloc: None,
            free: None,
            pd_context: ptr::null_mut(),
        };
        // SAFETY: the context is open, the domains are alive and of it, and `attributes` outlives the call.
        let pd = null_and_errno(unsafe { ffi::ibv_alloc_parent_domain(context.as_raw(), &mut attributes) })
            .map_err(|errno| errno.of(VERB, context.device().name()))?;
        let parts = Parts { _pd: self.clone(), thread_domain: thread_domain.cloned() };
        // SAFETY: the domain was made just now, and nobody else has it.
        Ok(unsafe { ProtectionDomain::from_parts(pd, parts, context.clone()) })
    }
}
