//! Attributes and states, of each transport.

use std::time::Instant;

use verbs::*;

use crate::harness::*;

use QueuePairModification as Modification;
use QueuePairState as State;

fn side<T: Transport>() -> Side<T> {
    Side::of(open(), |builder| builder)
}

/// The message of a modification that the kernel refuses.
fn refusal<T: Transport>(side: &Side<T>, modification: Modification) -> String {
    let before = side.qp.state().unwrap();
    let error = side.qp.modify(&modification).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}");
    assert_eq!(side.qp.state().unwrap(), before, "a refused modification changed the state");
    error.to_string()
}

#[test]
fn a_reliable_connection_tells_what_it_was_told() {
    let side = side::<Rc>();
    let local = side.local();
    let mut options = options();
    (options.retry_count, options.rnr_retry_count) = (3, 4);
    options.ack_timeout = AckTimeout::from_code(11).unwrap();
    options.min_rnr_timer = RnrTimer::from_code(5).unwrap();
    options.traffic_class = 0x20;
    options.access = AccessFlags::REMOTE_WRITE;
    let mut remote = local.endpoint;
    (remote.qp_num, remote.psn) = (0x12_3456, 0x65_4321);
    side.qp.connect(&local, &remote, &options).unwrap();
    let found = side.qp.query().unwrap();
    assert_eq!((found.state(), found.port(), found.pkey_index()), (State::READY_TO_SEND, 1, 0));
    assert_eq!((found.sq_psn(), found.rq_psn()), (local.endpoint.psn, Some(0x65_4321)));
    assert_eq!((found.dest_qp_num(), found.qkey()), (Some(0x12_3456), None));
    assert_eq!(found.path_mtu(), Some(local.port_attributes.active_mtu()));
    assert!(found.access().unwrap().contains(AccessFlags::REMOTE_WRITE));
    assert!(!found.access().unwrap().contains(AccessFlags::REMOTE_READ));
    assert_eq!((found.ack_timeout(), found.min_rnr_timer()), (Some(options.ack_timeout), Some(options.min_rnr_timer)));
    assert_eq!((found.retry_count(), found.rnr_retry_count()), (Some(3), Some(4)));
    assert_eq!((found.max_rd_atomic(), found.max_dest_rd_atomic()), (Some(1), Some(1)));
    let address = found.address().unwrap();
    let route = address.global_route.unwrap();
    assert_eq!((Some(route.destination), route.traffic_class), (local.endpoint.gid, 0x20));
    assert_eq!(u32::from(route.source_gid_index), local.gid.unwrap().index);
    assert_eq!((found.is_draining(), found.signal_all()), (false, false));
    assert!(found.capabilities().max_send_wr >= 64 && found.capabilities().max_send_sge >= 1);
}

#[test]
fn an_unreliable_connection_and_a_datagram_queue_pair_go_through_their_states() {
    let uc = side::<Uc>();
    let local = uc.local();
    uc.qp.init(&local, &options()).unwrap();
    assert_eq!(uc.qp.query().unwrap().state(), State::INIT);
    uc.qp.ready_to_receive(&local, &local.endpoint, &options()).unwrap();
    assert_eq!(uc.qp.query().unwrap().state(), State::READY_TO_RECEIVE);
    uc.qp.ready_to_send(&local, &options()).unwrap();
    let found = uc.qp.query().unwrap();
    assert_eq!((found.state(), found.dest_qp_num()), (State::READY_TO_SEND, Some(uc.qp.qp_num())));
    assert_eq!((found.retry_count(), found.ack_timeout(), found.qkey()), (None, None, None));
    uc.qp.modify(&Modification::in_place().access(AccessFlags::REMOTE_WRITE)).unwrap();

    let ud = side::<Ud>();
    let local = ud.local();
    ud.qp.init(&local, 1).unwrap();
    assert_eq!((ud.qp.query().unwrap().state(), ud.qp.query().unwrap().qkey()), (State::INIT, Some(1)));
    ud.qp.ready_to_receive().unwrap();
    ud.qp.ready_to_send(&local).unwrap();
    let found = ud.qp.query().unwrap();
    assert_eq!((found.state(), found.sq_psn()), (State::READY_TO_SEND, local.endpoint.psn));
    assert_eq!((found.address(), found.dest_qp_num(), found.path_mtu()), (None, None, None));
    ud.qp.modify(&Modification::to(State::READY_TO_SEND).qkey(0x123)).unwrap();
    assert_eq!(ud.qp.query().unwrap().qkey(), Some(0x123));
    for (error, reset) in [(uc.qp.move_to_error(), uc.qp.reset()), (ud.qp.move_to_error(), ud.qp.reset())] {
        error.unwrap();
        reset.unwrap();
    }
    assert_eq!((uc.qp.state().unwrap(), ud.qp.state().unwrap()), (State::RESET, State::RESET));
    // From one state to the same one.
    ud.qp.reset().unwrap();
    ud.qp.init(&local, 1).unwrap();
    ud.qp.init(&local, 2).unwrap();
    assert_eq!(ud.qp.query().unwrap().qkey(), Some(2));
}

#[test]
fn a_missing_attribute_and_one_that_does_not_belong_are_named() {
    let init = || Modification::to(State::INIT).port(1).pkey_index(0);
    let rc = side::<Rc>();
    assert!(refusal(&rc, init()).ends_with("IBV_QP_ACCESS_FLAGS is missing"));
    let text = refusal(&rc, init().access(RW).qkey(1));
    assert!(text.ends_with("IBV_QP_QKEY does not belong to RESET to INIT of RC"), "{text}");
    let ud = side::<Ud>();
    assert!(refusal(&ud, init()).ends_with("IBV_QP_QKEY is missing"));
    let text = refusal(&ud, init().qkey(1).access(RW));
    assert!(text.ends_with("IBV_QP_ACCESS_FLAGS does not belong to RESET to INIT of UD"), "{text}");
    ud.qp.init(&ud.local(), 1).unwrap();
    let text = refusal(&ud, Modification::to(State::READY_TO_RECEIVE).rq_psn(1));
    assert!(text.contains("IBV_QP_RQ_PSN does not belong to INIT to RTR (ready to receive) of UD"), "{text}");
    ud.qp.ready_to_receive().unwrap();
    assert!(refusal(&ud, Modification::to(State::READY_TO_SEND)).ends_with("IBV_QP_SQ_PSN is missing"));
    // RC's attributes on UC.
    let uc = side::<Uc>();
    let local = uc.local();
    uc.qp.init(&local, &options()).unwrap();
    let address = AddressHandleAttributes::between(&local, &local.endpoint).unwrap();
    let rtr =
        Modification::to(State::READY_TO_RECEIVE).address(&address).path_mtu(Mtu::MTU_256).dest_qp_num(1).rq_psn(1);
    let text = refusal(&uc, rtr.max_dest_rd_atomic(1).min_rnr_timer(RnrTimer::default()));
    let superfluous =
        "IBV_QP_MIN_RNR_TIMER, IBV_QP_MAX_DEST_RD_ATOMIC does not belong to INIT to RTR (ready to receive) of UC";
    assert!(text.ends_with(superfluous), "{text}");
    uc.qp.modify(&rtr).unwrap();
    let rts = Modification::to(State::READY_TO_SEND).sq_psn(1);
    let text = refusal(&uc, rts.retry_count(1));
    assert!(
        text.contains("IBV_QP_RETRY_CNT does not belong to RTR (ready to receive) to RTS (ready to send) of UC"),
        "{text}"
    );
    uc.qp.modify(&rts).unwrap();
}

#[test]
fn a_transition_that_there_is_not_is_named() {
    for text in [
        refusal(&side::<Rc>(), Modification::to(State::READY_TO_SEND)),
        refusal(&side::<Uc>(), Modification::to(State::READY_TO_SEND)),
        refusal(&side::<Ud>(), Modification::to(State::READY_TO_SEND)),
    ] {
        assert!(
            text.ends_with("the queue pair is in RESET, from which there is no transition to RTS (ready to send)"),
            "{text}"
        );
    }
    let ud = side::<Ud>();
    assert!(refusal(&ud, Modification::to(State::ERROR)).ends_with("no transition to ERROR"));
    match ud.qp.modify(&Modification::in_place().qkey(7)) {
        // Linux 6.1.
        Err(error) => {
            let text = error.to_string();
            assert!(text.ends_with("the queue pair is in RESET, in which no attribute can be changed"), "{text}");
        }
        // Linux 6.12: rxe looks only at attributes that come with a state.
        Ok(()) => assert_eq!(ud.qp.query().unwrap().qkey(), Some(7)),
    }
    ud.qp.init(&ud.local(), 1).unwrap();
    ud.qp.modify(&Modification::in_place().qkey(3)).unwrap();
    assert_eq!(ud.qp.query().unwrap().qkey(), Some(3));
}

#[test]
fn a_drained_send_queue_keeps_what_is_posted_until_it_is_resumed() {
    let (a, b) = pair();
    let (source, target) = (a.region(64, RW), b.region(64, RW));
    let remote = target.remote_slice(..).unwrap();
    let slices = [source.slice(..).unwrap()];
    a.qp.post_send(&SendRequest::rdma_write(1, &slices, remote).signaled()).unwrap();
    a.completion().success().unwrap();
    assert_eq!(a.context.try_async_event().unwrap(), None);
    a.qp.modify(&Modification::to(State::SEND_QUEUE_DRAIN).notify_drained(true)).unwrap();
    let event = a.context.async_event(Some(LIMIT)).unwrap().expect("an event once the queue is drained");
    assert_eq!(event.event_type(), AsyncEventType::SEND_QUEUE_DRAINED, "{event}");
    assert_eq!(event.source(), AsyncEventSource::QueuePair { qp_num: a.qp.qp_num(), id: Some(a.qp.id()) });
    assert!(event.is_for(&a.qp) && !event.is_for(&b.qp));
    let deadline = Instant::now() + LIMIT;
    while a.qp.query().unwrap().is_draining() {
        assert!(Instant::now() < deadline, "the queue is not drained");
    }
    assert_eq!(a.qp.query().unwrap().state(), State::SEND_QUEUE_DRAIN);
    // An attribute that must not change under way.
    a.qp.modify(&Modification::to(State::SEND_QUEUE_DRAIN).retry_count(5)).unwrap();
    a.qp.modify(&Modification::in_place().rnr_retry_count(6)).unwrap();
    a.qp.post_send(&SendRequest::rdma_write(2, &slices, remote).signaled()).unwrap();
    let mut room = [WorkCompletion::default(); 1];
    let early = a.cq.wait(&mut room, Some(std::time::Duration::from_millis(200))).unwrap();
    assert!(early.is_empty(), "{early:?}");
    a.qp.resume().unwrap();
    let found = a.qp.query().unwrap();
    assert_eq!((found.state(), found.retry_count(), found.rnr_retry_count()), (State::READY_TO_SEND, Some(5), Some(6)));
    // Some kernels begin again only when the next request is posted.
    a.qp.post_send(&SendRequest::rdma_write(3, &slices, remote).signaled()).unwrap();
    let done: Vec<u64> = a.completions(2).iter().map(|wc| wc.success().unwrap().wr_id()).collect();
    assert_eq!(done, [2, 3]);
}
