//! Calls that no program should make, and calls at the same time: nothing hangs, nothing is lost.

use std::mem;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cm::*;
use verbs::AsyncEventType;

use crate::harness::*;

/// Numbers of queue pairs that are not there. Each is another one: the kernel takes a number that comes again for an old connection's.
fn parameters() -> ConnectionParameters {
    static NEXT: AtomicU32 = AtomicU32::new(0x1000);
    ConnectionParameters::new(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// An id that has asked, and the request.
fn asked(listener: &Listener) -> (Id, ConnectionRequest) {
    let id = EventChannel::create().unwrap().create_id(PortSpace::TCP).unwrap();
    id.resolve_addr(None, listener.local_addr().unwrap(), LIMIT).unwrap();
    assert!(matches!(event(&id), EventKind::AddressResolved));
    id.resolve_route(LIMIT).unwrap();
    assert!(matches!(event(&id), EventKind::RouteResolved));
    id.connect(&parameters()).unwrap();
    (id, listener.next_request(Some(LIMIT)).unwrap().unwrap())
}

fn dropped_at_once(id: Id) {
    let started = Instant::now();
    drop(id);
    assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
}

fn is_wrong(result: Result<()>) {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::WrongState { .. }), "{error}");
}

/// Each of these once made the kernel wait for 68 s or 100 s, under the lock of the channel, when the id was dropped.
#[test]
fn whatever_is_called_an_id_is_dropped_at_once() {
    within(LONG, || {
        let listener = Listener::bind(address()).unwrap();
        for case in 0..8 {
            let (client, request) = asked(&listener);
            let server = request.into_id();
            match case {
                0 => {
                    server.accept(&parameters()).unwrap();
                    is_wrong(server.accept(&parameters()));
                }
                1 => {
                    server.accept(&parameters()).unwrap();
                    is_wrong(server.reject(b""));
                    is_wrong(server.reject_ece(b""));
                }
                2 => {
                    is_wrong(server.establish());
                    server.accept(&parameters()).unwrap();
                    is_wrong(server.establish());
                }
                // The end that asks can neither answer nor be ready before there is an answer.
                3 => is_wrong(client.accept(&parameters())),
                4 => {
                    is_wrong(client.reject(b""));
                    is_wrong(client.reject_ece(b""));
                    assert_eq!(client.establish().unwrap_err().raw_os_error(), Some(libc::EINVAL));
                }
                5 | 6 => {
                    server.accept(&parameters()).unwrap();
                    server.notify(AsyncEventType::COMMUNICATION_ESTABLISHED).unwrap();
                    if case == 6 {
                        server.disconnect().unwrap();
                    }
                }
                _ => {
                    server.accept(&parameters()).unwrap();
                    assert!(matches!(event(&client), EventKind::ConnectResponse(_)));
                    client.establish().unwrap();
                    assert_eq!(client.establish().unwrap_err().raw_os_error(), Some(libc::EINVAL));
                    // It has no other path to migrate to.
                    drop(client.notify(AsyncEventType::PATH_MIGRATED));
                    client.disconnect().unwrap();
                }
            }
            dropped_at_once(server);
            dropped_at_once(client);
        }
    });
}

#[test]
fn of_an_acceptance_and_a_refusal_at_the_same_time_the_refusal_is_never_the_last() {
    within(LONG, || {
        let listener = Listener::bind(address()).unwrap();
        let mut accepted = 0;
        for _ in 0..30 {
            let (client, request) = asked(&listener);
            let server = request.into_id();
            let start = Barrier::new(2);
            let (yes, no) = thread::scope(|scope| {
                let yes = scope.spawn(|| {
                    start.wait();
                    server.accept(&parameters())
                });
                start.wait();
                let no = server.reject(b"no");
                (yes.join().unwrap(), no)
            });
            assert!(yes.is_ok() != no.is_ok(), "{yes:?} {no:?}");
            accepted += usize::from(yes.is_ok());
            let told = event(&client);
            match yes {
                Ok(()) => assert!(matches!(told, EventKind::ConnectResponse(_)), "{told}"),
                Err(_) => assert!(matches!(told, EventKind::Rejected(_)), "{told}"),
            }
            dropped_at_once(server);
            dropped_at_once(client);
        }
        println!("{accepted} of 30 were accepted");
    });
}

#[test]
fn a_request_outlives_its_listener_and_the_channel() {
    let listener = Listener::bind(address()).unwrap();
    let (client, request) = asked(&listener);
    drop(listener);
    request.id().accept(&parameters()).unwrap();
    assert!(matches!(event(&client), EventKind::ConnectResponse(_)));
    client.establish().unwrap();
    let server = request.into_id();
    assert!(matches!(event(&server), EventKind::Established(_)));
}

#[test]
fn an_id_migrates_before_it_listens_and_not_after() {
    let (here, there) = (EventChannel::create().unwrap(), EventChannel::create().unwrap());
    let listener = here.create_id(PortSpace::TCP).unwrap();
    listener.bind(address()).unwrap();
    listener.migrate(&there).unwrap();
    listener.listen(4).unwrap();
    // The kernel would lose a request that came meanwhile, and the client would wait until its own time is over.
    is_wrong(listener.migrate(&here));
    let client = EventChannel::create().unwrap().create_id(PortSpace::TCP).unwrap();
    client.resolve_addr(None, listener.local_addr().unwrap(), LIMIT).unwrap();
    assert!(matches!(event(&client), EventKind::AddressResolved));
    client.resolve_route(LIMIT).unwrap();
    assert!(matches!(event(&client), EventKind::RouteResolved));
    client.connect(&parameters()).unwrap();
    while !is_readable(&there) {
        is_wrong(listener.migrate(&here));
    }
    is_wrong(listener.migrate(&here));
    let EventKind::ConnectRequest(request) = event(&listener) else { panic!() };
    assert_eq!(request.id().channel().as_raw(), there.as_raw());
    request.reject(b"").unwrap();
    assert!(matches!(event(&client), EventKind::Rejected(_)));
}

#[test]
fn threads_that_wait_see_the_events_that_come_along_with_an_id() {
    within(LONG, || {
        const IDS: usize = 3;
        let (here, there) = (EventChannel::create().unwrap(), EventChannel::create().unwrap());
        let ids: Vec<Id> = (0..IDS).map(|_| here.create_id(PortSpace::TCP).unwrap()).collect();
        for id in &ids {
            id.resolve_addr(None, (ip(), 1).into(), LIMIT).unwrap();
        }
        thread::sleep(Duration::from_millis(200));
        thread::scope(|scope| {
            let waiting: Vec<_> = (0..IDS).map(|_| scope.spawn(|| there.next_event(None).unwrap().unwrap())).collect();
            thread::sleep(Duration::from_millis(200));
            for id in &ids {
                id.migrate(&there).unwrap();
            }
            let mut keys: Vec<_> = waiting.into_iter().map(|thread| thread.join().unwrap().id()).collect();
            keys.sort();
            assert_eq!(keys, ids.iter().map(Id::key).collect::<Vec<_>>());
        });
    });
}

#[test]
fn an_id_is_in_a_group_once_and_each_membership_ends_itself() {
    let channel = EventChannel::create().unwrap();
    let id = channel.create_id(PortSpace::UDP).unwrap();
    id.bind((ip(), 0).into()).unwrap();
    let [one, other] = ["239.1.2.20", "239.1.2.21"].map(|group| group.parse().unwrap());
    let first = id.join_multicast(one, MulticastRole::Full).unwrap();
    let second = id.join_multicast(other, MulticastRole::Full).unwrap();
    // librdmacm would leave the last membership of the group, whichever was dropped.
    let error = id.join_multicast(one, MulticastRole::SendOnly).unwrap_err().to_string();
    assert!(error.contains("can have one only"), "{error}");
    drop(first);
    match event(&id) {
        EventKind::MulticastJoin { membership, .. } => assert_eq!(membership, second.key()),
        other => panic!("{other}"),
    }
    let again = id.join_multicast(one, MulticastRole::Full).unwrap();
    match event(&id) {
        EventKind::MulticastJoin { membership, .. } => assert_eq!(membership, again.key()),
        other => panic!("{other}"),
    }
    // One that is forgotten ends with its id.
    mem::forget(again);
    assert!(id.join_multicast(one, MulticastRole::Full).is_err());
    second.leave().unwrap();
}

#[test]
fn times_without_an_end_are_waited_for_as_such() {
    within(LONG, || {
        let mut options = options();
        options.timeout = Duration::MAX;
        let (client, server) = pair_with(&options, &options);
        client.disconnect().unwrap();
        assert!(server.wait_disconnected(Some(Duration::MAX)).unwrap());

        let listener = Listener::bind(address()).unwrap();
        let id = EventChannel::create().unwrap().create_id(PortSpace::TCP).unwrap();
        id.resolve_addr(None, listener.local_addr().unwrap(), Duration::MAX).unwrap();
        assert!(id.channel().next_event(Some(Duration::MAX)).unwrap().is_some());
        id.resolve_route(Duration::MAX).unwrap();
        assert!(id.channel().next_event(Some(Duration::MAX)).unwrap().is_some());
        id.connect(&parameters()).unwrap();
        listener.next_request(Some(Duration::MAX)).unwrap().unwrap().reject(b"").unwrap();
    });
}
