//! Extended queue pairs, and their plain data path: `ibv_wr_start` to `ibv_wr_complete` in a few instructions.
//!
//! A request completes once its data is set, so one without data does not.
//!
//! # Safety
//!
//! Queues are the provider's own and used by one thread; the functions are called in the order that the manual page says.
#![allow(clippy::missing_safety_doc, reason = "the manual pages of libibverbs say it")]

use std::ffi::{c_int, c_void};
use std::{mem, ptr};

use verbs::ffi;
use verbs::ffi::ibv_wc_opcode as Opcode;

use super::control::{CompletionQueue, QueuePair, ibv_create_qp};
use super::device::shared;
use super::plain::{Entry, Ring};
use super::state::set_errno;
use super::{DataPath, checked_extended, special};

pub(super) fn install(verbs: &mut ffi::verbs_context) {
    verbs.create_qp_ex = Some(create_qp_ex);
}

/// What an extended queue pair is about to post.
#[derive(Clone, Copy, Default)]
pub(super) struct Building {
    /// Where the queue's ring ended when it was begun.
    tail: u32,
    /// What the last builder's request completes as.
    opcode: u32,
}

unsafe extern "C" fn create_qp_ex(
    context: *mut ffi::ibv_context,
    attributes: *mut ffi::ibv_qp_init_attr_ex,
) -> *mut ffi::ibv_qp {
    // SAFETY: the caller's context is one of ours.
    if let Some(fault) = unsafe { shared(context) }.lock().fault("ibv_create_qp_ex") {
        set_errno(fault.errno);
        return ptr::null_mut();
    }
    // SAFETY: the context is one of ours, and the caller passes a structure.
    if let Some(qp) = unsafe { special::create_qp_ex(context, &*attributes) } {
        return qp;
    }
    // SAFETY: the caller passes a structure; all zeroes are a valid `ibv_qp_init_attr`.
    let (extended, mut plain) = unsafe { (&mut *attributes, mem::zeroed::<ffi::ibv_qp_init_attr>()) };
    plain.qp_context = extended.qp_context;
    plain.srq = extended.srq;
    plain.send_cq = extended.send_cq;
    plain.recv_cq = extended.recv_cq;
    plain.srq = extended.srq;
    plain.cap = extended.cap;
    plain.qp_type = extended.qp_type;
    plain.sq_sig_all = extended.sq_sig_all;
    let with_flags = ffi::ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_CREATE_FLAGS.0;
    let flags = (extended.comp_mask & with_flags != 0).then_some(extended.create_flags);
    // SAFETY: the context is one of ours.
    unsafe { shared(context) }.lock().queue_pair_flags = flags;
    // SAFETY: the domain and the queues are those of the caller.
    let qp = unsafe { ibv_create_qp(extended.pd, &mut plain) };
    extended.cap = plain.cap;
    let with_table = ffi::ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
    if !qp.is_null() && extended.comp_mask & with_table != 0 {
        // SAFETY: the queue pair was made just now.
        let pair = unsafe { &mut *qp.cast::<QueuePair>() };
        pair.is_extended = true;
        // SAFETY: the queue pair's context is one of ours.
        let mut state = unsafe { shared(pair.qp.qp_base.context) }.lock();
        match state.data_path {
            DataPath::Checked => checked_extended::fill(&mut pair.qp),
            DataPath::Plain(_) => fill(&mut pair.qp),
        }
        let windows = ffi::ibv_qp_create_send_ops_flags::IBV_QP_EX_WITH_BIND_MW;
        if extended.send_ops_flags & u64::from(windows.0) != 0 {
            checked_extended::fill_windows(&mut pair.qp);
        }
        checked_extended::fill_optional(&mut pair.qp, extended.send_ops_flags);
        if std::mem::take(&mut state.lacks_builders) {
            pair.qp.wr_rdma_write = None;
            pair.qp.wr_atomic_write = None;
        }
    }
    qp
}

fn fill(qp: &mut ffi::ibv_qp_ex) {
    qp.wr_start = Some(start);
    qp.wr_send = Some(send);
    qp.wr_send_imm = Some(send_imm);
    qp.wr_rdma_write = Some(rdma_write);
    qp.wr_rdma_write_imm = Some(rdma_write_imm);
    qp.wr_rdma_read = Some(rdma_read);
    qp.wr_atomic_cmp_swp = Some(atomic_cmp_swp);
    qp.wr_atomic_fetch_add = Some(atomic_fetch_add);
    qp.wr_send_inv = Some(send_inv);
    qp.wr_local_inv = Some(local_inv);
    qp.wr_set_ud_addr = Some(set_ud_addr);
    qp.wr_set_sge = Some(set_sge);
    qp.wr_set_sge_list = Some(set_sge_list);
    qp.wr_set_inline_data = Some(set_inline_data);
    qp.wr_set_inline_data_list = Some(set_inline_data_list);
    qp.wr_complete = Some(complete);
    qp.wr_abort = Some(abort);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_qp_to_qp_ex(qp: *mut ffi::ibv_qp) -> *mut ffi::ibv_qp_ex {
    // SAFETY: the queue pair is one of ours.
    if unsafe { (*qp.cast::<QueuePair>()).is_extended } { qp.cast() } else { ptr::null_mut() }
}

/// The ring that the queue pair's sends complete in.
///
/// # Safety
///
/// The queue pair is one of ours, and nobody else uses the ring meanwhile.
#[inline(always)]
unsafe fn ring<'a>(qp: *mut ffi::ibv_qp_ex) -> &'a mut Ring {
    // SAFETY: as the caller says.
    unsafe { &mut (*(*qp).qp_base.send_cq.cast::<CompletionQueue>()).ring }
}

unsafe extern "C" fn start(qp: *mut ffi::ibv_qp_ex) {
    // SAFETY: as the file says.
    unsafe { (*qp.cast::<QueuePair>()).building.tail = ring(qp).tail };
}

unsafe extern "C" fn complete(_qp: *mut ffi::ibv_qp_ex) -> c_int {
    0
}

unsafe extern "C" fn abort(qp: *mut ffi::ibv_qp_ex) {
    // SAFETY: as the file says.
    unsafe { ring(qp).tail = (*qp.cast::<QueuePair>()).building.tail };
}

/// A builder.
macro_rules! builders {
    ($($name:ident($($argument:ident: $type:ty),*) => $opcode:ident;)*) => {
        $(unsafe extern "C" fn $name(qp: *mut ffi::ibv_qp_ex $(, $argument: $type)*) {
            // SAFETY: as the file says.
            unsafe { (*qp.cast::<QueuePair>()).building.opcode = Opcode::$opcode.0 };
        })*
    };
}

builders! {
    send() => IBV_WC_SEND;
    send_imm(_imm_data: u32) => IBV_WC_SEND;
    rdma_write(_rkey: u32, _remote_addr: u64) => IBV_WC_RDMA_WRITE;
    rdma_write_imm(_rkey: u32, _remote_addr: u64, _imm_data: u32) => IBV_WC_RDMA_WRITE;
    rdma_read(_rkey: u32, _remote_addr: u64) => IBV_WC_RDMA_READ;
    atomic_cmp_swp(_rkey: u32, _remote_addr: u64, _compare: u64, _swap: u64) => IBV_WC_COMP_SWAP;
    atomic_fetch_add(_rkey: u32, _remote_addr: u64, _add: u64) => IBV_WC_FETCH_ADD;
    send_inv(_rkey: u32) => IBV_WC_SEND;
    local_inv(_rkey: u32) => IBV_WC_LOCAL_INV;
}

unsafe extern "C" fn set_ud_addr(_qp: *mut ffi::ibv_qp_ex, _ah: *mut ffi::ibv_ah, _remote_qpn: u32, _remote_qkey: u32) {
}

/// The request is complete; as on the plain path, the completion tells the length of its first piece.
///
/// # Safety
///
/// As the file says.
#[inline(always)]
unsafe fn push(qp: *mut ffi::ibv_qp_ex, length: u32) {
    // SAFETY: as the file says.
    unsafe {
        let pair = &*qp.cast::<QueuePair>();
        if pair.qp.wr_flags & ffi::ibv_send_flags::IBV_SEND_SIGNALED.0 != 0 || pair.signal_all {
            ring(qp).push(Entry { wr_id: pair.qp.wr_id, opcode: pair.building.opcode, length });
        }
    }
}

unsafe extern "C" fn set_sge(qp: *mut ffi::ibv_qp_ex, _lkey: u32, _addr: u64, length: u32) {
    // SAFETY: as the file says.
    unsafe { push(qp, length) };
}

unsafe extern "C" fn set_sge_list(qp: *mut ffi::ibv_qp_ex, count: usize, list: *const ffi::ibv_sge) {
    // SAFETY: as the file says, and the list has `count` entries.
    unsafe { push(qp, if count > 0 { (*list).length } else { 0 }) };
}

unsafe extern "C" fn set_inline_data(qp: *mut ffi::ibv_qp_ex, _addr: *mut c_void, length: usize) {
    // SAFETY: as the file says.
    unsafe { push(qp, length as u32) };
}

unsafe extern "C" fn set_inline_data_list(qp: *mut ffi::ibv_qp_ex, count: usize, list: *const ffi::ibv_data_buf) {
    // SAFETY: as the file says, and the list has `count` entries.
    unsafe { push(qp, if count > 0 { (*list).length as u32 } else { 0 }) };
}
