//! [`ImportedMemory`]: memory that another process registered.
//!
//! # Safety
//!
//! The memory is kept by whoever registered it. An imported region came from `ibv_import_mr`, and is let go of by `ibv_unimport_mr`.
#![allow(unsafe_code)]

use std::ffi::c_int;

use super::MemoryRegion;
use super::memory::sealed;
use super::register::check_iova;
use crate::access_flags::AccessFlags;
use crate::error::Result;
use crate::ffi;
use crate::protection_domain::ProtectionDomain;
use crate::returns::null_and_errno;

/// What an imported region is of: memory that another process registered. The processor does not reach it through the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportedMemory;

// SAFETY: whoever registered the memory keeps it.
unsafe impl sealed::Memory for ImportedMemory {
    type Parts = Self;
    const IS_BUFFER: bool = false;

    unsafe fn from_parts(parts: Self) -> Self {
        parts
    }

    unsafe fn end(mr: *mut ffi::ibv_mr) -> c_int {
        // SAFETY: the region was imported, and nobody else uses it.
        unsafe { ffi::ibv_unimport_mr(mr) };
        0
    }
}

impl ProtectionDomain {
    /// `ibv_import_mr`: a memory region of the process that the device was [imported](crate::Context::import) from, in an
    /// [imported](crate::Context::import_protection_domain) domain, by the number that [`handle`](MemoryRegion::handle) shows there.
    /// Dropping it leaves the region alone.
    ///
    /// `address` and `access` are what [`address`](MemoryRegion::address) and [`access`](MemoryRegion::access) show there: the kernel does not
    /// tell. Whoever registered the region deregisters it; its keys then open nothing here either.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): the addresses would run past the end of the address space.
    /// * `ENOENT`, `EINVAL`: the device has no such region.
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the provider cannot (rxe).
    ///
    /// # References
    ///
    /// [ibv_import_mr(3)](https://man7.org/linux/man-pages/man3/ibv_import_mr.3.html)
    #[doc(alias = "ibv_import_mr")]
    #[doc(alias = "ibv_unimport_mr")]
    pub fn import_memory_region(
        &self,
        handle: u32,
        address: u64,
        access: AccessFlags,
    ) -> Result<MemoryRegion<ImportedMemory>> {
        const VERB: &str = "ibv_import_mr";
        // SAFETY: the domain is alive. The kernel looks whether there is such a region.
        let mr = null_and_errno(unsafe { ffi::ibv_import_mr(self.as_raw(), handle) })
            .map_err(|errno| errno.of(VERB, format_args!("{}, handle {handle}", self.context().device().name())))?;
        // SAFETY: the region was imported just now.
        let length = unsafe { mr.as_ref().length };
        check_iova(VERB, address, length, access).inspect_err(|_| {
            // SAFETY: as above, and nobody else knows it.
            unsafe { ffi::ibv_unimport_mr(mr.as_ptr()) };
        })?;
        // SAFETY: the region was imported just now, and its memory is kept by others.
        Ok(unsafe { MemoryRegion::out_of_reach(mr, ImportedMemory, address, length, access, self) })
    }
}
