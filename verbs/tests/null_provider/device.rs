//! Devices, contexts and what can be asked of them: the functions that libibverbs exports.
//!
//! # Safety
//!
//! All pointers come from these functions; what they made stays in memory as long as the provider, which outlives its
//! objects. Each function is called with buffers as large as it was told.
#![allow(clippy::missing_safety_doc, reason = "the manual pages of libibverbs say it")]

use std::ffi::{c_char, c_int};
use std::mem::{self, offset_of};
use std::ptr;
use std::sync::Arc;

use verbs::ffi;

use super::lies::tell;
use super::state::{CURRENT, Kind, Shared, State, set_errno};
use super::{
    DataPath, checked, completion_queue, device_memory, domains, extended, extended_queue, plain, questions, regions,
    special, srq, windows,
};

const GIDS: [[u8; 16]; 2] =
    [[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 9]];

/// What the pointer that `ibv_get_device_list` returns leads to, and what comes before it.
#[repr(C)]
struct List {
    shared: *const Shared,
    devices: [*mut ffi::ibv_device; 2],
}

#[repr(C)]
struct Device {
    device: ffi::ibv_device,
    shared: *const Shared,
}

#[repr(C)]
struct Context {
    verbs: ffi::verbs_context,
    async_fd: c_int,
}

/// The provider that an object belongs to.
///
/// # Safety
///
/// The context is one of the provider's, which is still there.
pub(super) unsafe fn shared<'a>(context: *mut ffi::ibv_context) -> &'a Shared {
    // SAFETY: the context's device is one of ours, and the provider outlives both.
    unsafe { &*(*(*context).device.cast::<Device>()).shared }
}

fn copy_text(text: &str, into: &mut [c_char]) {
    for (to, from) in into.iter_mut().zip(text.bytes()) {
        *to = from as c_char;
    }
}

fn new_device(shared: &Arc<Shared>, state: &mut State) -> *mut Device {
    // SAFETY: all zeroes are a valid structure.
    let mut device: ffi::ibv_device = unsafe { mem::zeroed() };
    device.node_type = ffi::ibv_node_type::IBV_NODE_CA;
    device.transport_type = ffi::ibv_transport_type::IBV_TRANSPORT_IB;
    copy_text("null0", &mut device.name);
    copy_text("uverbs0", &mut device.dev_name);
    let device = state.keep(Device { device, shared: Arc::as_ptr(shared) });
    state.add(Kind::Device, device as usize, &[]);
    device
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ffi::ibv_device {
    let Some(shared) = CURRENT.with_borrow(Clone::clone) else {
        set_errno(libc::ENOSYS);
        return ptr::null_mut();
    };
    let mut state = shared.lock();
    if let Some(fault) = state.fault("ibv_get_device_list") {
        set_errno(fault.errno);
        return ptr::null_mut();
    }
    // As in libibverbs, a device that is in a list or open is the same in the next list.
    let device = state.live_device().map_or_else(|| new_device(&shared, &mut state), |address| address as *mut Device);
    let list = state.keep(List { shared: Arc::as_ptr(&shared), devices: [device.cast(), ptr::null_mut()] });
    // SAFETY: the list was made just now, and the caller passes a place for the count or null.
    unsafe {
        let devices = (&raw mut (*list).devices).cast();
        state.add(Kind::List, devices as usize, &[device as usize]);
        if !count.is_null() {
            *count = 1;
        }
        devices
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ffi::ibv_device) {
    // SAFETY: the pointer came from `ibv_get_device_list`, so it points into a `List`.
    let shared = unsafe { &*(*list.byte_sub(offset_of!(List, devices)).cast::<List>()).shared };
    shared.lock().remove(Kind::List, list as usize, "ibv_free_device_list");
}

/// # Safety
///
/// The device is one of ours.
unsafe fn device_is_alive(device: *mut ffi::ibv_device, verb: &str) -> bool {
    // SAFETY: as the caller says.
    unsafe { &*(*device.cast::<Device>()).shared }.lock().check(Kind::Device, device as usize, verb)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_name(device: *mut ffi::ibv_device) -> *const c_char {
    // SAFETY: the device is one of ours.
    unsafe {
        device_is_alive(device, "ibv_get_device_name");
        (*device).name.as_ptr()
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_guid(device: *mut ffi::ibv_device) -> u64 {
    // SAFETY: the device is one of ours.
    unsafe { device_is_alive(device, "ibv_get_device_guid") };
    0x0002_03ff_fe04_0506_u64.to_be()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_device_index(device: *mut ffi::ibv_device) -> c_int {
    // SAFETY: the device is one of ours.
    unsafe { device_is_alive(device, "ibv_get_device_index") };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_open_device(device: *mut ffi::ibv_device) -> *mut ffi::ibv_context {
    // SAFETY: the device is one of ours.
    let mut state = unsafe { &*(*device.cast::<Device>()).shared }.lock();
    let fault = state.fault("ibv_open_device");
    if fault.is_some() || !state.check(Kind::Device, device as usize, "ibv_open_device") {
        set_errno(fault.map_or(libc::EINVAL, |fault| fault.errno));
        return ptr::null_mut();
    }
    // SAFETY: the device is one of ours.
    unsafe { open(&mut state, device) }
}

/// Opens a device.
///
/// # Safety
///
/// The device is one of ours.
pub(super) unsafe fn open(state: &mut State, device: *mut ffi::ibv_device) -> *mut ffi::ibv_context {
    // Each read takes one event.
    // SAFETY: all zeroes are a valid structure; `eventfd` has no other preconditions.
    let (mut verbs, async_fd): (ffi::verbs_context, c_int) =
        unsafe { (mem::zeroed(), libc::eventfd(0, libc::EFD_SEMAPHORE)) };
    verbs.sz = size_of::<ffi::verbs_context>();
    verbs.query_port = Some(query_port);
    // Before the data path, which has a function of its own for these queues.
    srq::install(&mut verbs);
    let context = &mut verbs.context;
    context.device = device;
    // What tells libibverbs' inline functions that this is a `verbs_context`.
    context.abi_compat = ptr::without_provenance_mut(usize::MAX);
    context.async_fd = async_fd;
    context.cmd_fd = async_fd;
    context.num_comp_vectors = 1;
    match state.data_path {
        DataPath::Checked => checked::install(&mut context.ops),
        DataPath::Plain(polls) => plain::install(&mut context.ops, polls),
    }
    extended::install(&mut verbs);
    extended_queue::install(&mut verbs);
    completion_queue::install(&mut verbs);
    domains::install(&mut verbs);
    questions::install(&mut verbs);
    regions::install(&mut verbs);
    device_memory::install(&mut verbs);
    windows::install(&mut verbs.context.ops);
    special::install(&mut verbs);
    let context = state.keep(Context { verbs, async_fd });
    // SAFETY: the context was made just now.
    let context = unsafe { &raw mut (*context).verbs.context };
    state.add(Kind::Context, context as usize, &[device as usize]);
    context
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut ffi::ibv_context) -> c_int {
    // SAFETY: the context is one of ours.
    let mut state = unsafe { shared(context) }.lock();
    if let Some(fault) = state.fault("ibv_close_device") {
        return fault.returns.unwrap_or(-1);
    }
    if !state.remove(Kind::Context, context as usize, "ibv_close_device") {
        return -1;
    }
    // SAFETY: the descriptors were opened with the context, or given to it.
    unsafe {
        let [commands, events] = [(*context).cmd_fd, (*context).async_fd];
        libc::close(events);
        if commands != events && libc::close(commands) != 0 {
            state.violations.push("ibv_close_device: the imported descriptor is not open".to_owned());
        }
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_device(context: *mut ffi::ibv_context, attributes: *mut ffi::ibv_device_attr) -> c_int {
    // SAFETY: the context is one of ours.
    let mut state = unsafe { shared(context) }.lock();
    state.check(Kind::Context, context as usize, "ibv_query_device");
    if let Some(fault) = state.fault("ibv_query_device") {
        return fault.returns.unwrap_or(fault.errno);
    }
    // SAFETY: the caller passes a structure; all zeroes are a valid one.
    unsafe {
        attributes.write_bytes(0, 1);
        fill(&mut *attributes);
        tell(&state.lies.device, &mut *attributes);
    }
    0
}

/// The limits, over zeroes.
pub(super) fn fill(attributes: &mut ffi::ibv_device_attr) {
    attributes.max_qp = 1 << 16;
    attributes.max_cq = 1 << 16;
    attributes.max_mr = 1 << 16;
    attributes.max_pd = 1 << 16;
    attributes.max_qp_wr = 1 << 14;
    attributes.max_sge = 32;
    attributes.max_cqe = completion_queue::MAX_ENTRIES;
    attributes.max_mr_size = u64::MAX;
    attributes.phys_port_cnt = 1;
    attributes.device_cap_flags = ffi::ibv_device_cap_flags::IBV_DEVICE_SRQ_RESIZE.0;
    attributes.atomic_cap = ffi::ibv_atomic_cap::IBV_ATOMIC_HCA;
    attributes.local_ca_ack_delay = 15;
    attributes.max_srq = 1 << 16;
    attributes.max_srq_wr = srq::MAX_REQUESTS as c_int;
    attributes.max_srq_sge = srq::MAX_SLICES as c_int;
    attributes.max_qp_rd_atom = 16;
    attributes.max_qp_init_rd_atom = 16;
}

unsafe extern "C" fn query_port(
    context: *mut ffi::ibv_context,
    port: u8,
    attributes: *mut ffi::ibv_port_attr,
    length: usize,
) -> c_int {
    // SAFETY: the context is one of ours.
    let mut state = unsafe { shared(context) }.lock();
    state.check(Kind::Context, context as usize, "ibv_query_port");
    if let Some(fault) = state.fault("ibv_query_port") {
        return fault.returns.unwrap_or(fault.errno);
    }
    if port != 1 {
        return libc::EINVAL;
    }
    // SAFETY: all zeroes are a valid structure.
    let mut port: ffi::ibv_port_attr = unsafe { mem::zeroed() };
    port.state = ffi::ibv_port_state::IBV_PORT_ACTIVE;
    port.max_mtu = ffi::ibv_mtu::IBV_MTU_4096;
    port.active_mtu = ffi::ibv_mtu::IBV_MTU_1024;
    port.gid_tbl_len = GIDS.len() as c_int;
    port.pkey_tbl_len = questions::PKEYS.len() as u16;
    port.max_msg_sz = 1 << 30;
    port.link_layer = ffi::IBV_LINK_LAYER_ETHERNET as u8;
    if state.infiniband_with_grh {
        port.link_layer = ffi::IBV_LINK_LAYER_INFINIBAND as u8;
        port.flags = 1;
    }
    port.phys_state = 5;
    port.active_width = 2;
    port.active_speed = 32;
    port.port_cap_flags =
        ffi::ibv_port_cap_flags::IBV_PORT_CM_SUP.0 | ffi::ibv_port_cap_flags::IBV_PORT_IP_BASED_GIDS.0;
    (port.bad_pkey_cntr, port.qkey_viol_cntr) = (3, 4);
    (port.max_vl_num, port.sm_sl, port.subnet_timeout) = (1, 2, 18);
    tell(&state.lies.port, &mut port);
    // SAFETY: the caller's structure has room for `length` bytes.
    unsafe { (&raw const port).cast::<u8>().copy_to(attributes.cast(), length.min(size_of_val(&port))) };
    0
}

/// Called only where a context is no `verbs_context`, which ours are.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_query_port(
    _context: *mut ffi::ibv_context,
    _port: u8,
    _attributes: *mut ffi::_compat_ibv_port_attr,
) -> c_int {
    libc::EOPNOTSUPP
}

fn gid_entry(index: usize) -> ffi::ibv_gid_entry {
    ffi::ibv_gid_entry {
        gid: ffi::ibv_gid { raw: GIDS[index] },
        gid_index: index as u32,
        port_num: 1,
        gid_type: ffi::ibv_gid_type::IBV_GID_TYPE_ROCE_V2.0,
        ndev_ifindex: 0,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ffi::ibv_context,
    port: u32,
    index: u32,
    entry: *mut ffi::ibv_gid_entry,
    _flags: u32,
    _size: usize,
) -> c_int {
    // SAFETY: the context is one of ours.
    if let Some(fault) = unsafe { shared(context) }.lock().fault("ibv_query_gid_ex") {
        return fault.returns.unwrap_or(fault.errno);
    }
    if port != 1 || index as usize >= GIDS.len() {
        return libc::EINVAL;
    }
    // SAFETY: the caller passes an entry.
    unsafe { entry.write(gid_entry(index as usize)) };
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ffi::ibv_context,
    entries: *mut ffi::ibv_gid_entry,
    room: usize,
    _flags: u32,
    _size: usize,
) -> isize {
    // SAFETY: the context is one of ours.
    let mut state = unsafe { shared(context) }.lock();
    if let Some(fault) = state.fault("ibv_query_gid_table") {
        return fault.returns.unwrap_or(-fault.errno) as isize;
    }
    if room < GIDS.len() {
        return -(libc::EINVAL as isize);
    }
    for index in 0..GIDS.len() {
        // SAFETY: the caller's array has room for `room` entries.
        unsafe { entries.add(index).write(gid_entry(index)) };
    }
    state.lies.gids.unwrap_or(GIDS.len() as isize)
}
