//! Many peers at once, and one after another.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use cm::*;
use verbs::{AccessFlags, ReceiveRequest, SendRequest};

use crate::harness::*;

#[test]
fn a_thousand_connections_come_and_go_without_a_trace() {
    let listener = Listener::bind_with(address(), &options(), 16).unwrap();
    let address = listener.local_addr().unwrap();
    let round = || {
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                let connection = listener.accept().unwrap();
                assert!(connection.wait_disconnected(Some(LIMIT)).unwrap());
            });
            let client = options().connect(address).unwrap();
            client.disconnect().unwrap();
            assert!(client.wait_disconnected(Some(LIMIT)).unwrap());
            server.join().unwrap();
        });
    };
    round();
    let before = possessions_to_keep();
    for _ in 0..1000 {
        round();
    }
    has_only(before);
}

#[test]
fn sixty_four_peers_at_once_each_get_their_own_bytes() {
    let before = possessions_to_keep();
    within(LONG, sixty_four_peers);
    has_only(before);
}

fn sixty_four_peers() {
    const PEERS: usize = 64;
    let listener = Listener::bind_with(address(), &options(), PEERS as u32).unwrap();
    let address = listener.local_addr().unwrap();
    // Nobody goes before all are there.
    let all_are_open = Barrier::new(2 * PEERS);
    thread::scope(|scope| {
        let all_are_open = &all_are_open;
        let clients: Vec<_> = (0..PEERS)
            .map(|number| {
                scope.spawn(move || {
                    let mut options = options();
                    options.private_data = vec![number as u8 + 1];
                    let client = options.connect(address).unwrap();
                    assert_eq!(client.private_data()[0], number as u8 + 1, "the answer is for another peer");
                    let bytes = vec![number as u8; 32];
                    let region = client.protection_domain().register(bytes, AccessFlags::empty()).unwrap();
                    let message = [region.slice(..).unwrap()];
                    client.queue_pair().post_send(&SendRequest::send(1, &message).signaled()).unwrap();
                    completions(client.completion_queue(), 1)[0].success().unwrap();
                    all_are_open.wait();
                    assert!(client.wait_disconnected(Some(LIMIT)).unwrap());
                })
            })
            .collect();
        let servers: Vec<_> = (0..PEERS)
            .map(|_| {
                let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
                scope.spawn(move || {
                    let number = request.private_data()[0];
                    let mut options = options();
                    options.private_data = vec![number];
                    let incoming = request.prepare(&options).unwrap();
                    let region = incoming.protection_domain().register(vec![0; 32], AccessFlags::LOCAL_WRITE).unwrap();
                    let room = [region.slice(..).unwrap()];
                    incoming.queue_pair().post_receive(&ReceiveRequest::new(9, &room)).unwrap();
                    let server = incoming.accept().unwrap();
                    completions(server.completion_queue(), 1)[0].success().unwrap();
                    assert_eq!(region.to_vec(..).unwrap(), vec![number - 1; 32]);
                    all_are_open.wait();
                    server.disconnect().unwrap();
                    assert!(server.wait_disconnected(Some(LIMIT)).unwrap());
                    number
                })
            })
            .collect();
        let mut numbers: Vec<u8> = servers.into_iter().map(|server| server.join().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=PEERS as u8).collect::<Vec<_>>());
        for client in clients {
            client.join().unwrap();
        }
    });
}

#[test]
fn connections_come_one_after_another_from_incoming() {
    let listener = Listener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    assert_ne!(port, 0, "a port was chosen");
    thread::scope(|scope| {
        let server = scope.spawn(|| listener.incoming().take(3).map(Result::unwrap).collect::<Vec<_>>());
        let clients: Vec<_> = (0..3).map(|_| options().connect((ip(), port)).unwrap()).collect();
        assert_eq!(server.join().unwrap().len(), clients.len());
    });
}

#[test]
fn a_listener_on_every_address_accepts_on_both_devices() {
    let listener = Listener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::scope(|scope| {
        let server = scope.spawn(|| listener.incoming().take(2).map(Result::unwrap).collect::<Vec<_>>());
        let one = options().connect((ip(), port)).unwrap();
        // Without a source, the kernel would go from the peer's address to itself.
        let mut over_the_wire = options();
        over_the_wire.source = Some((ip(), 0).into());
        let other = over_the_wire.connect((peer_ip(), port)).unwrap();
        let accepted = server.join().unwrap();
        let names: Vec<_> =
            accepted.iter().map(|c| c.protection_domain().context().device().name().to_owned()).collect();
        assert_eq!(names, [setting("RDMA_TEST_DEVICE"), setting("RDMA_TEST_PEER_DEVICE")]);
        assert_eq!(one.peer_addr().unwrap().ip(), ip());
        assert_eq!((other.local_addr().unwrap().ip(), other.peer_addr().unwrap().ip()), (ip(), peer_ip()));
    });
}

#[test]
fn a_listener_on_every_ipv6_address_takes_ipv4_too_unless_it_is_told_not_to() {
    let mut listening = ListenerOptions::default();
    listening.connections = options();
    for only in [false, true] {
        listening.ipv6_only = Some(only);
        let listener = listening.bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::scope(|scope| {
            let client = scope.spawn(move || options().connect((ip(), port)));
            if only {
                match client.join().unwrap() {
                    Err(Error::Rejected { rejection, .. }) => {
                        // The port is known to the kernel, but not for this family.
                        let reasons = [RejectReason::CONSUMER_DEFINED, RejectReason::INVALID_SERVICE_ID];
                        assert!(reasons.contains(&rejection.reason), "{}", rejection.reason);
                    }
                    other => panic!("{other:?}"),
                }
                assert!(listener.next_request(Some(Duration::ZERO)).unwrap().is_none());
                // Another one has the port for IPv4.
                listening.bind((std::net::Ipv4Addr::UNSPECIFIED, port)).unwrap();
            } else {
                let server = listener.accept().unwrap();
                assert_eq!(client.join().unwrap().unwrap().peer_addr(), Some((ip(), port).into()));
                assert!(server.local_addr().is_some());
            }
        });
    }
}

#[test]
fn a_listeners_address_cannot_be_connected_from_and_that_is_the_error() {
    let listener = Listener::bind(address()).unwrap();
    let address = listener.local_addr().unwrap();
    let mut from_there = options();
    from_there.source = Some(address);
    match from_there.connect(address) {
        Err(error @ Error::AddressInUse { call: "rdma_resolve_addr", .. }) => {
            assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
            assert!(error.to_string().contains(&address.to_string()), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_beyond_the_backlog_are_not_given_to_the_program() {
    let mut listening = ListenerOptions::default();
    listening.backlog = 1;
    let listener = listening.bind(address()).unwrap();
    let target = listener.local_addr().unwrap();
    let clients = [(); 3].map(|()| {
        let mut client = options().prepare(target).unwrap();
        client.options_mut().timeout = Duration::from_secs(1);
        thread::spawn(move || client.connect().map(drop))
    });
    let outcomes = clients.map(|client| client.join().unwrap().unwrap_err());
    // The one that waits is not answered in time, and the kernel refuses the others, or is silent to them.
    assert!(outcomes.iter().any(|error| matches!(error, Error::TimedOut { .. })), "{outcomes:?}");
    assert!(listener.next_request(Some(LIMIT)).unwrap().is_some());
    assert!(listener.next_request(Some(Duration::ZERO)).unwrap().is_none());
}

#[test]
fn no_request_in_time_is_none() {
    let listener = Listener::bind(address()).unwrap();
    let started = std::time::Instant::now();
    assert!(listener.next_request(Some(Duration::from_millis(100))).unwrap().is_none());
    assert!(listener.next_request(Some(Duration::ZERO)).unwrap().is_none());
    assert!(started.elapsed() >= Duration::from_millis(100));
}
