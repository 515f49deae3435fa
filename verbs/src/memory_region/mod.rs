//! [`MemoryRegion`]: memory that a device, and through it a peer, may use.

mod address_space;
mod again;
mod bytes;
mod dma_buf;
mod file;
mod imported;
mod inner;
pub(crate) mod memory;
mod null;
mod raw;
mod register;
mod reregister;

use std::fmt;
use std::ops::RangeBounds;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::access_flags::AccessFlags;
use crate::error::{Error, Result};
use crate::ffi;
use crate::held_slice::HeldSlice;
use crate::local_slice::LocalSlice;
use crate::protection_domain::ProtectionDomain;
use crate::range::resolve;
use crate::remote_slice::RemoteSlice;

use inner::Inner;

pub(crate) use inner::Registered;
pub(crate) use memory::out_of_reach;

pub use address_space::AddressSpace;
pub use again::SameMemory;
pub use dma_buf::DmaBuf;
pub use imported::ImportedMemory;
pub use memory::Memory;
pub use null::NullMemory;
pub use register::RegisterError;
pub use reregister::{ReregisterError, Reregistration};

/// `struct ibv_mr`: memory that is registered, so that the device may use it.
///
/// The region owns its [`Buffer`](crate::Buffer) and gives it back in [`deregister`](Self::deregister). Since the device, and through it a
/// peer, may read and write the memory at any time, a region of bytes hands out no slice of it, only copies:
/// [`read_at`](Self::read_at) and [`write_at`](Self::write_at). A region of atomics can be shared as such:
/// [`as_atomics`](Self::as_atomics).
///
/// Regions of other [`Memory`], which the processor does not reach through them, have keys and slices only.
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
///
/// The buffer cannot be made larger or taken away under the device:
///
/// ```compile_fail,E0599
/// # fn example(mut region: verbs::MemoryRegion<Vec<u8>>) {
/// region.push(1);
/// # }
/// ```
///
/// ```compile_fail,E0277
/// # fn example(mut region: verbs::MemoryRegion<Vec<u8>>) {
/// let buffer = std::mem::take(&mut region);
/// # }
/// ```
///
/// And what a peer could give values that the program's types do not have cannot be registered:
///
/// ```compile_fail,E0277
/// # fn example(pd: verbs::ProtectionDomain) -> verbs::Result<()> {
/// let region = pd.register(vec![Some(true); 64], verbs::AccessFlags::LOCAL_WRITE)?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_mr")]
pub struct MemoryRegion<M: Memory> {
    // What a scatter/gather entry is made of, copied from `inner`: found here, it stays in registers from one post to the next. A
    // receive then costs 105 instructions on the null provider, and not 113.
    address: u64,
    length: usize,
    lkey: u32,
    data: NonNull<u8>,
    inner: Arc<Inner<M>>,
}

impl<M: Memory> From<Inner<M>> for MemoryRegion<M> {
    fn from(inner: Inner<M>) -> Self {
        Arc::new(inner).into()
    }
}

impl<M: Memory> From<Arc<Inner<M>>> for MemoryRegion<M> {
    fn from(inner: Arc<Inner<M>>) -> Self {
        Self { address: inner.address, length: inner.length, lkey: inner.lkey, data: inner.data, inner }
    }
}

impl<M: Memory> MemoryRegion<M> {
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
        self.inner.access.intersects(AccessFlags::NEED_RKEY).then_some(self.inner.rkey)
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
        LocalSlice::new(self.address + range.start as u64, range.len(), self.lkey)
    }

    /// A range as a scatter/gather entry that keeps the region registered, for requests that are
    /// [prepared](crate::PreparedSend) once and posted often.
    ///
    /// # Errors
    ///
    /// As those of [`slice`](Self::slice).
    pub fn hold(&self, range: impl RangeBounds<usize>) -> Result<HeldSlice>
    where
        M: Send + Sync,
    {
        HeldSlice::new(self.inner.clone(), self.address, self.len(), self.lkey, range)
    }

    /// The description of a range for a peer, to be sent to it.
    ///
    /// # Errors
    ///
    /// * [`Error::OutOfRange`]: the range does not lie in the region.
    /// * [`Error::InvalidArgument`]: the region gives peers no right.
    pub fn remote_slice(&self, range: impl RangeBounds<usize>) -> Result<RemoteSlice> {
        let range = resolve(range, self.len(), "memory region")?;
        let address = self.address + range.start as u64;
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
    /// * [`Error::Busy`]: a [`HeldSlice`], in a prepared request for example, a [`MemoryWindow`](crate::MemoryWindow) that was bound to it,
    ///   or a [further region](Self::register_again) of its memory keeps the region.
    /// * `EBUSY`, `EINVAL`: a memory window is bound to it.
    ///
    /// # References
    ///
    /// [ibv_dereg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_dereg_mr.3.html)
    #[doc(alias = "ibv_dereg_mr")]
    pub fn deregister(self) -> Result<M, (Self, Error)> {
        const VERB: &str = "ibv_dereg_mr";
        let mut inner = Arc::try_unwrap(self.inner).map_err(|inner| (inner.into(), busy(VERB)))?;
        match inner.deregister() {
            Ok(Some(memory)) => Ok(memory),
            // A region whose memory is gone is never handed out.
            Ok(None) => Err((inner.into(), busy(VERB))),
            Err(errno) => {
                let error = errno.with_remedy(
                    VERB,
                    format_args!("{} bytes, lkey {:#x}", inner.length, inner.lkey),
                    "a memory window that is bound to the region keeps it registered",
                );
                Err((inner.into(), error))
            }
        }
    }

    /// Where the device, and a peer, finds the first byte: where the memory is, unless the region has an
    /// [iova](ProtectionDomain::register_with_iova).
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The region's number, by which another process can [import](ProtectionDomain::import_memory_region) it.
    pub fn handle(&self) -> u32 {
        self.inner.handle()
    }

    /// What keeps the region registered.
    pub(crate) fn registered(&self) -> Arc<dyn Registered>
    where
        M: Send + Sync,
    {
        self.inner.clone()
    }

    /// The region in libibverbs' terms; valid as long as `self`, and not to be deregistered.
    pub fn as_raw(&self) -> *mut ffi::ibv_mr {
        self.inner.mr.as_ptr()
    }
}

/// The error of a region that others hold.
#[cold]
fn busy(verb: &'static str) -> Error {
    let users = "a HeldSlice (in a prepared request for example), a BindRequest or a memory window that was bound to it, or a \
                 further region of the same memory";
    Error::Busy { verb, object: "memory region", users }
}

impl<M: Memory> fmt::Debug for MemoryRegion<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegion")
            .field("address", &format_args!("{:#x}", self.address))
            .field("length", &self.len())
            .field("lkey", &self.lkey())
            .field("rkey", &self.rkey())
            .field("access", &self.access())
            .finish()
    }
}
