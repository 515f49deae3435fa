//! Shared receive queues: the functions that libibverbs exports, and their part of the data path.
//!
//! # Safety
//!
//! All pointers come from the provider; what it made stays in memory as long as it does. Each function is called with valid
//! structures and chains.
#![allow(clippy::missing_safety_doc, reason = "the manual pages of libibverbs say it")]

use std::collections::VecDeque;
use std::ffi::c_int;
use std::{mem, ptr};

use verbs::ffi;

use super::checked::{check_registered, complete, refuse, refused, slices};
use super::control::{destroy, may_make};
use super::device::shared;
use super::events::{raise, settle};
use super::plain::Ring;
use super::state::{Kind, State, Waiting, set_errno};

pub(super) const MAX_REQUESTS: u32 = 1 << 14;
pub(super) const MAX_SLICES: u32 = 16;

/// A queue's requests: their identifiers and lengths.
pub(super) struct SharedQueue {
    waiting: VecDeque<(u64, u64)>,
    attributes: ffi::ibv_srq_attr,
}

/// A shared receive queue, and what the plain data path needs of it.
#[repr(C)]
pub(super) struct SharedReceiveQueue {
    // It begins with the `ibv_srq`, which is all that there is of one elsewhere.
    srq: ffi::ibv_srq,
    pub(super) ring: Ring,
}

pub(super) fn install(verbs: &mut ffi::verbs_context) {
    verbs.context.ops.post_srq_recv = Some(post_srq_recv);
    verbs.get_srq_num = Some(get_srq_num);
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ibv_create_srq(
    pd: *mut ffi::ibv_pd,
    attributes: *mut ffi::ibv_srq_init_attr,
) -> *mut ffi::ibv_srq {
    // SAFETY: the domain is one of ours, and the caller passes a structure.
    let (context, attributes) = unsafe { ((*pd).context, &mut *attributes) };
    // SAFETY: as above.
    let mut state = unsafe { shared(context) }.lock();
    if !may_make(&mut state, "ibv_create_srq", &[(Kind::Domain, pd as usize)]) {
        return ptr::null_mut();
    }
    if !(1..=MAX_REQUESTS).contains(&attributes.attr.max_wr) || attributes.attr.max_sge > MAX_SLICES {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    // SAFETY: all zeroes are a valid structure.
    let mut srq: ffi::ibv_srq = unsafe { mem::zeroed() };
    srq.context = context;
    srq.srq_context = attributes.srq_context;
    srq.pd = pd;
    srq.handle = state.number();
    let srq = state.keep(SharedReceiveQueue { srq, ring: Ring::default() }).cast::<ffi::ibv_srq>();
    let attributes = ffi::ibv_srq_attr { srq_limit: 0, ..attributes.attr };
    let queue = SharedQueue { waiting: VecDeque::new(), attributes };
    state.shared_queues.insert(srq as usize, queue);
    state.add(Kind::SharedReceiveQueue, srq as usize, &[pd as usize]);
    srq
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_srq(srq: *mut ffi::ibv_srq) -> c_int {
    // SAFETY: the queue is one of ours.
    let (shared, context) = unsafe { (shared((*srq).context), (*srq).context) };
    // SAFETY: the queue's context is alive.
    let mut state = unsafe { settle(shared, shared.lock(), context, srq as usize, "ibv_destroy_srq") };
    match destroy(&mut state, "ibv_destroy_srq", Kind::SharedReceiveQueue, srq as usize) {
        Ok(()) => {
            state.shared_queues.remove(&(srq as usize));
            0
        }
        Err(code) => code,
    }
}

/// How a call on a queue fails, if it does.
fn may_use<'a>(state: &'a mut State, verb: &str, srq: *mut ffi::ibv_srq) -> Result<&'a mut SharedQueue, c_int> {
    if let Some(fault) = state.fault(verb) {
        set_errno(fault.errno);
        return Err(fault.returns.unwrap_or(fault.errno));
    }
    if !state.check(Kind::SharedReceiveQueue, srq as usize, verb) {
        return Err(libc::EINVAL);
    }
    Ok(state.shared_queues.get_mut(&(srq as usize)).expect("it is alive"))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_srq(srq: *mut ffi::ibv_srq, attributes: *mut ffi::ibv_srq_attr, mask: c_int) -> c_int {
    // SAFETY: the queue is one of ours, and the caller passes a structure.
    let (mut state, attributes) = unsafe { (shared((*srq).context).lock(), *attributes) };
    let queue = match may_use(&mut state, "ibv_modify_srq", srq) {
        Ok(queue) => queue,
        Err(code) => return code,
    };
    let has = |bit: ffi::ibv_srq_attr_mask| mask as u32 & bit.0 != 0;
    let mut changed = queue.attributes;
    if has(ffi::ibv_srq_attr_mask::IBV_SRQ_MAX_WR) {
        changed.max_wr = attributes.max_wr;
    }
    if has(ffi::ibv_srq_attr_mask::IBV_SRQ_LIMIT) {
        changed.srq_limit = attributes.srq_limit;
    }
    if !(1..=MAX_REQUESTS).contains(&changed.max_wr)
        || changed.srq_limit > changed.max_wr
        || queue.waiting.len() > changed.max_wr as usize
    {
        return libc::EINVAL;
    }
    queue.attributes = changed;
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_srq(srq: *mut ffi::ibv_srq, attributes: *mut ffi::ibv_srq_attr) -> c_int {
    // SAFETY: the queue is one of ours.
    let mut state = unsafe { shared((*srq).context) }.lock();
    match may_use(&mut state, "ibv_query_srq", srq) {
        Ok(queue) => {
            // SAFETY: the caller passes a structure.
            unsafe { *attributes = queue.attributes };
            0
        }
        Err(code) => code,
    }
}

unsafe extern "C" fn get_srq_num(srq: *mut ffi::ibv_srq, number: *mut u32) -> c_int {
    // SAFETY: the queue is one of ours.
    let mut state = unsafe { shared((*srq).context) }.lock();
    match may_use(&mut state, "ibv_get_srq_num", srq) {
        Ok(_) => {
            // SAFETY: the queue is one of ours, and the caller passes a place for the number.
            unsafe { *number = (*srq).handle };
            0
        }
        Err(code) => code,
    }
}

unsafe extern "C" fn post_srq_recv(
    srq: *mut ffi::ibv_srq,
    mut wr: *mut ffi::ibv_recv_wr,
    bad_wr: *mut *mut ffi::ibv_recv_wr,
) -> c_int {
    // SAFETY: as the file says.
    unsafe {
        let mut state = shared((*srq).context).lock();
        let first = wr;
        while !wr.is_null() {
            if let Err(errno) = take(&mut state, srq, &*wr) {
                return refuse(&mut state, errno, first, wr, bad_wr);
            }
            wr = (*wr).next;
        }
    }
    0
}

/// Takes a request, or says why not.
///
/// # Safety
///
/// The queue is the provider's, and the request's list has as many entries as it says.
unsafe fn take(state: &mut State, srq: *mut ffi::ibv_srq, wr: &ffi::ibv_recv_wr) -> Result<(), c_int> {
    const VERB: &str = "ibv_post_srq_recv";
    if !state.check(Kind::SharedReceiveQueue, srq as usize, VERB) {
        return Err(libc::EINVAL);
    }
    refused(state)?;
    // SAFETY: as the caller says.
    let (slices, domain) = unsafe { (slices(wr.sg_list, wr.num_sge), (*(*srq).pd).handle) };
    check_registered(state, VERB, &slices, domain);
    let queue = state.shared_queues.get_mut(&(srq as usize)).expect("it is alive");
    if slices.len() > queue.attributes.max_sge as usize {
        return Err(libc::EINVAL);
    }
    if queue.waiting.len() >= queue.attributes.max_wr as usize {
        return Err(libc::ENOMEM);
    }
    queue.waiting.push_back((wr.wr_id, slices.iter().map(|slice| u64::from(slice.length)).sum()));
    Ok(())
}

/// A message arrives at a queue pair on a shared receive queue. `false`: that queue is empty.
pub(super) fn deliver(state: &mut State, qp: *mut ffi::ibv_qp) -> bool {
    // SAFETY: the queue pair is one of ours.
    let (context, srq, recv_cq, qp_num) = unsafe { ((*qp).context, (*qp).srq, (*qp).recv_cq, (*qp).qp_num) };
    let queue = state.shared_queues.get_mut(&(srq as usize)).expect("it is on such a queue");
    let Some((wr_id, length)) = queue.waiting.pop_front() else { return false };
    let limit = queue.attributes.srq_limit as usize;
    let low = queue.waiting.len() < limit;
    if low {
        queue.attributes.srq_limit = 0;
    }
    // SAFETY: all zeroes are a valid structure.
    let mut completion: ffi::ibv_wc = unsafe { mem::zeroed() };
    completion.wr_id = wr_id;
    completion.opcode = ffi::ibv_wc_opcode::IBV_WC_RECV;
    completion.byte_len = length as u32;
    completion.qp_num = qp_num;
    complete(state, recv_cq, Waiting { completion, qp: qp as usize, slots: 0 });
    if low {
        raise(state, context, ffi::ibv_event_type::IBV_EVENT_SRQ_LIMIT_REACHED.0, srq as usize);
    }
    true
}
