//! [`Context`] from what C opened.
//!
//! # Safety
//!
//! The caller says that the context is open, and until when.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd};
use std::ptr::NonNull;

use crate::context::Context;
use crate::dispatch;
use crate::error::Result;
use crate::ffi;
use crate::lender::Lender;
use crate::opened::Opened;
use crate::returns::{Errno, null_and_errno};

impl Context {
    /// Takes over a context that was opened by other means, such as a provider's own call. It is closed when the last
    /// handle and the last object made from it are gone.
    ///
    /// # Safety
    ///
    /// * `context` is open, and nobody else closes it.
    /// * Objects that were made from it by other means are gone before the last handle is.
    /// * Nobody changes its operation table.
    ///
    /// # Errors
    ///
    /// The context then still belongs to the caller.
    ///
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the provider lacks the verbs to post and to poll.
    /// * [`Error::NoDevice`](crate::Error::NoDevice): the device is no longer there.
    pub unsafe fn from_raw(context: NonNull<ffi::ibv_context>) -> Result<Self> {
        // SAFETY: as the caller says.
        unsafe { Self::foreign(context, None) }
    }

    /// `ibv_import_device`: a context of a device that another process, or another part of this one, has open. Objects of that one can then
    /// be used too: [`import_protection_domain`](Self::import_protection_domain),
    /// [`import_memory_region`](crate::ProtectionDomain::import_memory_region),
    /// [`import_device_memory`](Self::import_device_memory).
    ///
    /// `command_fd` is what [`command_fd`](Self::command_fd) shows there, and arrives through a Unix socket for example. It is duplicated.
    ///
    /// # Safety
    ///
    /// * `command_fd` is the command descriptor of an open context, or a duplicate of one.
    ///
    /// # Errors
    ///
    /// * `EINVAL`, `ENODEV`: the descriptor is that of no device.
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the provider cannot (rxe).
    ///
    /// On failure the duplicate may stay open: libibverbs does not tell whether it closed it.
    ///
    /// # References
    ///
    /// [ibv_import_device(3)](https://man7.org/linux/man-pages/man3/ibv_import_device.3.html)
    #[doc(alias = "ibv_import_device")]
    pub unsafe fn import(command_fd: impl AsFd) -> Result<Self> {
        const VERB: &str = "ibv_import_device";
        let fd = command_fd.as_fd();
        let arguments = || format!("descriptor {}", fd.as_raw_fd());
        let duplicate = fd.try_clone_to_owned().map_err(|error| {
            Errno(error.raw_os_error().unwrap_or(libc::EMFILE)).with_remedy(
                VERB,
                arguments(),
                "it cannot be duplicated",
            )
        })?;
        // Closing what libibverbs has closed could close another file of the program's.
        let duplicate = duplicate.into_raw_fd();
        // SAFETY: the descriptor is the caller's word, and the duplicate is nobody else's.
        let context = null_and_errno(unsafe { ffi::ibv_import_device(duplicate) });
        let context = context.map_err(|errno| errno.of(VERB, arguments()))?;
        // SAFETY: the context was opened just now, and nobody else has it.
        unsafe { Self::from_raw(context) }.inspect_err(|_| {
            // SAFETY: the context is open, and still ours.
            let _ = unsafe { ffi::ibv_close_device(context.as_ptr()) };
        })
    }

    /// The descriptor by which another process can [import](Self::import) the device. It is not to be read from or written to.
    #[doc(alias = "cmd_fd")]
    pub fn command_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the context, which `self` holds.
        unsafe { BorrowedFd::borrow_raw((*self.as_raw()).cmd_fd) }
    }

    /// A handle to a context that belongs to another library, such as that of an `rdma_cm_id`. It is never closed by this crate.
    ///
    /// `lender` is dropped when the last handle and the last object made from it are gone, and may then have it closed. All handles to
    /// the same context are of one open device: objects made from one can be used with those made from another.
    ///
    /// # Safety
    ///
    /// * `context` is open as long as `lender` lives.
    /// * Nobody changes its operation table.
    ///
    /// # Errors
    ///
    /// As those of [`from_raw`](Self::from_raw). `lender` is then dropped.
    pub unsafe fn lent(context: NonNull<ffi::ibv_context>, lender: impl Send + Sync + 'static) -> Result<Self> {
        // SAFETY: as the caller says.
        unsafe { Self::foreign(context, Some(Lender::new(lender))) }
    }

    /// # Safety
    ///
    /// As that of [`from_raw`](Self::from_raw) without a lender, and of [`lent`](Self::lent) with one.
    unsafe fn foreign(context: NonNull<ffi::ibv_context>, lender: Option<Lender>) -> Result<Self> {
        // SAFETY: the context is open. One that is lent is not closed before the handle has let go of `opened`, and then of the lender.
        let opened = unsafe {
            match lender {
                None => Opened::of(context),
                Some(_) => Opened::of_lent(context),
            }
        }?;
        // SAFETY: the context is open.
        if !dispatch::is_complete(unsafe { &context.as_ref().ops }) {
            let arguments = format!("{}: its provider lacks the verbs to post and to poll", opened.device.name());
            return Err(Errno(libc::EOPNOTSUPP).of("ibv_open_device", arguments));
        }
        // SAFETY: as the caller says; the verbs are there.
        Ok(unsafe { Self::new(context, opened, lender) })
    }
}
