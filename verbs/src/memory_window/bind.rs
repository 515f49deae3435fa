//! Posting the requests that bind memory windows.
//!
//! # Safety
//!
//! The window, the region and the queue pair are alive and of one context, so one provider's. The region that a window may be bound to is
//! held by it before the request is posted. Windows are used under their locks.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use super::handle::{Belongs, Owner, State, Unbinding};
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
use crate::send_request::SendRequest;
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
    /// A window of type 2 then belongs to this queue pair, which may bind it again and again, each time once a request to unbind it was
    /// posted; with no need to wait for that. Another queue pair can bind it only once it is [released](MemoryWindow::release).
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: the window, the region and the queue pair are not of one context; the window is of another domain than
    ///   the region; it is of type 1, and is to be zero-based; it is of type 2, and belongs to another queue pair; it
    ///   [is freed](MemoryWindow::is_freed).
    /// * [`Error::Post`], or for a window of type 1 the same error numbers: as those of [`post_send`](Self::post_send).
    ///
    /// What only the device sees, it tells by the status
    /// [`MEMORY_WINDOW_BIND_ERROR`](crate::WorkCompletionStatus::MEMORY_WINDOW_BIND_ERROR): a window of type 2 that is bound, or is of another
    /// domain than the queue pair.
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
            let mut state = window.handle.lock();
            let mw = state.mw().ok_or_else(freed)?;
            // SAFETY: the region is alive, and of the window's context.
            unsafe { self.bind_type_1(mw, request.wr_id, request.flags, request.info()) }?;
            state.binding(Belongs::ToNone);
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
    /// A window of type 2 is not to be unbound if the peer has invalidated its key: the request would fail, and the queue pair with it.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: the window and the queue pair are not of one context; the window was not bound since it was made, or
    ///   since it was released; it is of type 2, and belongs to another queue pair; it [is freed](MemoryWindow::is_freed).
    /// * [`Error::Post`]: as those of [`post_send`](Self::post_send).
    ///
    /// # References
    ///
    /// [ibv_bind_mw(3)](https://man7.org/linux/man-pages/man3/ibv_bind_mw.3.html),
    /// [ibv_post_send(3)](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
    #[doc(alias = "ibv_bind_mw")]
    pub fn post_unbind<K: WindowType>(&self, window: &mut MemoryWindow<K>, request: &UnbindRequest) -> Result<()> {
        if K::TYPE != WindowType1::TYPE {
            return unbind_type_2(self, window, request, |invalidation| self.post_send(invalidation));
        }
        self.protection_domain().context().must_be(window.protection_domain().context(), VERB, "mw")?;
        let mut state = window.handle.lock();
        let mw = state.mw().ok_or_else(freed)?;
        // Some providers look at the region though it is not to be bound to.
        let region = window.regions.last().ok_or_else(not_bound)?;
        let nothing = ffi::ibv_mw_bind_info { mr: region.as_raw(), addr: 0, length: 0, mw_access_flags: 0 };
        // SAFETY: the region is alive, and of the window's context.
        unsafe { self.bind_type_1(mw, request.wr_id, request.flags, nothing) }?;
        state.set_unbinding(Unbinding { wr_id: request.wr_id, qp_num: self.qp_num() });
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
    let (of_window, of_region) = (window.protection_domain(), request.region.protection_domain());
    if K::TYPE != WindowType1::TYPE {
        // rxe binds it all the same, and then the peers of one domain reach the memory of another. A parent domain is the one it is of.
        return must_be_of_one_domain(of_window.handle() == of_region.handle());
    }
    if request.access.contains(AccessFlags::ZERO_BASED) {
        let rule = "a window of type 1 cannot be zero-based";
        return Err(Error::invalid(VERB, "access", format!("{:?}", request.access), rule));
    }
    // As libibverbs does; but a region that it refuses is not to be held.
    must_be_of_one_domain(of_window.as_raw() == of_region.as_raw())
}

fn must_be_of_one_domain(are: bool) -> Result<()> {
    let rule = "a window and its region must be of the same protection domain";
    if are { Ok(()) } else { Err(Error::invalid(VERB, "mr", "of another domain", rule)) }
}

/// Has a request posted that binds a window of type 2 to a region, under a new key.
pub(super) fn bind_type_2<T: Connected, K: WindowType>(
    qp: &QueuePair<T>,
    window: &mut MemoryWindow<K>,
    request: &BindRequest,
    post: impl FnOnce(NonNull<ffi::ibv_mw>, u32) -> Result<(), PostError>,
) -> Result<RemoteSlice> {
    must_serve(&window.handle.lock(), Owner::of(qp))?;
    window.hold(&request.region);
    qp.bound_windows().add(&window.handle);
    let mut state = window.handle.lock();
    let mw = state.mw().ok_or_else(freed)?;
    let before = state.binding(Belongs::To(Owner::of(qp)));
    // SAFETY: the call has no preconditions.
    let rkey = unsafe { ffi::ibv_inc_rkey(state.rkey()) };
    if let Err(error) = post(mw, rkey) {
        if error.accepted() == Some(0) {
            state.not_bound(before);
        }
        return Err(error.into());
    }
    state.bound(rkey);
    request.told(rkey)
}

/// Has a request posted that unbinds a window of type 2.
pub(super) fn unbind_type_2<T: Connected, K: WindowType>(
    qp: &QueuePair<T>,
    window: &mut MemoryWindow<K>,
    request: &UnbindRequest,
    post: impl FnOnce(&SendRequest<'static, T>) -> Result<(), PostError>,
) -> Result<()> {
    qp.protection_domain().context().must_be(window.protection_domain().context(), VERB, "mw")?;
    let mut state = window.handle.lock();
    state.mw().ok_or_else(freed)?;
    if state.belongs() == Belongs::ToNone {
        // rxe of kernels 6.1 and 6.12 would follow a null pointer, in the kernel.
        return Err(not_bound());
    }
    must_serve(&state, Owner::of(qp))?;
    let result = post(&request.invalidation(state.rkey()));
    if result.as_ref().err().is_none_or(|error| error.accepted() != Some(0)) {
        state.set_unbinding(Unbinding { wr_id: request.wr_id, qp_num: qp.qp_num() });
    }
    Ok(result?)
}

/// The device would refuse a request of another queue pair's, and that one be dropped with the window still bound.
fn must_serve(state: &State, qp: Owner) -> Result<()> {
    match state.belongs() {
        Belongs::To(owner) if owner != qp => {
            let rule = "it serves that one only, until it is unbound and released";
            Err(Error::invalid(VERB, "mw", "a window that another queue pair has bound", rule))
        }
        _ => Ok(()),
    }
}

#[cold]
fn not_bound() -> Error {
    Error::invalid(VERB, "mw", "a window that was not bound", "there is nothing to unbind")
}

/// The error of a window that is there no more.
#[cold]
pub(super) fn freed() -> Error {
    let rule = "it was bound by a queue pair that is gone, and was freed with it; make another";
    Error::invalid(VERB, "mw", "a window that is freed", rule)
}
