//! [`Context`] from what C opened.
//!
//! # Safety
//!
//! The caller says that the context is open, and until when.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use crate::context::Context;
use crate::dispatch;
use crate::error::Result;
use crate::ffi;
use crate::lender::Lender;
use crate::opened::Opened;
use crate::returns::Errno;

impl Context {
    /// Takes over a context that was opened by other means, such as `ibv_import_device` or a provider's own call. It is closed when the
    /// last handle and the last object made from it are gone.
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
    #[doc(alias = "ibv_import_device")]
    pub unsafe fn from_raw(context: NonNull<ffi::ibv_context>) -> Result<Self> {
        // SAFETY: as the caller says.
        unsafe { Self::foreign(context, None) }
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
