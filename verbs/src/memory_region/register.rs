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

use super::{Inner, MemoryRegion};
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
    /// # Errors
    ///
    /// The buffer comes back with the error:
    ///
    /// * [`Error::InvalidArgument`]: `buffer` is empty; `access` lets peers write and lacks `LOCAL_WRITE`, or lets anybody
    ///   write to a buffer that is read-only.
    /// * `ENOMEM`: more memory would be locked than `RLIMIT_MEMLOCK` allows, or the device has no more regions.
    /// * `EFAULT`: the memory is not mapped, or is mapped read-only and `access` asks for writing.
    /// * `EOPNOTSUPP`, as [`Error::Unsupported`], or `EINVAL`: the device does not know a flag of `access`.
    ///
    /// # References
    ///
    /// [ibv_reg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html); InfiniBand Architecture Specification,
    /// volume 1, chapter 10.6.
    #[doc(alias = "ibv_reg_mr")]
    pub fn register<B: Buffer>(&self, buffer: B, access: AccessFlags) -> Result<MemoryRegion<B>, RegisterError<B>> {
        if let Err(error) = access.check_for_memory(B::WRITABLE) {
            return Err(RegisterError { buffer, error });
        }
        let (data, elements, rest) = buffer.into_raw_parts();
        let length = elements * size_of::<B::Element>();
        let registered = if length == 0 {
            Err(Error::invalid("ibv_reg_mr", "the length of the buffer", 0, "a region has at least one byte"))
        } else {
            let access = access.bits() as c_int;
            // SAFETY: the domain is alive; the buffer stays valid and unmoved until it is deregistered, as `Buffer` says.
            null_and_errno(unsafe { ffi::ibv_reg_mr(self.as_raw(), data.as_ptr().cast(), length, access) })
                .map_err(|errno| registration_error(errno, length, access))
        };
        match registered {
            Ok(mr) => {
                // SAFETY: libibverbs returned the region just now, and its keys do not change.
                let (lkey, rkey) = unsafe { (mr.as_ref().lkey, mr.as_ref().rkey) };
                let rest = Some(rest);
                let inner = Inner { mr, data, elements, rest, access, lkey, rkey, pd: self.clone() };
                Ok(inner.into())
            }
            Err(error) => {
                // SAFETY: these are the buffer's parts, and its memory was not registered.
                let buffer = unsafe { B::from_raw_parts(data, elements, rest) };
                Err(RegisterError { buffer, error })
            }
        }
    }
}

#[cold]
fn registration_error(errno: Errno, length: usize, access: c_int) -> Error {
    let remedy = match errno.0 {
        libc::ENOMEM => format!(
            "this process may lock {} (RLIMIT_MEMLOCK): raise it with `ulimit -l`, in /etc/security/limits.conf, or with \
             `--ulimit memlock=-1` for a container; with enough of it, the device is out of regions",
            locked_memory_limit()
        ),
        libc::EFAULT => "the memory is not mapped, or is read-only while the access flags ask for writing".to_owned(),
        libc::EINVAL => "the device does not know one of the access flags, or the range is too large".to_owned(),
        _ => String::new(),
    };
    let access = AccessFlags::from_bits_retain(access as u32);
    errno.with_remedy("ibv_reg_mr", format_args!("{length} bytes, {access:?}"), remedy)
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
