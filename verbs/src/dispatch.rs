//! The verbs of the data path, called through the context's operation table as libibverbs' inline functions do.
//!
//! The bindings' shims for these inline functions cost one jump a call. A post and a poll are some 50 instructions of ours
//! and C's each, so two jumps are 4 % of what can be won or lost; all other verbs go through the shims. The tests on the null
//! provider call both and compare.
//!
//! # Safety
//!
//! A context is made only if its operation table [has](is_complete) these entries, and nobody changes the table after that.
//! (C's inline functions call them without a check.)
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
            // SAFETY: the object is alive, so its context is, and the table's entry is there, as the file's invariant says.
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
    /// `ibv_poll_cq`.
    poll_cq(cq: ffi::ibv_cq, room: c_int, completions: *mut ffi::ibv_wc);
}

/// Whether a provider has the verbs of the data path. One that lacks them is refused when its device is opened.
pub(crate) fn is_complete(operations: &ffi::ibv_context_ops) -> bool {
    operations.post_send.is_some() && operations.post_recv.is_some() && operations.poll_cq.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_lacks_a_verb_of_the_data_path_is_not_complete() {
        unsafe extern "C" fn send(
            _: *mut ffi::ibv_qp,
            _: *mut ffi::ibv_send_wr,
            _: *mut *mut ffi::ibv_send_wr,
        ) -> c_int {
            0
        }
        unsafe extern "C" fn receive(
            _: *mut ffi::ibv_qp,
            _: *mut ffi::ibv_recv_wr,
            _: *mut *mut ffi::ibv_recv_wr,
        ) -> c_int {
            0
        }
        unsafe extern "C" fn poll(_: *mut ffi::ibv_cq, _: c_int, _: *mut ffi::ibv_wc) -> c_int {
            0
        }
        // SAFETY: all zeroes are a table without entries.
        let mut table: ffi::ibv_context_ops = unsafe { std::mem::zeroed() };
        table.post_send = Some(send);
        table.post_recv = Some(receive);
        table.poll_cq = Some(poll);
        assert!(is_complete(&table));
        for lacking in [
            ffi::ibv_context_ops { post_send: None, ..table },
            ffi::ibv_context_ops { post_recv: None, ..table },
            ffi::ibv_context_ops { poll_cq: None, ..table },
        ] {
            assert!(!is_complete(&lacking));
        }
    }
}
