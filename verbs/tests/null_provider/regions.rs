//! Memory regions.
//!
//! # Safety
//!
//! All pointers come from the provider; what it made stays in memory as long as it does. Each function is called with valid
//! structures.
#![allow(clippy::missing_safety_doc, reason = "the manual pages of libibverbs say it")]

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use verbs::ffi;
use verbs::ffi::ibv_rereg_mr_flags as Change;

use super::control::{destroy, may_make};
use super::device::shared;
use super::state::{Kind, RegisteredRange, State, set_errno};

const PAGE: u64 = 4096;

pub(super) fn install(verbs: &mut ffi::verbs_context) {
    verbs.alloc_null_mr = Some(alloc_null_mr);
    verbs.advise_mr = Some(advise_mr);
}

/// What a region is of.
pub(super) struct Registration {
    pub(super) addr: *mut c_void,
    pub(super) length: usize,
    /// Where the device finds it.
    pub(super) address: u64,
    pub(super) access: u32,
}

/// Makes a region in a domain, of memory of these other objects.
///
/// # Safety
///
/// The domain is one of ours.
pub(super) unsafe fn make(
    verb: &str,
    pd: *mut ffi::ibv_pd,
    parents: &[(Kind, usize)],
    registration: Registration,
) -> *mut ffi::ibv_mr {
    // SAFETY: as the caller says.
    let (context, domain) = unsafe { ((*pd).context, (*pd).handle) };
    // SAFETY: as above.
    let mut state = unsafe { shared(context) }.lock();
    let mut parents = parents.to_vec();
    parents.push((Kind::Domain, pd as usize));
    if !may_make(&mut state, verb, &parents) {
        return ptr::null_mut();
    }
    let Registration { addr, length, address, access } = registration;
    let handle = state.number();
    let (lkey, rkey) = keys(handle);
    state.regions.insert(lkey, RegisteredRange { address, length: length as u64, access, domain });
    let mr = state.keep(ffi::ibv_mr { context, pd, addr, length, handle, lkey, rkey });
    let parents: Vec<usize> = parents.into_iter().map(|(_, address)| address).collect();
    state.add(Kind::Region, mr as usize, &parents);
    state.imports.numbers.insert((Kind::Region, handle), mr as usize);
    mr
}

fn keys(number: u32) -> (u32, u32) {
    (0x1000 + number, 0x2000_0000 + number)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova2(
    pd: *mut ffi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ffi::ibv_mr {
    // As in the kernel.
    if (addr as u64 ^ iova) % PAGE != 0 {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    // SAFETY: the domain is one of ours.
    unsafe { make("ibv_reg_mr", pd, &[], Registration { addr, length, address: iova, access }) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(
    pd: *mut ffi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ffi::ibv_mr {
    // SAFETY: the arguments are this function's.
    unsafe { ibv_reg_mr_iova2(pd, addr, length, addr as u64, access as c_uint) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr_iova(
    pd: *mut ffi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ffi::ibv_mr {
    // SAFETY: the arguments are this function's.
    unsafe { ibv_reg_mr_iova2(pd, addr, length, iova, access as c_uint) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_dmabuf_mr(
    pd: *mut ffi::ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ffi::ibv_mr {
    // Any descriptor that is open will do.
    // SAFETY: the call has no preconditions.
    let errno = match unsafe { libc::fcntl(fd, libc::F_GETFD) } {
        -1 => libc::EBADF,
        _ if (offset ^ iova) % PAGE != 0 => libc::EINVAL,
        _ => {
            let registration = Registration { addr: ptr::null_mut(), length, address: iova, access: access as u32 };
            // SAFETY: the domain is one of ours.
            return unsafe { make("ibv_reg_dmabuf_mr", pd, &[], registration) };
        }
    };
    set_errno(errno);
    ptr::null_mut()
}

unsafe extern "C" fn alloc_null_mr(pd: *mut ffi::ibv_pd) -> *mut ffi::ibv_mr {
    let access = ffi::ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
    let registration = Registration { addr: ptr::null_mut(), length: usize::MAX, address: 0, access };
    // SAFETY: the domain is one of ours.
    unsafe { make("ibv_alloc_null_mr", pd, &[], registration) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(mr: *mut ffi::ibv_mr) -> c_int {
    // SAFETY: the region is one of ours.
    let (mut state, lkey) = unsafe { (shared((*mr).context).lock(), (*mr).lkey) };
    if state.windows.values().any(|bound| bound.lkey == lkey) {
        return libc::EBUSY;
    }
    match destroy(&mut state, "ibv_dereg_mr", Kind::Region, mr as usize) {
        Ok(()) => {
            state.regions.remove(&lkey);
            0
        }
        Err(code) => code,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_rereg_mr(
    mr: *mut ffi::ibv_mr,
    flags: c_int,
    pd: *mut ffi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    const VERB: &str = "ibv_rereg_mr";
    let has = |flag: Change| flags as u32 & flag.0 != 0;
    // SAFETY: the region and the domain are ours.
    unsafe {
        let mut state = shared((*mr).context).lock();
        state.check(Kind::Region, mr as usize, VERB);
        let input = ffi::ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_INPUT.0;
        let is_invalid = has(Change::IBV_REREG_MR_CHANGE_TRANSLATION) && length == 0
            || access != 0 && !has(Change::IBV_REREG_MR_CHANGE_ACCESS);
        if is_invalid {
            set_errno(libc::EINVAL);
            return input;
        }
        let fault = state.fault(VERB);
        if let Some(fault) = fault {
            set_errno(fault.errno);
            // The code that says that all is done, but for the children of a fork.
            if fault.returns != Some(ffi::ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_DO_FORK_OLD.0) {
                return fault.returns.unwrap_or(input);
            }
        }
        change(&mut state, mr, |range, domain| {
            if has(Change::IBV_REREG_MR_CHANGE_TRANSLATION) {
                (range.address, range.length) = (addr as u64, length as u64);
            }
            if has(Change::IBV_REREG_MR_CHANGE_ACCESS) {
                range.access = access as u32;
            }
            if has(Change::IBV_REREG_MR_CHANGE_PD) {
                *domain = pd;
            }
        });
        fault.and_then(|fault| fault.returns).unwrap_or(0)
    }
}

/// Changes a region, which gets other keys.
///
/// # Safety
///
/// The region is one of ours, as is the domain that it is to be in.
unsafe fn change(
    state: &mut State,
    mr: *mut ffi::ibv_mr,
    with: impl FnOnce(&mut RegisteredRange, &mut *mut ffi::ibv_pd),
) {
    // SAFETY: as the caller says.
    let region = unsafe { &mut *mr };
    let mut range = state.regions.remove(&region.lkey).expect("it is registered");
    with(&mut range, &mut region.pd);
    // SAFETY: as above.
    range.domain = unsafe { (*region.pd).handle };
    region.handle = state.number();
    (region.lkey, region.rkey) = keys(region.handle);
    state.regions.insert(region.lkey, range);
    state.move_to(mr as usize, region.pd as usize);
}

unsafe extern "C" fn advise_mr(
    pd: *mut ffi::ibv_pd,
    advice: ffi::ibv_advise_mr_advice,
    flags: u32,
    list: *mut ffi::ibv_sge,
    count: u32,
) -> c_int {
    // SAFETY: the domain is one of ours, and the list has `count` entries.
    unsafe {
        let mut state = shared((*pd).context).lock();
        state.check(Kind::Domain, pd as usize, "ibv_advise_mr");
        if let Some(fault) = state.fault("ibv_advise_mr") {
            return fault.returns.unwrap_or(fault.errno);
        }
        let slices = super::checked::slices(list, count as c_int);
        super::checked::check_registered(&mut state, "ibv_advise_mr", &slices, (*pd).handle);
        state.advice = Some((advice.0, flags, slices.iter().map(|slice| u64::from(slice.length)).sum()));
    }
    0
}
