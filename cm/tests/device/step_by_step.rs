//! Every step by hand: ids, channels and events.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cm::*;
use verbs::{AsyncEventType, CompletionQueue, QueuePair, QueuePairModification, QueuePairState, Rc};

use crate::harness::*;

fn queue_pair(id: &Id) -> (CompletionQueue, QueuePair<Rc>) {
    let pd = id.protection_domain().unwrap();
    let cq = pd.context().create_completion_queue(8).unwrap();
    let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).max_send_wr(4).max_recv_wr(4).build().unwrap();
    id.init_queue_pair(&qp).unwrap();
    (cq, qp)
}

/// An id with a route to `address`.
fn routed(channel: &EventChannel, address: SocketAddr) -> Id {
    let id = channel.create_id(PortSpace::TCP).unwrap();
    id.resolve_addr(None, address, LIMIT).unwrap();
    assert!(matches!(event(&id), EventKind::AddressResolved));
    id.resolve_route(LIMIT).unwrap();
    assert!(matches!(event(&id), EventKind::RouteResolved));
    id
}

fn listening() -> (EventChannel, Id, SocketAddr) {
    let channel = EventChannel::create().unwrap();
    let id = channel.create_id(PortSpace::TCP).unwrap();
    id.bind(address()).unwrap();
    id.listen(8).unwrap();
    let address = id.local_addr().unwrap();
    (channel, id, address)
}

#[test]
fn both_ends_step_by_step_with_all_events_on_one_channel() {
    let (channel, listener, address) = listening();
    let client = routed(&channel, address);
    let (_cq, qp) = queue_pair(&client);
    client.connect(&ConnectionParameters::new(qp.qp_num())).unwrap();
    let EventKind::ConnectRequest(request) = event(&listener) else { panic!() };
    assert_eq!(request.parameters().qp_num, qp.qp_num());
    assert_ne!(request.id().key(), listener.key());
    let server = request.into_id();
    let (_server_cq, server_qp) = queue_pair(&server);
    let mut transition = TransitionOptions::default();
    (transition.responder_resources, transition.initiator_depth) = (Some(1), Some(1));
    server.connect_queue_pair(&server_qp, &transition).unwrap();
    let mut parameters = ConnectionParameters::new(server_qp.qp_num());
    (parameters.responder_resources, parameters.initiator_depth) = (Depth::Exactly(1), Depth::Exactly(1));
    server.accept(&parameters).unwrap();
    let EventKind::ConnectResponse(answer) = event(&client) else { panic!() };
    assert_eq!(answer.qp_num, server_qp.qp_num());
    assert_eq!((answer.responder_resources, answer.initiator_depth), (1, 1));
    client.connect_queue_pair(&qp, &TransitionOptions::default()).unwrap();
    client.establish().unwrap();
    let EventKind::Established(last) = event(&server) else { panic!() };
    assert!(last.private_data.is_empty(), "the server's own event carries none");
    assert_eq!(qp.state().unwrap(), QueuePairState::READY_TO_SEND);

    // The client ends it: only the server is told, until the server ends it too.
    client.disconnect().unwrap();
    assert!(matches!(event(&server), EventKind::Disconnected));
    assert!(channel.next_event(Some(Duration::from_millis(100))).unwrap().is_none());
    server.disconnect().unwrap();
    assert!(matches!(event(&client), EventKind::Disconnected));
    server.disconnect().unwrap();
    client.disconnect().unwrap();
    let mut over = Vec::new();
    while over.len() < 2 {
        let event = channel.next_event(Some(LIMIT)).unwrap().unwrap();
        assert!(matches!(event.kind(), EventKind::TimewaitExit), "{event}");
        over.push(event.id());
    }
    over.sort();
    assert_eq!(over, [client.key().min(server.key()), client.key().max(server.key())]);
}

#[test]
fn calls_in_the_wrong_order_are_errors_and_never_crashes() {
    let channel = EventChannel::create().unwrap();
    for space in [PortSpace::TCP, PortSpace::UDP] {
        let id = channel.create_id(space).unwrap();
        let no_device = |result: Result<()>| {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::WrongState { .. }), "{error}");
            assert!(error.to_string().contains("resolve an address first"), "{error}");
        };
        no_device(id.resolve_route(LIMIT));
        no_device(id.connect(&ConnectionParameters::new(1)));
        no_device(id.disconnect());
        no_device(id.context().map(drop));
        no_device(id.protection_domain().map(drop));
        for result in [id.accept(&ConnectionParameters::new(1)), id.reject(b"no"), id.reject_ece(b"no")] {
            let error = result.unwrap_err();
            assert!(matches!(error, Error::WrongState { .. }), "{error}");
            assert!(error.to_string().contains("came with no connection request"), "{error}");
        }
        for result in [
            id.establish(),
            id.notify(AsyncEventType::COMMUNICATION_ESTABLISHED),
            id.queue_pair_modification(QueuePairState::READY_TO_RECEIVE).map(drop),
        ] {
            let error = result.unwrap_err();
            assert!(error.raw_os_error().is_some_and(|errno| errno > 0), "{error}");
        }
        assert_eq!((id.local_addr(), id.peer_addr(), id.port()), (None, None, 0));
        // A listener on every device has no device either.
        id.bind(SocketAddr::new([0, 0, 0, 0].into(), 0)).unwrap();
        id.listen(1).unwrap();
        no_device(id.resolve_route(LIMIT));
        assert!(id.bind(address()).is_err());
    }
    // With a device, but without a route or a peer.
    let id = channel.create_id(PortSpace::TCP).unwrap();
    id.bind(address()).unwrap();
    for result in [id.resolve_route(LIMIT), id.connect(&ConnectionParameters::new(1)), id.disconnect(), id.establish()]
    {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}

#[test]
fn a_refused_connect_can_be_made_again() {
    let (channel, listener, address) = listening();
    let client = routed(&channel, address);
    let (_cq, qp) = queue_pair(&client);
    let mut parameters = ConnectionParameters::new(qp.qp_num());
    (parameters.responder_resources, parameters.initiator_depth) = (Depth::Exactly(200), Depth::Exactly(200));
    assert_eq!(client.connect(&parameters).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    (parameters.responder_resources, parameters.initiator_depth) = (Depth::Max, Depth::Max);
    client.connect(&parameters).unwrap();
    let EventKind::ConnectRequest(request) = event(&listener) else { panic!() };
    assert_eq!((request.parameters().responder_resources, request.parameters().initiator_depth), (128, 128));
}

#[test]
fn a_queue_pair_of_another_context_is_refused_with_the_reason() {
    let (channel, _listener, address) = listening();
    let client = routed(&channel, address);
    let context = verbs::devices().unwrap().find(Some(&setting("RDMA_TEST_DEVICE"))).unwrap().open().unwrap();
    let pd = context.create_protection_domain().unwrap();
    let cq = context.create_completion_queue(8).unwrap();
    let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).build().unwrap();
    let error = client.init_queue_pair(&qp).unwrap_err().to_string();
    assert!(error.contains("Id::context"), "{error}");
    assert_eq!(qp.state().unwrap(), QueuePairState::RESET);
}

#[test]
fn an_id_that_migrates_takes_its_events_along() {
    let (channel, listener, address) = listening();
    let elsewhere = EventChannel::create().unwrap();
    let client = routed(&channel, address);
    let (_cq, qp) = queue_pair(&client);
    client.connect(&ConnectionParameters::new(qp.qp_num())).unwrap();
    let EventKind::ConnectRequest(request) = event(&listener) else { panic!() };
    request.reject(b"").unwrap();
    // The refusal may have come already, or comes later.
    client.migrate(&elsewhere).unwrap();
    client.migrate(&elsewhere).unwrap();
    assert!(matches!(event(&client), EventKind::Rejected(_)));
    assert!(channel.try_next_event().unwrap().is_none());
    // Back and forth, while others take events from both.
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for channel in [&channel, &elsewhere] {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    drop(channel.next_event(Some(Duration::from_millis(20))).unwrap());
                }
            });
        }
        let (one, other) = (routed_id(&channel), routed_id(&elsewhere));
        for _ in 0..200 {
            one.migrate(&elsewhere).unwrap();
            other.migrate(&channel).unwrap();
            one.migrate(&channel).unwrap();
            other.migrate(&elsewhere).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

/// An id that is waiting for its address.
fn routed_id(channel: &EventChannel) -> Id {
    let id = channel.create_id(PortSpace::TCP).unwrap();
    id.resolve_addr(None, "192.0.2.78:1".parse().unwrap(), Duration::from_millis(50)).unwrap();
    id
}

#[test]
fn each_event_goes_to_one_of_the_threads_that_wait_on_a_channel() {
    const IDS: usize = 64;
    let channel = EventChannel::create().unwrap();
    let ids: Vec<Id> = (0..IDS).map(|_| channel.create_id(PortSpace::TCP).unwrap()).collect();
    let (count, target) = (AtomicUsize::new(0), SocketAddr::new(ip(), 1));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let deadline = Instant::now() + LIMIT;
                while count.load(Ordering::Relaxed) < IDS && Instant::now() < deadline {
                    let Some(event) = channel.next_event(Some(Duration::from_millis(20))).unwrap() else { continue };
                    assert!(matches!(event.kind(), EventKind::AddressResolved), "{event}");
                    assert!(ids.iter().any(|id| id.key() == event.id()));
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for id in &ids {
            id.resolve_addr(None, target, LIMIT).unwrap();
        }
    });
    assert_eq!(count.into_inner(), IDS);
    assert!(channel.try_next_event().unwrap().is_none());
    // What the events brought is there for every thread.
    assert!(ids.iter().all(|id| id.local_gid().to_ip() == ip()));
}

#[test]
fn waiting_ends_in_time_and_the_descriptor_tells_of_events() {
    let channel = EventChannel::create().unwrap();
    let started = Instant::now();
    assert!(channel.next_event(Some(Duration::from_millis(100))).unwrap().is_none());
    assert!(started.elapsed() >= Duration::from_millis(100) && started.elapsed() < LIMIT);
    assert!(channel.try_next_event().unwrap().is_none());
    let id = channel.create_id(PortSpace::TCP).unwrap();
    id.resolve_addr(None, SocketAddr::new(ip(), 1), LIMIT).unwrap();
    assert!(becomes_readable(&channel, LIMIT));
    assert!(matches!(channel.try_next_event().unwrap().unwrap().kind(), EventKind::AddressResolved));
}

#[test]
fn options_are_taken_before_their_time_and_refused_after() {
    let channel = EventChannel::create().unwrap();
    let address = address();
    let bound = |reuse: bool| {
        let id = channel.create_id(PortSpace::TCP).unwrap();
        id.set_reuse_address(reuse).unwrap();
        id.bind(address).map(|()| id)
    };
    let first = bound(true).unwrap();
    let second = bound(true).unwrap();
    assert!(matches!(bound(false), Err(Error::AddressInUse { .. })));
    // An address that is shared is for connecting from; a listener wants it for itself.
    assert!(matches!(first.listen(1), Err(Error::AddressInUse { .. })));
    drop(second);
    first.listen(1).unwrap();

    let only = channel.create_id(PortSpace::TCP).unwrap();
    only.set_ipv6_only(true).unwrap();
    only.bind("[::]:0".parse().unwrap()).unwrap();
    let port = only.local_addr().unwrap().port();
    let v4 = channel.create_id(PortSpace::TCP).unwrap();
    v4.bind(SocketAddr::new([0, 0, 0, 0].into(), port)).unwrap();
    only.listen(1).unwrap();
    assert_eq!(only.set_ipv6_only(false).unwrap_err().raw_os_error(), Some(libc::EINVAL));

    let id = channel.create_id(PortSpace::TCP).unwrap();
    id.set_type_of_service(32).unwrap();
    id.set_ack_timeout(verbs::AckTimeout::from_code(16).unwrap()).unwrap();
    assert_eq!(id.set_path(&[0; 3]).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    let datagrams = channel.create_id(PortSpace::UDP).unwrap();
    let error = datagrams.set_ack_timeout(verbs::AckTimeout::default());
    assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    assert!(channel.create_id(PortSpace::from_raw(77)).is_err());
}

#[test]
fn the_acknowledgement_timeout_and_type_of_service_reach_the_queue_pair() {
    let mut connecting = options();
    connecting.ack_timeout = Some(verbs::AckTimeout::from_code(17).unwrap());
    connecting.type_of_service = Some(0x20);
    let (client, _server) = pair_with(&connecting, &options());
    let state = client.queue_pair().query().unwrap();
    assert_eq!(state.ack_timeout().unwrap().code(), 17);
    let route = state.address().unwrap().global_route.unwrap();
    assert_eq!(route.traffic_class, 0x20);
}

#[test]
fn vendors_options_are_none_on_a_device_that_has_none() {
    let (client, server) = pair();
    for end in [&client, &server] {
        let ece = end.id().remote_ece().unwrap();
        assert_eq!((ece.vendor_id, ece.options), (0, 0));
    }
    let channel = EventChannel::create().unwrap();
    let id = channel.create_id(PortSpace::TCP).unwrap();
    assert_eq!(id.set_local_ece(&verbs::EnhancedConnection::default()).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    id.set_local_ece(&verbs::EnhancedConnection::new(0x15b3, 3)).unwrap();
}

#[test]
fn vendors_options_that_are_sent_arrive() {
    let (channel, listener, address) = listening();
    let client = routed(&channel, address);
    client.set_local_ece(&verbs::EnhancedConnection::new(0x15b3, 0x1000_0001)).unwrap();
    let (_cq, qp) = queue_pair(&client);
    client.connect(&ConnectionParameters::new(qp.qp_num())).unwrap();
    let EventKind::ConnectRequest(request) = event(&listener) else { panic!() };
    let ece = request.id().remote_ece().unwrap();
    assert_eq!((ece.vendor_id, ece.options), (0x15b3, 0x1000_0001));
    request.id().reject_ece(b"").unwrap();
    match event(&client) {
        EventKind::Rejected(rejection) => assert_eq!(rejection.reason, RejectReason::VENDOR_OPTION_NOT_SUPPORTED),
        other => panic!("{other}"),
    }
}

#[test]
fn vendors_options_that_the_device_does_not_have_hinder_no_connection() {
    let listener = Listener::bind(address()).unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let server = scope.spawn(|| listener.accept().unwrap());
        let route = options().resolve(address).unwrap();
        route.id().set_local_ece(&verbs::EnhancedConnection::new(0x15b3, 5)).unwrap();
        let client = route.prepare().unwrap().connect().unwrap();
        let server = server.join().unwrap();
        let sent = server.id().remote_ece().unwrap();
        assert_eq!((sent.vendor_id, sent.options), (0x15b3, 5), "what the program has set goes out");
        // librdmacm answers with the vendor that was asked for.
        assert_eq!(client.id().remote_ece().unwrap().options, 0, "and the answer is that nothing came of it");
    });
}

#[test]
fn a_message_before_the_last_word_establishes_the_connection() {
    let (channel, listener, address) = listening();
    let client = routed(&channel, address);
    let (_cq, qp) = queue_pair(&client);
    client.connect(&ConnectionParameters::new(qp.qp_num())).unwrap();
    let EventKind::ConnectRequest(request) = event(&listener) else { panic!() };
    let server = request.into_id();
    let (_server_cq, server_qp) = queue_pair(&server);
    let mut transition = TransitionOptions::default();
    (transition.responder_resources, transition.initiator_depth) = (Some(1), Some(1));
    server.connect_queue_pair(&server_qp, &transition).unwrap();
    server.accept(&ConnectionParameters::new(server_qp.qp_num())).unwrap();
    assert!(matches!(event(&client), EventKind::ConnectResponse(_)));
    // The client has not said that it is ready; a message of its would.
    server.notify(AsyncEventType::COMMUNICATION_ESTABLISHED).unwrap();
    assert!(matches!(event(&server), EventKind::Established(_)));
    let ignored = server.notify(AsyncEventType::PORT_ERROR).unwrap_err();
    assert_eq!(ignored.raw_os_error(), Some(libc::EINVAL));
}

#[test]
fn what_modify_is_given_is_what_the_connection_manager_says() {
    let (channel, _listener, address) = listening();
    let client = routed(&channel, address);
    let init: QueuePairModification = client.queue_pair_modification(QueuePairState::INIT).unwrap();
    let text = format!("{init:?}");
    assert!(text.starts_with("QueuePairModification(to INIT") && text.contains("IBV_QP_PORT"), "{text}");
}
