//! [`RawBuffer`]: memory that the program answers for.
//!
//! # Safety
//!
//! Whoever makes a `RawBuffer` promises what [`RawBuffer::new`] asks for.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;

use crate::buffer::{Atomic, Buffer, BufferMut};

/// A range of memory by its address: of a mapping of the program's own, of a library that allocates, of memory that is shared with another
/// process. Its elements are bytes, or atomics.
///
/// # Examples
///
/// ```no_run
/// use verbs::{AccessFlags, RawBuffer};
///
/// # fn example(pd: &verbs::ProtectionDomain, data: std::ptr::NonNull<u8>) -> verbs::Result<()> {
/// // SAFETY: the library's pool lasts as long as the program, and nobody else uses these bytes.
/// let buffer = unsafe { RawBuffer::new(data, 1 << 20) };
/// let region = pd.register(buffer, AccessFlags::LOCAL_WRITE)?;
/// # Ok(()) }
/// ```
///
/// The program has to answer for the memory:
///
/// ```compile_fail,E0133
/// # fn example(data: std::ptr::NonNull<u8>) {
/// let buffer = verbs::RawBuffer::new(data, 1 << 20);
/// # }
/// ```
pub struct RawBuffer<E = u8> {
    data: NonNull<E>,
    elements: usize,
}

// SAFETY: the memory is the buffer's alone, or atomic.
unsafe impl<E: Send> Send for RawBuffer<E> {}
// SAFETY: as above; nothing is reached through a shared reference.
unsafe impl<E: Sync> Sync for RawBuffer<E> {}

impl<E> RawBuffer<E> {
    /// The `elements` elements at `data`.
    ///
    /// # Safety
    ///
    /// * The memory is initialised, aligned for `E`, and valid for reads and writes, and not larger than `isize::MAX` bytes.
    /// * It stays so as long as this value exists, or a region that was made of it, or anything that holds such a region: a
    ///   [`HeldSlice`](crate::HeldSlice) and what is made of one, a memory window that was bound to it, a further region of the same
    ///   memory. Dropping the last of them is not enough if the device refuses to let go, which only
    ///   [`leaked_bytes`](crate::leaked_bytes) tells: to free the memory, let [`deregister`](crate::MemoryRegion::deregister) return this
    ///   value, and drop it.
    /// * Meanwhile nobody else uses it, unless through references to atomics.
    pub const unsafe fn new(data: NonNull<E>, elements: usize) -> Self {
        Self { data, elements }
    }

    /// Where it begins.
    pub const fn as_ptr(&self) -> *mut E {
        self.data.as_ptr()
    }

    /// How many elements.
    pub const fn len(&self) -> usize {
        self.elements
    }

    /// Whether it is of no elements.
    pub const fn is_empty(&self) -> bool {
        self.elements == 0
    }
}

impl<E> fmt::Debug for RawBuffer<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawBuffer({:p}, {} elements)", self.data, self.elements)
    }
}

// SAFETY: whoever made the buffer promises that its memory stays, and is used by nobody else.
unsafe impl Buffer for RawBuffer<u8> {
    type Element = u8;
    type Rest = ();
    const WRITABLE: bool = true;

    fn into_raw_parts(self) -> (NonNull<u8>, usize, ()) {
        (self.data, self.elements, ())
    }

    unsafe fn from_raw_parts(data: NonNull<u8>, elements: usize, (): ()) -> Self {
        Self { data, elements }
    }
}
// SAFETY: it is writable.
unsafe impl BufferMut for RawBuffer<u8> {}

// SAFETY: as above, and atomics may be written to while others hold references to them.
unsafe impl<A: Atomic + 'static> Buffer for RawBuffer<A> {
    type Element = A;
    type Rest = ();
    const WRITABLE: bool = true;

    fn into_raw_parts(self) -> (NonNull<A>, usize, ()) {
        (self.data, self.elements, ())
    }

    unsafe fn from_raw_parts(data: NonNull<A>, elements: usize, (): ()) -> Self {
        Self { data, elements }
    }
}
