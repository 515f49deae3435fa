//! Registering memory.
//!
//! # Safety
//!
//! `ibv_reg_mr` is given the memory of a buffer that was taken apart, in a domain that is alive. If it fails, the buffer is put together
//! again; its memory was not registered.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::MemoryRegion;
use super::inner::{Inner, Place};
use crate::access_flags::AccessFlags;
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::ffi;
use crate::protection_domain::ProtectionDomain;
use crate::returns::{Errno, null_and_errno};

/// A buffer that could not be registered, and why.
pub struct RegisterError<B> {
    /// The buffer.
    pub buffer: B,
    /// Why it could not be registered.
    pub error: Error,
}

impl<B> fmt::Debug for RegisterError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisterError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<B> fmt::Display for RegisterError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<B> std::error::Error for RegisterError<B> {}

impl<B> From<RegisterError<B>> for Error {
    fn from(error: RegisterError<B>) -> Self {
        error.error
    }
}

impl ProtectionDomain {
    /// `ibv_reg_mr`: registers a buffer, so that the device may use its memory as `access` allows.
    ///
    /// With [`ZERO_BASED`](AccessFlags::ZERO_BASED) the region's addresses, for the device and for peers, begin at 0; otherwise they are
    /// those of the memory.
    ///
    /// # Errors
    ///
    /// The buffer comes back with the error:
    ///
    /// * [`Error::InvalidArgument`]: `buffer` is empty; `access` lets peers write and lacks `LOCAL_WRITE`, or lets anybody
    ///   write to a buffer that is read-only.
    /// * `ENOMEM`: more memory would be locked than `RLIMIT_MEMLOCK` allows, or the device has no more regions.
    /// * `EFAULT`: the memory is not mapped, or is mapped read-only and `access` asks for writing.
    /// * `EOPNOTSUPP`, as [`Error::Unsupported`], or `EINVAL`: the device does not know a flag of `access`, on-demand paging for example.
    ///
    /// # References
    ///
    /// [ibv_reg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html); InfiniBand Architecture Specification,
    /// volume 1, chapter 10.6.
    #[doc(alias = "ibv_reg_mr")]
    #[doc(alias = "on-demand paging")]
    pub fn register<B: Buffer>(&self, buffer: B, access: AccessFlags) -> Result<MemoryRegion<B>, RegisterError<B>> {
        let iova = access.contains(AccessFlags::ZERO_BASED).then_some(0);
        self.register_buffer(buffer, access, iova)
    }

    /// `ibv_reg_mr_iova`: registers a buffer whose addresses, for the device and for peers, begin at `iova`, wherever the memory is.
    ///
    /// A peer can so keep an address that does not change when the buffer is another one. The slices of the region carry these addresses;
    /// the program's own offsets are what they always are.
    ///
    /// # Errors
    ///
    /// The buffer comes back with the error: as those of [`register`](Self::register), and
    ///
    /// * [`Error::InvalidArgument`]: the addresses would run past the end of the address space, or `access` has
    ///   [`ZERO_BASED`](AccessFlags::ZERO_BASED) and `iova` is not 0.
    /// * `EINVAL`: `iova` does not lie at the same offset in its page as the memory. A [`Mapping`](crate::Mapping) begins at a page.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use verbs::{AccessFlags, Mapping, ProtectionDomain};
    /// # fn example(pd: &ProtectionDomain) -> Result<(), Box<dyn std::error::Error>> {
    /// let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    /// let region = pd.register_with_iova(Mapping::new(1 << 20)?, access, 0x10_0000)?;
    /// assert_eq!(region.remote_slice(64..128)?.address(), 0x10_0040);
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    ///
    /// [ibv_reg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    #[doc(alias = "ibv_reg_mr_iova")]
    #[doc(alias = "ibv_reg_mr_iova2")]
    pub fn register_with_iova<B: Buffer>(
        &self,
        buffer: B,
        access: AccessFlags,
        iova: u64,
    ) -> Result<MemoryRegion<B>, RegisterError<B>> {
        self.register_buffer(buffer, access, Some(iova))
    }

    fn register_buffer<B: Buffer>(
        &self,
        buffer: B,
        access: AccessFlags,
        iova: Option<u64>,
    ) -> Result<MemoryRegion<B>, RegisterError<B>> {
        if let Err(error) = access.check_for_memory(B::WRITABLE) {
            return Err(RegisterError { buffer, error });
        }
        let (data, elements, rest) = buffer.into_raw_parts();
        let place = Place::of(data, elements, iova);
        match register_place(self, &place, access, iova) {
            // SAFETY: the region was registered just now, and is of the buffer's memory.
            Ok(mr) => Ok(unsafe { Inner::new(mr, (data, elements, rest), place, access, self) }.into()),
            Err(error) => {
                // SAFETY: these are the buffer's parts, and its memory was not registered.
                let buffer = unsafe { B::from_raw_parts(data, elements, rest) };
                Err(RegisterError { buffer, error })
            }
        }
    }
}

/// Registers memory that is valid and stays where it is; `iova` is where it begins for the device, if not where it is.
pub(super) fn register_place(
    pd: &ProtectionDomain,
    place: &Place,
    access: AccessFlags,
    iova: Option<u64>,
) -> Result<NonNull<ffi::ibv_mr>> {
    let verb = if iova.is_some() { "ibv_reg_mr_iova" } else { "ibv_reg_mr" };
    if place.length == 0 {
        return Err(Error::invalid(verb, "the length of the buffer", 0, "a region has at least one byte"));
    }
    check_iova(verb, place.address, place.length, access)?;
    let data = place.data.as_ptr().cast();
    let register = |access: AccessFlags| {
        let bits = access.bits() as c_int;
        // SAFETY: the domain is alive; the memory is valid, and stays so until it is deregistered.
        null_and_errno(unsafe {
            match iova {
                None => ffi::ibv_reg_mr(pd.as_raw(), data, place.length, bits),
                Some(iova) => ffi::ibv_reg_mr_iova(pd.as_raw(), data, place.length, iova, bits),
            }
        })
    };
    let registered = match register(access) {
        // A device that does not know the flag (rxe of kernel 6.12) does as well with the iova, which says the same.
        Err(Errno(libc::EOPNOTSUPP | libc::EINVAL)) if access.contains(AccessFlags::ZERO_BASED) => {
            register(access - AccessFlags::ZERO_BASED)
        }
        registered => registered,
    };
    registered.map_err(|errno| registration_error(errno, verb, place, access))
}

/// Checks where the addresses of a region begin for the device.
pub(super) fn check_iova(verb: &'static str, iova: u64, length: usize, access: AccessFlags) -> Result<()> {
    let invalid = |rule: &str| Err(Error::invalid(verb, "iova", format_args!("{iova:#x}"), rule));
    if iova.checked_add(length as u64).is_none() {
        return invalid("the region's addresses would run past the end of the address space");
    }
    if access.contains(AccessFlags::ZERO_BASED) && iova != 0 {
        return invalid("the addresses of a region with ZERO_BASED begin at 0");
    }
    Ok(())
}

#[cold]
fn registration_error(errno: Errno, verb: &'static str, place: &Place, access: AccessFlags) -> Error {
    let (data, address) = (place.data.as_ptr() as u64, place.address);
    let remedy = match errno.0 {
        libc::ENOMEM => format!(
            "this process may lock {} (RLIMIT_MEMLOCK): raise it with `ulimit -l`, in /etc/security/limits.conf, or with \
             `--ulimit memlock=-1` for a container; with enough of it, the device is out of regions",
            locked_memory_limit()
        ),
        libc::EFAULT => "the memory is not mapped, or is read-only while the access flags ask for writing".to_owned(),
        libc::EINVAL if (data ^ address) % page_size() != 0 => {
            format!("the memory, at {data:#x}, and the iova must lie at the same offset in their pages")
        }
        libc::EINVAL => "the device does not know one of the access flags, or the range is too large".to_owned(),
        _ => String::new(),
    };
    let length = place.length;
    if data == address {
        errno.with_remedy(verb, format_args!("{length} bytes, {access:?}"), remedy)
    } else {
        errno.with_remedy(verb, format_args!("{length} bytes, {access:?}, iova {address:#x}"), remedy)
    }
}

fn page_size() -> u64 {
    // SAFETY: the call has no preconditions.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// The soft limit on locked memory, in words.
fn locked_memory_limit() -> String {
    let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: `limit` has room for the structure.
    let code = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, limit.as_mut_ptr()) };
    // SAFETY: all zeroes are a valid `rlimit`, and the call wrote a valid one over it if it succeeded.
    match (code, unsafe { limit.assume_init() }.rlim_cur) {
        (0, libc::RLIM_INFINITY) => "any amount of memory".to_owned(),
        (0, bytes) => format!("{bytes} bytes of memory"),
        _ => "an unknown amount of memory".to_owned(),
    }
}
