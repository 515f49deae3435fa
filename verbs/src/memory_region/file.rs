//! Files, read into a region and written from it without a copy in between.
//!
//! # Safety
//!
//! As in `bytes.rs`: the program writes through `&mut` and reads through `&` only. The kernel does so for the time of the call, and through
//! a raw pointer.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::ops::RangeBounds;
use std::os::fd::{AsFd, AsRawFd};

use super::MemoryRegion;
use crate::buffer::{Buffer, BufferMut};
use crate::range::resolve;

impl<B: BufferMut> MemoryRegion<B> {
    /// `pread`: reads from a file, from `offset` of the file on, straight into a range of the memory. Returns how many bytes were read: 0
    /// at the end of the file, and perhaps fewer than there is room for.
    ///
    /// A device and the disk can thus share pages, without a buffer of the program's in between.
    ///
    /// # Errors
    ///
    /// * `InvalidInput`: the range does not lie in the region, or no file is that long.
    /// * The system's error. `Interrupted` is one, as of [`std::io::Read::read`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use verbs::{Mapping, MemoryRegion, QueuePair, Rc, SendRequest};
    /// # fn example(qp: &QueuePair<Rc>, region: &mut MemoryRegion<Mapping>) -> Result<(), Box<dyn std::error::Error>> {
    /// let file = std::fs::File::open("data")?;
    /// let length = region.read_file_at(.., &file, 0)?;
    /// qp.post_send(&SendRequest::send(1, &[region.slice(..length)?]).signaled())?;
    /// # Ok(()) }
    /// ```
    pub fn read_file_at(&mut self, range: impl RangeBounds<usize>, file: impl AsFd, offset: u64) -> io::Result<usize> {
        let (start, length, offset) = self.place(range, offset)?;
        // SAFETY: `length` bytes are valid for writes there, and `self` is borrowed mutably, so nobody else in the program uses them.
        let count = unsafe { libc::pread64(file.as_fd().as_raw_fd(), start, length, offset) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }
}

impl<B: Buffer<Element = u8>> MemoryRegion<B> {
    /// `pwrite`: writes a range of the memory to a file, from `offset` of the file on. Returns how many bytes were written, perhaps fewer
    /// than the range has. What the device writes to the memory at the same time may be in the file in part.
    ///
    /// # Errors
    ///
    /// As those of [`read_file_at`](Self::read_file_at).
    pub fn write_file_at(&self, range: impl RangeBounds<usize>, file: impl AsFd, offset: u64) -> io::Result<usize> {
        let (start, length, offset) = self.place(range, offset)?;
        // SAFETY: `length` bytes are valid for reads there, and nobody in the program writes to them while `self` is borrowed.
        let count = unsafe { libc::pwrite64(file.as_fd().as_raw_fd(), start, length, offset) };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    /// Where a range is, how long it is, and the file's offset as the system has it.
    fn place(&self, range: impl RangeBounds<usize>, offset: u64) -> io::Result<(*mut c_void, usize, i64)> {
        let refuse = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        let range = resolve(range, self.len(), "memory region").map_err(refuse)?;
        let offset = i64::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok((self.as_ptr().wrapping_add(range.start).cast(), range.len(), offset))
    }
}
