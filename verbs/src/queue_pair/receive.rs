//! The function that a queue pair's receives are posted by.
//!
//! A provider need not check whether a queue pair has a receive queue of its own: some follow a null pointer where it has a
//! shared one. So such a queue pair gets a function that refuses instead of the provider's, which costs nothing: to call the
//! function that is known from the beginning takes two loads less than to look it up.
//!
//! # Safety
//!
//! The provider's function is the one in the operation table of the context, which
//! [has it and does not change](crate::dispatch).
#![allow(unsafe_code)]

use std::ffi::c_int;

use crate::context::Context;
use crate::ffi;

/// `ibv_post_recv`.
pub(super) type Function =
    unsafe extern "C" fn(*mut ffi::ibv_qp, *mut ffi::ibv_recv_wr, *mut *mut ffi::ibv_recv_wr) -> c_int;

/// The function for a queue pair of `context`, with a receive queue of its own or without one.
pub(super) fn function(context: &Context, has_own_queue: bool) -> Function {
    // SAFETY: the context is open.
    let provider = unsafe { (*context.as_raw()).ops.post_recv };
    match provider {
        Some(function) if has_own_queue => function,
        _ => refuse,
    }
}

/// Takes no request.
unsafe extern "C" fn refuse(
    _qp: *mut ffi::ibv_qp,
    wr: *mut ffi::ibv_recv_wr,
    bad_wr: *mut *mut ffi::ibv_recv_wr,
) -> c_int {
    // SAFETY: the caller passes a place for the refused request.
    unsafe { *bad_wr = wr };
    libc::EINVAL
}
