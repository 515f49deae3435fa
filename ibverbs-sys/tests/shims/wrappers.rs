//! Shims that choose between an operation and a function of the library, or do work of their own.

use ibverbs_sys::{
    self as ffi, ibv_access_flags, ibv_device_attr_ex, ibv_gid_entry, ibv_mr, ibv_mw_bind, ibv_mw_type, ibv_ops_wr,
    ibv_port_attr, ibv_qp_init_attr_ex, ibv_qp_init_attr_mask, ibv_query_device_ex_input, ibv_srq_init_attr_ex,
    ibv_srq_init_attr_mask, ibv_srq_type, ibv_wq, ibv_wq_init_attr,
};
use libc::{EINVAL, ENOSYS, EOPNOTSUPP, EPERM};

use crate::exported::{CODE, MADE};
use crate::recorder::{ANSWER, answer_with, bits, calls, operation};
use crate::world::{World, errno, pointer, set_errno, zeroed};

pub(crate) const NAMES: &[&str] = &[
    "ibv_query_port",
    "___ibv_query_port",
    "ibv_query_device_ex",
    "ibv_query_gid_ex",
    "ibv_query_gid_table",
    "ibv_reg_mr",
    "ibv_reg_mr_iova",
    "__ibv_reg_mr",
    "__ibv_reg_mr_iova",
    "ibv_bind_mw",
    "ibv_create_srq_ex",
    "ibv_create_qp_ex",
    "ibv_create_wq",
    "ibv_post_srq_ops",
    #[cfg(rdma_core_65)]
    "ibv_query_comp_cntr_caps",
];

/// Bytes that a shim is to overwrite.
fn filled<T>() -> *mut T {
    let value = zeroed::<T>();
    // SAFETY: `value` has the room, and integers may have any bits.
    unsafe { value.cast::<u8>().write_bytes(0xaa, size_of::<T>()) };
    value
}

fn is_zero<T>(value: *mut T) -> bool {
    // SAFETY: `value` is from `filled`, so every byte of it is there and was written.
    unsafe { std::slice::from_raw_parts(value.cast::<u8>(), size_of::<T>()) }.iter().all(|byte| *byte == 0)
}

#[test]
fn query_port_tells_the_operation_the_size_of_its_attributes() {
    for shim in [ffi::ibv_query_port, ffi::___ibv_query_port] {
        let w = World::new();
        answer_with(ANSWER);
        // SAFETY: the context lives as long as `w`, and the recording function follows no pointer.
        let code = unsafe {
            (*w.verbs).query_port = Some(operation::four);
            shim(w.context, 3, pointer(8))
        };
        assert_eq!(bits(code), ANSWER);
        assert_eq!(calls(), [("operation", vec![bits(w.context), 3, 8, size_of::<ibv_port_attr>() as u64])]);
    }
}

#[test]
fn query_port_without_the_operation_zeroes_what_the_library_does_not_write() {
    for shim in [ffi::ibv_query_port, ffi::___ibv_query_port] {
        let w = World::new();
        let attr = filled::<ibv_port_attr>();
        // SAFETY: context and attributes outlive the call.
        assert_eq!(unsafe { shim(w.context, 3, attr) }, CODE);
        assert!(is_zero(attr));
        assert_eq!(calls(), [("ibv_query_port", vec![bits(w.context), 3, bits(attr)])]);
        // SAFETY: it came from `filled`.
        drop(unsafe { Box::from_raw(attr) });
    }
}

#[test]
fn query_device_refuses_an_input_it_does_not_know() {
    let w = World::new();
    let input = ibv_query_device_ex_input { comp_mask: 1 };
    // SAFETY: context and input outlive the call, which fails before it follows the other pointer.
    assert_eq!(unsafe { ffi::ibv_query_device_ex(w.context, &raw const input, pointer(8)) }, EINVAL);
    assert_eq!(calls(), []);
}

#[test]
fn query_device_falls_back_where_the_operation_is_not_supported() {
    for code in [EOPNOTSUPP, ENOSYS] {
        let w = World::new();
        answer_with(bits(code));
        let attr = filled::<ibv_device_attr_ex>();
        let size = size_of::<ibv_device_attr_ex>() as u64;
        // SAFETY: context and attributes outlive the call.
        let answer = unsafe {
            (*w.verbs).query_device_ex = Some(operation::four);
            ffi::ibv_query_device_ex(w.context, pointer::<ibv_query_device_ex_input>(0).cast_const(), attr)
        };
        assert_eq!(answer, CODE);
        assert!(is_zero(attr));
        let expected = [
            ("operation", vec![bits(w.context), 0, bits(attr), size]),
            ("ibv_query_device", vec![bits(w.context), bits(attr)]),
        ];
        assert_eq!(calls(), expected);
        // SAFETY: it came from `filled`.
        drop(unsafe { Box::from_raw(attr) });
    }
}

#[test]
fn query_device_returns_the_operations_other_errors() {
    let w = World::new();
    answer_with(bits(EPERM));
    // SAFETY: the context lives as long as `w`, and the recording function follows no pointer.
    let code = unsafe {
        (*w.verbs).query_device_ex = Some(operation::four);
        ffi::ibv_query_device_ex(w.context, pointer::<ibv_query_device_ex_input>(0).cast_const(), pointer(8))
    };
    assert_eq!((code, calls().len()), (EPERM, 1));
}

#[test]
fn gid_queries_tell_the_library_the_size_of_an_entry() {
    let w = World::new();
    let size = size_of::<ibv_gid_entry>() as u64;
    // SAFETY: the library's functions are ours, which follow no pointer.
    let answers = unsafe {
        (ffi::ibv_query_gid_ex(w.context, 1, 2, pointer(3), 4), ffi::ibv_query_gid_table(w.context, pointer(5), 6, 7))
    };
    assert_eq!(answers, (CODE, -22));
    let expected = [
        ("_ibv_query_gid_ex", vec![bits(w.context), 1, 2, 3, 4, size]),
        ("_ibv_query_gid_table", vec![bits(w.context), 5, 6, 7, size]),
    ];
    assert_eq!(calls(), expected);
}

#[cfg(rdma_core_65)]
#[test]
fn the_query_of_completion_counters_tells_the_library_the_size_of_its_answer() {
    let w = World::new();
    let size = size_of::<ffi::ibv_comp_cntr_caps>() as u64;
    // SAFETY: the library's function is ours, which follows no pointer.
    assert_eq!(unsafe { ffi::ibv_query_comp_cntr_caps(w.context, pointer(3)) }, CODE);
    assert_eq!(calls(), [("_ibv_query_comp_cntr_caps", vec![bits(w.context), 3, size])]);
}

/// As the macro with an argument that the C compiler does not know: every flag goes to the function that knows the optional ones.
#[test]
fn registering_memory_passes_every_access_flag_to_the_newest_function() {
    let plain = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
    let optional = plain | ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0;
    for access in [plain, optional] {
        let flags = access as std::ffi::c_int;
        // SAFETY: the library's functions are ours, which follow no pointer.
        let regions = unsafe {
            [
                ffi::ibv_reg_mr(pointer(1), pointer(2), 3, flags),
                ffi::ibv_reg_mr_iova(pointer(1), pointer(2), 3, 4, flags),
                ffi::__ibv_reg_mr(pointer(1), pointer(2), 3, access, 0),
                ffi::__ibv_reg_mr_iova(pointer(1), pointer(2), 3, 4, access, 0),
            ]
        };
        assert_eq!(regions, [pointer(MADE); 4]);
        let same_address = ("ibv_reg_mr_iova2", vec![1, 2, 3, 2, u64::from(access)]);
        let other_address = ("ibv_reg_mr_iova2", vec![1, 2, 3, 4, u64::from(access)]);
        assert_eq!(calls(), [same_address.clone(), other_address.clone(), same_address, other_address]);
    }
}

#[test]
fn registering_memory_with_constant_plain_flags_uses_the_older_functions() {
    let access = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
    // SAFETY: the library's functions are ours, which follow no pointer.
    unsafe {
        ffi::__ibv_reg_mr(pointer(1), pointer(2), 3, access, 1);
        ffi::__ibv_reg_mr_iova(pointer(1), pointer(2), 3, 4, access, 1);
    }
    let access = u64::from(access);
    assert_eq!(calls(), [("ibv_reg_mr", vec![1, 2, 3, access]), ("ibv_reg_mr_iova", vec![1, 2, 3, 4, access])]);
}

#[test]
fn binding_a_window_checks_its_type_and_its_domain_first() {
    let w = World::new();
    let (region, bind) = (zeroed::<ibv_mr>(), zeroed::<ibv_mw_bind>());
    answer_with(ANSWER);
    // SAFETY: all objects live to the end of the test, and the recording function follows no pointer.
    unsafe {
        (*w.context).ops.bind_mw = Some(operation::three);
        (*w.mw).type_ = ibv_mw_type::IBV_MW_TYPE_2;
        assert_eq!(ffi::ibv_bind_mw(w.qp, w.mw, bind), EINVAL);

        (*w.mw).type_ = ibv_mw_type::IBV_MW_TYPE_1;
        (*bind).bind_info.length = 1;
        assert_eq!(ffi::ibv_bind_mw(w.qp, w.mw, bind), EINVAL, "a range without a region");

        (*bind).bind_info.mr = region;
        (*w.mw).pd = w.pd;
        assert_eq!(ffi::ibv_bind_mw(w.qp, w.mw, bind), EPERM, "a region of another domain");
        assert_eq!(calls(), []);

        (*region).pd = w.pd;
        assert_eq!(bits(ffi::ibv_bind_mw(w.qp, w.mw, bind)), ANSWER);
        assert_eq!(calls(), [("operation", vec![bits(w.qp), bits(w.mw), bits(bind)])]);
        drop((Box::from_raw(region), Box::from_raw(bind)));
    }
}

#[test]
fn a_basic_shared_receive_queue_is_made_by_the_library_and_another_by_the_operation() {
    let w = World::new();
    let attr = zeroed::<ibv_srq_init_attr_ex>();
    let (domain, kind) = (ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_PD, ibv_srq_init_attr_mask::IBV_SRQ_INIT_ATTR_TYPE);
    answer_with(ANSWER);
    // SAFETY: all objects live to the end of the test, and the functions follow no pointer.
    unsafe {
        (*attr).pd = w.pd;
        (*attr).srq_type = ibv_srq_type::IBV_SRQT_BASIC;
        for mask in [domain, domain | kind] {
            (*attr).comp_mask = mask.0;
            assert_eq!(ffi::ibv_create_srq_ex(w.context, attr), pointer(MADE));
            assert_eq!(calls(), [("ibv_create_srq", vec![bits(w.pd), bits(attr)])]);
        }

        (*attr).srq_type = ibv_srq_type::IBV_SRQT_XRC;
        set_errno(0);
        assert!(ffi::ibv_create_srq_ex(w.context, attr).is_null());
        assert_eq!((errno(), calls()), (EOPNOTSUPP, vec![]));

        (*w.verbs).create_srq_ex = Some(operation::two);
        assert_eq!(bits(ffi::ibv_create_srq_ex(w.context, attr)), ANSWER);
        assert_eq!(calls(), [("operation", vec![bits(w.context), bits(attr)])]);
        drop(Box::from_raw(attr));
    }
}

#[test]
fn a_plain_queue_pair_is_made_by_the_library_and_another_by_the_operation() {
    let w = World::new();
    let attr = zeroed::<ibv_qp_init_attr_ex>();
    let (domain, operations) =
        (ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_PD, ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
    answer_with(ANSWER);
    // SAFETY: all objects live to the end of the test, and the functions follow no pointer.
    unsafe {
        (*attr).pd = w.pd;
        (*attr).comp_mask = domain.0;
        assert_eq!(ffi::ibv_create_qp_ex(w.context, attr), pointer(MADE));
        assert_eq!(calls(), [("ibv_create_qp", vec![bits(w.pd), bits(attr)])]);

        (*attr).comp_mask = (domain | operations).0;
        set_errno(0);
        assert!(ffi::ibv_create_qp_ex(w.context, attr).is_null());
        assert_eq!((errno(), calls()), (EOPNOTSUPP, vec![]));

        (*w.verbs).create_qp_ex = Some(operation::two);
        assert_eq!(bits(ffi::ibv_create_qp_ex(w.context, attr)), ANSWER);
        assert_eq!(calls(), [("operation", vec![bits(w.context), bits(attr)])]);
        drop(Box::from_raw(attr));
    }
}

#[test]
fn a_work_queue_gets_its_lock_and_its_context_from_the_shim() {
    let w = World::new();
    let (queue, attr) = (filled::<ibv_wq>(), zeroed::<ibv_wq_init_attr>());
    answer_with(bits(queue));
    // SAFETY: all objects live to the end of the test, and the recording function follows no pointer.
    unsafe {
        set_errno(0);
        assert!(ffi::ibv_create_wq(w.context, attr).is_null());
        assert_eq!(errno(), EOPNOTSUPP);

        (*attr).wq_context = pointer(9);
        (*w.verbs).create_wq = Some(operation::two);
        assert_eq!(ffi::ibv_create_wq(w.context, attr), queue);
        assert_eq!(calls(), [("operation", vec![bits(w.context), bits(attr)])]);
        assert_eq!(((*queue).wq_context, (*queue).events_completed), (pointer(9), 0));
        assert_eq!(libc::pthread_mutex_trylock(&raw mut (*queue).mutex), 0);
        assert_eq!(libc::pthread_mutex_trylock(&raw mut (*queue).mutex), libc::EBUSY);
        assert_eq!(libc::pthread_cond_signal(&raw mut (*queue).cond), 0);

        answer_with(0);
        assert!(ffi::ibv_create_wq(w.context, attr).is_null());
        drop(calls());
        drop((Box::from_raw(queue), Box::from_raw(attr)));
    }
}

#[test]
fn posting_tag_operations_without_the_operation_points_at_the_first() {
    let w = World::new();
    let operation: *mut ibv_ops_wr = pointer(8);
    let mut first_bad = pointer(0);
    let bad = &raw mut first_bad;
    answer_with(ANSWER);
    // SAFETY: the objects live to the end of the test, and the recording function follows no pointer.
    unsafe {
        assert_eq!(ffi::ibv_post_srq_ops(w.srq, operation, bad), EOPNOTSUPP);
        assert_eq!((*bad, calls()), (operation, vec![]));

        (*w.verbs).post_srq_ops = Some(operation::three);
        assert_eq!(bits(ffi::ibv_post_srq_ops(w.srq, operation, bad)), ANSWER);
        assert_eq!(calls(), [("operation", vec![bits(w.srq), 8, bits(bad)])]);
    }
}
