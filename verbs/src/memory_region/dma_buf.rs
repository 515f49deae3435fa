//! [`DmaBuf`]: memory of another device.
//!
//! # Safety
//!
//! The kernel keeps a DMA buffer as long as it is registered, so nothing has to be kept for it.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::MemoryRegion;
use super::out_of_reach;
use super::register::check_iova;
use crate::access_flags::AccessFlags;
use crate::error::{Error, Result};
use crate::ffi;
use crate::protection_domain::ProtectionDomain;
use crate::returns::null_and_errno;

/// What a region of a DMA buffer is of: memory of a graphics processor, for example, which another driver exports. The processor does not
/// reach it through the region:
///
/// ```compile_fail,E0599
/// # fn example(region: verbs::MemoryRegion<verbs::DmaBuf>) -> verbs::Result<()> {
/// let bytes = region.to_vec(..)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaBuf;

out_of_reach!(DmaBuf, is_buffer: false);

impl ProtectionDomain {
    /// `ibv_reg_dmabuf_mr`: registers `length` bytes, from `offset` on, of the DMA buffer behind a file descriptor. Its addresses, for the
    /// device and for peers, begin at `iova`; 0 will do.
    ///
    /// The kernel keeps the DMA buffer; the descriptor can be closed.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: `length` is 0; `access` lets peers write and lacks `LOCAL_WRITE`, or has
    ///   [`ZERO_BASED`](AccessFlags::ZERO_BASED) and `iova` is not 0; the addresses would run past the end of the address space.
    /// * [`Error::Unsupported`]: the provider has no DMA buffers (rxe).
    /// * `EBADF`, `EINVAL`: `fd` is not that of a DMA buffer, or the range does not lie in it; or `iova` and `offset` do not lie at the same
    ///   offset in their pages.
    ///
    /// # References
    ///
    /// [ibv_reg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    #[doc(alias = "ibv_reg_dmabuf_mr")]
    pub fn register_dma_buf(
        &self,
        fd: BorrowedFd<'_>,
        offset: u64,
        length: usize,
        iova: u64,
        access: AccessFlags,
    ) -> Result<MemoryRegion<DmaBuf>> {
        const VERB: &str = "ibv_reg_dmabuf_mr";
        access.check_for_memory(true)?;
        if length == 0 {
            return Err(Error::invalid(VERB, "length", 0, "a region has at least one byte"));
        }
        check_iova(VERB, iova, length, access)?;
        let (fd, bits) = (fd.as_raw_fd(), access.bits() as c_int);
        // SAFETY: the domain is alive, and the kernel checks the descriptor and the range.
        let mr = null_and_errno(unsafe { ffi::ibv_reg_dmabuf_mr(self.as_raw(), offset, length, iova, fd, bits) })
            .map_err(|errno| {
                let arguments = format_args!("{length} bytes from {offset} on, {access:?}, iova {iova:#x}").to_string();
                let remedy = match errno.0 {
                    libc::EBADF | libc::EINVAL => {
                        "the descriptor must be that of a DMA buffer, the range lie in it, and the offset and the iova at \
                         the same offset in their pages"
                    }
                    _ => "",
                };
                errno.with_remedy(VERB, arguments, remedy)
            })?;
        // SAFETY: the region was registered just now, and the kernel keeps its memory.
        Ok(unsafe { MemoryRegion::out_of_reach(mr, DmaBuf, iova, length, access, self) })
    }
}
