//! Dropping, forgetting and dying at the wrong moment: nothing hangs, nothing is left.

use std::mem;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cm::*;

use crate::harness::*;

#[test]
fn ids_channels_and_queue_pairs_may_be_dropped_in_any_order() {
    let before = possessions_to_keep();
    for order in 0..6 {
        within(LONG, move || {
            let (client, server) = pair();
            let pd = client.protection_domain().clone();
            let (id, qp) = client.into_parts();
            let channel = id.channel();
            match order {
                0 => drop((id, qp, channel)),
                1 => drop((qp, id, channel)),
                2 => drop((channel, id, qp)),
                3 => drop((channel, qp, id)),
                4 => drop((qp, channel, id)),
                _ => drop((id, channel, qp)),
            }
            assert!(server.wait_disconnected(Some(LIMIT)).unwrap());
            drop((server, pd));
        });
    }
    has_only(before);
}

#[test]
fn an_id_may_be_dropped_at_each_step_with_its_events_unread() {
    let before = possessions_to_keep();
    within(LONG, || {
        let listener = Listener::bind(address()).unwrap();
        let address = listener.local_addr().unwrap();
        let started = Instant::now();
        for step in 0..6 {
            let channel = EventChannel::create().unwrap();
            let id = channel.create_id(PortSpace::TCP).unwrap();
            let wait = |wanted: &str| assert_eq!(event(&id).name(), wanted);
            if step > 0 {
                id.resolve_addr(None, address, LIMIT).unwrap();
            }
            if step > 1 {
                wait("RDMA_CM_EVENT_ADDR_RESOLVED");
                id.resolve_route(LIMIT).unwrap();
            }
            if step > 2 {
                wait("RDMA_CM_EVENT_ROUTE_RESOLVED");
                id.connect(&ConnectionParameters::new(5)).unwrap();
            }
            if step > 3 {
                let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
                // Refused, accepted without a queue pair, or left to itself.
                match step {
                    4 => request.reject(b"").unwrap(),
                    _ => drop(request.id().accept(&ConnectionParameters::new(6))),
                }
                thread::sleep(Duration::from_millis(50));
            }
            drop(channel);
            drop(id);
            if step == 3 {
                // Its peer has gone.
                drop(listener.next_request(Some(LIMIT)).unwrap());
            }
        }
        assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
        // An address that nobody has, dropped while the kernel looks for it.
        let id = EventChannel::create().unwrap().create_id(PortSpace::TCP).unwrap();
        id.resolve_addr(None, "192.0.2.79:1".parse().unwrap(), LIMIT).unwrap();
        let started = Instant::now();
        drop(id);
        assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
    });
    has_only(before);
}

#[test]
fn a_request_that_was_accepted_cannot_be_refused_and_is_dropped_at_once() {
    within(LONG, || {
        let listener = Listener::bind(address()).unwrap();
        let channel = EventChannel::create().unwrap();
        let id = channel.create_id(PortSpace::TCP).unwrap();
        id.resolve_addr(None, listener.local_addr().unwrap(), LIMIT).unwrap();
        assert!(matches!(event(&id), EventKind::AddressResolved));
        id.resolve_route(LIMIT).unwrap();
        assert!(matches!(event(&id), EventKind::RouteResolved));
        id.connect(&ConnectionParameters::new(5)).unwrap();
        let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
        request.id().accept(&ConnectionParameters::new(6)).unwrap();
        assert!(matches!(event(&id), EventKind::ConnectResponse(_)));
        // The kernel would take it, and then wait for 69 s when the id is destroyed: the client's host has asked for that long.
        let error = request.id().reject(b"after all").unwrap_err();
        assert!(matches!(error, Error::WrongState { call: "rdma_reject", .. }), "{error}");
        let started = Instant::now();
        drop(request);
        assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
        assert!(matches!(event(&id), EventKind::Rejected(_)));
    });
}

#[test]
fn an_id_is_destroyed_while_another_thread_waits_for_its_events() {
    within(LONG, || {
        let channel = EventChannel::create().unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut count = 0;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    count += usize::from(channel.next_event(Some(Duration::from_millis(10))).unwrap().is_some());
                }
                count
            });
            for round in 0..300 {
                let id = channel.create_id(PortSpace::TCP).unwrap();
                id.resolve_addr(None, (ip(), 1).into(), LIMIT).unwrap();
                if round % 3 == 0 {
                    thread::yield_now();
                }
                drop(id);
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            println!("{} of 300 events were seen", waiting.join().unwrap());
        });
    });
}

#[test]
fn forgotten_events_and_ids_hold_nobody_up() {
    within(LONG, || {
        let listener = Listener::bind(address()).unwrap();
        let address = listener.local_addr().unwrap();
        // A forgotten event, and its id dropped.
        let channel = EventChannel::create().unwrap();
        let id = channel.create_id(PortSpace::TCP).unwrap();
        id.resolve_addr(None, address, LIMIT).unwrap();
        mem::forget(channel.next_event(Some(LIMIT)).unwrap().unwrap());
        drop(id);
        // A forgotten request: the listener goes, and the peer's time is over by itself.
        let client = thread::spawn(move || {
            let mut options = options();
            options.timeout = Duration::from_millis(500);
            options.connect(address).map(drop)
        });
        mem::forget(listener.next_request(Some(LIMIT)).unwrap().unwrap());
        assert!(client.join().unwrap().is_err());
        drop(listener);
        // A forgotten connection, id and channel: the other end is dropped all the same.
        let (client, server) = pair();
        mem::forget(client);
        drop(server);
        let (client, server) = pair();
        let (id, qp) = server.into_parts();
        mem::forget(id);
        drop(qp);
        drop(client);
        mem::forget(EventChannel::create().unwrap());
        // And the rest works on.
        let (client, server) = pair();
        client.disconnect().unwrap();
        assert!(server.wait_disconnected(Some(LIMIT)).unwrap());
    });
}

#[test]
fn a_panic_in_the_middle_leaves_nothing() {
    let before = possessions_to_keep();
    let result = thread::spawn(|| {
        let (_client, _server) = pair();
        let _listener = Listener::bind(address()).unwrap();
        panic!("on purpose");
    })
    .join();
    assert!(result.is_err());
    has_only(before);
}

/// A client in a process of its own, to be killed: C's `rping`, which waits for messages once it is connected.
struct Client(std::process::Child);

impl Client {
    fn start(address: std::net::SocketAddr) -> Self {
        let mut command = Command::new("rping");
        command.args(["-c", "-a", &address.ip().to_string(), "-p", &address.port().to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().unwrap())
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn limited(milliseconds: u64) -> ConnectionOptions {
    let mut options = options();
    options.timeout = Duration::from_millis(milliseconds);
    options
}

/// What accepting a peer may end with that is gone.
fn is_of_a_dead_peer(error: &Error) -> bool {
    matches!(
        error,
        Error::Call { call: "rdma_accept", .. }
            | Error::Rejected { .. }
            | Error::Disconnected
            | Error::TimedOut { .. }
            | Error::Unreachable { .. }
            | Error::Connect { .. }
    )
}

#[test]
fn a_client_killed_before_it_is_accepted_is_an_error_in_time() {
    let before = possessions_to_keep();
    within(LONG, || {
        let listener = Listener::bind(address()).unwrap();
        let client = Client::start(listener.local_addr().unwrap());
        let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
        client.kill();
        let started = Instant::now();
        let error = request.accept(&limited(2000)).unwrap_err();
        assert!(is_of_a_dead_peer(&error), "{error:?}");
        assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
        goes_on(&listener);
    });
    has_only(before);
}

/// The next peer can connect.
fn goes_on(listener: &Listener) {
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let client = scope.spawn(move || options().connect(address).unwrap());
        let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
        let server = request.accept(&options()).unwrap();
        drop(client.join().unwrap());
        assert!(server.wait_disconnected(Some(LIMIT)).unwrap());
    });
}

#[test]
fn a_client_killed_while_it_is_accepted_is_an_error_or_an_end_in_time() {
    let before = possessions_to_keep();
    within(LONG, || {
        let listener = Listener::bind(address()).unwrap();
        for pause in [0, 1, 5, 20] {
            let client = Client::start(listener.local_addr().unwrap());
            let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
            let incoming = request.prepare(&limited(2000)).unwrap();
            thread::scope(|scope| {
                let killer = scope.spawn(move || {
                    thread::sleep(Duration::from_millis(pause));
                    client.kill();
                });
                let started = Instant::now();
                match incoming.accept() {
                    Ok(connection) => assert!(connection.wait_disconnected(Some(LIMIT)).unwrap()),
                    Err(error) => {
                        assert!(is_of_a_dead_peer(&error), "{error:?}");
                        assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
                    }
                }
                killer.join().unwrap();
            });
        }
        goes_on(&listener);
    });
    has_only(before);
}

#[test]
fn a_client_killed_after_it_was_accepted_is_told_as_the_end() {
    let before = possessions_to_keep();
    within(LONG, || {
        let listener = Listener::bind(address()).unwrap();
        let client = Client::start(listener.local_addr().unwrap());
        let connection = listener.accept().unwrap();
        client.kill();
        assert!(connection.wait_disconnected(Some(LIMIT)).unwrap());
        goes_on(&listener);
    });
    has_only(before);
}
