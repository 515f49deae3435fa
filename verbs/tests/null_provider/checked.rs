//! The data path that checks what it is given.
//!
//! # Safety
//!
//! Queues are the provider's own, and requests are valid chains: libibverbs' inline functions pass on what they were called
//! with.

use std::ffi::c_int;
use std::{mem, ptr};

use verbs::ffi;

use super::device::shared;
use super::lies::tell;
use super::state::{BadWr, Kind, State, Waiting, set_errno};
use super::{plain, windows};

pub(super) fn install(ops: &mut ffi::ibv_context_ops) {
    ops.post_send = Some(post_send);
    ops.post_recv = Some(post_recv);
    ops.poll_cq = Some(poll_cq);
    ops.req_notify_cq = Some(req_notify_cq);
}

/// What both kinds of request have.
pub(super) struct Request {
    pub(super) wr_id: u64,
    pub(super) slices: Vec<ffi::ibv_sge>,
    pub(super) opcode: u32,
    pub(super) signaled: bool,
    pub(super) inline: bool,
    pub(super) receive: bool,
}

/// # Safety
///
/// The list has `num_sge` entries.
pub(super) unsafe fn slices(sg_list: *const ffi::ibv_sge, num_sge: c_int) -> Vec<ffi::ibv_sge> {
    // SAFETY: as the caller says.
    (0..num_sge.max(0) as usize).map(|index| unsafe { sg_list.add(index).read() }).collect()
}

unsafe extern "C" fn post_send(
    qp: *mut ffi::ibv_qp,
    mut wr: *mut ffi::ibv_send_wr,
    bad_wr: *mut *mut ffi::ibv_send_wr,
) -> c_int {
    // SAFETY: as the file says.
    unsafe {
        let mut state = shared((*qp).context).lock();
        let ready = matches!((*qp).state, ffi::ibv_qp_state::IBV_QPS_RTS | ffi::ibv_qp_state::IBV_QPS_ERR);
        let first = wr;
        let is_datagram = (*qp).qp_type == ffi::ibv_qp_type::IBV_QPT_UD;
        while !wr.is_null() {
            if is_datagram && !state.check(Kind::AddressHandle, (*wr).wr.ud.ah as usize, "ibv_post_send") {
                return refuse(&mut state, libc::EINVAL, first, wr, bad_wr);
            }
            let flag = |flag: ffi::ibv_send_flags| (*wr).send_flags & flag.0 != 0;
            let request = Request {
                wr_id: (*wr).wr_id,
                slices: slices((*wr).sg_list, (*wr).num_sge),
                opcode: plain::COMPLETION_OF[((*wr).opcode.0 & 15) as usize],
                signaled: flag(ffi::ibv_send_flags::IBV_SEND_SIGNALED),
                inline: flag(ffi::ibv_send_flags::IBV_SEND_INLINE),
                receive: false,
            };
            if let Err(errno) = take(&mut state, qp, &request, ready) {
                return refuse(&mut state, errno, first, wr, bad_wr);
            }
            if let Some(change) = windows::Change::of(wr) {
                change.apply(&mut state, qp);
            }
            wr = (*wr).next;
        }
    }
    0
}

unsafe extern "C" fn post_recv(
    qp: *mut ffi::ibv_qp,
    mut wr: *mut ffi::ibv_recv_wr,
    bad_wr: *mut *mut ffi::ibv_recv_wr,
) -> c_int {
    // SAFETY: as the file says.
    unsafe {
        let mut state = shared((*qp).context).lock();
        let ready = (*qp).state != ffi::ibv_qp_state::IBV_QPS_RESET;
        let first = wr;
        while !wr.is_null() {
            let request = Request {
                wr_id: (*wr).wr_id,
                slices: slices((*wr).sg_list, (*wr).num_sge),
                opcode: ffi::ibv_wc_opcode::IBV_WC_RECV.0,
                signaled: true,
                inline: false,
                receive: true,
            };
            if let Err(errno) = take(&mut state, qp, &request, ready) {
                return refuse(&mut state, errno, first, wr, bad_wr);
            }
            wr = (*wr).next;
        }
    }
    0
}

/// Whether the next request is to be refused.
pub(super) fn refused(state: &mut State) -> Result<(), c_int> {
    if let Some(refusal) = &mut state.refusal {
        match refusal.after.checked_sub(1) {
            Some(after) => refusal.after = after,
            None => return Err(refusal.errno),
        }
    }
    Ok(())
}

/// Looks whether the memory of a request is registered in a domain.
pub(super) fn check_registered(state: &mut State, verb: &str, slices: &[ffi::ibv_sge], domain: u32) {
    for slice in slices {
        let registered = state.regions.get(&slice.lkey).is_some_and(|range| {
            let offset = slice.addr.wrapping_sub(range.address);
            range.domain == domain && offset <= range.length && u64::from(slice.length) <= range.length - offset
        });
        if !registered {
            state.violations.push(format!("{verb}: {slice:x?} is not registered"));
        }
    }
}

/// Looks whether inline data is the program's memory, and reads it. An entry of a region has the region's key, and its address need not be
/// one of the program's.
pub(super) fn check_inline(state: &mut State, verb: &str, slices: &[ffi::ibv_sge]) {
    for slice in slices {
        if slice.lkey != 0 {
            state.violations.push(format!("{verb}: {slice:x?} of a region is taken for inline data"));
            continue;
        }
        let bytes = slice.addr as *const u8;
        // SAFETY: `length` bytes of the program's memory are there, as long as the request is posted.
        std::hint::black_box(
            (0..slice.length as usize).map(|index| unsafe { bytes.add(index).read() }).fold(0, u8::wrapping_add),
        );
    }
}

/// Takes a request and completes it, or says why not.
///
/// # Safety
///
/// The queue pair is the provider's.
pub(super) unsafe fn take(
    state: &mut State,
    qp: *mut ffi::ibv_qp,
    request: &Request,
    ready: bool,
) -> Result<(), c_int> {
    let verb = if request.receive { "ibv_post_recv" } else { "ibv_post_send" };
    if !state.check(Kind::QueuePair, qp as usize, verb) || !ready {
        return Err(libc::EINVAL);
    }
    refused(state)?;
    // SAFETY: as the caller says.
    let (pd, qp_num, cq) = unsafe {
        let cq = if request.receive { (*qp).recv_cq } else { (*qp).send_cq };
        ((*(*qp).pd).handle, (*qp).qp_num, cq)
    };
    let length: u64 = request.slices.iter().map(|slice| u64::from(slice.length)).sum();
    let slots = state.pairs.get_mut(&(qp as usize)).expect("it is alive");
    let (used, max, max_sge) = match request.receive {
        true => (slots.receives, slots.max_receive, slots.max_recv_sge),
        false => (slots.sends, slots.max_send, slots.max_send_sge),
    };
    if request.slices.len() > max_sge as usize || request.inline && length > slots.max_inline_data.into() {
        return Err(libc::EINVAL);
    }
    if used >= max {
        return Err(libc::ENOMEM);
    }
    // SAFETY: as the caller says.
    let is_flushed = unsafe { (*qp).state } == ffi::ibv_qp_state::IBV_QPS_ERR;
    let completes = request.signaled || slots.signal_all || is_flushed;
    let mut freed = 1;
    if request.receive {
        slots.receives += 1;
    } else {
        slots.sends += 1;
        slots.unsignaled += 1;
        freed = slots.unsignaled;
        if completes {
            slots.unsignaled = 0;
        }
    }
    if request.inline {
        check_inline(state, verb, &request.slices);
    } else {
        check_registered(state, verb, &request.slices, pd);
    }
    if completes {
        // SAFETY: all zeroes are a valid structure.
        let mut completion: ffi::ibv_wc = unsafe { mem::zeroed() };
        completion.wr_id = request.wr_id;
        completion.opcode.0 = request.opcode;
        completion.byte_len = length as u32;
        completion.qp_num = qp_num;
        if is_flushed {
            completion.status = ffi::ibv_wc_status::IBV_WC_WR_FLUSH_ERR;
        }
        // SAFETY: as the caller says.
        if request.receive && unsafe { (*qp).qp_type } == ffi::ibv_qp_type::IBV_QPT_UD {
            completion.wc_flags = ffi::ibv_wc_flags::IBV_WC_GRH.0;
            (completion.src_qp, completion.slid, completion.sl, completion.dlid_path_bits) = (0x77, 5, 3, 1);
        }
        if let Some((status, opcode)) = state.odd_completion.take() {
            completion.status.0 = status;
            completion.opcode.0 = opcode;
        }
        tell(&state.lies.completion, &mut completion);
        complete(state, cq, Waiting { completion, qp: qp as usize, slots: freed });
    }
    Ok(())
}

/// Puts a completion into its queue, and an event into the channel of one that is armed.
pub(super) fn complete(state: &mut State, cq: *mut ffi::ibv_cq, waiting: Waiting) {
    let Some(queue) = state.queues.get_mut(&(cq as usize)) else {
        return state.violations.push("a queue pair outlived its queue".to_owned());
    };
    queue.waiting.push_back(waiting);
    // No completion of this device is a solicited one.
    if !queue.solicited_only && std::mem::take(&mut queue.armed) {
        state.tell(cq as usize);
    }
}

/// Sets `bad_wr` as told, or as it should be.
///
/// # Safety
///
/// `bad_wr` is a place for a pointer.
pub(super) unsafe fn refuse<W>(
    state: &mut State,
    errno: c_int,
    first: *mut W,
    refused: *mut W,
    bad_wr: *mut *mut W,
) -> c_int {
    let how = state.refusal.take().map_or(BadWr::Refused, |refusal| refusal.bad_wr);
    // SAFETY: as the caller says.
    unsafe {
        match how {
            BadWr::Refused => *bad_wr = refused,
            BadWr::Null => *bad_wr = ptr::null_mut(),
            BadWr::Untouched => {}
            BadWr::AtBytes(offset) => *bad_wr = first.wrapping_byte_offset(offset),
        }
    }
    errno
}

unsafe extern "C" fn poll_cq(cq: *mut ffi::ibv_cq, room: c_int, into: *mut ffi::ibv_wc) -> c_int {
    // SAFETY: as the file says.
    let mut state = unsafe { shared((*cq).context) }.lock();
    if !state.check(Kind::CompletionQueue, cq as usize, "ibv_poll_cq") {
        return -libc::EINVAL;
    }
    if let Some(count) = state.poll_returns.pop_front() {
        return count;
    }
    let mut count = 0;
    while count < room {
        let Some(completion) = take_completion(&mut state, cq as usize) else { break };
        // SAFETY: the caller's array has room for `room` completions.
        unsafe { into.add(count as usize).write(completion) };
        count += 1;
    }
    count
}

/// Takes a completion off a queue, which frees the slots of what completed.
pub(super) fn take_completion(state: &mut State, cq: usize) -> Option<ffi::ibv_wc> {
    let mut waiting = state.queues.get_mut(&cq)?.waiting.pop_front()?;
    if let Some((flags, data)) = state.odd_flags.take() {
        waiting.completion.wc_flags = flags;
        waiting.completion.__bindgen_anon_1.invalidated_rkey = data;
        if flags & ffi::ibv_wc_flags::IBV_WC_WITH_INV.0 != 0 {
            state.invalidated(data);
        }
    }
    if let Some(slots) = state.pairs.get_mut(&waiting.qp) {
        let receive = waiting.completion.opcode.0 & ffi::ibv_wc_opcode::IBV_WC_RECV.0 != 0;
        let used = if receive { &mut slots.receives } else { &mut slots.sends };
        *used = used.saturating_sub(waiting.slots);
    }
    Some(waiting.completion)
}

unsafe extern "C" fn req_notify_cq(cq: *mut ffi::ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: as the file says.
    let mut state = unsafe { shared((*cq).context) }.lock();
    if let Some(fault) = state.fault("ibv_req_notify_cq") {
        set_errno(fault.errno);
        return fault.returns.unwrap_or(fault.errno);
    }
    if !state.check(Kind::CompletionQueue, cq as usize, "ibv_req_notify_cq") {
        return libc::EINVAL;
    }
    let queue = state.queues.get_mut(&(cq as usize)).expect("it is alive");
    queue.armed = queue.channel != 0;
    queue.solicited_only = solicited_only != 0;
    0
}
