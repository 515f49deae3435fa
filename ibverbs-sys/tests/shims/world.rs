//! Objects as a provider would make them, with empty operation tables, made of zeros.

use std::ptr;

use ibverbs_sys::{self as ffi, ibv_context, verbs_context};

macro_rules! world {
    ($($field:ident: $ty:ident),* $(,)?) => {
        pub(crate) struct World {
            pub(crate) verbs: *mut verbs_context,
            pub(crate) context: *mut ibv_context,
            $(pub(crate) $field: *mut ffi::$ty,)*
        }

        impl World {
            pub(crate) fn new() -> Self {
                let verbs = zeroed::<verbs_context>();
                // SAFETY: `verbs` and each object have just been made.
                unsafe {
                    (*verbs).sz = size_of::<verbs_context>();
                    (*verbs).context.abi_compat = ffi::__VERBS_ABI_IS_EXTENDED;
                    let context = &raw mut (*verbs).context;
                    Self {
                        verbs,
                        context,
                        $($field: {
                            let object = zeroed::<ffi::$ty>();
                            (*object).context = context;
                            object
                        },)*
                    }
                }
            }
        }

        impl Drop for World {
            fn drop(&mut self) {
                // SAFETY: each came from `zeroed`, and the shims free nothing.
                unsafe {
                    $(drop(Box::from_raw(self.$field));)*
                    drop(Box::from_raw(self.verbs));
                }
            }
        }
    };
}

world! {
    counters: ibv_counters,
    cq: ibv_cq,
    cq_ex: ibv_cq_ex,
    dm: ibv_dm,
    flow: ibv_flow,
    flow_action: ibv_flow_action,
    mw: ibv_mw,
    pd: ibv_pd,
    qp: ibv_qp,
    rwq_ind_table: ibv_rwq_ind_table,
    srq: ibv_srq,
    td: ibv_td,
    wq: ibv_wq,
    xrcd: ibv_xrcd,
}

/// A `T` of zeros, which `Box::from_raw` frees.
pub(crate) fn zeroed<T>() -> *mut T {
    // SAFETY: `T` is a struct of the bindings, and zeros are valid for all of those.
    Box::into_raw(Box::new(unsafe { std::mem::zeroed() }))
}

/// A pointer that nobody follows.
pub(crate) fn pointer<T>(address: usize) -> *mut T {
    ptr::without_provenance_mut(address)
}

pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or_default()
}

pub(crate) fn set_errno(errno: i32) {
    // SAFETY: the C library gives each thread its own.
    unsafe { *libc::__errno_location() = errno };
}
