//! Copies in and out of memory that a device may use at the same time.
//!
//! # Safety
//!
//! `RawBytes` is made of memory that stays valid as long as the `RawBytes` is used. The owner lets no two threads write, or
//! read and write, the same bytes at once; what the device does meanwhile is outside Rust's model, and no reference to
//! the memory is ever made.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use crate::error::Result;
use crate::range::resolve;

const OBJECT: &str = "memory region";

#[derive(Clone, Copy)]
pub(crate) struct RawBytes {
    data: NonNull<u8>,
    length: usize,
}

impl RawBytes {
    /// # Safety
    ///
    /// The `length` bytes at `data` are valid for reads as long as the value is used, and for writes if `write_at` or
    /// `fill` is.
    pub(crate) unsafe fn new(data: NonNull<u8>, length: usize) -> Self {
        Self { data, length }
    }

    pub(crate) fn as_ptr(self) -> *mut u8 {
        self.data.as_ptr()
    }

    pub(crate) fn len(self) -> usize {
        self.length
    }

    pub(crate) fn read_at(self, offset: usize, into: &mut [u8]) -> Result<()> {
        let range = resolve(offset..offset.saturating_add(into.len()), self.length, OBJECT)?;
        // SAFETY: the range lies in the memory, which is valid for reads and does not overlap a `&mut` of the caller's.
        unsafe { self.data.add(range.start).as_ptr().copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// # Safety
    ///
    /// The memory is valid for writes, and no other thread reads or writes these bytes.
    pub(crate) unsafe fn write_at(self, offset: usize, from: &[u8]) -> Result<()> {
        let range = resolve(offset..offset.saturating_add(from.len()), self.length, OBJECT)?;
        // SAFETY: the range lies in the memory, which the caller may write to; no `&` of the caller's overlaps it, since
        // nobody makes references to registered memory.
        unsafe { self.data.add(range.start).as_ptr().copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        Ok(())
    }

    /// # Safety
    ///
    /// The memory is valid for writes, and no other thread reads or writes it.
    pub(crate) unsafe fn fill(self, value: u8) {
        // SAFETY: the memory is valid for writes of this length, as the caller says.
        unsafe { self.data.as_ptr().write_bytes(value, self.length) };
    }

    pub(crate) fn split_at(self, middle: usize) -> Result<(Self, Self)> {
        let front = resolve(..middle, self.length, OBJECT)?;
        // SAFETY: `middle` is at most the length, so the sum stays in the memory or one past its end.
        let back = unsafe { self.data.add(front.end) };
        Ok((Self { data: self.data, length: front.end }, Self { data: back, length: self.length - front.end }))
    }
}
