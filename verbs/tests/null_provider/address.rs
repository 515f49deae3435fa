//! Address handles and multicast groups: the functions that libibverbs exports.
//!
//! # Safety
//!
//! All pointers come from these functions; what they made stays in memory as long as the provider, which outlives its objects.
//! Each function is called with valid structures.
#![allow(clippy::missing_safety_doc, reason = "the manual pages of libibverbs say it")]

use std::ffi::c_int;
use std::ptr;

use verbs::ffi;

use super::control::{destroy, may_make};
use super::device::shared;
use super::state::{Kind, set_errno};

/// An address handle, and what it was made of.
#[repr(C)]
pub(super) struct AddressHandle {
    ah: ffi::ibv_ah,
    attributes: ffi::ibv_ah_attr,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah(pd: *mut ffi::ibv_pd, attributes: *mut ffi::ibv_ah_attr) -> *mut ffi::ibv_ah {
    // SAFETY: the domain is one of ours, and the caller passes a structure.
    let (context, attributes) = unsafe { ((*pd).context, *attributes) };
    // SAFETY: as above.
    let mut state = unsafe { shared(context) }.lock();
    if !may_make(&mut state, "ibv_create_ah", &[(Kind::Domain, pd as usize)]) {
        return ptr::null_mut();
    }
    if attributes.port_num != 1 || attributes.is_global == 0 || attributes.grh.sgid_index > 1 {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    let handle = state.number();
    let ah = state.keep(AddressHandle { ah: ffi::ibv_ah { context, pd, handle }, attributes });
    state.add(Kind::AddressHandle, ah as usize, &[pd as usize]);
    ah.cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_destroy_ah(ah: *mut ffi::ibv_ah) -> c_int {
    // SAFETY: the address handle is one of ours.
    let mut state = unsafe { shared((*ah).context) }.lock();
    destroy(&mut state, "ibv_destroy_ah", Kind::AddressHandle, ah as usize).err().unwrap_or(0)
}

/// As the real one, as far as IPv4 goes.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_init_ah_from_wc(
    context: *mut ffi::ibv_context,
    port: u8,
    wc: *mut ffi::ibv_wc,
    grh: *mut ffi::ibv_grh,
    attributes: *mut ffi::ibv_ah_attr,
) -> c_int {
    // SAFETY: the context is one of ours, and the caller passes structures, of which all zeroes are valid ones.
    unsafe {
        let fault = shared(context).lock().fault("ibv_init_ah_from_wc");
        let ipv4 = grh.cast::<u8>().add(20);
        if fault.is_some() || *ipv4 != 0x45 || *ipv4.add(16) >> 4 == 0xe {
            set_errno(fault.map_or(libc::EINVAL, |fault| fault.errno));
            return -1;
        }
        attributes.write_bytes(0, 1);
        (*attributes).port_num = port;
        (*attributes).dlid = (*wc).slid;
        (*attributes).sl = (*wc).sl;
        (*attributes).src_path_bits = (*wc).dlid_path_bits;
        if (*wc).wc_flags & ffi::ibv_wc_flags::IBV_WC_GRH.0 != 0 {
            (*attributes).is_global = 1;
            (*attributes).grh.sgid_index = 1;
            (*attributes).grh.hop_limit = *ipv4.add(8);
            let mut gid = [0; 16];
            gid[10..12].fill(0xff);
            ipv4.add(12).copy_to(gid.as_mut_ptr().add(12), 4);
            (*attributes).grh.dgid.raw = gid;
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_create_ah_from_wc(
    pd: *mut ffi::ibv_pd,
    wc: *mut ffi::ibv_wc,
    grh: *mut ffi::ibv_grh,
    port: u8,
) -> *mut ffi::ibv_ah {
    // SAFETY: the arguments are this function's, and all zeroes are a valid structure.
    unsafe {
        let mut attributes: ffi::ibv_ah_attr = std::mem::zeroed();
        match ibv_init_ah_from_wc((*pd).context, port, wc, grh, &mut attributes) {
            0 => ibv_create_ah(pd, &mut attributes),
            _ => ptr::null_mut(),
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_attach_mcast(qp: *mut ffi::ibv_qp, gid: *const ffi::ibv_gid, lid: u16) -> c_int {
    // SAFETY: the queue pair is one of ours, and the caller passes a GID.
    unsafe { change_groups(qp, gid, lid, "ibv_attach_mcast") }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_detach_mcast(qp: *mut ffi::ibv_qp, gid: *const ffi::ibv_gid, lid: u16) -> c_int {
    // SAFETY: as above.
    unsafe { change_groups(qp, gid, lid, "ibv_detach_mcast") }
}

/// # Safety
///
/// The queue pair is one of ours.
unsafe fn change_groups(qp: *mut ffi::ibv_qp, gid: *const ffi::ibv_gid, lid: u16, verb: &'static str) -> c_int {
    // SAFETY: as the caller says; each member of the union is 16 bytes of integers.
    let (mut state, gid) = unsafe { (shared((*qp).context).lock(), (*gid).raw) };
    if let Some(fault) = state.fault(verb) {
        return fault.returns.unwrap_or(fault.errno);
    }
    if !state.check(Kind::QueuePair, qp as usize, verb) {
        return libc::EINVAL;
    }
    let groups = &mut state.pairs.get_mut(&(qp as usize)).expect("it is alive").groups;
    let place = groups.iter().position(|group| *group == (gid, lid));
    match (verb, place) {
        ("ibv_attach_mcast", None) => groups.push((gid, lid)),
        ("ibv_detach_mcast", Some(index)) => {
            groups.remove(index);
        }
        _ => {
            state.violations.push(format!("{verb}: the queue pair was attached, or not attached, to the group before"));
            return libc::EINVAL;
        }
    }
    0
}
