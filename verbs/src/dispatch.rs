//! The verbs of the data path, called through the context's operation table as libibverbs' inline functions do.
//!
//! The bindings' shims for these inline functions cost one jump a call. A post and a poll are some 50 instructions of ours
//! and C's each, so two jumps are 4 % of what can be won or lost; all other verbs go through the shims. The tests on the null
//! provider call both and compare.
//!
//! # Safety
//!
//! `ibv_open_device` fills every entry of a context's operation table, if only with a function that says `EOPNOTSUPP`: the
//! inline functions in C call them without a check too.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::hint::unreachable_unchecked;

use crate::ffi;

macro_rules! dispatch {
    ($($(#[$meta:meta])* $name:ident($object:ident: $type:ty, $($argument:ident: $argument_type:ty),*);)*) => {
        $($(#[$meta])*
        ///
        /// # Safety
        ///
        /// The object is alive, and its context was opened by libibverbs. The arguments are valid as the manual page says.
        #[inline(always)]
        pub(crate) unsafe fn $name($object: *mut $type, $($argument: $argument_type),*) -> c_int {
            // SAFETY: the object is alive, so its context is, and the table's entry is there as the file's invariant says.
            unsafe {
                match (*(*$object).context).ops.$name {
                    Some(function) => function($object, $($argument),*),
                    None => unreachable_unchecked(),
                }
            }
        })*
    };
}

dispatch! {
    /// `ibv_post_send`.
    post_send(qp: ffi::ibv_qp, wr: *mut ffi::ibv_send_wr, bad_wr: *mut *mut ffi::ibv_send_wr);
    /// `ibv_post_recv`.
    post_recv(qp: ffi::ibv_qp, wr: *mut ffi::ibv_recv_wr, bad_wr: *mut *mut ffi::ibv_recv_wr);
    /// `ibv_poll_cq`.
    poll_cq(cq: ffi::ibv_cq, room: c_int, completions: *mut ffi::ibv_wc);
}
