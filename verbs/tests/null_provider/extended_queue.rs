//! Extended completion queues: `ibv_create_cq_ex`, and `ibv_start_poll` to `ibv_end_poll` of the data path that checks.
//!
//! # Safety
//!
//! Queues are the provider's own; the functions are called in the order that the manual page says.

use std::ffi::c_int;
use std::ptr;

use verbs::ffi;
use verbs::ffi::ibv_create_cq_wc_flags as Flags;

use super::DataPath;
use super::control::{CompletionQueue, ibv_create_cq};
use super::device::shared;
use super::state::{Kind, State, set_errno};
use super::{checked, extended_cq};

/// What this provider's completions can tell.
const FIELDS: u32 = Flags::IBV_WC_EX_WITH_BYTE_LEN.0
    | Flags::IBV_WC_EX_WITH_IMM.0
    | Flags::IBV_WC_EX_WITH_QP_NUM.0
    | Flags::IBV_WC_EX_WITH_SRC_QP.0
    | Flags::IBV_WC_EX_WITH_CVLAN.0
    | Flags::IBV_WC_EX_WITH_FLOW_TAG.0
    | Flags::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP.0;

/// When each request completes.
pub(crate) const TIMESTAMP: u64 = 0x0123_4567_89ab_cdef;
pub(crate) const CVLAN: u16 = 0x0abc;
pub(crate) const FLOW_TAG: u32 = 0x00fe_dcba;

pub(super) fn install(verbs: &mut ffi::verbs_context) {
    verbs.create_cq_ex = Some(create_cq_ex);
}

unsafe extern "C" fn create_cq_ex(
    context: *mut ffi::ibv_context,
    attributes: *mut ffi::ibv_cq_init_attr_ex,
) -> *mut ffi::ibv_cq_ex {
    // SAFETY: the caller passes a structure.
    let attributes = unsafe { &*attributes };
    // SAFETY: the context is one of ours.
    let fault = unsafe { shared(context) }.lock().fault("ibv_create_cq_ex");
    if fault.is_some() || attributes.wc_flags & !u64::from(FIELDS) != 0 {
        set_errno(fault.map_or(libc::EOPNOTSUPP, |fault| fault.errno));
        return ptr::null_mut();
    }
    // SAFETY: the context is one of ours.
    unsafe { shared(context) }.lock().creation_flags = (attributes.comp_mask, attributes.flags);
    let (cqe, vector) = (attributes.cqe as c_int, attributes.comp_vector as c_int);
    // SAFETY: the context and the channel are the caller's.
    let cq = unsafe { ibv_create_cq(context, cqe, attributes.cq_context, attributes.channel, vector) };
    if cq.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the queue was made just now, and its context is one of ours.
    let (cq, mut state) = unsafe { (&mut *cq.cast::<ffi::ibv_cq_ex>(), shared(context).lock()) };
    let lacking = std::mem::take(&mut state.lacks_readers);
    match state.data_path {
        DataPath::Checked => {
            cq.start_poll = Some(checked_start);
            cq.next_poll = (!std::mem::take(&mut state.lacks_next_poll)).then_some(checked_next);
            cq.end_poll = Some(checked_end);
        }
        DataPath::Plain(polls) => {
            extended_cq::fill(cq, polls);
            return cq;
        }
    }
    cq.read_vendor_err = Some(read_vendor_err);
    cq.read_wc_flags = Some(read_wc_flags);
    cq.read_opcode = Some(read_opcode);
    let asked = |flag: Flags| attributes.wc_flags & u64::from(flag.0) != 0 && !lacking;
    cq.read_byte_len = asked(Flags::IBV_WC_EX_WITH_BYTE_LEN).then_some(read_byte_len);
    cq.read_imm_data = asked(Flags::IBV_WC_EX_WITH_IMM).then_some(read_imm_data);
    cq.read_qp_num = asked(Flags::IBV_WC_EX_WITH_QP_NUM).then_some(read_qp_num);
    cq.read_src_qp = asked(Flags::IBV_WC_EX_WITH_SRC_QP).then_some(read_qp_num);
    cq.read_cvlan = asked(Flags::IBV_WC_EX_WITH_CVLAN).then_some(read_cvlan);
    cq.read_flow_tag = asked(Flags::IBV_WC_EX_WITH_FLOW_TAG).then_some(read_flow_tag);
    cq.read_completion_ts = asked(Flags::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP).then_some(read_completion_ts);
    cq
}

unsafe extern "C" fn checked_start(cq: *mut ffi::ibv_cq_ex, _attributes: *mut ffi::ibv_poll_cq_attr) -> c_int {
    // SAFETY: as the file says.
    unsafe {
        let mut state = shared((*cq).context).lock();
        if !state.check(Kind::CompletionQueue, cq as usize, "ibv_start_poll") {
            return libc::EINVAL;
        }
        if let Some(fault) = state.fault("ibv_start_poll") {
            return fault.returns.unwrap_or(fault.errno);
        }
        state.starts += 1;
        if std::mem::replace(&mut state.queues.get_mut(&(cq as usize)).expect("it is alive").started, true) {
            state.violations.push("ibv_start_poll: it would wait for ever for ibv_end_poll".to_owned());
        }
        let code = open_entry(&mut state, cq);
        if code != 0 {
            state.queues.get_mut(&(cq as usize)).expect("it is alive").started = false;
        }
        code
    }
}

unsafe extern "C" fn checked_next(cq: *mut ffi::ibv_cq_ex) -> c_int {
    // SAFETY: as the file says.
    unsafe {
        let mut state = shared((*cq).context).lock();
        if !state.queues.get(&(cq as usize)).is_some_and(|queue| queue.started) {
            state.violations.push("ibv_next_poll: the queue was not started".to_owned());
        }
        if let Some(fault) = state.fault("ibv_next_poll") {
            return fault.returns.unwrap_or(fault.errno);
        }
        open_entry(&mut state, cq)
    }
}

/// Takes the oldest completion off the queue, for the readers.
///
/// # Safety
///
/// As the file says.
unsafe fn open_entry(state: &mut State, cq: *mut ffi::ibv_cq_ex) -> c_int {
    let Some(completion) = checked::take_completion(state, cq as usize) else { return libc::ENOENT };
    // SAFETY: as the file says.
    unsafe {
        (*cq).wr_id = completion.wr_id;
        (*cq).status = completion.status;
        (*cq.cast::<CompletionQueue>()).entry = completion;
    }
    0
}

unsafe extern "C" fn checked_end(cq: *mut ffi::ibv_cq_ex) {
    // SAFETY: as the file says.
    let mut state = unsafe { shared((*cq).context) }.lock();
    let queue = state.queues.get_mut(&(cq as usize)).expect("it is alive");
    if !std::mem::take(&mut queue.started) {
        state.violations.push("ibv_end_poll: the queue was not started".to_owned());
    }
}

macro_rules! readers {
    ($($name:ident: $type:ty = |$entry:ident| $value:expr;)*) => {
        $(unsafe extern "C" fn $name(cq: *mut ffi::ibv_cq_ex) -> $type {
            // SAFETY: as the file says.
            let $entry = unsafe { (*cq.cast::<CompletionQueue>()).entry };
            $value
        })*
    };
}

readers! {
    read_opcode: ffi::ibv_wc_opcode = |entry| entry.opcode;
    read_vendor_err: u32 = |entry| entry.vendor_err;
    read_byte_len: u32 = |entry| entry.byte_len;
    // SAFETY: both members of the union are integers.
    read_imm_data: u32 = |entry| unsafe { entry.__bindgen_anon_1.imm_data };
    read_qp_num: u32 = |entry| entry.qp_num;
    read_wc_flags: u32 = |entry| entry.wc_flags;
    read_completion_ts: u64 = |_entry| TIMESTAMP;
    read_cvlan: u16 = |_entry| CVLAN;
    read_flow_tag: u32 = |_entry| FLOW_TAG;
}
