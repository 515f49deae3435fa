//! The attributes of queue pairs: what they are told, and what they tell.
//!
//! # Safety
//!
//! Queue pairs are the provider's own. Each function is called with valid structures.
#![allow(clippy::missing_safety_doc, reason = "the manual pages of libibverbs say it")]

use std::ffi::c_int;

use verbs::ffi;

use super::control::QueuePair;
use super::device::shared;
use super::lies;
use super::state::{Kind, set_errno};

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_modify_qp(qp: *mut ffi::ibv_qp, attributes: *mut ffi::ibv_qp_attr, mask: c_int) -> c_int {
    // SAFETY: the queue pair is one of ours, and the caller passes a structure.
    unsafe {
        let mut state = shared((*qp).context).lock();
        state.check(Kind::QueuePair, qp as usize, "ibv_modify_qp");
        if let Some(fault) = state.fault("ibv_modify_qp") {
            set_errno(fault.errno);
            return fault.returns.unwrap_or(fault.errno);
        }
        if mask as u32 & ffi::ibv_qp_attr_mask::IBV_QP_STATE.0 != 0 {
            (*qp).state = (*attributes).qp_state;
        }
        tell(&mut (*qp.cast::<QueuePair>()).attributes, &*attributes, mask as u32);
    }
    0
}

/// Sets the attributes that are in the mask.
fn tell(told: &mut ffi::ibv_qp_attr, attributes: &ffi::ibv_qp_attr, mask: u32) {
    use ffi::ibv_qp_attr_mask as M;
    macro_rules! set {
        ($($bit:ident: $($field:ident),*;)*) => {
            $(if mask & M::$bit.0 != 0 {
                $(told.$field = attributes.$field;)*
            })*
        };
    }
    set! {
        IBV_QP_STATE: qp_state;
        IBV_QP_EN_SQD_ASYNC_NOTIFY: en_sqd_async_notify;
        IBV_QP_ACCESS_FLAGS: qp_access_flags;
        IBV_QP_PKEY_INDEX: pkey_index;
        IBV_QP_PORT: port_num;
        IBV_QP_QKEY: qkey;
        IBV_QP_AV: ah_attr;
        IBV_QP_PATH_MTU: path_mtu;
        IBV_QP_TIMEOUT: timeout;
        IBV_QP_RETRY_CNT: retry_cnt;
        IBV_QP_RNR_RETRY: rnr_retry;
        IBV_QP_RQ_PSN: rq_psn;
        IBV_QP_MAX_QP_RD_ATOMIC: max_rd_atomic;
        IBV_QP_ALT_PATH: alt_ah_attr, alt_port_num, alt_pkey_index, alt_timeout;
        IBV_QP_MIN_RNR_TIMER: min_rnr_timer;
        IBV_QP_SQ_PSN: sq_psn;
        IBV_QP_MAX_DEST_RD_ATOMIC: max_dest_rd_atomic;
        IBV_QP_PATH_MIG_STATE: path_mig_state;
        IBV_QP_DEST_QPN: dest_qp_num;
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp(
    qp: *mut ffi::ibv_qp,
    attributes: *mut ffi::ibv_qp_attr,
    _mask: c_int,
    initial: *mut ffi::ibv_qp_init_attr,
) -> c_int {
    // SAFETY: the queue pair is one of ours, and the caller passes structures, of which all zeroes are valid ones.
    unsafe {
        let mut state = shared((*qp).context).lock();
        state.check(Kind::QueuePair, qp as usize, "ibv_query_qp");
        if let Some(fault) = state.fault("ibv_query_qp") {
            set_errno(fault.errno);
            return fault.returns.unwrap_or(fault.errno);
        }
        let pair = qp.cast::<QueuePair>();
        attributes.write((*pair).attributes);
        lies::tell(&state.lies.queue_pair, &mut *attributes);
        initial.write_bytes(0, 1);
        (*initial).cap = (*pair).attributes.cap;
        (*initial).sq_sig_all = (*pair).signal_all.into();
    }
    0
}
