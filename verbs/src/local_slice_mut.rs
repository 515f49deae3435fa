//! [`LocalSliceMut`]: a part of a memory region that one thread may write to.
//!
//! # Safety
//!
//! A `LocalSliceMut<'a>` comes from a region that is borrowed mutably for `'a`, or is a part of such a one that was split
//! up; so its memory is valid and writable, and nobody else in the program reads or writes it.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use crate::error::Result;
use crate::local_slice::LocalSlice;
use crate::range::resolve;
use crate::raw_bytes::RawBytes;

/// A part of a memory region of bytes, to copy into and out of. Disjoint parts can be given to several threads.
///
/// There is one to each byte, and while there is, the region itself is neither read nor written to:
///
/// ```compile_fail,E0499
/// # fn example(mut region: verbs::MemoryRegion<Vec<u8>>) {
/// let (mut one, mut other) = (region.as_local_mut(), region.as_local_mut());
/// std::thread::scope(|scope| {
///     scope.spawn(move || one.fill(1));
///     scope.spawn(move || other.fill(2));
/// });
/// # }
/// ```
pub struct LocalSliceMut<'a> {
    bytes: RawBytes,
    /// Where the device finds them.
    address: u64,
    lkey: u32,
    region: PhantomData<&'a mut [u8]>,
}

// SAFETY: it is the only access of the program to its bytes, as a `&mut [u8]` is.
unsafe impl Send for LocalSliceMut<'_> {}
// SAFETY: through a shared reference its bytes can only be read.
unsafe impl Sync for LocalSliceMut<'_> {}

impl<'a> LocalSliceMut<'a> {
    /// # Safety
    ///
    /// `bytes` are valid and writable for `'a`, and nobody else in the program reads or writes them meanwhile.
    pub(crate) unsafe fn new(bytes: RawBytes, address: u64, lkey: u32) -> Self {
        Self { bytes, address, lkey, region: PhantomData }
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it is of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies bytes out, from `offset` on. What the device writes at the same time may be there in part.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`](crate::Error::OutOfRange): the bytes do not lie in the slice.
    pub fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        self.bytes.read_at(offset, into)
    }

    /// Copies bytes in, from `offset` on.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`](crate::Error::OutOfRange): the bytes do not lie in the slice.
    pub fn write_at(&mut self, offset: usize, from: &[u8]) -> Result<()> {
        // SAFETY: the memory is writable and ours alone.
        unsafe { self.bytes.write_at(offset, from) }
    }

    /// Sets each byte to `value`.
    pub fn fill(&mut self, value: u8) {
        // SAFETY: the memory is writable and ours alone.
        unsafe { self.bytes.fill(value) };
    }

    /// Splits the slice in two at `middle`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`](crate::Error::OutOfRange): `middle` is beyond the end.
    pub fn split_at_mut(self, middle: usize) -> Result<(LocalSliceMut<'a>, LocalSliceMut<'a>)> {
        let (front, back) = self.bytes.split_at(middle)?;
        let (address, lkey) = (self.address, self.lkey);
        // SAFETY: the two parts are disjoint parts of what was ours for `'a`.
        Ok(unsafe { (Self::new(front, address, lkey), Self::new(back, address + middle as u64, lkey)) })
    }

    /// A range as a scatter/gather entry.
    ///
    /// # Errors
    ///
    /// * [`Error::OutOfRange`](crate::Error::OutOfRange): the range does not lie in the slice.
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): it is longer than 32 bits tell.
    #[inline]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<LocalSlice<'_>> {
        let range = resolve(range, self.len(), "memory region")?;
        LocalSlice::new(self.address + range.start as u64, range.len(), self.lkey)
    }
}

impl fmt::Debug for LocalSliceMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalSliceMut({:p}, {} bytes, lkey {:#x})", self.bytes.as_ptr(), self.len(), self.lkey)
    }
}
