//! Shims that call an operation of the context's extended table, which grows with each release and may lack it.

use std::mem::offset_of;

use ibverbs_sys::{self as ffi, ibv_advise_mr_advice, verbs_context};
use libc::EOPNOTSUPP;

use crate::recorder::{ANSWER, answer_as, answer_with, bits, call, calls, operation};
use crate::world::{World, errno, pointer, set_errno};

/// How a table lacks an operation.
#[derive(Clone, Copy, Debug)]
enum Lack {
    /// The entry is null: the provider does not have it.
    Null,
    /// The table is too short: the library is older than the header.
    Short,
    /// There is no table: the provider is older still.
    NoTable,
}

/// How a shim says so.
#[derive(Clone, Copy)]
enum Answer {
    /// A null pointer, and the reason in `errno`.
    NullAndErrno,
    /// The reason.
    Code,
}

impl Answer {
    #[track_caller]
    fn check(self, shim: &str, lack: Lack, answer: u64) {
        /// What a call leaves alone.
        const UNTOUCHED: i32 = 0;
        let expected = match self {
            Self::NullAndErrno => (0, EOPNOTSUPP),
            Self::Code => (bits(EOPNOTSUPP), UNTOUCHED),
        };
        assert_eq!((answer, errno()), expected, "{shim} with {lack:?}");
        assert!(calls().is_empty(), "{shim} with {lack:?}");
    }
}

struct Case {
    shim: &'static str,
    reaches_operation: fn(),
    lacks_operation: fn(Lack),
}

/// `shim(arguments) => operation => number of arguments, answer of a context that lacks it`
macro_rules! cases {
    ($w:ident; $($shim:ident($($argument:expr),*) => $operation:ident => $number:ident, $answer:ident;)*) => {
        &[$(Case {
            shim: stringify!($shim),
            reaches_operation: || {
                let $w = World::new();
                answer_with(ANSWER);
                // SAFETY: the objects live as long as `$w`, and the recording functions follow no pointer.
                let (answer, arguments) = unsafe {
                    (*$w.verbs).$operation = Some(operation::$number);
                    call::$number(ffi::$shim, $($argument),*)
                };
                assert_eq!(bits(answer), answer_as(&answer), "what {} returns", stringify!($shim));
                assert_eq!(calls(), [("operation", arguments)], "what {} passes on", stringify!($shim));
            },
            lacks_operation: |lack| {
                let $w = World::new();
                set_errno(0);
                // SAFETY: as above.
                let answer = unsafe {
                    match lack {
                        Lack::Null => (),
                        Lack::Short => {
                            (*$w.verbs).$operation = Some(operation::$number);
                            (*$w.verbs).sz = size_of::<verbs_context>() - offset_of!(verbs_context, $operation) - 1;
                        }
                        Lack::NoTable => {
                            (*$w.verbs).$operation = Some(operation::$number);
                            (*$w.context).abi_compat = pointer(0);
                        }
                    }
                    ffi::$shim($($argument),*)
                };
                Answer::$answer.check(stringify!($shim), lack, bits(answer));
            },
        }),*]
    };
}

const CASES: &[Case] = cases! { w;
    ibv_advise_mr(w.pd, ibv_advise_mr_advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE, 2, pointer(3), 4) => advise_mr => five, Code;
    ibv_alloc_dm(w.context, pointer(1)) => alloc_dm => two, NullAndErrno;
    ibv_alloc_null_mr(w.pd) => alloc_null_mr => one, NullAndErrno;
    ibv_alloc_parent_domain(w.context, pointer(1)) => alloc_parent_domain => two, NullAndErrno;
    ibv_alloc_td(w.context, pointer(1)) => alloc_td => two, NullAndErrno;
    ibv_attach_counters_point_flow(w.counters, pointer(1), pointer(2)) => attach_counters_point_flow => three, Code;
    ibv_create_counters(w.context, pointer(1)) => create_counters => two, NullAndErrno;
    ibv_create_cq_ex(w.context, pointer(1)) => create_cq_ex => two, NullAndErrno;
    ibv_create_flow(w.qp, pointer(1)) => ibv_create_flow => two, NullAndErrno;
    ibv_create_flow_action_esp(w.context, pointer(1)) => create_flow_action_esp => two, NullAndErrno;
    ibv_create_rwq_ind_table(w.context, pointer(1)) => create_rwq_ind_table => two, NullAndErrno;
    ibv_dealloc_td(w.td) => dealloc_td => one, Code;
    ibv_destroy_counters(w.counters) => destroy_counters => one, Code;
    ibv_destroy_flow(w.flow) => ibv_destroy_flow => one, Code;
    ibv_destroy_flow_action(w.flow_action) => destroy_flow_action => one, Code;
    ibv_destroy_rwq_ind_table(w.rwq_ind_table) => destroy_rwq_ind_table => one, Code;
    ibv_destroy_wq(w.wq) => destroy_wq => one, Code;
    ibv_free_dm(w.dm) => free_dm => one, Code;
    ibv_get_srq_num(w.srq, pointer(1)) => get_srq_num => two, Code;
    ibv_modify_cq(w.cq, pointer(1)) => modify_cq => two, Code;
    ibv_modify_flow_action_esp(w.flow_action, pointer(1)) => modify_flow_action_esp => two, Code;
    ibv_modify_qp_rate_limit(w.qp, pointer(1)) => modify_qp_rate_limit => two, Code;
    ibv_modify_wq(w.wq, pointer(1)) => modify_wq => two, Code;
    ibv_open_qp(w.context, pointer(1)) => open_qp => two, NullAndErrno;
    ibv_open_xrcd(w.context, pointer(1)) => open_xrcd => two, NullAndErrno;
    ibv_query_rt_values_ex(w.context, pointer(1)) => query_rt_values => two, Code;
    ibv_read_counters(w.counters, pointer(1), 2, 3) => read_counters => four, Code;
    ibv_reg_dm_mr(w.pd, pointer(1), 2, 3, 4) => reg_dm_mr => five, NullAndErrno;
};

pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|case| case.shim)
}

#[test]
fn each_extended_verb_calls_its_operation_with_its_arguments() {
    for case in CASES {
        (case.reaches_operation)();
    }
}

#[test]
fn each_extended_verb_that_the_context_lacks_is_not_supported() {
    for case in CASES {
        for lack in [Lack::Null, Lack::Short, Lack::NoTable] {
            (case.lacks_operation)(lack);
        }
    }
}
