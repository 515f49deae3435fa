//! Device memory, which is the program's in truth.
//!
//! # Safety
//!
//! All pointers come from the provider; what it made stays in memory as long as it does. Each function is called with valid
//! structures.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use verbs::ffi;

use super::control::{destroy, may_make};
use super::device::shared;
use super::regions::{Registration, make};
use super::state::{Kind, set_errno};

/// How much there is.
const MAX: usize = 1 << 17;

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct DeviceMemory {
    pub(super) dm: ffi::ibv_dm,
    bytes: *mut Vec<u8>,
}

pub(super) fn install(verbs: &mut ffi::verbs_context) {
    verbs.alloc_dm = Some(alloc_dm);
    verbs.free_dm = Some(free_dm);
    verbs.reg_dm_mr = Some(reg_dm_mr);
}

unsafe extern "C" fn alloc_dm(
    context: *mut ffi::ibv_context,
    attributes: *mut ffi::ibv_alloc_dm_attr,
) -> *mut ffi::ibv_dm {
    // SAFETY: the context is one of ours, and the caller passes a structure.
    let (mut state, length) = unsafe { (shared(context).lock(), (*attributes).length) };
    if !may_make(&mut state, "ibv_alloc_dm", &[(Kind::Context, context as usize)]) {
        return ptr::null_mut();
    }
    if length > MAX {
        set_errno(libc::ENOMEM);
        return ptr::null_mut();
    }
    let handle = state.number();
    let comp_mask = ffi::ibv_dm_mask::IBV_DM_MASK_HANDLE.0;
    let dm = ffi::ibv_dm { context, memcpy_to_dm: Some(copy_to), memcpy_from_dm: Some(copy_from), comp_mask, handle };
    let bytes = state.keep(vec![0; length]);
    let dm = state.keep(DeviceMemory { dm, bytes });
    state.imports.numbers.insert((Kind::DeviceMemory, handle), dm as usize);
    state.add(Kind::DeviceMemory, dm as usize, &[context as usize]);
    dm.cast()
}

unsafe extern "C" fn free_dm(dm: *mut ffi::ibv_dm) -> c_int {
    // SAFETY: the memory is one of ours.
    let mut state = unsafe { shared((*dm).context) }.lock();
    destroy(&mut state, "ibv_free_dm", Kind::DeviceMemory, dm as usize).err().unwrap_or(0)
}

/// Whether `length` bytes at `offset` can be copied, by a device that copies in words.
///
/// # Safety
///
/// The memory is one of ours.
unsafe fn check(dm: *mut ffi::ibv_dm, verb: &str, offset: u64, length: usize) -> Result<*mut u8, c_int> {
    // SAFETY: as the caller says.
    let (mut state, bytes) = unsafe { (shared((*dm).context).lock(), &mut *(*dm.cast::<DeviceMemory>()).bytes) };
    state.check(Kind::DeviceMemory, dm as usize, verb);
    if let Some(fault) = state.fault(verb) {
        return Err(fault.returns.unwrap_or(fault.errno));
    }
    if offset % 4 != 0 || length % 4 != 0 {
        return Err(libc::EINVAL);
    }
    let range = offset as usize..offset as usize + length;
    bytes.get_mut(range).map(<[u8]>::as_mut_ptr).ok_or(libc::EFAULT)
}

unsafe extern "C" fn copy_to(dm: *mut ffi::ibv_dm, offset: u64, from: *const c_void, length: usize) -> c_int {
    // SAFETY: the memory is one of ours, and `from` has that many bytes.
    unsafe {
        match check(dm, "ibv_memcpy_to_dm", offset, length) {
            Ok(bytes) => bytes.copy_from_nonoverlapping(from.cast(), length),
            Err(errno) => return errno,
        }
    }
    0
}

unsafe extern "C" fn copy_from(into: *mut c_void, dm: *mut ffi::ibv_dm, offset: u64, length: usize) -> c_int {
    // SAFETY: the memory is one of ours, and `into` has room for that many bytes.
    unsafe {
        match check(dm, "ibv_memcpy_from_dm", offset, length) {
            Ok(bytes) => bytes.copy_to_nonoverlapping(into.cast(), length),
            Err(errno) => return errno,
        }
    }
    0
}

unsafe extern "C" fn reg_dm_mr(
    pd: *mut ffi::ibv_pd,
    dm: *mut ffi::ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ffi::ibv_mr {
    // SAFETY: the memory is one of ours.
    let size = unsafe { (*(*dm.cast::<DeviceMemory>()).bytes).len() } as u64;
    // As the kernel does.
    let is_zero_based = access & ffi::ibv_access_flags::IBV_ACCESS_ZERO_BASED.0 != 0;
    if !is_zero_based || offset > size || length as u64 > size - offset {
        set_errno(libc::EINVAL);
        return ptr::null_mut();
    }
    let registration = Registration { addr: ptr::null_mut(), length, address: 0, access };
    // SAFETY: the domain is one of ours.
    unsafe { make("ibv_reg_dm_mr", pd, &[(Kind::DeviceMemory, dm as usize)], registration) }
}
