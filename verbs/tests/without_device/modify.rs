use verbs::*;

use crate::Bench;

use QueuePairModification as Modification;
use QueuePairState as State;

fn build<T: Transport>(bench: &Bench) -> QueuePair<T> {
    QueuePair::builder(&bench.pd, &bench.cq, &bench.cq).signal_all(true).build().unwrap()
}

/// What the message says when the kernel refuses a modification.
fn refusal<T: Transport>(bench: &Bench, qp: &QueuePair<T>, errno: i32, modification: Modification) -> String {
    bench.provider.fail("ibv_modify_qp", errno);
    let error = qp.modify(&modification).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(errno));
    error.to_string()
}

#[test]
fn each_attribute_of_a_reliable_connection_is_found_again() {
    let bench = Bench::new();
    let qp = build::<Rc>(&bench);
    let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
    let mut options = ConnectOptions::default();
    options.access = AccessFlags::REMOTE_READ;
    options.service_level = 3;
    options.hop_limit = 9;
    options.traffic_class = 0x20;
    options.flow_label = 0x1_2345;
    options.ack_timeout = AckTimeout::from_code(11).unwrap();
    options.min_rnr_timer = RnrTimer::from_code(5).unwrap();
    (options.retry_count, options.rnr_retry_count) = (3, 4);
    (options.max_rd_atomic, options.max_dest_rd_atomic) = (5, 6);
    let mut remote = Endpoint::new(0x12_3456, 0x65_4321);
    remote.gid = Some("192.0.2.7".parse().unwrap());
    qp.connect(&local, &remote, &options).unwrap();
    let found = qp.query().unwrap();
    assert_eq!((found.state(), found.port(), found.pkey_index()), (State::READY_TO_SEND, 1, 0));
    assert_eq!((found.sq_psn(), found.rq_psn()), (local.endpoint.psn, Some(0x65_4321)));
    assert_eq!((found.dest_qp_num(), found.path_mtu()), (Some(0x12_3456), Some(Mtu::MTU_1024)));
    assert_eq!(found.access(), Some(AccessFlags::REMOTE_READ));
    assert_eq!((found.ack_timeout(), found.min_rnr_timer()), (Some(options.ack_timeout), Some(options.min_rnr_timer)));
    assert_eq!((found.retry_count(), found.rnr_retry_count()), (Some(3), Some(4)));
    assert_eq!((found.max_rd_atomic(), found.max_dest_rd_atomic()), (Some(5), Some(6)));
    assert_eq!((found.qkey(), found.is_draining(), found.signal_all()), (None, false, true));
    assert_eq!(found.capabilities(), qp.capabilities());
    let address = found.address().unwrap();
    assert_eq!((address.port, address.service_level), (1, 3));
    let route = address.global_route.unwrap();
    assert_eq!((route.destination, route.source_gid_index), (remote.gid.unwrap(), 1));
    assert_eq!((route.hop_limit, route.traffic_class, route.flow_label), (9, 0x20, 0x1_2345));
    assert_eq!((found.alternate_path(), found.path_migration_state()), (None, Some(PathMigrationState::MIGRATED)));
    let text = "RTS (ready to send), port 1, P_Key index 0, access REMOTE_READ, peer 0x123456 by way of port 1, \
                to ::ffff:192.0.2.7 from GID index 1, hop limit 9, traffic class 0x20, flow label 0x12345, service level 3, path MTU 1024, timeout 8.388608ms, \
                3 retries, 4 RNR retries, 5 READs and atomics of its own, 6 of the peer's";
    assert_eq!(found.to_string(), text);
    let path = AlternatePath { address, pkey_index: 2, ack_timeout: options.ack_timeout };
    let change = Modification::in_place().alternate_path(&path).path_migration_state(PathMigrationState::REARM);
    qp.modify(&change).unwrap();
    let found = qp.query().unwrap();
    assert_eq!(found.alternate_path(), Some(path));
    let text = found.to_string();
    assert!(text.ends_with(&format!(", alternate path {path}")), "{text}");
    assert!(path.to_string().ends_with(", service level 3, P_Key index 2, timeout 8.388608ms"), "{path}");
    assert_eq!(found.path_migration_state(), Some(PathMigrationState::REARM));
}

#[test]
fn an_unreliable_connection_is_told_what_it_has_and_no_more() {
    let bench = Bench::new();
    let qp = build::<Uc>(&bench);
    let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
    qp.connect(&local, &local.endpoint, &ConnectOptions::default()).unwrap();
    let found = qp.query().unwrap();
    assert_eq!(found.state(), State::READY_TO_SEND);
    assert_eq!(found.access(), Some(AccessFlags::REMOTE_WRITE), "UC has neither RDMA READ nor atomics");
    assert_eq!((found.dest_qp_num(), found.rq_psn()), (Some(qp.qp_num()), Some(local.endpoint.psn)));
    assert_eq!((found.ack_timeout(), found.retry_count(), found.rnr_retry_count()), (None, None, None));
    assert_eq!((found.min_rnr_timer(), found.max_rd_atomic(), found.max_dest_rd_atomic()), (None, None, None));
    // What it was not told.
    let raw = found.as_raw();
    assert_eq!((raw.timeout, raw.retry_cnt, raw.rnr_retry, raw.min_rnr_timer), (0, 0, 0, 0));
    assert_eq!((raw.max_rd_atomic, raw.max_dest_rd_atomic), (0, 0));
}

#[test]
fn a_datagram_queue_pair_has_a_q_key_and_no_peer() {
    let bench = Bench::new();
    let qp = build::<Ud>(&bench);
    let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
    qp.init(&local, 1).unwrap();
    assert_eq!(qp.query().unwrap().qkey(), Some(1));
    // The rest of the way, with another Q_Key.
    qp.activate(&local, 0x1111_1111).unwrap();
    let found = qp.query().unwrap();
    assert_eq!((found.state(), found.qkey(), found.port()), (State::READY_TO_SEND, Some(0x1111_1111), 1));
    assert_eq!(found.sq_psn(), local.endpoint.psn);
    assert_eq!((found.access(), found.address(), found.path_mtu()), (None, None, None));
    assert_eq!((found.dest_qp_num(), found.rq_psn(), found.alternate_path()), (None, None, None));
    qp.reset().unwrap();
    qp.init(&local, 2).unwrap();
    qp.ready_to_receive().unwrap();
    qp.ready_to_send(&local).unwrap();
    assert_eq!(qp.query().unwrap().qkey(), Some(2));
}

#[test]
fn a_missing_attribute_and_one_that_does_not_belong_are_named() {
    let bench = Bench::new();
    let init = || Modification::to(State::INIT).port(1);
    let rc = build::<Rc>(&bench);
    let text = refusal(&bench, &rc, libc::EINVAL, init().pkey_index(0));
    assert!(text.contains("to INIT): ") && text.contains("IBV_QP_ACCESS_FLAGS is missing"), "{text}");
    let text = refusal(&bench, &rc, libc::EINVAL, init().qkey(1));
    assert!(text.contains("IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX is missing"), "{text}");
    assert!(text.contains("IBV_QP_QKEY does not belong to RESET to INIT of RC"), "{text}");
    let ud = build::<Ud>(&bench);
    let text = refusal(&bench, &ud, libc::EINVAL, init().pkey_index(0).access(AccessFlags::empty()));
    assert!(text.contains("IBV_QP_QKEY is missing"), "{text}");
    assert!(text.contains("IBV_QP_ACCESS_FLAGS does not belong to RESET to INIT of UD"), "{text}");
    // The same attributes in the next step of UC, which needs fewer than RC.
    let uc = build::<Uc>(&bench);
    uc.init(&uc.local_endpoint(1, &GidFilter::default()).unwrap(), &ConnectOptions::default()).unwrap();
    let rtr = Modification::to(State::READY_TO_RECEIVE).rq_psn(0).min_rnr_timer(RnrTimer::default());
    let text = refusal(&bench, &uc, libc::EINVAL, rtr.max_dest_rd_atomic(1));
    assert!(text.contains("IBV_QP_AV, IBV_QP_PATH_MTU, IBV_QP_DEST_QPN is missing"), "{text}");
    let superfluous =
        "IBV_QP_MIN_RNR_TIMER, IBV_QP_MAX_DEST_RD_ATOMIC does not belong to INIT to RTR (ready to receive) of UC";
    assert!(text.contains(superfluous), "{text}");
}

#[test]
fn a_transition_that_the_transport_does_not_have_is_named() {
    let bench = Bench::new();
    let ud = build::<Ud>(&bench);
    let text = refusal(&bench, &ud, libc::EINVAL, Modification::to(State::READY_TO_SEND).sq_psn(0));
    assert!(
        text.ends_with("the queue pair is in RESET, from which there is no transition to RTS (ready to send)"),
        "{text}"
    );
    let text = refusal(&bench, &ud, libc::EINVAL, Modification::in_place().qkey(1));
    assert!(text.contains("QueuePairModification(IBV_QP_QKEY)"), "{text}");
    let local = ud.local_endpoint(1, &GidFilter::default()).unwrap();
    ud.init(&local, 1).unwrap();
    ud.ready_to_receive().unwrap();
    let text = refusal(&bench, &ud, libc::EINVAL, Modification::in_place().qkey(1));
    assert!(
        text.ends_with("the queue pair is in RTR (ready to receive), in which no attribute can be changed"),
        "{text}"
    );
    let text = refusal(&bench, &ud, libc::EINVAL, Modification::to(State::SEND_QUEUE_DRAIN));
    assert!(text.contains("no transition to SQD (send queue drain)"), "{text}");
}

#[test]
fn values_beyond_the_limits_of_the_device_are_named() {
    let bench = Bench::new();
    let rc = build::<Rc>(&bench);
    let init = Modification::to(State::INIT).access(AccessFlags::empty());
    let text = refusal(&bench, &rc, libc::EINVAL, init.port(1).pkey_index(9));
    assert!(text.ends_with("pkey_index is 9, and the port has 3 P_Keys"), "{text}");
    let text = refusal(&bench, &rc, libc::EINVAL, init.port(3).pkey_index(0));
    assert!(text.contains("port_num is 3: ") && text.contains("the ports of null0 are 1 to 1"), "{text}");
    let local = rc.local_endpoint(1, &GidFilter::default()).unwrap();
    rc.init(&local, &ConnectOptions::default()).unwrap();
    let mut address = AddressHandleAttributes::between(&local, &local.endpoint).unwrap();
    let rtr = Modification::to(State::READY_TO_RECEIVE).rq_psn(0).dest_qp_num(1).min_rnr_timer(RnrTimer::default());
    let change = rtr.address(&address).path_mtu(Mtu::MTU_1024).max_dest_rd_atomic(17);
    let text = refusal(&bench, &rc, libc::EINVAL, change);
    assert!(text.contains("max_dest_rd_atomic is 17, and the device takes at most 16"), "{text}");
    address.global_route = None;
    let text = refusal(&bench, &rc, libc::EINVAL, rtr.address(&address).path_mtu(Mtu::MTU_256).max_dest_rd_atomic(1));
    assert!(text.ends_with("the link layer is Ethernet (RoCE), which needs GIDs"), "{text}");
    bench.provider.be_infiniband_with_grh();
    let text = refusal(&bench, &rc, libc::EINVAL, rtr.address(&address).path_mtu(Mtu::MTU_256).max_dest_rd_atomic(1));
    let rule = "the port asks for global route headers (IBV_QPF_GRH_REQUIRED), which needs GIDs";
    assert!(text.ends_with(rule), "{text}");
    let ud = build::<Ud>(&bench);
    let init = Modification::to(State::INIT).port(1).pkey_index(0).qkey(0x8000_0000);
    let text = refusal(&bench, &ud, libc::EPERM, init);
    assert!(text.ends_with("a Q_Key whose highest bit is set, as that of 0x80000000, needs CAP_NET_RAW"), "{text}");
}

#[test]
fn a_missing_gid_is_told_with_why_the_port_needs_it() {
    let bench = Bench::new();
    let missing = |qp: &QueuePair<Rc>| {
        let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
        let (mut nowhere, mut without) = (local.endpoint, local);
        (nowhere.gid, without.gid) = (None, None);
        let text = |local, remote| qp.connect(local, remote, &ConnectOptions::default()).unwrap_err().to_string();
        [text(&local, &nowhere), text(&without, &local.endpoint)]
    };
    let [remote, local] = missing(&build::<Rc>(&bench));
    assert!(remote.ends_with("the link layer is Ethernet (RoCE), which needs the remote GID"), "{remote}");
    assert!(local.ends_with("the link layer is Ethernet (RoCE), which needs the local GID"), "{local}");
    bench.provider.be_infiniband_with_grh();
    let [remote, local] = missing(&build::<Rc>(&bench));
    let rule = "the port asks for global route headers (IBV_QPF_GRH_REQUIRED), which needs the";
    assert!(remote.ends_with(&format!("{rule} remote GID")), "{remote}");
    assert!(local.ends_with(&format!("{rule} local GID")), "{local}");
}

#[test]
fn a_queue_pair_prints_what_it_has_been_told() {
    let bench = Bench::new();
    let ud = build::<Ud>(&bench);
    assert_eq!(ud.query().unwrap().to_string(), "RESET");
    ud.modify(&Modification::to(State::INIT).port(1).pkey_index(0).qkey(0x11)).unwrap();
    assert_eq!(ud.query().unwrap().to_string(), "INIT, port 1, P_Key index 0, Q_Key 0x11");
}

#[test]
fn a_path_mtu_that_the_port_does_not_have_never_reaches_the_device() {
    let bench = Bench::new();
    let rc = build::<Rc>(&bench);
    let local = rc.local_endpoint(1, &GidFilter::default()).unwrap();
    rc.init(&local, &ConnectOptions::default()).unwrap();
    let address = AddressHandleAttributes::between(&local, &local.endpoint).unwrap();
    let rtr = |mtu| {
        let rtr = Modification::to(State::READY_TO_RECEIVE).rq_psn(0).dest_qp_num(1).max_dest_rd_atomic(1);
        rc.modify(&rtr.min_rnr_timer(RnrTimer::default()).address(&address).path_mtu(mtu))
    };
    for (mtu, words) in [
        (Mtu::MTU_2048, "path_mtu is 2048, but the port's active MTU is 1024"),
        (Mtu::MTU_4096, "path_mtu is 4096, but the port's active MTU is 1024"),
        (Mtu::from_raw(0), "path_mtu is unknown (0), but an MTU is 256, 512, 1024, 2048 or 4096 bytes"),
        (Mtu::from_raw(6), "path_mtu is unknown (6), but an MTU is"),
    ] {
        // A call would fail otherwise.
        bench.provider.fail("ibv_modify_qp", libc::EIO);
        let error = rtr(mtu).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }) && error.to_string().contains(words), "{error}");
        assert_eq!(rtr(Mtu::MTU_1024).unwrap_err().raw_os_error(), Some(libc::EIO));
        assert_eq!(rc.state().unwrap(), State::INIT);
    }
    rtr(Mtu::MTU_1024).unwrap();
}

#[test]
fn a_value_that_no_device_could_keep_is_not_asked_for() {
    let bench = Bench::new();
    let rc = build::<Rc>(&bench);
    for change in [
        Modification::to(State::READY_TO_SEND).sq_psn(1 << 24),
        Modification::to(State::READY_TO_SEND).retry_count(8),
        Modification::to(State::READY_TO_RECEIVE).dest_qp_num(u32::MAX),
    ] {
        assert!(matches!(rc.modify(&change), Err(Error::InvalidArgument { .. })), "{change:?}");
    }
    assert_eq!(rc.state().unwrap(), State::RESET);
}

#[test]
fn the_send_queue_is_drained_and_resumed() {
    let bench = Bench::new();
    bench.qp.drain().unwrap();
    assert_eq!(bench.qp.query().unwrap().state(), State::SEND_QUEUE_DRAIN);
    bench.qp.modify(&Modification::to(State::SEND_QUEUE_DRAIN).retry_count(2)).unwrap();
    bench.qp.resume().unwrap();
    let found = bench.qp.query().unwrap();
    assert_eq!((found.state(), found.retry_count()), (State::READY_TO_SEND, Some(2)));
}
