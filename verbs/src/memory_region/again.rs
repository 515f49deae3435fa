//! [`SameMemory`]: memory that is registered already.
//!
//! # Safety
//!
//! A [`SameMemory`] holds the region that owns the memory.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use super::MemoryRegion;
use super::inner::{Inner, Place, Registered};
use super::out_of_reach;
use super::register::register_place;
use crate::access_flags::AccessFlags;
use crate::buffer::Buffer;
use crate::error::Result;
use crate::protection_domain::ProtectionDomain;

/// What a further region of the same memory is of: it holds the region that owns the buffer. The processor reaches the memory through that
/// one.
pub struct SameMemory {
    _owner: Arc<dyn Registered>,
}

out_of_reach!(SameMemory, is_buffer: true);

impl fmt::Debug for SameMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SameMemory").finish_non_exhaustive()
    }
}

impl<B: Buffer + Send + Sync> MemoryRegion<B> {
    /// `ibv_reg_mr`: registers the region's memory once more: in another domain, with a second device for example, or with other rights.
    ///
    /// Both regions have keys of their own. The new one holds the buffer too, so [`deregister`](Self::deregister) of the first one is
    /// refused as long as there is the second; they can be dropped in any order.
    ///
    /// (Memory of atomics that the program shares can also be registered twice as a buffer: an `Arc<[AtomicU64]>`, or a `&'static` slice.)
    ///
    /// # Errors
    ///
    /// As those of [`ProtectionDomain::register`].
    ///
    /// # References
    ///
    /// [ibv_reg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    #[doc(alias = "ibv_reg_mr")]
    pub fn register_again(&self, pd: &ProtectionDomain, access: AccessFlags) -> Result<MemoryRegion<SameMemory>> {
        access.check_for_memory(B::WRITABLE)?;
        let iova = access.contains(AccessFlags::ZERO_BASED).then_some(0);
        let place = Place::of(self.data, self.length, iova);
        let mr = register_place(pd, &place, access, iova)?;
        let memory = SameMemory { _owner: self.inner.clone() };
        // SAFETY: the region was registered just now, and its memory is kept by the region that owns it.
        Ok(unsafe { Inner::new(mr, memory, place, access, pd) }.into())
    }
}
