//! Posting the requests that bind memory windows.
//!
//! # Safety
//!
//! The window, the region and the queue pair are alive and of one context, so one provider's. The region that a window may be bound to is
//! held by it before the request is posted. Windows are used under their locks.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::sealed::Sealed as _;
use super::{BindRequest, MemoryWindow, UnbindRequest, WindowType, WindowType1};
use crate::access_flags::AccessFlags;
use crate::error::{Error, Result};
use crate::ffi;
use crate::ffi::ibv_wr_opcode as Opcode;
use crate::post_error::PostError;
use crate::queue_pair::QueuePair;
use crate::remote_slice::RemoteSlice;
use crate::returns::zero_or_errno;
use crate::transport::Connected;

const VERB: &str = "ibv_bind_mw";

impl<T: Connected> QueuePair<T> {
    /// `ibv_bind_mw` for a window of type 1, `ibv_post_send` of an `IBV_WR_BIND_MW` for one of type 2: hands a request to bind a window to the
    /// send queue. Returns the memory as a peer will know it: not to be told to a peer before the completion says success, unless by a SEND
    /// on this queue pair, which is sent after the window is bound.
    ///
    /// The window holds the region. If the completion says that the binding failed, see
    /// [`restore_rkey`](MemoryWindow::restore_rkey).
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: the window, the region and the queue pair are not of one context; the window is of type 1, and is to be
    ///   zero-based or is of another domain than the region; it is of type 2, and was bound by another queue pair, and neither
    ///   unbound nor [released](MemoryWindow::release) since; it [is freed](MemoryWindow::is_freed).
    /// * [`Error::Post`], or for a window of type 1 the same error numbers: as those of [`post_send`](Self::post_send).
    ///
    /// What only the device sees, it tells by the status
    /// [`MEMORY_WINDOW_BIND_ERROR`](crate::WorkCompletionStatus::MEMORY_WINDOW_BIND_ERROR): a window of type 2 that is bound, or is of another
    /// domain than the region.
    ///
    /// # References
    ///
    /// [ibv_bind_mw(3)](https://man7.org/linux/man-pages/man3/ibv_bind_mw.3.html),
    /// [ibv_post_send(3)](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html); InfiniBand Architecture Specification, volume 1, chapters
    /// 10.6.7.2 and 11.4.1.1.
    #[doc(alias = "ibv_bind_mw")]
    #[doc(alias = "IBV_WR_BIND_MW")]
    #[doc(alias = "ibv_inc_rkey")]
    pub fn post_bind<K: WindowType>(&self, window: &mut MemoryWindow<K>, request: &BindRequest) -> Result<RemoteSlice> {
        check(self, window, request)?;
        if K::TYPE == WindowType1::TYPE {
            window.hold(&request.region);
            let state = window.handle.lock();
            // SAFETY: the region is alive, and of the window's context.
            unsafe { self.bind_type_1(state.mw().ok_or_else(freed)?, request.wr_id, request.flags, request.info()) }?;
            return request.told(state.rkey());
        }
        bind_type_2(self, window, request, |mw, rkey| {
            // SAFETY: all zeroes are a valid structure.
            let mut wr: ffi::ibv_send_wr = unsafe { std::mem::zeroed() };
            wr.wr_id = request.wr_id;
            wr.send_flags = request.flags;
            wr.opcode = Opcode::IBV_WR_BIND_MW;
            wr.__bindgen_anon_2.bind_mw.mw = mw.as_ptr();
            wr.__bindgen_anon_2.bind_mw.rkey = rkey;
            wr.__bindgen_anon_2.bind_mw.bind_info = request.info();
            // SAFETY: the request is valid: the window and its region are alive.
            unsafe { self.post_one_send(&mut wr) }
        })
    }

    /// `ibv_bind_mw` of no bytes for a window of type 1, [`local_invalidate`](crate::SendRequest::local_invalidate) for one of type 2: hands a request to unbind
    /// a window to the send queue. Once it has completed, [`release`](MemoryWindow::release) lets go of the region.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: the window and the queue pair are not of one context, or the window is of type 1 and was not bound,
    ///   or it [is freed](MemoryWindow::is_freed).
    /// * [`Error::Post`]: as those of [`post_send`](Self::post_send).
    ///
    /// # References
    ///
    /// [ibv_bind_mw(3)](https://man7.org/linux/man-pages/man3/ibv_bind_mw.3.html),
    /// [ibv_post_send(3)](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
    pub fn post_unbind<K: WindowType>(&self, window: &mut MemoryWindow<K>, request: &UnbindRequest) -> Result<()> {
        self.protection_domain().context().must_be(window.protection_domain().context(), VERB, "mw")?;
        let mut state = window.handle.lock();
        let mw = state.mw().ok_or_else(freed)?;
        if K::TYPE == WindowType1::TYPE {
            // Some providers look at the region though it is not to be bound to.
            let Some(region) = window.regions.last() else {
                return Err(Error::invalid(VERB, "mw", "a window that was not bound", "there is nothing to unbind"));
            };
            let nothing = ffi::ibv_mw_bind_info { mr: region.as_raw(), addr: 0, length: 0, mw_access_flags: 0 };
            // SAFETY: the region is alive, and of the window's context.
            return unsafe { self.bind_type_1(mw, request.wr_id, request.flags, nothing) };
        }
        self.post_send(&request.invalidation(state.rkey()))?;
        state.set_unbinding(self.as_raw());
        Ok(())
    }

    /// The provider sets the window's key.
    ///
    /// # Safety
    ///
    /// The window, which the caller has the lock of, and the region are alive and of the queue pair's context.
    unsafe fn bind_type_1(
        &self,
        mw: NonNull<ffi::ibv_mw>,
        wr_id: u64,
        send_flags: u32,
        bind_info: ffi::ibv_mw_bind_info,
    ) -> Result<()> {
        let mut bind = ffi::ibv_mw_bind { wr_id, send_flags, bind_info };
        // SAFETY: as the caller says.
        zero_or_errno(unsafe { ffi::ibv_bind_mw(self.as_raw(), mw.as_ptr(), &mut bind) }).map_err(|errno| {
            let remedy = match errno.0 {
                libc::ENOMEM => "the send queue is full",
                libc::EINVAL => "the queue pair must be in RTS",
                _ => "",
            };
            errno.with_remedy(VERB, format_args!("{} bytes at {:#x}", bind_info.length, bind_info.addr), remedy)
        })
    }
}

/// Checks what a provider relies on, and what not every one looks at.
pub(super) fn check<T: Connected, K: WindowType>(
    qp: &QueuePair<T>,
    window: &MemoryWindow<K>,
    request: &BindRequest,
) -> Result<()> {
    let context = qp.protection_domain().context();
    context.must_be(window.protection_domain().context(), VERB, "mw")?;
    context.must_be(request.region.protection_domain().context(), VERB, "mr")?;
    if K::TYPE != WindowType1::TYPE {
        return Ok(());
    }
    if request.access.contains(AccessFlags::ZERO_BASED) {
        let rule = "a window of type 1 cannot be zero-based";
        return Err(Error::invalid(VERB, "access", format!("{:?}", request.access), rule));
    }
    // As libibverbs does; but a region that it refuses is not to be held.
    if window.protection_domain().as_raw() != request.region.protection_domain().as_raw() {
        let rule = "a window of type 1 and its region must be of the same protection domain";
        return Err(Error::invalid(VERB, "mr", "of another domain", rule));
    }
    Ok(())
}

/// Has a request posted that binds a window of type 2 to a region, under a new key.
pub(super) fn bind_type_2<T: Connected, K: WindowType>(
    qp: &QueuePair<T>,
    window: &mut MemoryWindow<K>,
    request: &BindRequest,
    post: impl FnOnce(NonNull<ffi::ibv_mw>, u32) -> Result<(), PostError>,
) -> Result<RemoteSlice> {
    if !window.handle.lock().may_be_bound_by(qp.as_raw()) {
        // The device would refuse it, and that queue pair be dropped with the window still bound.
        let rule = "it serves that one only, until it was unbound and released";
        return Err(Error::invalid(VERB, "mw", "a window that another queue pair has bound", rule));
    }
    window.hold(&request.region);
    qp.bound_windows().add(&window.handle);
    let mut state = window.handle.lock();
    let mw = state.mw().ok_or_else(freed)?;
    let bound_before_by = state.set_bound_by(NonNull::new(qp.as_raw()));
    // SAFETY: the call has no preconditions.
    let rkey = unsafe { ffi::ibv_inc_rkey(state.rkey()) };
    if let Err(error) = post(mw, rkey) {
        if error.accepted() == Some(0) {
            state.set_bound_by(bound_before_by);
        }
        return Err(error.into());
    }
    state.set_rkey(rkey);
    request.told(rkey)
}

/// The error of a window that is there no more.
#[cold]
pub(super) fn freed() -> Error {
    let rule = "it was bound by a queue pair that is gone, and was freed with it; make another";
    Error::invalid(VERB, "mw", "a window that is freed", rule)
}
