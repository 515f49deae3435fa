//! What else can be asked of a device, a port and a queue pair.
//!
//! # Safety
//!
//! All pointers come from the provider; what it made stays in memory as long as it does. Each function is called with valid
//! structures, as large as it was told.
#![allow(clippy::missing_safety_doc, reason = "the manual pages of libibverbs say it")]

use std::ffi::c_int;
use std::mem;

use verbs::ffi;

use super::completion_queue::MAX_MODERATION;
use super::device::{fill, shared};
use super::lies::tell;
use super::state::{CURRENT, Kind, set_errno};

/// The P_Key table of port 1.
pub(super) const PKEYS: [u16; 3] = [0xffff, 0x8012, 0x0013];

/// The vendor whose options the queue pairs have.
const VENDOR: u32 = 0x2c9;

pub(super) fn install(verbs: &mut ffi::verbs_context) {
    verbs.query_device_ex = Some(query_device_ex);
    verbs.query_rt_values = Some(query_rt_values);
    verbs.modify_qp_rate_limit = Some(modify_qp_rate_limit);
}

unsafe extern "C" fn modify_qp_rate_limit(qp: *mut ffi::ibv_qp, attributes: *mut ffi::ibv_qp_rate_limit_attr) -> c_int {
    // SAFETY: the queue pair is one of ours, and the caller passes a structure.
    let (mut state, attributes) = unsafe { (shared((*qp).context).lock(), *attributes) };
    state.check(Kind::QueuePair, qp as usize, "ibv_modify_qp_rate_limit");
    if let Some(fault) = state.fault("ibv_modify_qp_rate_limit") {
        return fault.returns.unwrap_or(fault.errno);
    }
    state.rate_limits.push((attributes.rate_limit, attributes.max_burst_sz, attributes.typical_pkt_sz));
    0
}

/// SENDs are in order within 128 bytes, RDMA WRITEs altogether, RDMA READs not at all.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_qp_data_in_order(qp: *mut ffi::ibv_qp, op: ffi::ibv_wr_opcode, flags: u32) -> c_int {
    // SAFETY: the queue pair is one of ours.
    let mut state = unsafe { shared((*qp).context) }.lock();
    state.check(Kind::QueuePair, qp as usize, "ibv_query_qp_data_in_order");
    if let Some(fault) = state.fault("ibv_query_qp_data_in_order") {
        return fault.returns.unwrap_or(-fault.errno);
    }
    let capabilities = match op {
        ffi::ibv_wr_opcode::IBV_WR_RDMA_WRITE => 0b11,
        ffi::ibv_wr_opcode::IBV_WR_SEND => 0b10,
        _ => 0,
    };
    if flags & 1 == 0 { capabilities & 1 } else { capabilities }
}

unsafe extern "C" fn query_device_ex(
    context: *mut ffi::ibv_context,
    _input: *const ffi::ibv_query_device_ex_input,
    attributes: *mut ffi::ibv_device_attr_ex,
    length: usize,
) -> c_int {
    // SAFETY: the context is one of ours.
    let mut state = unsafe { shared(context) }.lock();
    state.check(Kind::Context, context as usize, "ibv_query_device_ex");
    if let Some(fault) = state.fault("ibv_query_device_ex") {
        return fault.returns.unwrap_or(fault.errno);
    }
    // SAFETY: all zeroes are a valid structure.
    let mut all: ffi::ibv_device_attr_ex = unsafe { mem::zeroed() };
    fill(&mut all.orig_attr);
    all.device_cap_flags_ex = u64::from(all.orig_attr.device_cap_flags) | 1 << 34 | 1 << 50;
    if !state.lacks_atomic_write_and_flush {
        all.device_cap_flags_ex |= 0b111 << 38;
    }
    all.odp_caps.general_caps = 1;
    all.odp_caps.per_transport_caps.rc_odp_caps = 0b11;
    all.odp_caps.per_transport_caps.ud_odp_caps = 1;
    all.completion_timestamp_mask = u64::MAX;
    all.hca_core_clock = 156_250;
    all.cq_mod_caps = ffi::ibv_cq_moderation_caps { max_cq_count: MAX_MODERATION, max_cq_period: MAX_MODERATION };
    all.max_dm_size = 1 << 17;
    all.pci_atomic_caps = ffi::ibv_pci_atomic_caps { fetch_add: 2, swap: 4, compare_swap: 7 };
    all.packet_pacing_caps = ffi::ibv_packet_pacing_caps {
        qp_rate_limit_min: 1,
        qp_rate_limit_max: 100_000_000,
        supported_qpts: 1 << ffi::ibv_qp_type::IBV_QPT_RC.0,
    };
    all.phys_port_cnt_ex = 300;
    all.tso_caps = ffi::ibv_tso_caps { max_tso: 1 << 18, supported_qpts: 1 << ffi::ibv_qp_type::IBV_QPT_RAW_PACKET.0 };
    all.rss_caps = ffi::ibv_rss_caps {
        supported_qpts: 1 << ffi::ibv_qp_type::IBV_QPT_RAW_PACKET.0,
        max_rwq_indirection_tables: 1 << 20,
        max_rwq_indirection_table_size: 512,
        rx_hash_fields_mask: 0b11 | 1 << 40,
        rx_hash_function: 1,
    };
    all.max_wq_type_rq = 1 << 23;
    all.raw_packet_caps = 0b110;
    all.tm_caps = ffi::ibv_tm_caps { max_rndv_hdr_size: 64, max_num_tags: 127, flags: 1, max_ops: 16384, max_sge: 1 };
    tell(&state.lies.extended_device, &mut all);
    // SAFETY: the caller's structure has room for `length` bytes.
    unsafe { (&raw const all).cast::<u8>().copy_to(attributes.cast(), length.min(size_of_val(&all))) };
    0
}

unsafe extern "C" fn query_rt_values(context: *mut ffi::ibv_context, values: *mut ffi::ibv_values_ex) -> c_int {
    // SAFETY: the context is one of ours, and the caller passes a structure.
    let (mut state, values) = unsafe { (shared(context).lock(), &mut *values) };
    state.check(Kind::Context, context as usize, "ibv_query_rt_values_ex");
    match state.fault("ibv_query_rt_values_ex") {
        // A provider that does not know the value says so by its mask.
        Some(fault) if fault.returns == Some(0) => {
            values.comp_mask = 0;
            return 0;
        }
        Some(fault) => return fault.returns.unwrap_or(fault.errno),
        None => {}
    }
    if values.comp_mask & ffi::ibv_values_mask::IBV_VALUES_MASK_RAW_CLOCK.0 == 0 {
        return libc::EINVAL;
    }
    values.raw_clock.tv_sec = 0;
    values.raw_clock.tv_nsec = 123_456_789_012;
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_pkey(
    context: *mut ffi::ibv_context,
    port: u8,
    index: c_int,
    key: *mut ffi::__be16,
) -> c_int {
    // SAFETY: the context is one of ours.
    let mut state = unsafe { shared(context) }.lock();
    state.check(Kind::Context, context as usize, "ibv_query_pkey");
    if let Some(fault) = state.fault("ibv_query_pkey") {
        set_errno(fault.errno);
        return fault.returns.unwrap_or(-1);
    }
    match usize::try_from(index).ok().and_then(|index| PKEYS.get(index)) {
        Some(found) if port == 1 => {
            // SAFETY: the caller passes a place for the key.
            unsafe { *key = found.to_be() };
            0
        }
        _ => {
            set_errno(libc::ENOENT);
            -1
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_pkey_index(context: *mut ffi::ibv_context, port: u8, key: ffi::__be16) -> c_int {
    // SAFETY: the context is one of ours.
    unsafe { shared(context) }.lock().check(Kind::Context, context as usize, "ibv_get_pkey_index");
    let index = PKEYS.iter().position(|found| port == 1 && found.to_be() == key);
    index.map_or(-1, |index| index as c_int)
}

/// How a call on a queue pair fails, if it does.
///
/// # Safety
///
/// The queue pair is one of ours.
unsafe fn fails(qp: *mut ffi::ibv_qp, verb: &str) -> Option<c_int> {
    // SAFETY: as the caller says.
    let mut state = unsafe { shared((*qp).context) }.lock();
    if let Some(fault) = state.fault(verb) {
        set_errno(fault.errno);
        return Some(fault.returns.unwrap_or(fault.errno));
    }
    (!state.check(Kind::QueuePair, qp as usize, verb)).then_some(libc::EINVAL)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_ece(qp: *mut ffi::ibv_qp, ece: *mut ffi::ibv_ece) -> c_int {
    // SAFETY: the queue pair is one of ours, and the caller passes a structure.
    unsafe {
        if let Some(code) = fails(qp, "ibv_query_ece") {
            return code;
        }
        *ece = ffi::ibv_ece { vendor_id: VENDOR, options: 0xff, comp_mask: 0 };
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_set_ece(qp: *mut ffi::ibv_qp, ece: *mut ffi::ibv_ece) -> c_int {
    // SAFETY: the queue pair is one of ours, and the caller passes a structure.
    unsafe {
        if let Some(code) = fails(qp, "ibv_set_ece") {
            return code;
        }
        if (*ece).vendor_id == VENDOR { 0 } else { libc::EINVAL }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_fork_init() -> c_int {
    let shared = CURRENT.with_borrow(Clone::clone).expect("there is a provider");
    let mut state = shared.lock();
    if let Some(fault) = state.fault("ibv_fork_init") {
        return fault.returns.unwrap_or(fault.errno);
    }
    state.fork_status = ffi::ibv_fork_status::IBV_FORK_ENABLED.0;
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_is_fork_initialized() -> ffi::ibv_fork_status {
    let shared = CURRENT.with_borrow(Clone::clone).expect("there is a provider");
    let state = shared.lock();
    ffi::ibv_fork_status(state.fork_status)
}
