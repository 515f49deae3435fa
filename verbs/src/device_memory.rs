//! [`DeviceMemory`]: memory on the device.
//!
//! # Safety
//!
//! `Inner::dm` came from `ibv_alloc_dm` or, if `Inner::imported`, `ibv_import_dm`, and is freed or let go of only when `Inner` is dropped,
//! which each region of it holds. What is copied lies in its `length` bytes.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fmt;
use std::ops::{Range, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::access_flags::AccessFlags;
use crate::context::{Context, must_be_made_of};
use crate::error::{Error, Result};
use crate::ffi;
use crate::memory_region::{MemoryRegion, out_of_reach};
use crate::protection_domain::ProtectionDomain;
use crate::range::resolve;
use crate::returns::{Errno, null_and_errno, zero_or_errno};

const OBJECT: &str = "device memory";

struct Inner {
    dm: NonNull<ffi::ibv_dm>,
    length: usize,
    imported: bool,
    // Closed after the memory is freed.
    context: Context,
}

// SAFETY: the memory is only passed to libibverbs, and its structure is not written to.
unsafe impl Send for Inner {}
// SAFETY: as above; `DeviceMemory` lets no two threads copy to and from the same memory.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the memory is there, and every region of it held us and is gone.
        unsafe {
            if self.imported {
                ffi::ibv_unimport_dm(self.dm.as_ptr());
            } else {
                let _ = ffi::ibv_free_dm(self.dm.as_ptr());
            }
        }
    }
}

/// `struct ibv_dm`: memory on the device itself, which it reaches without crossing the bus. The program copies in and out of it.
///
/// # Examples
///
/// ```no_run
/// # use verbs::{AccessFlags, Context, ProtectionDomain};
/// # fn example(context: &Context, pd: &ProtectionDomain) -> verbs::Result<()> {
/// let mut memory = context.allocate_device_memory(4096, 0)?;
/// memory.write_at(0, &[0; 4096])?;
/// let counters = pd.register_device_memory(&memory, .., AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_ATOMIC)?;
/// assert_eq!(counters.remote_slice(8..16)?.address(), 8);
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_dm")]
pub struct DeviceMemory {
    inner: Arc<Inner>,
}

/// What a region of device memory is of: a range of a [`DeviceMemory`], which it keeps.
pub struct DeviceMemoryRange {
    _memory: Arc<Inner>,
    range: Range<usize>,
}

out_of_reach!(DeviceMemoryRange, is_buffer: false);

impl From<Inner> for DeviceMemory {
    fn from(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }
}

impl Context {
    /// `ibv_alloc_dm`: allocates memory on the device, aligned to 2 to the power of `log_alignment`.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: `length` is 0.
    /// * [`Error::Unsupported`]: the device, or its provider, has no such memory (rxe).
    /// * `ENOMEM`, `EINVAL`: the device does not have that much.
    ///
    /// # References
    ///
    /// [ibv_alloc_dm(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_dm.3.html)
    #[doc(alias = "ibv_alloc_dm")]
    pub fn allocate_device_memory(&self, length: usize, log_alignment: u32) -> Result<DeviceMemory> {
        const VERB: &str = "ibv_alloc_dm";
        if length == 0 {
            return Err(Error::invalid(VERB, "length", 0, "memory has at least one byte"));
        }
        let mut attributes = ffi::ibv_alloc_dm_attr { length, log_align_req: log_alignment, comp_mask: 0 };
        // SAFETY: the context is open, and `attributes` outlives the call.
        let dm = null_and_errno(unsafe { ffi::ibv_alloc_dm(self.as_raw(), &mut attributes) }).map_err(|errno| {
            let arguments = format!("{length} bytes, alignment 2^{log_alignment}, {}", self.device().name());
            errno.with_remedy(VERB, arguments, "see `max_dm_size` in `ibv_devinfo -v`")
        })?;
        Ok(Inner { dm, length, imported: false, context: self.clone() }.into())
    }

    /// `ibv_import_dm`: device memory of the process that the device was [imported](Self::import) from, by the number that
    /// [`handle`](DeviceMemory::handle) shows there. Dropping it leaves the memory alone.
    ///
    /// # Safety
    ///
    /// * The memory has `length` bytes. (libibverbs does not tell.)
    /// * Whoever allocated it frees it after the last handle here, and the last region of it, are gone.
    ///
    /// # Errors
    ///
    /// * `ENOENT`, `EINVAL`: the device has no such memory.
    /// * [`Error::Unsupported`]: the provider cannot (rxe).
    ///
    /// # References
    ///
    /// [ibv_import_dm(3)](https://man7.org/linux/man-pages/man3/ibv_import_dm.3.html)
    #[doc(alias = "ibv_import_dm")]
    #[doc(alias = "ibv_unimport_dm")]
    pub unsafe fn import_device_memory(&self, handle: u32, length: usize) -> Result<DeviceMemory> {
        // SAFETY: the context is open. The kernel looks whether there is such memory.
        let dm = null_and_errno(unsafe { ffi::ibv_import_dm(self.as_raw(), handle) })
            .map_err(|errno| errno.of("ibv_import_dm", format_args!("{}, handle {handle}", self.device().name())))?;
        Ok(Inner { dm, length, imported: true, context: self.clone() }.into())
    }
}

impl ProtectionDomain {
    /// `ibv_reg_dm_mr`: registers a range of device memory. Its addresses, for the device and for peers, begin at 0:
    /// [`ZERO_BASED`](AccessFlags::ZERO_BASED) is added to `access`.
    ///
    /// The region keeps the memory.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: the memory is of another context, or the range is empty; `access` lets peers write and lacks
    ///   `LOCAL_WRITE`.
    /// * [`Error::OutOfRange`]: the range does not lie in the memory.
    /// * [`Error::Unsupported`]: the provider cannot.
    /// * `EINVAL`: the device does not know a flag of `access`.
    ///
    /// # References
    ///
    /// [ibv_alloc_dm(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_dm.3.html)
    #[doc(alias = "ibv_reg_dm_mr")]
    pub fn register_device_memory(
        &self,
        memory: &DeviceMemory,
        range: impl RangeBounds<usize>,
        access: AccessFlags,
    ) -> Result<MemoryRegion<DeviceMemoryRange>> {
        const VERB: &str = "ibv_reg_dm_mr";
        self.context().must_be(&memory.inner.context, VERB, "dm")?;
        let access = access | AccessFlags::ZERO_BASED;
        access.check_for_memory(true)?;
        let range = resolve(range, memory.len(), OBJECT)?;
        if range.is_empty() {
            return Err(Error::invalid(VERB, "length", 0, "a region has at least one byte"));
        }
        let (dm, bits) = (memory.as_raw(), access.bits());
        // SAFETY: the domain and the memory are alive and of one context, and the range lies in the memory.
        let mr = unsafe { ffi::ibv_reg_dm_mr(self.as_raw(), dm, range.start as u64, range.len(), bits) };
        let mr = null_and_errno(mr).map_err(|errno| errno.of(VERB, format_args!("{range:?}, {access:?}")))?;
        let length = range.len();
        let part = DeviceMemoryRange { _memory: memory.inner.clone(), range };
        // SAFETY: the region was registered just now, and the part keeps its memory.
        Ok(unsafe { MemoryRegion::out_of_reach(mr, part, 0, length, access, self) })
    }
}

impl DeviceMemory {
    /// Takes over memory that was allocated by other means, such as a provider's own call. It is freed when it is dropped, and the last
    /// region of it.
    ///
    /// # Safety
    ///
    /// * `dm` is there, has `length` bytes, and nobody else frees it.
    /// * Regions of it that were registered by other means are gone before it is.
    /// * Nobody copies to it by other means while a method of it runs.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: it was allocated in another context. It then still belongs to the caller.
    pub unsafe fn from_raw(dm: NonNull<ffi::ibv_dm>, length: usize, context: &Context) -> Result<Self> {
        // SAFETY: the memory is there.
        must_be_made_of("ibv_alloc_dm", &[("context", unsafe { dm.as_ref().context } == context.as_raw())])?;
        Ok(Inner { dm, length, imported: false, context: context.clone() }.into())
    }

    /// The memory's number, by which another process can [import](Context::import_device_memory) it. `None`: the provider does not tell.
    pub fn handle(&self) -> Option<u32> {
        // SAFETY: the memory is there, and its structure does not change.
        let dm = unsafe { self.inner.dm.as_ref() };
        (dm.comp_mask & ffi::ibv_dm_mask::IBV_DM_MASK_HANDLE.0 != 0).then_some(dm.handle)
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.inner.length
    }

    /// Whether it is of no bytes: never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The context in which the memory was allocated.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// `ibv_memcpy_to_dm`: copies bytes in, from `offset` on.
    ///
    /// # Errors
    ///
    /// * [`Error::OutOfRange`]: the bytes do not lie in the memory.
    /// * The provider's error number: some want an offset and a length that are multiples of 4.
    ///
    /// # References
    ///
    /// [ibv_alloc_dm(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_dm.3.html)
    #[doc(alias = "ibv_memcpy_to_dm")]
    pub fn write_at(&mut self, offset: usize, from: &[u8]) -> Result<()> {
        const VERB: &str = "ibv_memcpy_to_dm";
        resolve(offset..offset.saturating_add(from.len()), self.len(), OBJECT)?;
        let dm = self.as_raw();
        // SAFETY: the memory is there, and nobody else in the program copies to it: `self` is borrowed mutably.
        let Some(copy) = (unsafe { (*dm).memcpy_to_dm }) else { return Err(Errno(libc::EOPNOTSUPP).of(VERB, OBJECT)) };
        // SAFETY: as above; the bytes lie in the memory.
        copied(VERB, offset, from.len(), unsafe { copy(dm, offset as u64, from.as_ptr().cast(), from.len()) })
    }

    /// `ibv_memcpy_from_dm`: copies bytes out, from `offset` on. What the device writes at the same time may be there in part.
    ///
    /// # Errors
    ///
    /// As those of [`write_at`](Self::write_at).
    ///
    /// # References
    ///
    /// [ibv_alloc_dm(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_dm.3.html)
    #[doc(alias = "ibv_memcpy_from_dm")]
    pub fn read_at(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        const VERB: &str = "ibv_memcpy_from_dm";
        resolve(offset..offset.saturating_add(into.len()), self.len(), OBJECT)?;
        let dm = self.as_raw();
        // SAFETY: the memory is there, and nobody in the program copies to it: `self` is borrowed.
        let Some(copy) = (unsafe { (*dm).memcpy_from_dm }) else {
            return Err(Errno(libc::EOPNOTSUPP).of(VERB, OBJECT));
        };
        // SAFETY: as above; the bytes lie in the memory, and `into` has room for them.
        copied(VERB, offset, into.len(), unsafe { copy(into.as_mut_ptr().cast(), dm, offset as u64, into.len()) })
    }

    /// The memory in libibverbs' terms; valid as long as `self`, and not to be freed.
    pub fn as_raw(&self) -> *mut ffi::ibv_dm {
        self.inner.dm.as_ptr()
    }
}

impl DeviceMemoryRange {
    /// Which bytes of the device memory these are.
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

/// What a copy returned.
fn copied(verb: &'static str, offset: usize, length: usize, code: c_int) -> Result<()> {
    zero_or_errno(code).map_err(|errno| {
        let remedy = "some devices want an offset and a length that are multiples of 4";
        errno.with_remedy(verb, format_args!("{length} bytes at {offset}"), remedy)
    })
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceMemory({} bytes on {})", self.len(), self.context().device().name())
    }
}

impl fmt::Debug for DeviceMemoryRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DeviceMemoryRange").field(&self.range).finish()
    }
}
