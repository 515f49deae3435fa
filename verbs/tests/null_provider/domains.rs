//! Thread domains and parent domains.
//!
//! # Safety
//!
//! All pointers come from the provider; what it made stays in memory as long as it does. Each function is called with valid
//! structures.

use std::ffi::c_int;
use std::ptr;

use verbs::ffi;

use super::control::{destroy, may_make};
use super::device::shared;
use super::state::Kind;

pub(super) fn install(verbs: &mut ffi::verbs_context) {
    verbs.alloc_td = Some(alloc_td);
    verbs.dealloc_td = Some(dealloc_td);
    verbs.alloc_parent_domain = Some(alloc_parent_domain);
}

unsafe extern "C" fn alloc_td(
    context: *mut ffi::ibv_context,
    _attributes: *mut ffi::ibv_td_init_attr,
) -> *mut ffi::ibv_td {
    // SAFETY: the context is one of ours.
    let mut state = unsafe { shared(context) }.lock();
    if !may_make(&mut state, "ibv_alloc_td", &[(Kind::Context, context as usize)]) {
        return ptr::null_mut();
    }
    let td = state.keep(ffi::ibv_td { context });
    state.add(Kind::ThreadDomain, td as usize, &[context as usize]);
    td
}

unsafe extern "C" fn dealloc_td(td: *mut ffi::ibv_td) -> c_int {
    // SAFETY: the domain is one of ours.
    let mut state = unsafe { shared((*td).context) }.lock();
    destroy(&mut state, "ibv_dealloc_td", Kind::ThreadDomain, td as usize).err().unwrap_or(0)
}

unsafe extern "C" fn alloc_parent_domain(
    context: *mut ffi::ibv_context,
    attributes: *mut ffi::ibv_parent_domain_init_attr,
) -> *mut ffi::ibv_pd {
    // SAFETY: the context is one of ours, the caller passes a structure, and the domain in it is one of ours.
    let (mut state, attributes, handle) = unsafe { (shared(context).lock(), *attributes, (*(*attributes).pd).handle) };
    let mut parents = vec![(Kind::Domain, attributes.pd as usize)];
    if !attributes.td.is_null() {
        parents.push((Kind::ThreadDomain, attributes.td as usize));
    }
    if !may_make(&mut state, "ibv_alloc_parent_domain", &parents) {
        return ptr::null_mut();
    }
    // As in libibverbs, it is the same domain by its handle.
    let pd = state.keep(ffi::ibv_pd { context, handle });
    let parents: Vec<usize> = parents.into_iter().map(|(_, address)| address).collect();
    state.add(Kind::Domain, pd as usize, &parents);
    pd
}
