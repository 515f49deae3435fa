//! Re-registration.
//!
//! # Safety
//!
//! `ibv_rereg_mr` is given a region that nobody else holds: no slice, no further region of the memory, and no window that may be bound to
//! it. It does what deregistering and registering do (its manual page; InfiniBand Architecture Specification, volume 1, chapter
//! 11.2.8.5), and is as much of a barrier: a driver takes the region from the device before it changes it, or makes another one and
//! destroys the old, and lets go of the old pages only then. So what it returns says for which memory the region is registered now:
//!
//! * the new: the device has let go of the old memory, whatever was in flight, and it may be given back;
//! * the old: the device has never known the new memory, which may be given back;
//! * nobody knows: both stay where they are until the region is deregistered, and for ever if that fails.
//!
//! (The kernel does not tell if it makes another one and fails to destroy the old, which is then registered until the context is closed. It
//! fails where windows are bound to the region, of which there are none, or the device is gone, which then writes nothing.)
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::MemoryRegion;
use super::inner::{Inner, Place};
use super::memory::sealed::Memory as _;
use crate::access_flags::AccessFlags;
use crate::buffer::Buffer;
use crate::error::{Error, Result};
use crate::ffi;
use crate::ffi::{ibv_rereg_mr_err_code as Code, ibv_rereg_mr_flags as Change};
use crate::leaked;
use crate::protection_domain::ProtectionDomain;
use crate::returns::Errno;

const VERB: &str = "ibv_rereg_mr";

/// What is to change in a region: the rights, the domain, the buffer. What is not named stays.
#[doc(alias = "ibv_rereg_mr_flags")]
#[must_use = "nothing changes before `MemoryRegion::reregister` is called"]
pub struct Reregistration<B: Buffer> {
    access: Option<AccessFlags>,
    pd: Option<ProtectionDomain>,
    buffer: Option<B>,
}

impl<B: Buffer> Default for Reregistration<B> {
    fn default() -> Self {
        Self { access: None, pd: None, buffer: None }
    }
}

impl<B: Buffer> Reregistration<B> {
    /// A change of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The new rights.
    #[doc(alias = "IBV_REREG_MR_CHANGE_ACCESS")]
    pub fn access(mut self, access: AccessFlags) -> Self {
        self.access = Some(access);
        self
    }

    /// The new domain.
    #[doc(alias = "IBV_REREG_MR_CHANGE_PD")]
    pub fn protection_domain(mut self, pd: &ProtectionDomain) -> Self {
        self.pd = Some(pd.clone());
        self
    }

    /// The new buffer, in place of the old one, which comes back.
    #[doc(alias = "IBV_REREG_MR_CHANGE_TRANSLATION")]
    pub fn buffer(mut self, buffer: B) -> Self {
        self.buffer = Some(buffer);
        self
    }

    fn flags(&self) -> c_int {
        let flag = |is_set: bool, flag: Change| if is_set { flag.0 } else { 0 };
        let flags = flag(self.buffer.is_some(), Change::IBV_REREG_MR_CHANGE_TRANSLATION)
            | flag(self.pd.is_some(), Change::IBV_REREG_MR_CHANGE_PD)
            | flag(self.access.is_some(), Change::IBV_REREG_MR_CHANGE_ACCESS);
        flags as c_int
    }
}

impl<B: Buffer> fmt::Debug for Reregistration<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reregistration")
            .field("access", &self.access)
            .field("protection_domain", &self.pd)
            .field("buffer", &self.buffer.as_ref().map(|_| ".."))
            .finish()
    }
}

/// A region that could not be re-registered as asked, what there is now, and why.
#[non_exhaustive]
pub enum ReregisterError<B: Buffer> {
    /// The region is what it was.
    Unchanged {
        /// The region.
        region: MemoryRegion<B>,
        /// The buffer that was to be its new one.
        buffer: Option<B>,
        /// Why nothing has changed.
        error: Error,
    },
    /// The region is what it was to become, but the old buffer's memory is still kept from children of a fork
    /// (`IBV_REREG_MR_ERR_DO_FORK_OLD`): a child that touches it there is killed.
    Changed {
        /// The region.
        region: MemoryRegion<B>,
        /// The buffer that it was of.
        buffer: Option<B>,
        /// Why the memory is kept from children.
        error: Error,
    },
    /// The region was in an unknown state (`IBV_REREG_MR_ERR_CMD`), so it was deregistered.
    Deregistered {
        /// The buffer that it was of.
        old: B,
        /// The buffer that was to be its new one.
        new: Option<B>,
        /// Why it could not be changed.
        error: Error,
    },
    /// The region is in an unknown state, and it cannot be deregistered either. The device may still use both buffers, which are leaked and
    /// counted: [`leaked_bytes`](crate::leaked_bytes).
    Leaked {
        /// Why it could not be changed.
        error: Error,
    },
}

impl<B: Buffer> ReregisterError<B> {
    /// Why the region could not be re-registered as asked.
    pub fn error(&self) -> &Error {
        match self {
            Self::Unchanged { error, .. }
            | Self::Changed { error, .. }
            | Self::Deregistered { error, .. }
            | Self::Leaked { error } => error,
        }
    }

    fn state(&self) -> &'static str {
        match self {
            Self::Unchanged { .. } => "the region is what it was",
            Self::Changed { .. } => "the region has changed, but children of a fork are kept from the old memory",
            Self::Deregistered { .. } => "the region was deregistered",
            Self::Leaked { .. } => "the region cannot be deregistered, and its memory is leaked",
        }
    }
}

impl<B: Buffer> fmt::Debug for ReregisterError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReregisterError").field("state", &self.state()).field("error", self.error()).finish()
    }
}

impl<B: Buffer> fmt::Display for ReregisterError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.error(), self.state())
    }
}

impl<B: Buffer> std::error::Error for ReregisterError<B> {}

impl<B: Buffer> From<ReregisterError<B>> for Error {
    fn from(error: ReregisterError<B>) -> Self {
        match error {
            ReregisterError::Unchanged { error, .. }
            | ReregisterError::Changed { error, .. }
            | ReregisterError::Deregistered { error, .. }
            | ReregisterError::Leaked { error } => error,
        }
    }
}

/// A buffer that was taken apart.
type Parts<B> = (NonNull<<B as Buffer>::Element>, usize, <B as Buffer>::Rest);

impl<B: Buffer> MemoryRegion<B> {
    /// `ibv_rereg_mr`: changes the region's rights, domain or buffer, which may be cheaper than to deregister it and to register a new one.
    /// Its keys may change. Returns the old buffer if there is a new one.
    ///
    /// Requests that are in flight and name the region fail, or have used the old memory, or use the new one. When this returns, the device
    /// has let go of the old memory, as after [`deregister`](MemoryRegion::deregister).
    ///
    /// # Errors
    ///
    /// [`ReregisterError`] says in which state the region is:
    ///
    /// * [`Error::Busy`]: a [`HeldSlice`](crate::HeldSlice), a memory window or a further region of the same memory keeps the region.
    /// * [`Error::InvalidArgument`]: nothing is to change; the new rights do not fit each other or the buffer; the new domain is of another
    ///   context; there is a new buffer for a region that has an iova of its own, which libibverbs would lose.
    /// * [`Error::Unsupported`]: the provider cannot re-register (rxe); the region is what it was.
    /// * `EINVAL`: the new buffer is empty; the region is what it was.
    /// * Another error number, with the region as libibverbs says.
    ///
    /// # References
    ///
    /// [ibv_rereg_mr(3)](https://man7.org/linux/man-pages/man3/ibv_rereg_mr.3.html); InfiniBand Architecture Specification, volume 1,
    /// chapter 11.2.8.5.
    #[doc(alias = "ibv_rereg_mr")]
    pub fn reregister(self, change: Reregistration<B>) -> Result<(Self, Option<B>), ReregisterError<B>> {
        if let Err(error) = self.check(&change) {
            return Err(ReregisterError::Unchanged { region: self, buffer: change.buffer, error });
        }
        let mut inner = match Arc::try_unwrap(self.inner) {
            Ok(inner) => inner,
            Err(inner) => {
                let error = super::busy(VERB);
                return Err(ReregisterError::Unchanged { region: inner.into(), buffer: change.buffer, error });
            }
        };
        let flags = change.flags();
        let Reregistration { access, pd, buffer } = change;
        let new = buffer.map(B::into_raw_parts);
        // (Libibverbs refuses an empty buffer, and the region stays what it is.)
        let (data, length) = match &new {
            Some((data, elements, _)) => (data.as_ptr().cast(), elements * size_of::<B::Element>()),
            None => (ptr::null_mut(), 0),
        };
        let raw_pd = pd.as_ref().map_or(ptr::null_mut(), ProtectionDomain::as_raw);
        // Libibverbs wants no rights where they are not to change.
        let bits = access.map_or(0, |access| access.bits()) as c_int;
        // SAFETY: the region is registered, the new domain is alive, and the new memory is valid and stays so.
        let code = unsafe { ffi::ibv_rereg_mr(inner.mr.as_ptr(), flags, raw_pd, data, length, bits) };
        match Outcome::of(code, flags, &mut inner) {
            Outcome::New(error) => {
                // SAFETY: the region is now registered for the new memory, with the new rights and in the new domain.
                let buffer = unsafe { adopt(&mut inner, access, pd, new) };
                let region = inner.into();
                match error {
                    None => Ok((region, buffer)),
                    Some(error) => Err(ReregisterError::Changed { region, buffer, error }),
                }
            }
            Outcome::Old(error) => {
                // SAFETY: the parts were taken apart here, and their memory is not registered.
                let buffer = new.map(|parts| unsafe { B::from_parts(parts) });
                Err(ReregisterError::Unchanged { region: inner.into(), buffer, error })
            }
            Outcome::Unknown(error) => Err(give_up(inner, new, error)),
        }
    }

    /// Checks what libibverbs does not, or only some providers do.
    fn check(&self, change: &Reregistration<B>) -> Result<()> {
        if change.flags() == 0 {
            return Err(Error::invalid(VERB, "flags", 0, "something has to change"));
        }
        if let Some(access) = change.access {
            access.check_for_memory(B::WRITABLE)?;
        }
        if let Some(pd) = &change.pd {
            self.protection_domain().context().must_be(pd.context(), VERB, "pd")?;
        }
        let access = change.access.unwrap_or(self.access());
        if (access ^ self.access()).contains(AccessFlags::ZERO_BASED) {
            let rule = "where the region's addresses begin cannot change";
            return Err(Error::invalid(VERB, "access", format!("{access:?}"), rule));
        }
        if change.buffer.is_some() && self.address != self.data.as_ptr() as u64 {
            let rule = "a new buffer has its addresses where its memory is";
            return Err(Error::invalid(VERB, "iova", format!("{:#x}", self.address), rule));
        }
        Ok(())
    }
}

/// What `ibv_rereg_mr` says that the region is of now.
enum Outcome {
    /// The new memory, with the new rights, in the new domain.
    New(Option<Error>),
    /// What it was of.
    Old(Error),
    /// One or the other.
    Unknown(Error),
}

impl Outcome {
    fn of<B: Buffer>(code: c_int, flags: c_int, inner: &mut Inner<B>) -> Self {
        if code == 0 {
            return Self::New(None);
        }
        let errno = Errno::last();
        let error = errno.of(VERB, format_args!("{} bytes, lkey {:#x}: {code}", inner.length, inner.lkey));
        match ffi::ibv_rereg_mr_err_code(code) {
            Code::IBV_REREG_MR_ERR_INPUT | Code::IBV_REREG_MR_ERR_DONT_FORK_NEW => Self::Old(error),
            Code::IBV_REREG_MR_ERR_DO_FORK_OLD => Self::New(Some(error)),
            // A provider or kernel that has no such call has done nothing.
            _ if matches!(error, Error::Unsupported { .. }) && (!changes_domain_and_more(flags) || is_back(inner)) => {
                Self::Old(error)
            }
            _ => Self::Unknown(error),
        }
    }
}

fn changes_domain_and_more(flags: c_int) -> bool {
    let domain = Change::IBV_REREG_MR_CHANGE_PD.0 as c_int;
    flags & domain != 0 && flags != domain
}

/// Whether a region is in its old domain after a change of it, and of something that is not supported. A kernel (that of Linux 6.12, for rxe)
/// may have changed the domain before it found out, and the new one would be freed with a region in it. So the region is moved back; if there
/// is no such call, it was never moved.
fn is_back<B: Buffer>(inner: &mut Inner<B>) -> bool {
    let flags = Change::IBV_REREG_MR_CHANGE_PD.0 as c_int;
    // SAFETY: the region is registered, and the domain, which is that of the region, is alive.
    let code = unsafe { ffi::ibv_rereg_mr(inner.mr.as_ptr(), flags, inner.pd.as_raw(), ptr::null_mut(), 0, 0) };
    if code != 0 {
        return matches!(Errno::last(), Errno(libc::EOPNOTSUPP | libc::ENOSYS));
    }
    inner.take_keys();
    true
}

/// Has the region know what it is now; returns the buffer that it was of, if that is another one.
///
/// # Safety
///
/// It is registered for the new memory if there is some, with the rights and in the domain if there are some.
unsafe fn adopt<B: Buffer>(
    inner: &mut Inner<B>,
    access: Option<AccessFlags>,
    pd: Option<ProtectionDomain>,
    new: Option<Parts<B>>,
) -> Option<B> {
    inner.access = access.unwrap_or(inner.access);
    if let Some(pd) = pd {
        inner.pd = pd;
    }
    inner.take_keys();
    new.and_then(|parts| {
        let place = Place::of(parts.0, parts.1, None);
        // SAFETY: the region is registered for the new memory, and no longer for the old.
        unsafe { inner.replace(parts, place) }
    })
}

/// Deregisters a region that is in an unknown state, or leaks what it may be of.
fn give_up<B: Buffer>(mut inner: Inner<B>, new: Option<Parts<B>>, error: Error) -> ReregisterError<B> {
    match inner.deregister() {
        Ok(Some(old)) => {
            // SAFETY: the parts were taken apart once, and the region that was perhaps of their memory is deregistered.
            let new = new.map(|parts| unsafe { B::from_parts(parts) });
            ReregisterError::Deregistered { old, new, error }
        }
        _ => {
            inner.leak();
            if let Some((_, elements, rest)) = new {
                std::mem::forget(rest);
                leaked::add(elements * size_of::<B::Element>());
            }
            ReregisterError::Leaked { error }
        }
    }
}
