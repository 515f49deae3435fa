//! Functions of the library that shims call. These are linked in its place, and note how they were called.

use std::ffi::{c_int, c_void};

use ibverbs_sys::{
    _compat_ibv_port_attr, ibv_context, ibv_device_attr, ibv_gid_entry, ibv_mr, ibv_pd, ibv_qp, ibv_qp_init_attr,
    ibv_srq, ibv_srq_init_attr,
};

use crate::recorder::{bits, record};
use crate::world::pointer;

/// What the functions that return a pointer return.
pub(crate) const MADE: usize = 0x4321;
/// What those that return a code return.
pub(crate) const CODE: c_int = 17;

macro_rules! exported {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $ty:ty),* $(,)?) -> $returned:ty = $value:expr;)*) => {$(
        $(#[$attribute])*
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $ty),*) -> $returned {
            record(stringify!($name), &[$(bits($argument)),*]);
            $value
        }
    )*};
}

exported! {
    fn ibv_query_port(context: *mut ibv_context, port: u8, attr: *mut _compat_ibv_port_attr) -> c_int = CODE;
    fn ibv_query_device(context: *mut ibv_context, attr: *mut ibv_device_attr) -> c_int = CODE;
    fn _ibv_query_gid_ex(
        context: *mut ibv_context, port: u32, index: u32, entry: *mut ibv_gid_entry, flags: u32, size: usize,
    ) -> c_int = CODE;
    fn _ibv_query_gid_table(
        context: *mut ibv_context, entries: *mut ibv_gid_entry, count: usize, flags: u32, size: usize,
    ) -> isize = -22;
    fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr = pointer(MADE);
    fn ibv_reg_mr_iova(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_int) -> *mut ibv_mr = pointer(MADE);
    fn ibv_reg_mr_iova2(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: u32) -> *mut ibv_mr = pointer(MADE);
    fn ibv_create_srq(pd: *mut ibv_pd, attr: *mut ibv_srq_init_attr) -> *mut ibv_srq = pointer(MADE);
    fn ibv_create_qp(pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> *mut ibv_qp = pointer(MADE);
    #[cfg(rdma_core_65)]
    fn _ibv_query_comp_cntr_caps(context: *mut ibv_context, caps: *mut ibverbs_sys::ibv_comp_cntr_caps, size: usize) -> c_int = CODE;
}
