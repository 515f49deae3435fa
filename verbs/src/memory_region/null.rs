//! [`NullMemory`]: memory that takes everything and keeps nothing.
//!
//! # Safety
//!
//! A null region is of no memory, so nothing has to be kept for it.
#![allow(unsafe_code)]

use super::MemoryRegion;
use super::out_of_reach;
use crate::access_flags::AccessFlags;
use crate::error::Result;
use crate::ffi;
use crate::protection_domain::ProtectionDomain;
use crate::returns::null_and_errno;

/// What a null region is of: any address is in it. What the device writes there is dropped, and what it reads is zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NullMemory;

out_of_reach!(NullMemory, is_buffer: false);

impl ProtectionDomain {
    /// `ibv_alloc_null_mr`: makes a region that stands for memory which nobody wants: as a scatter/gather entry it skips that many bytes of
    /// a message that arrives, or adds that many zeroes to one that is sent.
    ///
    /// # Errors
    ///
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the provider has none (rxe).
    /// * `ENOMEM`: the device has no more regions.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use verbs::{MemoryRegion, ProtectionDomain, QueuePair, Rc, ReceiveRequest};
    /// # fn example(pd: &ProtectionDomain, qp: &QueuePair<Rc>, body: MemoryRegion<Vec<u8>>) -> verbs::Result<()> {
    /// let null = pd.create_null_memory_region()?;
    /// // The header, of 64 bytes, is not wanted.
    /// qp.post_receive(&ReceiveRequest::new(1, &[null.slice(..64)?, body.slice(..)?]))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    ///
    /// [ibv_alloc_null_mr(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_null_mr.3.html)
    #[doc(alias = "ibv_alloc_null_mr")]
    pub fn create_null_memory_region(&self) -> Result<MemoryRegion<NullMemory>> {
        // SAFETY: the domain is alive.
        let mr = null_and_errno(unsafe { ffi::ibv_alloc_null_mr(self.as_raw()) })
            .map_err(|errno| errno.of("ibv_alloc_null_mr", self.context().device().name()))?;
        // SAFETY: the region was made just now, and is of no memory.
        Ok(unsafe { MemoryRegion::out_of_reach(mr, NullMemory, 0, usize::MAX, AccessFlags::LOCAL_WRITE, self) })
    }
}
