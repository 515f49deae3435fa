//! Shims and macros that only compute.

use ibverbs_sys::{self as ffi, ibv_qp_type, verbs_context};

use crate::recorder::operation;
use crate::world::{World, pointer};

pub(crate) const NAMES: &[&str] =
    &["ibv_inc_rkey", "ibv_is_qpt_supported", "ibv_flow_label_to_udp_sport", "ibv_cq_ex_to_cq", "verbs_get_ctx"];

#[test]
fn the_next_remote_key_differs_in_its_lowest_byte() {
    // SAFETY: it only computes.
    let keys = unsafe { [ffi::ibv_inc_rkey(0x1234_5600), ffi::ibv_inc_rkey(0x1234_56ff)] };
    assert_eq!(keys, [0x1234_5601, 0x1234_5600]);
}

#[test]
fn a_queue_pair_type_is_supported_where_its_bit_is_set() {
    let capabilities = 1 << ibv_qp_type::IBV_QPT_UD.0;
    // SAFETY: it only computes.
    let supported = [ibv_qp_type::IBV_QPT_UD, ibv_qp_type::IBV_QPT_RC]
        .map(|kind| unsafe { ffi::ibv_is_qpt_supported(capabilities, kind) });
    assert_eq!(supported, [1, 0]);
}

#[test]
fn a_flow_label_becomes_a_port_of_the_dynamic_range() {
    // SAFETY: it only computes.
    let ports = [0, 0x3fff, 0xfffff, 0x4001].map(|label| unsafe { ffi::ibv_flow_label_to_udp_sport(label) });
    assert_eq!(ports, [0xc000, 0xffff, 0xffc0, 0xc000]);
}

#[test]
fn an_extended_completion_queue_is_a_plain_one() {
    let w = World::new();
    // SAFETY: it only converts the pointer.
    assert_eq!(unsafe { ffi::ibv_cq_ex_to_cq(w.cq_ex) }, w.cq_ex.cast());
}

#[test]
fn the_extended_table_is_found_round_the_context_where_there_is_one() {
    let w = World::new();
    // SAFETY: the context lives as long as `w`.
    unsafe {
        assert_eq!(ffi::verbs_get_ctx(w.context), w.verbs);
        (*w.context).abi_compat = pointer(0);
        assert!(ffi::verbs_get_ctx(w.context).is_null());
    }
}

#[test]
fn an_operation_is_there_if_the_table_is_long_enough_and_the_entry_is_not_null() {
    let w = World::new();
    // SAFETY: the context lives as long as `w`.
    unsafe {
        assert!(ffi::verbs_get_ctx_op!(w.context, create_cq_ex).is_null());
        (*w.verbs).create_cq_ex = Some(operation::two);
        assert_eq!(ffi::verbs_get_ctx_op!(w.context, create_cq_ex), w.verbs);
        let needed = size_of::<verbs_context>() - std::mem::offset_of!(verbs_context, create_cq_ex);
        (*w.verbs).sz = needed;
        assert_eq!(ffi::verbs_get_ctx_op!(w.context, create_cq_ex), w.verbs);
        (*w.verbs).sz = needed - 1;
        assert!(ffi::verbs_get_ctx_op!(w.context, create_cq_ex).is_null());
        (*w.context).abi_compat = pointer(0);
        assert!(ffi::verbs_get_ctx_op!(w.context, create_cq_ex).is_null());
    }
}

#[test]
fn a_field_is_available_if_the_structure_reaches_beyond_its_beginning() {
    let offset = std::mem::offset_of!(ffi::ibv_port_attr, port_cap_flags2);
    assert!(ffi::vext_field_avail!(ffi::ibv_port_attr, port_cap_flags2, offset + 1));
    assert!(!ffi::vext_field_avail!(ffi::ibv_port_attr, port_cap_flags2, offset));
}
