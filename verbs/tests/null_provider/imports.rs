//! Objects of "another process", by their numbers.
//!
//! # Safety
//!
//! All pointers come from the provider; what it made stays in memory as long as it does.
#![allow(clippy::missing_safety_doc, reason = "the manual pages of libibverbs say it")]

use std::collections::{HashMap, HashSet};
use std::ffi::c_int;
use std::ptr;

use verbs::ffi;

use super::control::may_make;
use super::device::{open, shared};
use super::device_memory::DeviceMemory;
use super::state::{CURRENT, Kind, State, set_errno};

/// What is imported, and what can be.
#[derive(Default)]
pub(super) struct Imports {
    imported: HashSet<usize>,
    /// The domains, regions and device memory by their numbers.
    pub(super) numbers: HashMap<(Kind, u32), usize>,
}

impl State {
    /// Whether an object is imported: it is then not destroyed but let go of.
    pub(super) fn is_imported(&self, address: usize) -> bool {
        self.imports.imported.contains(&address)
    }

    /// Makes the imported object, which is a copy of the one with this number.
    fn import<T: Copy + 'static>(
        &mut self,
        verb: &str,
        (kind, number): (Kind, u32),
        parent: (Kind, usize),
        change: impl FnOnce(&mut T),
    ) -> *mut T {
        if !may_make(self, verb, &[parent]) {
            return ptr::null_mut();
        }
        let Some(address) = self.imports.numbers.get(&(kind, number)).copied() else {
            set_errno(libc::ENOENT);
            return ptr::null_mut();
        };
        // SAFETY: the number is that of an object of this kind.
        let mut copy = unsafe { *(address as *const T) };
        change(&mut copy);
        let object = self.keep(copy);
        self.add(kind, object as usize, &[parent.1]);
        self.imports.imported.insert(object as usize);
        object
    }

    fn unimport(&mut self, verb: &str, kind: Kind, address: usize) {
        if !self.imports.imported.remove(&address) {
            self.violations.push(format!("{verb}: the {kind:?} was not imported"));
        }
        self.remove(kind, address, verb);
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ffi::ibv_context {
    let Some(shared) = CURRENT.with_borrow(Clone::clone) else {
        set_errno(libc::ENODEV);
        return ptr::null_mut();
    };
    let mut state = shared.lock();
    let device = state.live_device();
    let Some(device) = device.filter(|device| may_make(&mut state, "ibv_import_device", &[(Kind::Device, *device)]))
    else {
        return ptr::null_mut();
    };
    // SAFETY: the device is one of ours.
    unsafe {
        let context = open(&mut state, device as *mut ffi::ibv_device);
        (*context).cmd_fd = cmd_fd;
        context
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_import_pd(context: *mut ffi::ibv_context, number: u32) -> *mut ffi::ibv_pd {
    // SAFETY: the context is one of ours.
    let mut state = unsafe { shared(context) }.lock();
    let parent = (Kind::Context, context as usize);
    state.import("ibv_import_pd", (Kind::Domain, number), parent, |pd: &mut ffi::ibv_pd| pd.context = context)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_unimport_pd(pd: *mut ffi::ibv_pd) {
    // SAFETY: the domain is one of ours.
    unsafe { shared((*pd).context) }.lock().unimport("ibv_unimport_pd", Kind::Domain, pd as usize);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_import_mr(pd: *mut ffi::ibv_pd, number: u32) -> *mut ffi::ibv_mr {
    // SAFETY: the domain is one of ours.
    let (context, mut state) = unsafe { ((*pd).context, shared((*pd).context).lock()) };
    state.import("ibv_import_mr", (Kind::Region, number), (Kind::Domain, pd as usize), |mr: &mut ffi::ibv_mr| {
        (mr.context, mr.pd, mr.addr) = (context, pd, ptr::null_mut());
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_unimport_mr(mr: *mut ffi::ibv_mr) {
    // SAFETY: the region is one of ours.
    unsafe { shared((*mr).context) }.lock().unimport("ibv_unimport_mr", Kind::Region, mr as usize);
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_import_dm(context: *mut ffi::ibv_context, number: u32) -> *mut ffi::ibv_dm {
    // SAFETY: the context is one of ours.
    let mut state = unsafe { shared(context) }.lock();
    let parent = (Kind::Context, context as usize);
    let change = |memory: &mut DeviceMemory| memory.dm.context = context;
    state.import("ibv_import_dm", (Kind::DeviceMemory, number), parent, change).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_unimport_dm(dm: *mut ffi::ibv_dm) {
    // SAFETY: the memory is one of ours.
    unsafe { shared((*dm).context) }.lock().unimport("ibv_unimport_dm", Kind::DeviceMemory, dm as usize);
}
