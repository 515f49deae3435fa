//! [`Buffer`]: memory that can be registered.
//!
//! # Safety
//!
//! Each implementation takes the memory apart without freeing or moving it, and puts together only what it took apart.
#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Memory that can be registered: it stays at its address while its owner is moved or forgotten.
///
/// A [`MemoryRegion`](crate::MemoryRegion) takes its buffer apart into raw parts and keeps no reference to it, since a
/// device, and through it a peer, may read and write the memory at any time.
///
/// Memory that is moved with its owner is no buffer:
///
/// ```compile_fail,E0277
/// # fn example(pd: &verbs::ProtectionDomain) -> verbs::Result<()> {
/// let region = pd.register([0u8; 64], verbs::AccessFlags::LOCAL_WRITE)?;
/// # Ok(()) }
/// ```
///
/// Nor is memory that somebody else can make grow, shrink or free:
///
/// ```compile_fail,E0277
/// # fn example(pd: &verbs::ProtectionDomain, buffer: &'static mut Vec<u8>) -> verbs::Result<()> {
/// let region = pd.register(buffer, verbs::AccessFlags::LOCAL_WRITE)?;
/// # Ok(()) }
/// ```
///
/// # Safety
///
/// * The memory that [`into_raw_parts`](Self::into_raw_parts) returns is `length` initialised elements. It stays valid,
///   at that address, and used by nobody else, until [`from_raw_parts`](Self::from_raw_parts) is called with these parts;
///   if that never happens, for ever. (Shared references to read-only memory and to atomics may exist elsewhere.)
/// * Each bit pattern is a valid `Element`, and `Element` has no destructor.
/// * If `WRITABLE`, the memory may be written to through the pointer.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no buffer that can be registered",
    label = "not the owner of bytes or atomics that stay at their address",
    note = "boxed slices, vectors and `'static` slices of bytes, boxes and `Arc`s of atomics, and `verbs::Mapping` can be"
)]
pub unsafe trait Buffer: Sized + 'static {
    /// What the memory consists of: `u8`, or an atomic integer.
    type Element: 'static;
    /// What else is needed to put the buffer together again. It may end up in any thread: what holds a region, such as a
    /// [`HeldSlice`](crate::HeldSlice), keeps it.
    type Rest: Send + Sync;
    /// Whether the memory may be written to.
    const WRITABLE: bool;

    /// Takes the buffer apart: where it begins, how many elements it has, and the rest.
    fn into_raw_parts(self) -> (NonNull<Self::Element>, usize, Self::Rest);

    /// Puts a buffer together again.
    ///
    /// # Safety
    ///
    /// The parts come from [`into_raw_parts`](Self::into_raw_parts) and are used once. The memory is no longer registered.
    unsafe fn from_raw_parts(data: NonNull<Self::Element>, length: usize, rest: Self::Rest) -> Self;
}

/// A [`Buffer`] of bytes that the program may write to.
///
/// # Safety
///
/// `WRITABLE` is true.
pub unsafe trait BufferMut: Buffer<Element = u8> {}

/// An atomic integer.
///
/// # Safety
///
/// The type is one of those in [`std::sync::atomic`].
pub unsafe trait Atomic: Sync {}

// SAFETY: they are from that module.
unsafe impl Atomic for AtomicU8 {}
// SAFETY: as above.
unsafe impl Atomic for AtomicU16 {}
// SAFETY: as above.
unsafe impl Atomic for AtomicU32 {}
// SAFETY: as above.
unsafe impl Atomic for AtomicU64 {}

// SAFETY: a slice that was boxed stays where it is, and the parts make up the box.
unsafe impl Buffer for Box<[u8]> {
    type Element = u8;
    type Rest = ();
    const WRITABLE: bool = true;

    fn into_raw_parts(self) -> (NonNull<u8>, usize, ()) {
        let length = self.len();
        (NonNull::from(Box::leak(self)).cast(), length, ())
    }

    unsafe fn from_raw_parts(data: NonNull<u8>, length: usize, (): ()) -> Self {
        // SAFETY: the caller passes the parts of a box.
        unsafe { Box::from_raw(NonNull::slice_from_raw_parts(data, length).as_ptr()) }
    }
}
// SAFETY: it is writable.
unsafe impl BufferMut for Box<[u8]> {}

// SAFETY: a vector's elements stay where they are unless it grows, and nobody can make it grow; the parts make up the
// vector.
unsafe impl Buffer for Vec<u8> {
    type Element = u8;
    /// The capacity.
    type Rest = usize;
    const WRITABLE: bool = true;

    fn into_raw_parts(self) -> (NonNull<u8>, usize, usize) {
        let mut vector = ManuallyDrop::new(self);
        (NonNull::from(vector.as_mut_slice()).cast(), vector.len(), vector.capacity())
    }

    unsafe fn from_raw_parts(data: NonNull<u8>, length: usize, capacity: usize) -> Self {
        // SAFETY: the caller passes the parts of a vector.
        unsafe { Vec::from_raw_parts(data.as_ptr(), length, capacity) }
    }
}
// SAFETY: it is writable.
unsafe impl BufferMut for Vec<u8> {}

// SAFETY: the memory is never freed, and not writable through us.
unsafe impl Buffer for &'static [u8] {
    type Element = u8;
    type Rest = ();
    const WRITABLE: bool = false;

    fn into_raw_parts(self) -> (NonNull<u8>, usize, ()) {
        (NonNull::from(self).cast(), self.len(), ())
    }

    unsafe fn from_raw_parts(data: NonNull<u8>, length: usize, (): ()) -> Self {
        // SAFETY: the caller passes the parts of a `'static` slice.
        unsafe { std::slice::from_raw_parts(data.as_ptr(), length) }
    }
}

// SAFETY: the memory is never freed, and nobody else can reach it.
unsafe impl Buffer for &'static mut [u8] {
    type Element = u8;
    type Rest = ();
    const WRITABLE: bool = true;

    fn into_raw_parts(self) -> (NonNull<u8>, usize, ()) {
        let length = self.len();
        (NonNull::from(self).cast(), length, ())
    }

    unsafe fn from_raw_parts(data: NonNull<u8>, length: usize, (): ()) -> Self {
        // SAFETY: the caller passes the parts of a `'static` slice.
        unsafe { std::slice::from_raw_parts_mut(data.as_ptr(), length) }
    }
}
// SAFETY: it is writable.
unsafe impl BufferMut for &'static mut [u8] {}

// SAFETY: a slice that was boxed stays where it is, the parts make up the box, and atomics may be written to while others
// hold references to them.
unsafe impl<A: Atomic + 'static> Buffer for Box<[A]> {
    type Element = A;
    type Rest = ();
    const WRITABLE: bool = true;

    fn into_raw_parts(self) -> (NonNull<A>, usize, ()) {
        let length = self.len();
        (NonNull::from(Box::leak(self)).cast(), length, ())
    }

    unsafe fn from_raw_parts(data: NonNull<A>, length: usize, (): ()) -> Self {
        // SAFETY: the caller passes the parts of a box.
        unsafe { Box::from_raw(NonNull::slice_from_raw_parts(data, length).as_ptr()) }
    }
}

// SAFETY: what is counted stays where it is as long as its count is above 0, the parts make up a count, and atomics may be written to
// while others hold references to them.
unsafe impl<A: Atomic + 'static> Buffer for Arc<[A]> {
    type Element = A;
    type Rest = ();
    const WRITABLE: bool = true;

    fn into_raw_parts(self) -> (NonNull<A>, usize, ()) {
        let length = self.len();
        let data = Arc::into_raw(self).cast_mut().cast();
        // SAFETY: the pointer of an `Arc` is not null.
        (unsafe { NonNull::new_unchecked(data) }, length, ())
    }

    unsafe fn from_raw_parts(data: NonNull<A>, length: usize, (): ()) -> Self {
        // SAFETY: the caller passes the parts of an `Arc`.
        unsafe { Arc::from_raw(NonNull::slice_from_raw_parts(data, length).as_ptr()) }
    }
}

// SAFETY: the memory is never freed, and atomics may be written to while others hold references to them.
unsafe impl<A: Atomic + 'static> Buffer for &'static [A] {
    type Element = A;
    type Rest = ();
    const WRITABLE: bool = true;

    fn into_raw_parts(self) -> (NonNull<A>, usize, ()) {
        (NonNull::from(self).cast(), self.len(), ())
    }

    unsafe fn from_raw_parts(data: NonNull<A>, length: usize, (): ()) -> Self {
        // SAFETY: the caller passes the parts of a `'static` slice.
        unsafe { std::slice::from_raw_parts(data.as_ptr(), length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    fn round_trip<B: Buffer>(buffer: B) -> (B, usize) {
        let (data, length, rest) = buffer.into_raw_parts();
        // SAFETY: the parts were taken apart in the line above.
        (unsafe { B::from_raw_parts(data, length, rest) }, length)
    }

    #[test]
    fn a_buffer_taken_apart_and_put_together_is_the_same() {
        let mut vector = Vec::with_capacity(100);
        vector.extend_from_slice(b"vector");
        let address = vector.as_ptr();
        let (vector, length) = round_trip(vector);
        assert_eq!((vector.as_slice(), length, vector.capacity()), (&b"vector"[..], 6, 100));
        assert_eq!(vector.as_ptr(), address);
        let (boxed, length) = round_trip(Box::<[u8]>::from(&b"box"[..]));
        assert_eq!((&*boxed, length), (&b"box"[..], 3));
        assert_eq!(round_trip(&b"static"[..]), (&b"static"[..], 6));
        let (atomics, length) = round_trip(Box::<[AtomicU64]>::from([AtomicU64::new(5), AtomicU64::new(6)]));
        assert_eq!((atomics[1].load(Ordering::Relaxed), length), (6, 2));
        let shared: Arc<[AtomicU64]> = Arc::new([AtomicU64::new(7), AtomicU64::new(8)]);
        let (same, length) = round_trip(shared.clone());
        shared[1].store(9, Ordering::Relaxed);
        assert_eq!((same[1].load(Ordering::Relaxed), length, Arc::strong_count(&shared)), (9, 2, 2));
        assert_eq!(round_trip(Box::<[u8]>::default()).1, 0);
        assert_eq!(round_trip(Vec::new()).1, 0);
    }
}
