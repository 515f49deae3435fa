//! The memory of a region, for the processor.
//!
//! # Safety
//!
//! * The memory of a buffer is valid as long as its region, and writable if the buffer is a `BufferMut`. It is reached through raw
//!   pointers only.
//! * Of a region of bytes, the program writes only through `&mut` and reads only through `&`, so no two threads race; elements that are
//!   shared by reference are atomics.
#![allow(unsafe_code)]

use std::ops::RangeBounds;

use super::MemoryRegion;
use super::memory::Memory;
use crate::buffer::{Atomic, Buffer, BufferMut};
use crate::error::Result;
use crate::local_slice_mut::LocalSliceMut;
use crate::range::resolve;
use crate::raw_bytes::RawBytes;

// SAFETY: `inner`, which owns the memory, can be sent.
unsafe impl<M: Memory + Send + Sync> Send for MemoryRegion<M> {}
// SAFETY: `inner` can be shared, and by the file's second invariant so can its memory.
unsafe impl<M: Memory + Send + Sync> Sync for MemoryRegion<M> {}

impl<B: Buffer> MemoryRegion<B> {
    /// Where the memory begins. Reading and writing through the pointer is `unsafe`: the device may do so at the same time.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.data.as_ptr()
    }
}

impl<B: Buffer<Element = u8>> MemoryRegion<B> {
    fn bytes(&self) -> RawBytes {
        // SAFETY: the buffer's memory is valid for reads as long as `self`, and for writes if `B` is a `BufferMut`.
        unsafe { RawBytes::new(self.data, self.length) }
    }

    /// Copies bytes out, from `offset` on. What the device writes at the same time may be there in part.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`](crate::Error::OutOfRange): the bytes do not lie in the region.
    pub fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        self.bytes().read_at(offset, into)
    }

    /// Copies a range out into a vector.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`](crate::Error::OutOfRange): the range does not lie in the region.
    pub fn to_vec(&self, range: impl RangeBounds<usize>) -> Result<Vec<u8>> {
        let range = resolve(range, self.len(), "memory region")?;
        let mut bytes = vec![0; range.len()];
        self.read_at(range.start, &mut bytes)?;
        Ok(bytes)
    }

    /// The memory as a slice, without a copy.
    ///
    /// # Safety
    ///
    /// As long as the slice lives, neither the device nor a peer writes to the memory: no receive, RDMA READ or atomic
    /// into it is in flight, and no peer that has its `rkey` writes.
    pub unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the memory is valid as long as `self`, and nobody writes to it: not the program, since `self` is borrowed,
        // and nobody else, as the caller says.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.length) }
    }
}

impl<B: BufferMut> MemoryRegion<B> {
    /// Copies bytes in, from `offset` on.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`](crate::Error::OutOfRange): the bytes do not lie in the region.
    pub fn write_at(&mut self, offset: usize, from: &[u8]) -> Result<()> {
        self.as_local_mut().write_at(offset, from)
    }

    /// Sets each byte to `value`.
    pub fn fill(&mut self, value: u8) {
        self.as_local_mut().fill(value);
    }

    /// The whole region as a slice to copy into, which can be split up for several threads.
    pub fn as_local_mut(&mut self) -> LocalSliceMut<'_> {
        // SAFETY: the memory is writable, since `B` is a `BufferMut`, valid as long as `self`, and `self` is borrowed mutably.
        unsafe { LocalSliceMut::new(self.bytes(), self.address, self.lkey) }
    }

    /// The memory as a slice, without a copy.
    ///
    /// # Safety
    ///
    /// As long as the slice lives, neither the device nor a peer reads or writes the memory: no request that names it is in
    /// flight, and no peer that has its `rkey` uses it.
    pub unsafe fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the memory is writable and valid as long as `self`, and nobody else uses it: not the program, since `self`
        // is borrowed mutably, and nobody else, as the caller says.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.length) }
    }
}

impl<A: Atomic, B: Buffer<Element = A>> MemoryRegion<B> {
    /// The memory as atomics, which the program may use while the device does.
    ///
    /// They are there as long as the region:
    ///
    /// ```compile_fail,E0505
    /// # use std::sync::atomic::{AtomicU64, Ordering};
    /// # fn example(region: verbs::MemoryRegion<Box<[AtomicU64]>>) -> verbs::Result<()> {
    /// let flag = &region.as_atomics()[0];
    /// let buffer = region.deregister().map_err(|(_, error)| error)?;
    /// flag.store(1, Ordering::Relaxed);
    /// # Ok(()) }
    /// ```
    pub fn as_atomics(&self) -> &[A] {
        let elements = self.length / size_of::<A>();
        // SAFETY: the memory is `elements` atomics, valid as long as `self`, and atomics may be written to by others.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr().cast(), elements) }
    }
}
