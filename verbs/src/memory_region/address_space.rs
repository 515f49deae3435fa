//! [`AddressSpace`]: all memory of the process in one region.
//!
//! # Safety
//!
//! Whoever makes such a region promises what [`ProtectionDomain::register_address_space`] asks for.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr;

use super::MemoryRegion;
use super::out_of_reach;
use crate::access_flags::AccessFlags;
use crate::error::Result;
use crate::ffi;
use crate::protection_domain::ProtectionDomain;
use crate::returns::null_and_errno;

/// What an implicit region for on-demand paging is of: whatever is mapped in the process, now and later. Offsets in it are addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressSpace;

out_of_reach!(AddressSpace, is_buffer: false);

impl ProtectionDomain {
    /// `ibv_reg_mr` of address 0 and length `SIZE_MAX`: registers the whole address space for on-demand paging, with
    /// [`ON_DEMAND`](AccessFlags::ON_DEMAND) added to `access`.
    ///
    /// # Safety
    ///
    /// As long as the region is there, the memory that a slice of it names in a posted request, and all memory if `access` has a remote
    /// right and a peer knows the key, is memory that the device may read and, if `access` allows it, write: no reference of the program's
    /// to memory that is written to is alive meanwhile, except to atomics, and it is not freed or used for something else before the
    /// request is completed.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): `access` lets peers write and lacks `LOCAL_WRITE`.
    /// * [`Error::Unsupported`](crate::Error::Unsupported), or `EINVAL`: the device has no implicit on-demand paging (rxe).
    ///
    /// # Examples
    ///
    /// The program has to answer for all of its memory:
    ///
    /// ```compile_fail,E0133
    /// # fn example(pd: &verbs::ProtectionDomain) -> verbs::Result<()> {
    /// let all = pd.register_address_space(verbs::AccessFlags::LOCAL_WRITE)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    ///
    /// [ibv_reg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    #[doc(alias = "ibv_reg_mr")]
    #[doc(alias = "implicit ODP")]
    pub unsafe fn register_address_space(&self, access: AccessFlags) -> Result<MemoryRegion<AddressSpace>> {
        let access = access | AccessFlags::ON_DEMAND;
        access.check_for_memory(true)?;
        let bits = access.bits() as c_int;
        // SAFETY: the domain is alive, and the caller answers for all memory.
        let mr = null_and_errno(unsafe { ffi::ibv_reg_mr(self.as_raw(), ptr::null_mut(), usize::MAX, bits) }).map_err(
            |errno| {
                let remedy = "the device has to support implicit on-demand paging (see `ibv_devinfo -v`)";
                errno.with_remedy("ibv_reg_mr", format_args!("the address space, {access:?}"), remedy)
            },
        )?;
        // SAFETY: the region was made just now, and the caller answers for its memory.
        Ok(unsafe { MemoryRegion::out_of_reach(mr, AddressSpace, 0, usize::MAX, access, self) })
    }
}
