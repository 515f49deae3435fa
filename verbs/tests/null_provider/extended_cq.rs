//! The plain data path of extended completion queues: `ibv_start_poll` to `ibv_end_poll` in a few instructions.
//!
//! # Safety
//!
//! Queues are the provider's own and used by one thread; the functions are called in the order that the manual page says.

use std::ffi::c_int;

use verbs::ffi;

use super::control::CompletionQueue;
use super::plain::{Entry, Polls, QP_NUM};

pub(super) fn fill(cq: &mut ffi::ibv_cq_ex, polls: Polls) {
    cq.start_poll = Some(match polls {
        Polls::Full => start_full,
        Polls::Empty => start_empty,
        _ => start_posted,
    });
    cq.next_poll = Some(match polls {
        Polls::Full => next_full,
        Polls::Empty => next_empty,
        _ => next_posted,
    });
    cq.end_poll = Some(end_poll);
    cq.read_opcode = Some(read_opcode);
    cq.read_byte_len = Some(read_byte_len);
    cq.read_vendor_err = Some(read_zero);
    cq.read_wc_flags = Some(read_zero);
    cq.read_imm_data = Some(read_zero);
    cq.read_qp_num = Some(read_qp_num);
    cq.read_src_qp = Some(read_qp_num);
}

/// Opens the oldest entry, whether or not there is one.
///
/// # Safety
///
/// As the file says.
#[inline(always)]
unsafe fn open(cq: *mut ffi::ibv_cq_ex) -> c_int {
    // SAFETY: as the file says.
    unsafe {
        (*cq).wr_id = (*cq.cast::<CompletionQueue>()).ring.take().wr_id;
        (*cq).status = ffi::ibv_wc_status::IBV_WC_SUCCESS;
    }
    0
}

unsafe extern "C" fn next_full(cq: *mut ffi::ibv_cq_ex) -> c_int {
    // SAFETY: as the file says.
    unsafe { open(cq) }
}

unsafe extern "C" fn next_empty(_cq: *mut ffi::ibv_cq_ex) -> c_int {
    libc::ENOENT
}

unsafe extern "C" fn next_posted(cq: *mut ffi::ibv_cq_ex) -> c_int {
    // SAFETY: as the file says.
    unsafe { if (*cq.cast::<CompletionQueue>()).ring.is_empty() { libc::ENOENT } else { open(cq) } }
}

/// Each does what its counterpart does for a queue that was begun.
macro_rules! starts {
    ($($name:ident = $next:ident;)*) => {
        $(unsafe extern "C" fn $name(cq: *mut ffi::ibv_cq_ex, _attributes: *mut ffi::ibv_poll_cq_attr) -> c_int {
            // SAFETY: as the file says.
            unsafe { $next(cq) }
        })*
    };
}

starts! {
    start_full = next_full;
    start_empty = next_empty;
    start_posted = next_posted;
}

unsafe extern "C" fn end_poll(_cq: *mut ffi::ibv_cq_ex) {}

/// The open entry.
///
/// # Safety
///
/// As the file says.
#[inline(always)]
unsafe fn entry(cq: *mut ffi::ibv_cq_ex) -> Entry {
    // SAFETY: as the file says.
    unsafe { (*cq.cast::<CompletionQueue>()).ring.taken() }
}

unsafe extern "C" fn read_opcode(cq: *mut ffi::ibv_cq_ex) -> ffi::ibv_wc_opcode {
    // SAFETY: as the file says.
    ffi::ibv_wc_opcode(unsafe { entry(cq) }.opcode)
}

unsafe extern "C" fn read_byte_len(cq: *mut ffi::ibv_cq_ex) -> u32 {
    // SAFETY: as the file says.
    unsafe { entry(cq) }.length
}

unsafe extern "C" fn read_qp_num(_cq: *mut ffi::ibv_cq_ex) -> u32 {
    QP_NUM
}

unsafe extern "C" fn read_zero(_cq: *mut ffi::ibv_cq_ex) -> u32 {
    0
}
