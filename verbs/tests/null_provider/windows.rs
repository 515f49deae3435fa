//! Memory windows: which region each is bound to.
//!
//! # Safety
//!
//! All pointers come from the provider; what it made stays in memory as long as it does. Each function is called with valid
//! structures.

use std::ffi::c_int;
use std::ptr;

use verbs::ffi;
use verbs::ffi::ibv_mw_type as Type;
use verbs::ffi::ibv_wr_opcode as Opcode;

use super::control::{destroy, may_make};
use super::device::shared;
use super::state::{Binding, Kind, State, set_errno};

pub(super) fn install(ops: &mut ffi::ibv_context_ops) {
    ops.alloc_mw = Some(alloc_mw);
    ops.dealloc_mw = Some(dealloc_mw);
    ops.bind_mw = Some(bind_mw);
}

unsafe extern "C" fn alloc_mw(pd: *mut ffi::ibv_pd, kind: Type) -> *mut ffi::ibv_mw {
    // SAFETY: the domain is one of ours.
    let (mut state, context) = unsafe { (shared((*pd).context).lock(), (*pd).context) };
    if !may_make(&mut state, "ibv_alloc_mw", &[(Kind::Domain, pd as usize)]) {
        return ptr::null_mut();
    }
    if kind != Type::IBV_MW_TYPE_1 && kind != Type::IBV_MW_TYPE_2 {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    let handle = state.number();
    let mw = state.keep(ffi::ibv_mw { context, pd, rkey: handle << 8, handle, type_: kind });
    state.add(Kind::Window, mw as usize, &[pd as usize]);
    mw
}

unsafe extern "C" fn dealloc_mw(mw: *mut ffi::ibv_mw) -> c_int {
    // SAFETY: the window is one of ours.
    let (mut state, handle) = unsafe { (shared((*mw).context).lock(), (*mw).handle) };
    match destroy(&mut state, "ibv_dealloc_mw", Kind::Window, mw as usize) {
        Ok(()) => {
            state.windows.remove(&handle);
            0
        }
        Err(code) => code,
    }
}

/// A window of type 1: bound at once.
unsafe extern "C" fn bind_mw(qp: *mut ffi::ibv_qp, mw: *mut ffi::ibv_mw, bind: *mut ffi::ibv_mw_bind) -> c_int {
    // SAFETY: the queue pair and the window are ours, and the caller passes a structure.
    unsafe {
        let (info, rkey) = ((*bind).bind_info, ffi::ibv_inc_rkey((*mw).rkey));
        let mut wr: ffi::ibv_send_wr = std::mem::zeroed();
        wr.wr_id = (*bind).wr_id;
        wr.send_flags = (*bind).send_flags;
        wr.opcode = Opcode::IBV_WR_BIND_MW;
        wr.__bindgen_anon_2.bind_mw.mw = mw;
        wr.__bindgen_anon_2.bind_mw.rkey = rkey;
        wr.__bindgen_anon_2.bind_mw.bind_info = info;
        let fault = shared((*mw).context).lock().fault("ibv_bind_mw");
        if let Some(fault) = fault {
            return fault.returns.unwrap_or(fault.errno);
        }
        let mut bad_wr = ptr::null_mut();
        let code = ffi::ibv_post_send(qp, &mut wr, &mut bad_wr);
        if code == 0 {
            (*mw).rkey = rkey;
        }
        code
    }
}

/// What a request does to a window.
pub(super) enum Change {
    Bind(*const ffi::ibv_mw, ffi::ibv_mw_bind_info),
    /// By its key.
    Invalidate(u32),
}

// SAFETY: what the pointers lead to stays in memory as long as the provider.
unsafe impl Send for Change {}

impl Change {
    /// That of a request; `None`: it does nothing to windows.
    ///
    /// # Safety
    ///
    /// The request is one for a send queue.
    pub(super) unsafe fn of(wr: *const ffi::ibv_send_wr) -> Option<Self> {
        // SAFETY: an operation's fields are initialised.
        unsafe {
            match (*wr).opcode {
                Opcode::IBV_WR_BIND_MW => {
                    let bind = &raw const (*wr).__bindgen_anon_2.bind_mw;
                    Some(Self::Bind((*bind).mw, (*bind).bind_info))
                }
                Opcode::IBV_WR_LOCAL_INV => Some(Self::Invalidate((*wr).__bindgen_anon_1.invalidate_rkey)),
                _ => None,
            }
        }
    }

    /// # Safety
    ///
    /// The queue pair, the window and the region are ours.
    pub(super) unsafe fn apply(self, state: &mut State, qp: *const ffi::ibv_qp) {
        // SAFETY: as the caller says.
        if unsafe { (*qp).state } == ffi::ibv_qp_state::IBV_QPS_ERR {
            // Flushed.
            return;
        }
        match self {
            // SAFETY: as the caller says.
            Self::Bind(mw, info) => unsafe { bound(state, qp as usize, mw, info) },
            Self::Invalidate(rkey) => match state.windows.remove(&(rkey >> 8)) {
                Some(binding) if binding.qp != qp as usize => {
                    state.violations.push("ibv_post_send: the window is bound by another queue pair".to_owned());
                    state.windows.insert(rkey >> 8, binding);
                }
                _ => {}
            },
        }
    }
}

impl State {
    /// A message has invalidated a key.
    pub(super) fn invalidated(&mut self, rkey: u32) {
        self.windows.remove(&(rkey >> 8));
    }

    /// Whether a queue pair has windows that are bound.
    pub(super) fn has_windows(&self, qp: usize) -> bool {
        self.windows.values().any(|binding| binding.qp == qp)
    }
}

/// # Safety
///
/// The window and the region are ours.
unsafe fn bound(state: &mut State, qp: usize, mw: *const ffi::ibv_mw, info: ffi::ibv_mw_bind_info) {
    // SAFETY: as the caller says.
    let window = unsafe { &*mw };
    if !state.check(Kind::Window, mw as usize, "ibv_bind_mw")
        || !state.check(Kind::Region, info.mr as usize, "ibv_bind_mw")
    {
        return;
    }
    if info.length == 0 {
        state.windows.remove(&window.handle);
        return;
    }
    // SAFETY: as above.
    let lkey = unsafe { (*info.mr).lkey };
    let range = &state.regions[&lkey];
    let offset = info.addr.wrapping_sub(range.address);
    if offset > range.length || info.length > range.length - offset {
        state.violations.push(format!("ibv_bind_mw: {} bytes at {:#x} are not in the region", info.length, info.addr));
    }
    let is_of_type_2 = window.type_ == Type::IBV_MW_TYPE_2;
    if is_of_type_2 && state.windows.contains_key(&window.handle) {
        state.violations.push("ibv_bind_mw: the window is bound".to_owned());
    }
    state.windows.insert(window.handle, Binding { lkey, qp: if is_of_type_2 { qp } else { 0 } });
}
