//! Extended queue pairs on the data path that checks what it is given.
//!
//! # Safety
//!
//! Queue pairs are the provider's own; lists have as many entries as they are said to have.

use std::ffi::{c_int, c_void};

use verbs::ffi;
use verbs::ffi::ibv_wc_opcode as Opcode;

use super::checked::{Request, slices, take};
use super::control::QueuePair;
use super::device::shared;
use super::state::Kind;
use super::windows;

/// A request since `ibv_wr_start`.
struct Built {
    request: Request,
    has_data: bool,
    has_destination: bool,
    /// What it does to a window; it then has no data.
    window: Option<windows::Change>,
    /// Whether its builder is told all.
    is_whole: bool,
}

/// The requests since `ibv_wr_start`.
#[derive(Default)]
pub(super) struct Building(Vec<Built>);

pub(super) fn fill(qp: &mut ffi::ibv_qp_ex) {
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
}

/// The builder that only queue pairs have which were made with it.
pub(super) fn fill_windows(qp: &mut ffi::ibv_qp_ex) {
    qp.wr_bind_mw = Some(bind_mw);
}

/// The builders that only queue pairs have which were made with these operations.
pub(super) fn fill_optional(qp: &mut ffi::ibv_qp_ex, operations: u64) {
    use ffi::ibv_qp_create_send_ops_flags as Ops;
    let asked = |operation: Ops| operations & u64::from(operation.0) != 0;
    qp.wr_atomic_write = asked(Ops::IBV_QP_EX_WITH_ATOMIC_WRITE).then_some(atomic_write);
    #[cfg(rdma_core_45)]
    {
        qp.wr_flush = asked(Ops::IBV_QP_EX_WITH_FLUSH).then_some(flush);
    }
}

unsafe extern "C" fn start(qp: *mut ffi::ibv_qp_ex) {
    // SAFETY: as the file says.
    let mut state = unsafe { shared((*qp).qp_base.context) }.lock();
    if state.check(Kind::QueuePair, qp as usize, "ibv_wr_start") {
        let building = &mut state.pairs.get_mut(&(qp as usize)).expect("it is alive").building;
        if building.replace(Building::default()).is_some() {
            state.violations.push("ibv_wr_start: it would wait for ever for ibv_wr_complete".to_owned());
        }
    }
}

/// Posts all requests, or none.
unsafe extern "C" fn complete(qp: *mut ffi::ibv_qp_ex) -> c_int {
    // SAFETY: as the file says.
    unsafe {
        let plain: *mut ffi::ibv_qp = qp.cast();
        let mut state = shared((*plain).context).lock();
        let ready = matches!((*plain).state, ffi::ibv_qp_state::IBV_QPS_RTS | ffi::ibv_qp_state::IBV_QPS_ERR);
        let slots = state.pairs.get_mut(&(qp as usize)).expect("it is alive");
        let Some(Building(requests)) = slots.building.take() else {
            state.violations.push("ibv_wr_complete: nothing was started".to_owned());
            return libc::EINVAL;
        };
        let before = (slots.sends, slots.unsignaled);
        let queue = (*plain).send_cq as usize;
        let waiting = state.queues.get(&queue).map_or(0, |queue| queue.waiting.len());
        for Built { request, has_data, has_destination, window, is_whole } in requests {
            if has_data == (window.is_some() || is_whole) {
                state.violations.push("ibv_wr_complete: a request has no data, or one that should not".to_owned());
            }
            if has_destination != ((*plain).qp_type == ffi::ibv_qp_type::IBV_QPT_UD) {
                state
                    .violations
                    .push("ibv_wr_complete: a datagram has no destination, or another request one".to_owned());
            }
            let taken = take(&mut state, plain, &request, ready);
            if let Err(errno) = taken {
                state.refusal = None;
                let slots = state.pairs.get_mut(&(qp as usize)).expect("it is alive");
                (slots.sends, slots.unsignaled) = before;
                if let Some(queue) = state.queues.get_mut(&queue) {
                    queue.waiting.truncate(waiting);
                }
                return errno;
            }
            if let Some(change) = window {
                change.apply(&mut state, plain);
            }
        }
    }
    0
}

/// # Safety
///
/// As the file says.
unsafe fn build(qp: *mut ffi::ibv_qp_ex, opcode: Opcode) {
    // SAFETY: as the caller says.
    unsafe {
        let ffi::ibv_qp_ex { wr_id, wr_flags, .. } = (*qp.cast::<QueuePair>()).qp;
        let flag = |flag: ffi::ibv_send_flags| wr_flags & flag.0 != 0;
        let request = Request {
            wr_id,
            slices: Vec::new(),
            opcode: opcode.0,
            signaled: flag(ffi::ibv_send_flags::IBV_SEND_SIGNALED),
            inline: flag(ffi::ibv_send_flags::IBV_SEND_INLINE),
            receive: false,
        };
        let mut state = shared((*qp).qp_base.context).lock();
        match &mut state.pairs.get_mut(&(qp as usize)).expect("it is alive").building {
            Some(building) => building.0.push(Built {
                request,
                has_data: false,
                has_destination: false,
                window: None,
                is_whole: matches!(opcode.0, 8 | 9),
            }),
            None => state.violations.push("a builder was called before ibv_wr_start".to_owned()),
        }
    }
}

/// # Safety
///
/// As the file says.
unsafe fn set_data(qp: *mut ffi::ibv_qp_ex, data: Vec<ffi::ibv_sge>, inline: bool) {
    // SAFETY: as the caller says.
    let mut state = unsafe { shared((*qp).qp_base.context) }.lock();
    let building = state.pairs.get_mut(&(qp as usize)).expect("it is alive").building.as_mut();
    match building.and_then(|building| building.0.last_mut()) {
        Some(built) if !built.has_data && built.request.inline == inline => {
            built.request.slices = data;
            built.has_data = true;
        }
        _ => state.violations.push("a setter was called that does not fit the request".to_owned()),
    }
}

macro_rules! builders {
    ($($name:ident($($argument:ident: $type:ty),*) => $opcode:ident;)*) => {
        $(unsafe extern "C" fn $name(qp: *mut ffi::ibv_qp_ex $(, $argument: $type)*) {
            // SAFETY: as the file says.
            unsafe { build(qp, Opcode::$opcode) };
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
}

unsafe extern "C" fn set_ud_addr(qp: *mut ffi::ibv_qp_ex, ah: *mut ffi::ibv_ah, _remote_qpn: u32, _remote_qkey: u32) {
    // SAFETY: as the file says.
    let mut state = unsafe { shared((*qp).qp_base.context) }.lock();
    state.check(Kind::AddressHandle, ah as usize, "ibv_wr_set_ud_addr");
    let building = state.pairs.get_mut(&(qp as usize)).expect("it is alive").building.as_mut();
    match building.and_then(|building| building.0.last_mut()) {
        Some(built) => built.has_destination = true,
        None => state.violations.push("ibv_wr_set_ud_addr was called before a builder".to_owned()),
    }
}

/// Adds a request without data.
///
/// # Safety
///
/// As the file says.
unsafe fn build_change(qp: *mut ffi::ibv_qp_ex, opcode: Opcode, change: windows::Change) {
    // SAFETY: as the caller says.
    let mut state = unsafe {
        build(qp, opcode);
        shared((*qp).qp_base.context).lock()
    };
    let building = state.pairs.get_mut(&(qp as usize)).expect("it is alive").building.as_mut();
    if let Some(built) = building.and_then(|building| building.0.last_mut()) {
        built.window = Some(change);
    }
}

unsafe extern "C" fn bind_mw(
    qp: *mut ffi::ibv_qp_ex,
    mw: *mut ffi::ibv_mw,
    _rkey: u32,
    info: *const ffi::ibv_mw_bind_info,
) {
    // SAFETY: as the file says.
    unsafe { build_change(qp, Opcode::IBV_WC_BIND_MW, windows::Change::Bind(mw, *info)) };
}

unsafe extern "C" fn local_inv(qp: *mut ffi::ibv_qp_ex, rkey: u32) {
    // SAFETY: as the file says.
    unsafe { build_change(qp, Opcode::IBV_WC_LOCAL_INV, windows::Change::Invalidate(rkey)) };
}

/// Adds an atomic write.
unsafe extern "C" fn atomic_write(qp: *mut ffi::ibv_qp_ex, rkey: u32, remote_addr: u64, bytes: *const c_void) {
    // SAFETY: as the file says; there are 8 bytes.
    unsafe {
        build(qp, Opcode::IBV_WC_ATOMIC_WRITE);
        let written = (rkey, remote_addr, bytes.cast::<[u8; 8]>().read_unaligned());
        shared((*qp).qp_base.context).lock().atomic_writes.push(written);
    }
}

/// Adds a flush.
#[cfg(rdma_core_45)]
unsafe extern "C" fn flush(
    qp: *mut ffi::ibv_qp_ex,
    rkey: u32,
    remote_addr: u64,
    length: usize,
    placement: u8,
    level: u8,
) {
    // SAFETY: as the file says.
    unsafe {
        build(qp, Opcode::IBV_WC_FLUSH);
        shared((*qp).qp_base.context).lock().flushes.push((rkey, remote_addr, length, placement, level));
    }
}

unsafe extern "C" fn set_sge(qp: *mut ffi::ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    // SAFETY: as the file says.
    unsafe { set_data(qp, vec![ffi::ibv_sge { addr, length, lkey }], false) };
}

unsafe extern "C" fn set_sge_list(qp: *mut ffi::ibv_qp_ex, count: usize, list: *const ffi::ibv_sge) {
    // SAFETY: as the file says.
    unsafe { set_data(qp, slices(list, count as c_int), false) };
}

unsafe extern "C" fn set_inline_data(qp: *mut ffi::ibv_qp_ex, addr: *mut c_void, length: usize) {
    // SAFETY: as the file says.
    unsafe { set_data(qp, vec![ffi::ibv_sge { addr: addr as u64, length: length as u32, lkey: 0 }], true) };
}

unsafe extern "C" fn set_inline_data_list(qp: *mut ffi::ibv_qp_ex, count: usize, list: *const ffi::ibv_data_buf) {
    // SAFETY: as the file says.
    unsafe {
        let piece = |index: usize| list.add(index).read();
        let sge =
            |piece: ffi::ibv_data_buf| ffi::ibv_sge { addr: piece.addr as u64, length: piece.length as u32, lkey: 0 };
        set_data(qp, (0..count).map(|index| sge(piece(index))).collect(), true);
    }
}
