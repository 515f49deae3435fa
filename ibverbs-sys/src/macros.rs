//! What `verbs.h` has as macros, under the names that C code uses.

use std::ffi::{c_int, c_void};

use crate::{ibv_context, ibv_mr, ibv_pd, ibv_port_attr};

unsafe extern "C" {
    /// Queries the attributes of a port.
    #[link_name = "ibv_query_port__ibverbs_sys"]
    pub fn ibv_query_port(context: *mut ibv_context, port_num: u8, port_attr: *mut ibv_port_attr) -> c_int;

    /// Registers a memory region.
    #[link_name = "ibv_reg_mr__ibverbs_sys"]
    pub fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;

    /// Registers a memory region whose addresses, for the device, begin at `iova`.
    #[link_name = "ibv_reg_mr_iova__ibverbs_sys"]
    pub fn ibv_reg_mr_iova(pd: *mut ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_int) -> *mut ibv_mr;
}

/// The context's table of extended operations if it has the operation `$op`, else null.
///
/// `verbs_get_ctx_op!(context, create_cq_ex)` is a `*mut verbs_context`. The table grows with each release: what tells a missing entry
/// from a null one is the size that the library wrote into it, as in C.
///
/// # Safety
///
/// To be used in an `unsafe` block: `$ctx` must be a context that is open.
#[macro_export]
macro_rules! verbs_get_ctx_op {
    ($ctx:expr, $op:ident) => {{
        let context: *mut $crate::verbs_context = $crate::verbs_get_ctx($ctx);
        let needed =
            ::core::mem::size_of::<$crate::verbs_context>() - ::core::mem::offset_of!($crate::verbs_context, $op);
        if context.is_null() || (*context).sz < needed || (*context).$op.is_none() {
            ::core::ptr::null_mut()
        } else {
            context
        }
    }};
}

/// Whether a structure of type `$type` of which `$size` bytes are there has the field `$field`.
#[macro_export]
macro_rules! vext_field_avail {
    ($type:ty, $field:ident, $size:expr) => {
        ::core::mem::offset_of!($type, $field) < $size
    };
}
