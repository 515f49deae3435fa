use std::time::Instant;

use verbs::*;

use crate::harness::*;

#[test]
fn a_queue_pair_goes_from_reset_by_init_and_rtr_to_rts() {
    let context = open();
    let (a, b) = (Side::on(context.clone()), Side::on(context));
    let (local, remote) = (a.local(), b.local().endpoint);
    let state = || a.qp.state().unwrap();
    assert_eq!(state(), QueuePairState::RESET);
    a.qp.init(&local, &options()).unwrap();
    assert_eq!(state(), QueuePairState::INIT);
    a.qp.ready_to_receive(&local, &remote, &options()).unwrap();
    assert_eq!(state(), QueuePairState::READY_TO_RECEIVE);
    a.qp.ready_to_send(&local, &options()).unwrap();
    assert_eq!(state(), QueuePairState::READY_TO_SEND);
    a.qp.move_to_error().unwrap();
    assert_eq!(state(), QueuePairState::ERROR);
    a.qp.reset().unwrap();
    assert_eq!(state(), QueuePairState::RESET);
    a.qp.connect(&local, &remote, &options()).unwrap();
    assert_eq!(state(), QueuePairState::READY_TO_SEND);
}

#[test]
fn a_skipped_state_is_an_error_that_names_both_states() {
    let side = Side::new();
    let local = side.local();
    let refused = |result: Result<()>| {
        let error = result.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}");
        error.to_string()
    };
    let no_way = "the queue pair is in RESET, from which there is no transition to";
    let error = refused(side.qp.ready_to_receive(&local, &local.endpoint, &options()));
    assert!(error.ends_with(&format!("{no_way} RTR (ready to receive)")), "{error}");
    let error = refused(side.qp.ready_to_send(&local, &options()));
    assert!(error.ends_with(&format!("{no_way} RTS (ready to send)")), "{error}");
    let error = refused(side.qp.move_to_error());
    assert!(error.ends_with(&format!("{no_way} ERROR")), "{error}");
    assert!(error.starts_with("ibv_modify_qp(QueuePair(RC 0x"), "{error}");
    side.qp.init(&local, &options()).unwrap();
    let error = refused(side.qp.ready_to_send(&local, &options()));
    assert!(error.contains("the queue pair is in INIT, from which there is no transition to RTS"), "{error}");
}

#[test]
fn values_that_no_device_can_use_are_refused_before_the_call() {
    let side = Side::new();
    let local = side.local();
    side.qp.init(&local, &options()).unwrap();
    let active = local.port_attributes.active_mtu();
    let refused = |remote: Endpoint, options: &ConnectOptions| {
        let error = side.qp.ready_to_receive(&local, &remote, options).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error:?}");
        error.to_string()
    };
    let good = local.endpoint;
    let with = |change: &dyn Fn(&mut ConnectOptions)| {
        let mut options = options();
        change(&mut options);
        options
    };
    let mut no_gid = good;
    no_gid.gid = None;
    assert!(refused(no_gid, &options()).contains("which needs the remote GID"));
    let mut number = good;
    number.qp_num = 1 << 24;
    assert!(refused(number, &options()).contains("dest_qp_num is 0x1000000, but it has 24 bits"));
    let mut psn = good;
    psn.psn = 1 << 24;
    assert!(refused(psn, &options()).contains("rq_psn is 0x1000000, but it has 24 bits"));
    let mut small = good;
    small.mtu = Some(Mtu::MTU_256);
    let text = refused(small, &with(&|options| options.path_mtu = Some(Mtu::MTU_512)));
    assert!(text.contains("path_mtu is 512, but the peer's port's active MTU is 256"), "{text}");
    if active < Mtu::MTU_4096 {
        let text = refused(good, &with(&|options| options.path_mtu = Some(Mtu::MTU_4096)));
        assert!(text.contains("the local port's active MTU is"), "{text}");
    }
    assert!(refused(good, &with(&|options| options.retry_count = 8)).contains("retry_cnt is 8, but it is 0 to 7"));
    assert!(refused(good, &with(&|options| options.rnr_retry_count = 8)).contains("rnr_retry is 8"));
    assert!(refused(good, &with(&|options| options.service_level = 16)).contains("service_level is 16"));
    assert!(refused(good, &with(&|options| options.flow_label = 1 << 20)).contains("flow_label is 1048576"));
    // Nothing was changed by all that.
    assert_eq!(side.qp.state().unwrap(), QueuePairState::INIT);
    side.qp.connect(&local, &good, &options()).unwrap();
}

#[test]
fn the_path_mtu_is_the_smaller_one_of_both_ends() {
    let side = Side::new();
    let local = side.local();
    let active = local.port_attributes.active_mtu();
    let mut remote = local.endpoint;
    let options = ConnectOptions::default();
    assert_eq!(options.path_mtu_between(&local, &remote).unwrap(), active);
    remote.mtu = Some(Mtu::MTU_256);
    assert_eq!(options.path_mtu_between(&local, &remote).unwrap(), Mtu::MTU_256);
    remote.mtu = None;
    assert_eq!(options.path_mtu_between(&local, &remote).unwrap(), active);
}

#[test]
fn an_address_at_which_nobody_answers_is_named_with_the_local_gid() {
    let side = Side::new();
    let local = side.local();
    let mut remote = local.endpoint;
    remote.gid = Some("192.0.2.77".parse().unwrap());
    let start = Instant::now();
    let error = side.qp.connect(&local, &remote, &options()).unwrap_err();
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
    assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT), "{error}");
    let entry = local.gid.unwrap();
    let expected = format!(
        "nobody answers at the remote GID ::ffff:192.0.2.77 on the network of local GID index {} ({})",
        entry.index, entry.gid
    );
    assert!(error.to_string().ends_with(&expected), "{error}");
    // The queue pair is as it was, and a corrected attempt succeeds.
    assert_eq!(side.qp.state().unwrap(), QueuePairState::INIT);
    side.qp.connect(&local, &local.endpoint, &options()).unwrap();
}

#[test]
fn an_empty_gid_index_is_an_error_that_lists_the_others() {
    let side = Side::new();
    let table = side.context.gid_table(1).unwrap();
    let error = side.qp.local_endpoint_with_gid_index(1, 200).unwrap_err().to_string();
    assert!(error.contains("sgid_index is 200, but the entry is empty"), "{error}");
    for entry in &table {
        assert!(error.contains(&entry.gid.to_string()), "{error}");
        assert_eq!(side.qp.local_endpoint_with_gid_index(1, entry.index).unwrap().gid, Some(*entry));
    }
    assert!(side.qp.local_endpoint_with_gid_index(1, 5000).is_err());
    assert_eq!(side.qp.local_endpoint(9, &GidFilter::default()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
}

#[test]
fn what_the_kernel_refuses_is_diagnosed() {
    let side = Side::new();
    let mut local = side.local();
    let remote = local.endpoint;
    local.port = 7;
    let error = side.qp.init(&local, &options()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    assert!(error.to_string().contains("port_num is 7"), "{error}");
    let mut local = side.local();
    side.qp.init(&local, &options()).unwrap();
    // An index that is empty by now: the interface may have lost its address after it was chosen.
    if let Some(entry) = &mut local.gid {
        entry.index = 200;
    }
    let error = side.qp.ready_to_receive(&local, &remote, &options()).unwrap_err();
    assert!(error.to_string().contains("GID index 200 is empty"), "{error}");
    let local = side.local();
    let mut zero = remote;
    zero.gid = Some(Gid::default());
    let error = side.qp.ready_to_receive(&local, &zero, &options()).unwrap_err();
    assert!(error.to_string().contains("the remote GID is all zeroes"), "{error}");
    side.qp.ready_to_receive(&local, &remote, &options()).unwrap();
    let mut many = options();
    many.max_rd_atomic = 255;
    let limit = side.context.device_attributes().unwrap().max_qp_init_rd_atom();
    let error = side.qp.ready_to_send(&local, &many).unwrap_err();
    assert!(
        error.to_string().contains(&format!("max_rd_atomic is 255, and the device takes at most {limit}")),
        "{error}"
    );
    side.qp.ready_to_send(&local, &options()).unwrap();
}

#[test]
fn a_size_beyond_the_devices_limit_is_named() {
    let side = Side::new();
    let limits = side.context.device_attributes().unwrap();
    type Change = fn(QueuePairBuilder<Rc>, u32) -> QueuePairBuilder<Rc>;
    let cases: [(&str, u32, Change); 4] = [
        ("max_send_wr", limits.max_queue_pair_work_requests(), |builder, value| builder.max_send_wr(value)),
        ("max_recv_wr", limits.max_queue_pair_work_requests(), |builder, value| builder.max_recv_wr(value)),
        ("max_send_sge", limits.max_sge(), |builder, value| builder.max_send_sge(value)),
        ("max_recv_sge", limits.max_sge(), |builder, value| builder.max_recv_sge(value)),
    ];
    for (name, limit, change) in cases {
        let error = change(QueuePair::builder(&side.pd, &side.cq, &side.cq), limit + 1).build().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}");
        let expected = format!("{name} is {}, and {} takes at most {limit}", limit + 1, device_name());
        assert!(error.to_string().ends_with(&expected), "{error}");
    }
    let error = QueuePair::<Rc>::builder(&side.pd, &side.cq, &side.cq).max_inline_data(1 << 20).build().unwrap_err();
    assert!(error.to_string().contains("max_inline_data may be"), "{error}");
}

#[test]
fn the_device_gives_at_least_what_was_asked_for() {
    let side = Side::new();
    for (wr, sge, inline) in [(1, 1, 0), (4, 3, 64), (100, 16, 200)] {
        let qp = QueuePair::<Rc>::builder(&side.pd, &side.cq, &side.cq)
            .max_send_wr(wr)
            .max_recv_wr(wr)
            .max_send_sge(sge)
            .max_recv_sge(sge)
            .max_inline_data(inline)
            .build()
            .unwrap();
        let caps = qp.capabilities();
        assert!(caps.max_send_wr >= wr && caps.max_recv_wr >= wr, "{caps:?}");
        assert!(caps.max_send_sge >= sge && caps.max_recv_sge >= sge, "{caps:?}");
        assert!(caps.max_inline_data >= inline, "{caps:?}");
    }
}

#[test]
fn objects_of_another_context_are_refused() {
    let (one, other) = (Side::new(), Side::new());
    let error = QueuePair::<Rc>::builder(&one.pd, &one.cq, &other.cq).build().unwrap_err().to_string();
    assert!(error.contains("recv_cq is of another open of"), "{error}");
    let channel = other.context.create_completion_channel().unwrap();
    let error = CompletionQueueBuilder::new(&one.context, 1).channel(&channel).build().unwrap_err().to_string();
    assert!(error.contains("channel is of another open of"), "{error}");
}
