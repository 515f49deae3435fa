//! Hosts with several addresses.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use cm::*;

use crate::harness::*;

/// Nobody answers there.
const DEAD: &str = "192.0.2.77:7471";
/// There is no route.
const NOWHERE: &str = "203.0.113.9:7471";

#[test]
fn addresses_are_tried_in_turn_until_one_connects() {
    let silent_listener = Listener::bind(address()).unwrap();
    let silent = silent_listener.local_addr().unwrap();
    let [dead, nowhere]: [SocketAddr; 2] = [DEAD, NOWHERE].map(|text| text.parse().unwrap());
    // Those that cannot be resolved, or refuse; and one that never answers, until half of the time is over.
    thread::scope(|scope| {
        for before in [vec![dead, nowhere, address()], vec![silent]] {
            scope.spawn(move || {
                let listener = Listener::bind(address()).unwrap();
                let live = listener.local_addr().unwrap();
                thread::scope(|scope| {
                    let server = scope.spawn(|| listener.accept().unwrap());
                    let client = options().connect([before.clone(), vec![live]].concat()).unwrap();
                    assert_eq!(client.peer_addr(), Some(live), "after {before:?}");
                    server.join().unwrap();
                });
            });
        }
    });
}

#[test]
fn of_addresses_that_all_fail_the_last_ones_error_is_told_within_the_time() {
    let refusing = address();
    let mut options = options();
    options.timeout = Duration::from_secs(40);
    let started = std::time::Instant::now();
    let addresses: Vec<SocketAddr> = [DEAD, NOWHERE].map(|text| text.parse().unwrap()).into();
    let error = options.connect([addresses.as_slice(), &[refusing]].concat()).unwrap_err();
    assert!(matches!(error, Error::Rejected { address, .. } if address == refusing), "{error}");
    assert!(started.elapsed() < LONG);
    let error = options.resolve(&addresses[..]).unwrap_err();
    assert!(matches!(error, Error::AddressUnresolved { errno: libc::ENETUNREACH, .. }), "{error}");
}

#[test]
fn addresses_of_a_datagram_service_are_tried_in_turn_too() {
    let listener = DatagramListener::bind(address()).unwrap();
    let live = listener.local_addr().unwrap();
    let refusing = address();
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
            let qp = request.create_queue_pair(&options()).unwrap();
            request.accept(&qp, b"").unwrap();
            qp.qp_num()
        });
        let service = options().connect_datagram(vec![refusing, live]).unwrap();
        assert_eq!(service.peer().qp_num, server.join().unwrap());
    });
}
