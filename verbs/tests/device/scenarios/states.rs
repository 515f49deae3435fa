//! Transitions that are refused, and some that are not though they look like it.

use std::time::Instant;

use verbs::*;

use super::refused;
use crate::harness::link::Link;
use crate::harness::*;

use QueuePairModification as Modification;
use QueuePairState as State;

/// To RTR, as `connect` would.
fn ready_to_receive(local: &LocalEndpoint, address: &AddressHandleAttributes) -> Modification {
    Modification::to(State::READY_TO_RECEIVE)
        .path_mtu(local.port_attributes.active_mtu())
        .dest_qp_num(local.endpoint.qp_num)
        .rq_psn(local.endpoint.psn)
        .max_dest_rd_atomic(1)
        .min_rnr_timer(RnrTimer::default())
        .address(address)
}

#[test]
fn a_path_without_or_with_a_wrong_gid_is_refused_by_what_is_wrong_and_a_right_one_is_then_taken() {
    let side = Side::new();
    let local = side.local();
    side.qp.init(&local, &options()).unwrap();
    let path = AddressHandleAttributes::between(&local, &local.endpoint).unwrap();
    let route = path.global_route.unwrap();
    let with = |route: Option<GlobalRoute>| {
        let mut path = path;
        path.global_route = route;
        side.qp.modify(&ready_to_receive(&local, &path))
    };
    refused(with(None), libc::EINVAL, "the link layer is Ethernet (RoCE), which needs GIDs");
    refused(with(Some(GlobalRoute::new(route.destination, 200))), libc::ENODATA, "GID index 200 is empty");
    let zero = GlobalRoute::new(Gid::default(), route.source_gid_index);
    refused(with(Some(zero)), libc::EINVAL, "the remote GID is all zeroes");
    assert_eq!(side.qp.state().unwrap(), State::INIT);
    with(Some(route)).unwrap();
}

#[test]
fn an_address_to_which_there_is_no_route_is_named_after_a_second_by_connections_and_address_handles() {
    let side = Side::new();
    let local = side.local();
    let mut remote = local.endpoint;
    // One is on no network of this host.
    for address in ["192.0.2.78", "198.51.100.9"] {
        remote.gid = Some(address.parse().unwrap());
        let start = Instant::now();
        let words = format!("nobody answers at the remote GID ::ffff:{address} on the network of local GID index");
        refused(side.qp.connect(&local, &remote, &options()), libc::ETIMEDOUT, &words);
        assert_eq!(side.qp.state().unwrap(), State::INIT);
        refused(side.pd.create_address_handle_to(&local, &remote).map(drop), libc::ETIMEDOUT, &words);
        assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
    }
}

#[test]
fn what_the_kernel_refuses_is_explained_and_what_it_takes_is_not_forestalled() {
    let side = Side::new();
    let local = side.local();
    let init = |port, pkey_index| Modification::to(State::INIT).port(port).pkey_index(pkey_index).access(RW);
    for port in [0, 2] {
        refused(side.qp.modify(&init(port, 0)), libc::EINVAL, &format!("port_num is {port}"));
    }
    // From one state to the same one is a transition.
    side.qp.reset().unwrap();
    side.qp.reset().unwrap();
    // rxe looks at no partition key's index; another device may.
    match side.qp.modify(&init(1, 900)) {
        Ok(()) => assert_eq!(side.qp.query().unwrap().pkey_index(), 900),
        Err(error) => assert!(error.to_string().contains("pkey_index is 900, and the port has 1 P_Key"), "{error}"),
    }
    side.qp.modify(&init(1, 0)).unwrap();
    side.qp.modify(&init(1, 0)).unwrap();
    let path = AddressHandleAttributes::between(&local, &local.endpoint).unwrap();
    // All attributes that there are.
    let all = ready_to_receive(&local, &path)
        .current_state(State::INIT)
        .qkey(1)
        .sq_psn(1)
        .ack_timeout(AckTimeout::default())
        .retry_count(1)
        .rnr_retry_count(1)
        .max_rd_atomic(1)
        .path_migration_state(PathMigrationState::MIGRATED)
        .notify_drained(true)
        .port(1)
        .pkey_index(0)
        .access(RW);
    let error = side.qp.modify(&all).unwrap_err();
    assert!(matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP)), "{error}");
    assert!(error.to_string().contains("IBV_QP_SQ_PSN"), "{error}");
    // rxe takes any number of READs to serve, and looks only at how many are to be under way.
    let many = ready_to_receive(&local, &path).max_dest_rd_atomic(255);
    match side.qp.modify(&many) {
        Ok(()) => {}
        Err(error) => {
            assert!(error.to_string().contains("max_dest_rd_atomic is 255, and the device takes at most"), "{error}");
            side.qp.modify(&ready_to_receive(&local, &path)).unwrap();
        }
    }
    let ready_to_send = Modification::to(State::READY_TO_SEND)
        .sq_psn(local.endpoint.psn)
        .ack_timeout(AckTimeout::default())
        .retry_count(7)
        .rnr_retry_count(7);
    refused(side.qp.modify(&ready_to_send.max_rd_atomic(200)), libc::EINVAL, "max_rd_atomic is 200, and the device");
    side.qp.modify(&ready_to_send.max_rd_atomic(12)).unwrap();
    assert!(side.qp.query().unwrap().max_rd_atomic() >= Some(12));
}

/// rxe takes any MTU, and then loses each message that is longer than what fits.
#[test]
fn a_path_mtu_above_the_ports_is_refused_though_the_device_would_take_it() {
    let link = Link::new("mtu");
    let side = Side::on(link.open());
    let local = side.local();
    assert_eq!(local.port_attributes.active_mtu(), Mtu::MTU_1024);
    side.qp.init(&local, &options()).unwrap();
    let path = AddressHandleAttributes::between(&local, &local.endpoint).unwrap();
    for mtu in [Mtu::MTU_2048, Mtu::MTU_4096, Mtu::from_raw(6), Mtu::from_raw(0)] {
        let mut options = options();
        options.path_mtu = Some(mtu);
        let error = side.qp.ready_to_receive(&local, &local.endpoint, &options).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "path_mtu", .. }), "{error:?}");
        let error = side.qp.modify(&ready_to_receive(&local, &path).path_mtu(mtu)).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "path_mtu", .. }), "{error:?}");
        if mtu.bytes().is_some() {
            let words = format!("path_mtu is {mtu}, but the port's active MTU is 1024");
            assert!(error.to_string().contains(&words), "{error}");
        }
        assert_eq!(side.qp.state().unwrap(), State::INIT);
    }
    // Of two ends, the smaller one counts, and a peer that said nothing has this one's.
    let mut large = local.endpoint;
    for mtu in [Some(Mtu::MTU_4096), None] {
        large.mtu = mtu;
        assert_eq!(options().path_mtu_between(&local, &large).unwrap(), Mtu::MTU_1024);
    }
    side.qp.connect(&local, &large, &options()).unwrap();
    assert_eq!(side.qp.query().unwrap().path_mtu(), Some(Mtu::MTU_1024));
}
