//! Domains, channels, completion queues and queue pairs: the functions that libibverbs exports.
//!
//! # Safety
//!
//! All pointers come from these functions; what they made stays in memory as long as the provider, which outlives its
//! objects. Each function is called with valid structures.
#![allow(clippy::missing_safety_doc, reason = "the manual pages of libibverbs say it")]

use std::ffi::{c_int, c_uint, c_void};
use std::{mem, ptr};

use verbs::ffi;

use super::DataPath;
use super::completion_queue::MAX_ENTRIES;
use super::device::shared;
use super::events::settle;
use super::extended::Building;
use super::lies::tell;
use super::plain::{self, Ring, Stage};
use super::state::{Kind, Queue, Slots, State, set_errno};

/// A completion queue, and what the plain data path needs of it.
#[repr(C)]
pub(super) struct CompletionQueue {
    // It begins as an `ibv_cq`, which is all that there is of a plain one.
    pub(super) cq: ffi::ibv_cq_ex,
    /// The completion between `ibv_start_poll` and `ibv_end_poll`.
    pub(super) entry: ffi::ibv_wc,
    pub(super) ring: Ring,
    pub(super) stage: Stage,
}

/// A queue pair, and what the plain data path needs of it.
#[repr(C)]
pub(super) struct QueuePair {
    // It begins with the `ibv_qp`, which is all that there is of a plain one.
    pub(super) qp: ffi::ibv_qp_ex,
    pub(super) signal_all: bool,
    pub(super) is_extended: bool,
    pub(super) building: Building,
    /// What it was told.
    pub(super) attributes: ffi::ibv_qp_attr,
}

/// Whether a call that makes an object out of others may go on; sets `errno` if not.
pub(super) fn may_make(state: &mut State, verb: &str, parents: &[(Kind, usize)]) -> bool {
    let parents_live = parents.iter().all(|(kind, address)| state.check(*kind, *address, verb));
    let errno = match state.fault(verb) {
        Some(fault) => fault.errno,
        None if parents_live => return true,
        None => libc::EINVAL,
    };
    set_errno(errno);
    false
}

/// What a call that destroys an object returns; `Ok`: it is gone.
pub(super) fn destroy(state: &mut State, verb: &str, kind: Kind, address: usize) -> Result<(), c_int> {
    if let Some(fault) = state.fault(verb) {
        set_errno(fault.errno);
        return Err(fault.returns.unwrap_or(fault.errno));
    }
    if state.remove(kind, address, verb) { Ok(()) } else { Err(libc::EBUSY) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_alloc_pd(context: *mut ffi::ibv_context) -> *mut ffi::ibv_pd {
    // SAFETY: the context is one of ours.
    let mut state = unsafe { shared(context) }.lock();
    if !may_make(&mut state, "ibv_alloc_pd", &[(Kind::Context, context as usize)]) {
        return ptr::null_mut();
    }
    let handle = state.number();
    let pd = state.keep(ffi::ibv_pd { context, handle });
    state.add(Kind::Domain, pd as usize, &[context as usize]);
    state.imports.numbers.insert((Kind::Domain, handle), pd as usize);
    pd
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dealloc_pd(pd: *mut ffi::ibv_pd) -> c_int {
    // SAFETY: the domain is one of ours.
    let mut state = unsafe { shared((*pd).context) }.lock();
    destroy(&mut state, "ibv_dealloc_pd", Kind::Domain, pd as usize).err().unwrap_or(0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_comp_channel(context: *mut ffi::ibv_context) -> *mut ffi::ibv_comp_channel {
    // SAFETY: the context is one of ours.
    let mut state = unsafe { shared(context) }.lock();
    if !may_make(&mut state, "ibv_create_comp_channel", &[(Kind::Context, context as usize)]) {
        return ptr::null_mut();
    }
    // Each read takes one event.
    // SAFETY: the call has no preconditions.
    let fd = unsafe { libc::eventfd(0, libc::EFD_SEMAPHORE) };
    let channel = state.keep(ffi::ibv_comp_channel { context, fd, refcnt: 0 });
    state.events.insert(channel as usize, Default::default());
    state.add(Kind::Channel, channel as usize, &[context as usize]);
    channel
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_comp_channel(channel: *mut ffi::ibv_comp_channel) -> c_int {
    // SAFETY: the channel is one of ours, and its descriptor was opened with it.
    unsafe {
        let mut state = shared((*channel).context).lock();
        match destroy(&mut state, "ibv_destroy_comp_channel", Kind::Channel, channel as usize) {
            Ok(()) => {
                libc::close((*channel).fd);
                0
            }
            Err(code) => code,
        }
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ibv_create_cq(
    context: *mut ffi::ibv_context,
    cqe: c_int,
    cq_context: *mut c_void,
    channel: *mut ffi::ibv_comp_channel,
    vector: c_int,
) -> *mut ffi::ibv_cq {
    // SAFETY: the context is one of ours.
    let mut state = unsafe { shared(context) }.lock();
    let mut parents = vec![(Kind::Context, context as usize)];
    if !channel.is_null() {
        parents.push((Kind::Channel, channel as usize));
    }
    if !may_make(&mut state, "ibv_create_cq", &parents) {
        return ptr::null_mut();
    }
    // SAFETY: the context is one of ours.
    if !(1..=MAX_ENTRIES).contains(&cqe) || !(0..unsafe { (*context).num_comp_vectors }).contains(&vector) {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    // SAFETY: all zeroes are a valid structure.
    let (mut cq, entry): (ffi::ibv_cq_ex, ffi::ibv_wc) = unsafe { mem::zeroed() };
    cq.context = context;
    cq.channel = channel;
    cq.cq_context = cq_context;
    cq.cqe = cqe;
    let cq: *mut ffi::ibv_cq =
        state.keep(CompletionQueue { cq, entry, ring: Ring::default(), stage: Stage::default() }).cast();
    state.queues.insert(cq as usize, Queue { channel: channel as usize, ..Queue::default() });
    let parents: Vec<usize> = parents.into_iter().map(|(_, address)| address).collect();
    state.add(Kind::CompletionQueue, cq as usize, &parents);
    cq
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_cq(cq: *mut ffi::ibv_cq) -> c_int {
    // SAFETY: the queue is one of ours.
    let (shared, context) = unsafe { (shared((*cq).context), (*cq).context) };
    // SAFETY: the queue's context is alive.
    let mut state = unsafe { settle(shared, shared.lock(), context, cq as usize, "ibv_destroy_cq") };
    let unacked = state.unacked(cq as usize);
    if unacked > 0 {
        state.violations.push(format!("ibv_destroy_cq: it would wait for ever for {unacked} events to be acked"));
    }
    if let Err(code) = destroy(&mut state, "ibv_destroy_cq", Kind::CompletionQueue, cq as usize) {
        return code;
    }
    // As the kernel does, take back the events that nobody took.
    let channel = state.queues.remove(&(cq as usize)).map_or(0, |queue| queue.channel);
    if let Some(events) = state.events.get_mut(&channel) {
        let before = events.len();
        events.retain(|queue| *queue != cq as usize);
        for _ in events.len()..before {
            // SAFETY: the queue held its channel until now.
            unsafe { take_from(channel as *mut ffi::ibv_comp_channel) };
        }
    }
    0
}

/// Takes one off the count of a channel's events, or waits for one.
///
/// # Safety
///
/// The channel is alive.
unsafe fn take_from(channel: *mut ffi::ibv_comp_channel) -> bool {
    let mut count = 0u64;
    // SAFETY: the descriptor is the channel's, and `count` has the eight bytes that are read.
    unsafe { libc::read((*channel).fd, (&raw mut count).cast(), 8) == 8 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ffi::ibv_comp_channel,
    cq: *mut *mut ffi::ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the channel is one of ours, its queues are too, and the caller passes places for the results.
    unsafe {
        let shared = shared((*channel).context);
        let mut state = shared.lock();
        state.check(Kind::Channel, channel as usize, "ibv_get_cq_event");
        if let Some(fault) = state.fault("ibv_get_cq_event") {
            set_errno(fault.errno);
            return fault.returns.unwrap_or(-1);
        }
        drop(state);
        if !take_from(channel) {
            return -1;
        }
        let mut state = shared.lock();
        let Some(queue) = state.events.get_mut(&(channel as usize)).and_then(|events| events.pop_front()) else {
            set_errno(libc::EAGAIN);
            return -1;
        };
        state.queues.get_mut(&queue).expect("a queue that is destroyed has no events").taken += 1;
        *cq = queue as *mut ffi::ibv_cq;
        *cq_context = (**cq).cq_context;
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ffi::ibv_cq, count: c_uint) {
    // SAFETY: the queue is one of ours.
    let mut state = unsafe { shared((*cq).context) }.lock();
    if state.check(Kind::CompletionQueue, cq as usize, "ibv_ack_cq_events") {
        let unacked = state.unacked(cq as usize);
        if count > unacked {
            state.violations.push(format!("ibv_ack_cq_events: {count} of {unacked} events were acked"));
        }
        state.queues.get_mut(&(cq as usize)).expect("it is alive").acked += count.min(unacked);
    }
}

#[unsafe(no_mangle)]
pub(super) unsafe extern "C" fn ibv_create_qp(
    pd: *mut ffi::ibv_pd,
    attributes: *mut ffi::ibv_qp_init_attr,
) -> *mut ffi::ibv_qp {
    // SAFETY: the domain is one of ours, and the caller passes a structure.
    let (context, attributes) = unsafe { ((*pd).context, &mut *attributes) };
    // SAFETY: as above.
    let mut state = unsafe { shared(context) }.lock();
    let (send_cq, recv_cq) = (attributes.send_cq, attributes.recv_cq);
    let mut parents = vec![(Kind::Domain, pd as usize), (Kind::CompletionQueue, send_cq as usize)];
    // The sending end of an extended reliable connection receives nothing.
    if attributes.qp_type != ffi::ibv_qp_type::IBV_QPT_XRC_SEND {
        parents.push((Kind::CompletionQueue, recv_cq as usize));
    }
    if !attributes.srq.is_null() {
        parents.push((Kind::SharedReceiveQueue, attributes.srq as usize));
    }
    if !may_make(&mut state, "ibv_create_qp", &parents) {
        return ptr::null_mut();
    }
    let cap = attributes.cap;
    // SAFETY: all zeroes are a valid structure.
    let mut extended: ffi::ibv_qp_ex = unsafe { mem::zeroed() };
    let qp = &mut extended.qp_base;
    qp.context = context;
    qp.qp_context = attributes.qp_context;
    qp.pd = pd;
    qp.send_cq = send_cq;
    qp.recv_cq = recv_cq;
    qp.qp_num = match state.data_path {
        DataPath::Checked => match state.number_again.take() {
            Some(number) => number,
            None => state.number(),
        },
        // What its completions say.
        DataPath::Plain(_) => plain::QP_NUM,
    };
    qp.srq = attributes.srq;
    qp.state = ffi::ibv_qp_state::IBV_QPS_RESET;
    qp.qp_type = attributes.qp_type;
    let signal_all = attributes.sq_sig_all != 0;
    // SAFETY: all zeroes are a valid structure.
    let mut told: ffi::ibv_qp_attr = unsafe { mem::zeroed() };
    told.cap = cap;
    let building = Building::default();
    let pair = QueuePair { qp: extended, signal_all, is_extended: false, building, attributes: told };
    let qp: *mut ffi::ibv_qp = state.keep(pair).cast();
    let slots = Slots {
        max_send: cap.max_send_wr,
        max_receive: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
        signal_all,
        ..Slots::default()
    };
    state.pairs.insert(qp as usize, slots);
    let parents: Vec<usize> = parents.into_iter().map(|(_, address)| address).collect();
    state.add(Kind::QueuePair, qp as usize, &parents);
    tell(&state.lies.capabilities, &mut attributes.cap);
    qp
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_qp(qp: *mut ffi::ibv_qp) -> c_int {
    // SAFETY: the queue pair is one of ours.
    let (shared, context) = unsafe { (shared((*qp).context), (*qp).context) };
    // SAFETY: the queue pair's context is alive.
    let mut state = unsafe { settle(shared, shared.lock(), context, qp as usize, "ibv_destroy_qp") };
    if state.pairs.get(&(qp as usize)).is_some_and(|pair| !pair.groups.is_empty()) {
        state.violations.push("ibv_destroy_qp: the queue pair is attached to a multicast group".to_owned());
        return libc::EBUSY;
    }
    if state.has_windows(qp as usize) {
        state.violations.push("ibv_destroy_qp: memory windows are bound by the queue pair".to_owned());
        return libc::EBUSY;
    }
    match destroy(&mut state, "ibv_destroy_qp", Kind::QueuePair, qp as usize) {
        Ok(()) => {
            state.pairs.remove(&(qp as usize));
            0
        }
        Err(code) => code,
    }
}
