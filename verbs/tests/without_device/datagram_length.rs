//! How long a datagram may be, which the port says.

use std::ptr::NonNull;

use verbs::*;

use crate::{Bench, ERRNOS};

const QKEY: u32 = 0x11;

/// Which of these lengths a datagram may have.
fn accepted(bench: &Bench, qp: &QueuePair<Ud>, lengths: &[usize]) -> Vec<usize> {
    let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
    let ah = bench.pd.create_address_handle_to(&local, &local.endpoint).unwrap();
    let fits = |length: &usize| {
        let slices = [bench.region.slice(..*length).unwrap()];
        let result = qp.post_send(&SendRequest::send_to(1, &slices, &ah, 7, QKEY).signaled());
        bench.polled();
        result.is_ok()
    };
    lengths.iter().copied().filter(fits).collect()
}

fn set_mtu(bench: &Bench, mtu: ffi::ibv_mtu) {
    bench.provider.lie_about_port(move |port| port.active_mtu = mtu);
}

const LENGTHS: [usize; 5] = [256, 257, 1024, 1025, 4096];

#[test]
fn a_port_that_cannot_be_asked_keeps_a_queue_pair_from_the_transition() {
    let bench = Bench::new();
    let qp = QueuePair::<Ud>::builder(&bench.pd, &bench.cq, &bench.cq).build().unwrap();
    let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
    let init = QueuePairModification::to(QueuePairState::INIT).port(1).pkey_index(0).qkey(QKEY);
    let receive = QueuePairModification::to(QueuePairState::READY_TO_RECEIVE);
    let send = QueuePairModification::to(QueuePairState::READY_TO_SEND).sq_psn(local.endpoint.psn);
    for modification in [init, receive, send] {
        let before = qp.state().unwrap();
        for errno in ERRNOS {
            bench.provider.fail("ibv_query_port", errno);
            let error = qp.modify(&modification).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno));
            assert!(error.to_string().starts_with("ibv_query_port(null0, port 1)"), "{error}");
            assert_eq!(qp.state().unwrap(), before);
        }
        qp.modify(&modification).unwrap();
    }
    assert_eq!(accepted(&bench, &qp, &LENGTHS), [256, 257, 1024]);
    // The way down asks nothing.
    bench.provider.fail("ibv_query_port", libc::EIO);
    qp.move_to_error().unwrap();
    qp.reset().unwrap();
    assert_eq!(qp.activate(&local, QKEY).unwrap_err().raw_os_error(), Some(libc::EIO));
    assert_eq!(qp.state().unwrap(), QueuePairState::RESET);
    qp.activate(&local, QKEY).unwrap();
    assert_eq!(accepted(&bench, &qp, &LENGTHS), [256, 257, 1024]);
}

#[test]
fn a_port_that_is_not_there_is_an_error_that_says_which_are() {
    let bench = Bench::new();
    let qp = QueuePair::<Ud>::builder(&bench.pd, &bench.cq, &bench.cq).build().unwrap();
    let init = QueuePairModification::to(QueuePairState::INIT).port(2).pkey_index(0).qkey(QKEY);
    let error = qp.modify(&init).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    assert!(error.to_string().contains("the ports of null0 are 1 to 1"), "{error}");
    assert_eq!(qp.state().unwrap(), QueuePairState::RESET);
}

#[test]
fn another_mtu_of_the_port_is_seen_with_the_next_modification() {
    use ffi::ibv_mtu as M;
    let bench = Bench::new();
    set_mtu(&bench, M::IBV_MTU_4096);
    let qp = QueuePair::<Ud>::builder(&bench.pd, &bench.cq, &bench.cq).build().unwrap();
    let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
    qp.init(&local, QKEY).unwrap();
    // It changes on the way up.
    set_mtu(&bench, M::IBV_MTU_256);
    qp.ready_to_receive().unwrap();
    qp.ready_to_send(&local).unwrap();
    assert_eq!(accepted(&bench, &qp, &LENGTHS), [256]);
    let again = QueuePairModification::to(QueuePairState::READY_TO_SEND).qkey(QKEY);
    // An MTU of tomorrow's is no limit.
    for (mtu, lengths) in [(M::IBV_MTU_1024, &LENGTHS[..3]), (M(77), &LENGTHS), (M::IBV_MTU_256, &LENGTHS[..1])] {
        let before = accepted(&bench, &qp, &LENGTHS);
        set_mtu(&bench, mtu);
        assert_eq!(accepted(&bench, &qp, &LENGTHS), before);
        qp.modify(&again).unwrap();
        assert_eq!(accepted(&bench, &qp, &LENGTHS), lengths);
    }
    // A modification that fails changes nothing.
    set_mtu(&bench, M::IBV_MTU_4096);
    bench.provider.fail("ibv_modify_qp", libc::EIO);
    qp.modify(&again).unwrap_err();
    assert_eq!(accepted(&bench, &qp, &LENGTHS), [256]);
}

#[test]
fn a_connected_queue_pair_does_not_ask_for_it() {
    let bench = Bench::new();
    let qp = QueuePair::<Rc>::builder(&bench.pd, &bench.cq, &bench.cq).build().unwrap();
    bench.provider.fail("ibv_query_port", libc::EIO);
    qp.modify(&QueuePairModification::to(QueuePairState::INIT).port(1).pkey_index(0)).unwrap();
    assert_eq!(bench.context.port(1).unwrap_err().raw_os_error(), Some(libc::EIO));
}

#[test]
fn a_queue_pair_whose_port_cannot_be_asked_is_not_taken_over() {
    let bench = Bench::new();
    // SAFETY: all zeroes are a valid structure.
    let mut attributes: ffi::ibv_qp_init_attr = unsafe { std::mem::zeroed() };
    (attributes.send_cq, attributes.recv_cq) = (bench.cq.as_raw(), bench.cq.as_raw());
    attributes.qp_type = ffi::ibv_qp_type::IBV_QPT_UD;
    (attributes.cap.max_send_wr, attributes.cap.max_send_sge) = (4, 1);
    // SAFETY: the domain and the queues are alive. The queue pair is made here, and brought to RTS through port 1.
    unsafe {
        let qp = NonNull::new(ffi::ibv_create_qp(bench.pd.as_raw(), &mut attributes)).unwrap();
        let mut to: ffi::ibv_qp_attr = std::mem::zeroed();
        (to.qp_state, to.port_num) = (ffi::ibv_qp_state::IBV_QPS_RTS, 1);
        let mask = ffi::ibv_qp_attr_mask::IBV_QP_STATE.0 | ffi::ibv_qp_attr_mask::IBV_QP_PORT.0;
        assert_eq!(ffi::ibv_modify_qp(qp.as_ptr(), &mut to, mask as i32), 0);
        let take = || QueuePair::<Ud>::from_raw(qp, &bench.pd, &bench.cq, &bench.cq, None);
        bench.provider.fail("ibv_query_port", libc::EIO);
        assert_eq!(take().unwrap_err().raw_os_error(), Some(libc::EIO));
        // It was not destroyed.
        let taken = take().unwrap();
        assert_eq!(accepted(&bench, &taken, &LENGTHS), [256, 257, 1024]);
    }
    bench.provider.assert_no_violation();
}
