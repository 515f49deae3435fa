//! Completion queues that change: the functions that libibverbs exports.
//!
//! # Safety
//!
//! All pointers come from the provider; what it made stays in memory as long as it does. Each function is called with valid
//! structures.
#![allow(clippy::missing_safety_doc, reason = "the manual pages of libibverbs say it")]

use std::ffi::c_int;

use verbs::ffi;

use super::device::shared;
use super::state::{Kind, set_errno};

/// How many completions fit in a queue.
pub(super) const MAX_ENTRIES: c_int = 1 << 22;

/// How often a queue may tell of completions at the least.
pub(super) const MAX_MODERATION: u16 = 1000;

pub(super) fn install(verbs: &mut ffi::verbs_context) {
    verbs.modify_cq = Some(modify_cq);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_resize_cq(cq: *mut ffi::ibv_cq, cqe: c_int) -> c_int {
    // SAFETY: the queue is one of ours.
    let mut state = unsafe { shared((*cq).context) }.lock();
    if let Some(fault) = state.fault("ibv_resize_cq") {
        set_errno(fault.errno);
        return fault.returns.unwrap_or(fault.errno);
    }
    if !state.check(Kind::CompletionQueue, cq as usize, "ibv_resize_cq") {
        return libc::EINVAL;
    }
    let waiting = state.queues.get(&(cq as usize)).expect("it is alive").waiting.len();
    if !(1..=MAX_ENTRIES).contains(&cqe) || waiting > cqe as usize {
        return libc::EINVAL;
    }
    // SAFETY: the queue is one of ours. As libibverbs does, it writes without a lock of the reader's.
    unsafe { (*cq).cqe = cqe };
    0
}

unsafe extern "C" fn modify_cq(cq: *mut ffi::ibv_cq, attributes: *mut ffi::ibv_modify_cq_attr) -> c_int {
    // SAFETY: the queue is one of ours, and the caller passes a structure.
    let (mut state, attributes) = unsafe { (shared((*cq).context).lock(), *attributes) };
    if let Some(fault) = state.fault("ibv_modify_cq") {
        set_errno(fault.errno);
        return fault.returns.unwrap_or(fault.errno);
    }
    if !state.check(Kind::CompletionQueue, cq as usize, "ibv_modify_cq")
        || attributes.attr_mask != ffi::ibv_cq_attr_mask::IBV_CQ_ATTR_MODERATE.0
        || attributes.moderate.cq_count > MAX_MODERATION
        || attributes.moderate.cq_period > MAX_MODERATION
    {
        return libc::EINVAL;
    }
    let queue = state.queues.get_mut(&(cq as usize)).expect("it is alive");
    queue.moderation = (attributes.moderate.cq_count, attributes.moderate.cq_period);
    0
}
