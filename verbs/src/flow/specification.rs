//! A rule as C has it: an `ibv_flow_attr`, and behind it one structure for each thing that is asked for.
//!
//! # Safety
//!
//! The buffer's first word is half used, so that what follows the 20 bytes of the `ibv_flow_attr` begins at a whole word. Each structure
//! there has a size of whole words, so that those with a pointer have it where it can be read. Structures are plain integers, arrays of
//! them and pointers.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr;

use crate::ffi;

/// Where the `ibv_flow_attr` begins.
const OFFSET: usize = 4;

/// What `ibv_create_flow` is given.
pub(super) struct RawRule {
    words: Vec<MaybeUninit<u64>>,
    bytes: usize,
    count: u8,
}

impl RawRule {
    pub(super) fn new(attributes: ffi::ibv_flow_attr) -> Self {
        const { assert!((OFFSET + size_of::<ffi::ibv_flow_attr>()) % size_of::<u64>() == 0) };
        let mut rule = Self { words: Vec::new(), bytes: OFFSET, count: 0 };
        rule.append(attributes);
        rule
    }

    /// Appends a structure that says what it is; its size is rounded up to whole words, as `specification` is told it is.
    pub(super) fn push<S>(&mut self, specification: impl FnOnce(u16) -> S) {
        self.append(specification(Self::size::<S>()));
        self.bytes = self.bytes.next_multiple_of(size_of::<u64>());
        self.count += 1;
    }

    fn size<S>() -> u16 {
        size_of::<S>().next_multiple_of(size_of::<u64>()) as u16
    }

    fn append<S>(&mut self, value: S) {
        let end = self.bytes + size_of::<S>();
        self.words.resize(end.div_ceil(size_of::<u64>()), MaybeUninit::new(0));
        // SAFETY: there is room for the structure at `bytes`, and a copy of bytes has no need of alignment.
        unsafe {
            let place = self.words.as_mut_ptr().cast::<u8>().add(self.bytes);
            ptr::copy_nonoverlapping(ptr::from_ref(&value).cast::<u8>(), place, size_of::<S>());
        }
        self.bytes = end;
    }

    /// The rule, valid as long as `self`.
    pub(super) fn as_mut_ptr(&mut self) -> *mut ffi::ibv_flow_attr {
        let (bytes, count) = (self.bytes - OFFSET, self.count);
        // SAFETY: the `ibv_flow_attr` was written there first, at a multiple of its alignment, which is 4.
        unsafe {
            let attributes: *mut ffi::ibv_flow_attr = self.words.as_mut_ptr().byte_add(OFFSET).cast();
            // A rule has at most one structure of each of few kinds.
            (*attributes).size = bytes as u16;
            (*attributes).num_of_specs = count;
            attributes
        }
    }
}
