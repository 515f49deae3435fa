//! [`MemoryRegion`]: memory that a device, and through it a peer, may use.
//!
//! # Safety
//!
//! * `Inner` owns a buffer that was taken apart, and the registration of its memory. The buffer is put together again only
//!   after `ibv_dereg_mr` succeeded, which waits until the device has let go of the memory; if that fails, the buffer is
//!   leaked.
//! * The memory is reached through raw pointers only. Of a region of bytes, the program writes only through `&mut` and
//!   reads only through `&`, so no two threads race; elements that are shared by reference are atomics.
#![allow(unsafe_code)]

mod register;

use std::fmt;
use std::ops::RangeBounds;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::access_flags::AccessFlags;
use crate::buffer::{Atomic, Buffer, BufferMut};
use crate::error::{Error, Result};
use crate::ffi;
use crate::held_slice::HeldSlice;
use crate::local_slice::LocalSlice;
use crate::local_slice_mut::LocalSliceMut;
use crate::protection_domain::ProtectionDomain;
use crate::range::resolve;
use crate::raw_bytes::RawBytes;
use crate::remote_slice::RemoteSlice;
use crate::returns::{Errno, zero_or_errno};

pub use register::RegisterError;

struct Inner<B: Buffer> {
    mr: NonNull<ffi::ibv_mr>,
    data: NonNull<B::Element>,
    elements: usize,
    /// `None` once the buffer was put together again.
    rest: Option<B::Rest>,
    access: AccessFlags,
    lkey: u32,
    rkey: u32,
    // Freed after the region is deregistered.
    pd: ProtectionDomain,
}

// SAFETY: the buffer's owner is moved along with it, and `mr` is only passed to libibverbs and not written to.
unsafe impl<B: Buffer + Send> Send for Inner<B> {}
// SAFETY: by the file's second invariant, what is shared can only be read, or is atomic.
unsafe impl<B: Buffer + Sync> Sync for Inner<B> {}

impl<B: Buffer> Inner<B> {
    /// Deregisters and gives the buffer back. On failure nothing has changed.
    fn deregister(&mut self) -> Result<Option<B>, Errno> {
        let Some(rest) = self.rest.take() else { return Ok(None) };
        // SAFETY: the region is registered: `rest` was there. Nobody else uses it: we are borrowed mutably.
        match zero_or_errno(unsafe { ffi::ibv_dereg_mr(self.mr.as_ptr()) }) {
            // SAFETY: these are the parts of the buffer, taken once, and its memory is no longer registered.
            Ok(()) => Ok(Some(unsafe { B::from_raw_parts(self.data, self.elements, rest) })),
            Err(errno) => {
                self.rest = Some(rest);
                Err(errno)
            }
        }
    }

    fn length(&self) -> usize {
        self.elements * size_of::<B::Element>()
    }
}

impl<B: Buffer> Drop for Inner<B> {
    fn drop(&mut self) {
        if self.deregister().is_err() {
            // The device may still write to the memory: it is left where it is, for ever.
            std::mem::forget(self.rest.take());
        }
    }
}

/// `struct ibv_mr`: memory that is registered, so that the device may use it.
///
/// The region owns its buffer and gives it back in [`deregister`](Self::deregister). Since the device, and through it a
/// peer, may read and write the memory at any time, a region of bytes hands out no slice of it, only copies:
/// [`read_at`](Self::read_at) and [`write_at`](Self::write_at). A region of atomics can be shared as such:
/// [`as_atomics`](Self::as_atomics).
///
/// # Examples
///
/// ```no_run
/// use verbs::AccessFlags;
///
/// # fn main() -> verbs::Result<()> {
/// let context = verbs::devices()?.find(None)?.open()?;
/// let pd = context.create_protection_domain()?;
/// let mut region = pd.register(vec![0; 4096], AccessFlags::LOCAL_WRITE)?;
/// region.write_at(0, b"hello")?;
/// let entry = region.slice(..5)?;
/// assert_eq!(entry.len(), 5);
/// # Ok(()) }
/// ```
///
/// Memory that may go away before the region cannot be registered:
///
/// ```compile_fail,E0597
/// # fn example(pd: verbs::ProtectionDomain) -> verbs::Result<()> {
/// let mut buffer = [0; 64];
/// let region = pd.register(&mut buffer[..], verbs::AccessFlags::LOCAL_WRITE)?;
/// # Ok(()) }
/// ```
///
/// Nor can memory that the program shares be written to through its region:
///
/// ```compile_fail,E0599
/// # fn example(pd: verbs::ProtectionDomain) -> verbs::Result<()> {
/// let mut region = pd.register(&b"constant"[..], verbs::AccessFlags::empty())?;
/// region.write_at(0, b"changed")?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_mr")]
pub struct MemoryRegion<B: Buffer> {
    // What a scatter/gather entry is made of, copied from `inner`: found here, it stays in registers from one post to the next. A
    // receive then costs 105 instructions on the null provider, and not 113.
    data: NonNull<u8>,
    length: usize,
    lkey: u32,
    inner: Arc<Inner<B>>,
}

// SAFETY: `inner`, which owns the memory, can be sent.
unsafe impl<B: Buffer + Send + Sync> Send for MemoryRegion<B> {}
// SAFETY: `inner` can be shared, and by the file's second invariant so can its memory.
unsafe impl<B: Buffer + Send + Sync> Sync for MemoryRegion<B> {}

impl<B: Buffer> From<Inner<B>> for MemoryRegion<B> {
    fn from(inner: Inner<B>) -> Self {
        Self { data: inner.data.cast(), length: inner.length(), lkey: inner.lkey, inner: Arc::new(inner) }
    }
}

impl<B: Buffer> MemoryRegion<B> {
    /// How many bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it is of no bytes: never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key by which the local device finds the region.
    #[inline]
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// The key by which a peer finds the region. `None`: the region gives peers no right.
    pub fn rkey(&self) -> Option<u32> {
        self.inner.access.intersects(AccessFlags::REMOTE | AccessFlags::MW_BIND).then_some(self.inner.rkey)
    }

    /// What the region allows.
    pub fn access(&self) -> AccessFlags {
        self.inner.access
    }

    /// The domain in which the region was registered.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// A range as a scatter/gather entry. `..` takes all of it.
    ///
    /// # Errors
    ///
    /// * [`Error::OutOfRange`]: the range does not lie in the region.
    /// * [`Error::InvalidArgument`]: it is longer than 32 bits tell.
    #[inline]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<LocalSlice<'_>> {
        let range = resolve(range, self.len(), "memory region")?;
        LocalSlice::new(self.as_ptr().wrapping_add(range.start), range.len(), self.lkey)
    }

    /// A range as a scatter/gather entry that keeps the region registered, for requests that are
    /// [prepared](crate::PreparedSend) once and posted often.
    ///
    /// # Errors
    ///
    /// As those of [`slice`](Self::slice).
    pub fn hold(&self, range: impl RangeBounds<usize>) -> Result<HeldSlice>
    where
        B: Send + Sync,
        B::Rest: Send + Sync,
    {
        HeldSlice::new(self.inner.clone(), self.as_ptr(), self.len(), self.lkey, range)
    }

    /// The description of a range for a peer, to be sent to it.
    ///
    /// # Errors
    ///
    /// * [`Error::OutOfRange`]: the range does not lie in the region.
    /// * [`Error::InvalidArgument`]: the region gives peers no right.
    pub fn remote_slice(&self, range: impl RangeBounds<usize>) -> Result<RemoteSlice> {
        let range = resolve(range, self.len(), "memory region")?;
        let address = self.as_ptr() as u64 + range.start as u64;
        let slice = self.rkey().and_then(|rkey| RemoteSlice::new(address, range.len() as u64, rkey));
        slice.ok_or_else(|| {
            let access = format!("{:?}", self.inner.access);
            Error::invalid("ibv_reg_mr", "access", access, "a peer needs REMOTE_READ, REMOTE_WRITE or REMOTE_ATOMIC")
        })
    }

    /// `ibv_dereg_mr`: ends the registration and gives the buffer back. It returns when the device has let go of the memory;
    /// requests that still name the region fail.
    ///
    /// # Errors
    ///
    /// The region comes back with the error:
    ///
    /// * [`Error::Busy`]: a [`HeldSlice`], in a prepared request for example, keeps the region.
    /// * `EBUSY`, `EINVAL`: a memory window is bound to it.
    ///
    /// # References
    ///
    /// [ibv_dereg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_dereg_mr.3.html)
    #[doc(alias = "ibv_dereg_mr")]
    pub fn deregister(self) -> Result<B, (Self, Error)> {
        const VERB: &str = "ibv_dereg_mr";
        let busy = || Error::Busy {
            verb: VERB,
            object: "memory region",
            users: "a HeldSlice, in a prepared request for example",
        };
        let Self { data, length, lkey, inner } = self;
        let mut inner = Arc::try_unwrap(inner).map_err(|inner| (Self { data, length, lkey, inner }, busy()))?;
        match inner.deregister() {
            Ok(Some(buffer)) => Ok(buffer),
            // A region whose buffer is gone is never handed out.
            Ok(None) => Err((inner.into(), busy())),
            Err(errno) => {
                let error = errno.with_remedy(
                    VERB,
                    format_args!("{} bytes, lkey {:#x}", inner.length(), inner.lkey),
                    "a memory window that is bound to the region keeps it registered",
                );
                Err((inner.into(), error))
            }
        }
    }

    /// Where the memory begins. Reading and writing through the pointer is `unsafe`: the device may do so at the same time.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.data.as_ptr()
    }

    /// The region in libibverbs' terms; valid as long as `self`, and not to be deregistered.
    pub fn as_raw(&self) -> *mut ffi::ibv_mr {
        self.inner.mr.as_ptr()
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
    /// [`Error::OutOfRange`]: the bytes do not lie in the region.
    pub fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        self.bytes().read_at(offset, into)
    }

    /// Copies a range out into a vector.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`]: the range does not lie in the region.
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
        unsafe { std::slice::from_raw_parts(self.inner.data.as_ptr(), self.inner.elements) }
    }
}

impl<B: BufferMut> MemoryRegion<B> {
    /// Copies bytes in, from `offset` on.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`]: the bytes do not lie in the region.
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
        unsafe { LocalSliceMut::new(self.bytes(), self.lkey) }
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
        unsafe { std::slice::from_raw_parts_mut(self.inner.data.as_ptr(), self.inner.elements) }
    }
}

impl<A: Atomic, B: Buffer<Element = A>> MemoryRegion<B> {
    /// The memory as atomics, which the program may use while the device does.
    pub fn as_atomics(&self) -> &[A] {
        // SAFETY: the memory is valid as long as `self`, and atomics may be written to by others.
        unsafe { std::slice::from_raw_parts(self.inner.data.as_ptr(), self.inner.elements) }
    }
}

impl<B: Buffer> fmt::Debug for MemoryRegion<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("address", &self.as_ptr())
            .field("length", &self.len())
            .field("lkey", &self.lkey())
            .field("rkey", &self.rkey())
            .field("access", &self.access())
            .finish()
    }
}
