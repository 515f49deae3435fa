//! [`Mapping`]: page-aligned memory.
//!
//! # Safety
//!
//! `data` and `length` are a private anonymous mapping of this process, in whole pages if they are huge, which is unmapped only when the
//! `Mapping` is dropped.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};

use crate::buffer::{Buffer, BufferMut};
use crate::error::Error;
use crate::huge_pages::HugePageSize;

/// Zeroed memory that begins at a page boundary, straight from the kernel.
///
/// A device needs fewer translation entries for it than for memory from the heap, and none of its pages is shared with
/// another object.
#[derive(Debug)]
pub struct Mapping {
    data: NonNull<u8>,
    length: usize,
}

// SAFETY: a mapping is memory that only its owner reaches, as a box is.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes.
    ///
    /// # Errors
    ///
    /// * `EINVAL`: `length` is 0.
    /// * `ENOMEM`: there is no memory.
    pub fn new(length: usize) -> io::Result<Self> {
        Self::map(length, 0)
    }

    /// Maps `length` bytes, rounded up to whole pages, in huge pages: a device needs one translation entry for each, and so misses fewer of
    /// them.
    ///
    /// Huge pages have to be reserved beforehand, by the administrator.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: `length` is 0, or beyond what can be rounded up.
    /// * `ENOMEM`: too few huge pages of this size are reserved and free; the message says how many there are, and how to reserve more.
    /// * `EINVAL`: the kernel has no pages of this size.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use verbs::{AccessFlags, HugePageSize, Mapping, ProtectionDomain};
    /// # fn example(pd: &ProtectionDomain) -> verbs::Result<()> {
    /// let buffer = Mapping::in_huge_pages(3 << 20, HugePageSize::MIB_2)?;
    /// assert_eq!(buffer.len(), 4 << 20);
    /// let region = pd.register(buffer, AccessFlags::LOCAL_WRITE)?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "MAP_HUGETLB")]
    pub fn in_huge_pages(length: usize, size: HugePageSize) -> Result<Self, Error> {
        let whole = size.round_up(length).ok_or_else(|| {
            Error::invalid(
                "mmap",
                "length",
                length,
                "a mapping has at least one byte, and its pages have to be addressable",
            )
        })?;
        Self::map(whole, size.flags()).map_err(|error| size.mapping_error(&error, whole))
    }

    fn map(length: usize, flags: c_int) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let data = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
        if data == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // The kernel maps nothing at address 0 unless asked to.
        NonNull::new(data.cast()).map(|data| Self { data, length }).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody can reach it any more.
        let _ = unsafe { libc::munmap(self.data.as_ptr().cast(), self.length) };
    }
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping is readable and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.length) }
    }
}

impl DerefMut for Mapping {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is writable, lives as long as `self`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.length) }
    }
}

// SAFETY: a mapping stays where it is until it is dropped, and its parts make it up again.
unsafe impl Buffer for Mapping {
    type Element = u8;
    type Rest = ();
    const WRITABLE: bool = true;

    fn into_raw_parts(self) -> (NonNull<u8>, usize, ()) {
        let mapping = ManuallyDrop::new(self);
        (mapping.data, mapping.length, ())
    }

    unsafe fn from_raw_parts(data: NonNull<u8>, length: usize, (): ()) -> Self {
        Self { data, length }
    }
}
// SAFETY: it is writable.
unsafe impl BufferMut for Mapping {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_zeroed_page_aligned_and_writable() {
        let mut mapping = Mapping::new(10_000).unwrap();
        assert_eq!(mapping.as_ptr() as usize % 4096, 0);
        assert!(mapping.len() == 10_000 && mapping.iter().all(|byte| *byte == 0));
        mapping[9_999] = 7;
        let (data, length, ()) = mapping.into_raw_parts();
        // SAFETY: the parts were taken apart in the line above.
        let mapping = unsafe { Mapping::from_raw_parts(data, length, ()) };
        assert_eq!(mapping[9_999], 7);
    }

    #[test]
    fn a_mapping_of_nothing_is_an_error() {
        assert_eq!(Mapping::new(0).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
