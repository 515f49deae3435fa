//! Queue pairs as they are asked for.

use std::process::Command;

use verbs::*;

use crate::harness::*;

/// Set for the child of the test below.
const POISONED: &str = "RDMA_TEST_POISONED";

fn create<T: Transport>(side: &Side, number: u32) {
    let (wr, sge, inline) = (1 + number % 50, 1 + number % 5, 16 * (number % 8));
    let qp = QueuePair::<T>::builder(&side.pd, &side.cq, &side.cq)
        .max_send_wr(wr)
        .max_recv_wr(wr)
        .max_send_sge(sge)
        .max_recv_sge(sge)
        .max_inline_data(inline)
        .build()
        .unwrap_or_else(|error| panic!("number {number}: {error}"));
    let found = qp.query().unwrap();
    assert_eq!((found.state(), found.signal_all()), (QueuePairState::RESET, false));
    // SAFETY: the queue pair is alive.
    assert_eq!(unsafe { (*qp.as_raw()).qp_type }, qp_type::<T>());
    let caps = qp.capabilities();
    assert!(caps.max_send_wr >= wr && caps.max_recv_wr >= wr && caps.max_inline_data >= inline, "{caps:?}");
    assert!(caps.max_send_sge >= sge && caps.max_recv_sge >= sge, "{caps:?}");
}

fn qp_type<T: Transport>() -> ffi::ibv_qp_type {
    match std::any::type_name::<T>().rsplit("::").next().unwrap() {
        "Rc" => ffi::ibv_qp_type::IBV_QPT_RC,
        "Uc" => ffi::ibv_qp_type::IBV_QPT_UC,
        _ => ffi::ibv_qp_type::IBV_QPT_UD,
    }
}

#[test]
fn a_thousand_queue_pairs_of_each_transport_are_made_as_asked_for_whatever_is_in_the_heap() {
    if std::env::var_os(POISONED).is_some() {
        let side = Side::new();
        for number in 0..1000 {
            create::<Rc>(&side, number);
            create::<Uc>(&side, number);
            create::<Ud>(&side, number);
        }
        return;
    }
    let name = "a_thousand_queue_pairs_of_each_transport_are_made_as_asked_for_whatever_is_in_the_heap";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("scenarios::creation::{name}")])
        // What is allocated and not initialised is not zero.
        .envs([(POISONED, "1"), ("MALLOC_PERTURB_", "165")])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn a_queue_pair_with_no_capacity_at_all_is_made_and_one_with_too_much_inline_data_is_refused_in_words() {
    let side = Side::new();
    let builder = || QueuePair::<Rc>::builder(&side.pd, &side.cq, &side.cq);
    builder().max_send_wr(0).max_recv_wr(0).max_send_sge(0).max_recv_sge(0).build().unwrap();
    assert!(builder().max_inline_data(512).build().unwrap().capabilities().max_inline_data >= 512);
    // rxe has room for 512 bytes; where it refuses depends on how it rounds.
    for bytes in [1000, 4096, u32::MAX] {
        let error = builder().max_inline_data(bytes).build().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}");
        assert!(error.to_string().contains("so max_inline_data may be"), "{error}");
    }
}

#[test]
fn what_was_granted_is_told_and_a_queue_that_takes_more_loses_nothing() {
    let context = open();
    // How many requests and bytes of inline data are asked for; how many bytes and entries rxe makes of it.
    for (asked, inline, bytes, entries) in
        [(4, 0, 16, 1), (4, 1, 16, 1), (4, 64, 64, 4), (8, 200, 200, 12), (8, 400, 400, 25)]
    {
        let make = |context: Context| {
            Side::build(context, |builder| builder.max_send_wr(asked).max_recv_wr(asked).max_inline_data(inline))
        };
        let (a, b) = (make(context.clone()), make(context.clone()));
        connect(&a, &b, &options());
        let caps = a.qp.capabilities();
        // Linux 6.1 tells what was asked for and takes more; 6.12 tells what it takes: a power of two less one.
        let holds = 2 * asked - 1;
        let told = match kernel() {
            (6, 1) => [asked; 2],
            later if later >= LATER => [holds; 2],
            _ => [asked, holds],
        };
        assert!(told.contains(&caps.max_send_wr) && told.contains(&caps.max_recv_wr), "{caps:?}");
        assert_eq!((caps.max_inline_data, caps.max_send_sge), (bytes, entries), "{caps:?}");
        // No receive is posted, so nothing completes, and the queue fills up.
        let mut taken = 0;
        while a.qp.post_send(&SendRequest::send(taken, &[])).is_ok() {
            taken += 1;
            assert!(taken < 64);
        }
        assert_eq!(taken, u64::from(holds), "{caps:?}");
        a.qp.move_to_error().unwrap();
        let flushed = super::ids(&a.completions(taken as usize));
        assert_eq!(flushed, (0..taken).collect::<Vec<_>>());
        // Who counts slots by what was granted never finds the queue full.
        a.qp.reset().unwrap();
        b.qp.reset().unwrap();
        connect(&a, &b, &options());
        let mut sends = SelectiveSignaling::new(&a.qp, 2, 0);
        while sends.free_slots() > 0 {
            sends.post(&a.qp, &mut SendRequest::send(0, &[])).unwrap();
        }
        assert_eq!(sends.outstanding(), caps.max_send_wr);
    }
}
