//! Shims that call one operation of one table with the arguments they were given.

use ibverbs_sys::{self as ffi, ibv_mw_type, ibv_qp_ex};
use libc::EOPNOTSUPP;

use crate::recorder::{ANSWER, answer_as, answer_with, bits, call, calls, operation};
use crate::world::{World, errno, pointer, set_errno, zeroed};

/// `shim(arguments) => table.operation: number of arguments`
macro_rules! cases {
    ($w:ident; $($shim:ident($($argument:expr),*) => $place:expr => $number:ident;)*) => {
        &[$((stringify!($shim), || {
            let $w = World::new();
            answer_with(ANSWER);
            // SAFETY: the objects live as long as `$w`, and the recording functions follow no pointer.
            let (answer, arguments) = unsafe {
                $place = Some(operation::$number);
                call::$number(ffi::$shim, $($argument),*)
            };
            assert_eq!(bits(answer), answer_as(&answer), "what {} returns", stringify!($shim));
            assert_eq!(calls(), [("operation", arguments)], "what {} passes on", stringify!($shim));
        })),*]
    };
}

type Cases = &'static [(&'static str, fn())];

/// Operations that every context has: the library checks nothing.
pub(crate) const BASIC: Cases = cases! { w;
    ibv_poll_cq(w.cq, 16, pointer(2)) => (*w.context).ops.poll_cq => three;
    ibv_req_notify_cq(w.cq, 1) => (*w.context).ops.req_notify_cq => two;
    ibv_post_send(w.qp, pointer(1), pointer(2)) => (*w.context).ops.post_send => three;
    ibv_post_recv(w.qp, pointer(1), pointer(2)) => (*w.context).ops.post_recv => three;
    ibv_post_srq_recv(w.srq, pointer(1), pointer(2)) => (*w.context).ops.post_srq_recv => three;
    ibv_alloc_mw(w.pd, ibv_mw_type::IBV_MW_TYPE_2) => (*w.context).ops.alloc_mw => two;
    ibv_dealloc_mw(w.mw) => (*w.context).ops.dealloc_mw => one;
    ibv_close_xrcd(w.xrcd) => (*w.verbs).close_xrcd => one;
};

/// Operations that are the object's own.
pub(crate) const OF_OBJECTS: Cases = cases! { w;
    ibv_post_wq_recv(w.wq, pointer(1), pointer(2)) => (*w.wq).post_recv => three;
    ibv_memcpy_to_dm(w.dm, 7, pointer(1), 64) => (*w.dm).memcpy_to_dm => four;
    ibv_memcpy_from_dm(pointer(1), w.dm, 7, 64) => (*w.dm).memcpy_from_dm => four;
};

pub(crate) const OF_COMPLETION_QUEUES: Cases = cases! { w;
    ibv_start_poll(w.cq_ex, pointer(1)) => (*w.cq_ex).start_poll => two;
    ibv_next_poll(w.cq_ex) => (*w.cq_ex).next_poll => one;
    ibv_end_poll(w.cq_ex) => (*w.cq_ex).end_poll => one;
    ibv_wc_read_opcode(w.cq_ex) => (*w.cq_ex).read_opcode => one;
    ibv_wc_read_vendor_err(w.cq_ex) => (*w.cq_ex).read_vendor_err => one;
    ibv_wc_read_byte_len(w.cq_ex) => (*w.cq_ex).read_byte_len => one;
    ibv_wc_read_imm_data(w.cq_ex) => (*w.cq_ex).read_imm_data => one;
    ibv_wc_read_invalidated_rkey(w.cq_ex) => (*w.cq_ex).read_imm_data => one;
    ibv_wc_read_qp_num(w.cq_ex) => (*w.cq_ex).read_qp_num => one;
    ibv_wc_read_src_qp(w.cq_ex) => (*w.cq_ex).read_src_qp => one;
    ibv_wc_read_wc_flags(w.cq_ex) => (*w.cq_ex).read_wc_flags => one;
    ibv_wc_read_slid(w.cq_ex) => (*w.cq_ex).read_slid => one;
    ibv_wc_read_sl(w.cq_ex) => (*w.cq_ex).read_sl => one;
    ibv_wc_read_dlid_path_bits(w.cq_ex) => (*w.cq_ex).read_dlid_path_bits => one;
    ibv_wc_read_completion_ts(w.cq_ex) => (*w.cq_ex).read_completion_ts => one;
    ibv_wc_read_completion_wallclock_ns(w.cq_ex) => (*w.cq_ex).read_completion_wallclock_ns => one;
    ibv_wc_read_cvlan(w.cq_ex) => (*w.cq_ex).read_cvlan => one;
    ibv_wc_read_flow_tag(w.cq_ex) => (*w.cq_ex).read_flow_tag => one;
    ibv_wc_read_tm_info(w.cq_ex, pointer(1)) => (*w.cq_ex).read_tm_info => two;
};

/// The same for a queue pair's builders, which are in a struct of their own.
macro_rules! builders {
    ($qp:ident; $($(#[$attribute:meta])* $shim:ident($($argument:expr),*) => $operation:ident => $number:ident;)*) => {
        &[$($(#[$attribute])* (stringify!($shim), || {
            let $qp = zeroed::<ibv_qp_ex>();
            answer_with(ANSWER);
            // SAFETY: `$qp` lives until it is freed here, and the recording functions follow no pointer.
            let (answer, arguments) = unsafe {
                (*$qp).$operation = Some(operation::$number);
                call::$number(ffi::$shim, $($argument),*)
            };
            assert_eq!(bits(answer), answer_as(&answer), "what {} returns", stringify!($shim));
            assert_eq!(calls(), [("operation", arguments)], "what {} passes on", stringify!($shim));
            // SAFETY: it came from `zeroed`.
            drop(unsafe { Box::from_raw($qp) });
        })),*]
    };
}

pub(crate) const BUILDERS: Cases = builders! { qp;
    ibv_wr_start(qp) => wr_start => one;
    ibv_wr_complete(qp) => wr_complete => one;
    ibv_wr_abort(qp) => wr_abort => one;
    ibv_wr_atomic_cmp_swp(qp, 1, 2, 3, 4) => wr_atomic_cmp_swp => five;
    ibv_wr_atomic_fetch_add(qp, 1, 2, 3) => wr_atomic_fetch_add => four;
    ibv_wr_atomic_write(qp, 1, 2, pointer(3)) => wr_atomic_write => four;
    ibv_wr_bind_mw(qp, pointer(1), 2, pointer(3)) => wr_bind_mw => four;
    ibv_wr_local_inv(qp, 1) => wr_local_inv => two;
    ibv_wr_rdma_read(qp, 1, 2) => wr_rdma_read => three;
    ibv_wr_rdma_write(qp, 1, 2) => wr_rdma_write => three;
    ibv_wr_rdma_write_imm(qp, 1, 2, 3) => wr_rdma_write_imm => four;
    ibv_wr_send(qp) => wr_send => one;
    ibv_wr_send_imm(qp, 1) => wr_send_imm => two;
    ibv_wr_send_inv(qp, 1) => wr_send_inv => two;
    ibv_wr_send_tso(qp, pointer(1), 2, 3) => wr_send_tso => four;
    ibv_wr_set_ud_addr(qp, pointer(1), 2, 3) => wr_set_ud_addr => four;
    ibv_wr_set_xrc_srqn(qp, 1) => wr_set_xrc_srqn => two;
    ibv_wr_set_inline_data(qp, pointer(1), 2) => wr_set_inline_data => three;
    ibv_wr_set_inline_data_list(qp, 1, pointer(2)) => wr_set_inline_data_list => three;
    ibv_wr_set_sge(qp, 1, 2, 3) => wr_set_sge => four;
    ibv_wr_set_sge_list(qp, 1, pointer(2)) => wr_set_sge_list => three;
    #[cfg(rdma_core_45)]
    ibv_wr_flush(qp, 1, 2, 3, 4, 5) => wr_flush => six;
};

fn run(cases: Cases) {
    for (_, case) in cases {
        case();
    }
}

#[test]
fn each_basic_verb_calls_its_operation_with_its_arguments() {
    run(BASIC);
}

#[test]
fn each_verb_of_a_work_queue_and_of_device_memory_calls_the_objects_operation() {
    run(OF_OBJECTS);
}

#[test]
fn each_verb_of_an_extended_completion_queue_calls_the_queues_operation() {
    run(OF_COMPLETION_QUEUES);
}

#[test]
fn each_builder_of_an_extended_queue_pair_calls_the_queue_pairs_operation() {
    run(BUILDERS);
}

#[test]
fn allocating_a_memory_window_without_the_operation_is_not_supported() {
    let w = World::new();
    set_errno(0);
    // SAFETY: the domain lives as long as `w`.
    let window = unsafe { ffi::ibv_alloc_mw(w.pd, ibv_mw_type::IBV_MW_TYPE_1) };
    assert_eq!((window.is_null(), errno()), (true, EOPNOTSUPP));
}
