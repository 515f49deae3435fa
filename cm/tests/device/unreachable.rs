//! Peers that cannot be reached, or do not answer.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use cm::*;

use crate::harness::*;

fn quick(milliseconds: u64) -> ConnectionOptions {
    let mut options = options();
    options.timeout = Duration::from_millis(milliseconds);
    options
}

#[test]
fn an_address_at_which_nobody_answers_times_out_by_the_kernels_word() {
    let started = Instant::now();
    let dead: SocketAddr = "192.0.2.77:7471".parse().unwrap();
    match quick(500).connect(dead) {
        Err(error @ Error::AddressUnresolved { address, errno }) => {
            assert_eq!((address, errno), (dead, libc::ETIMEDOUT));
            assert!(error.to_string().contains("nobody answers"), "{error}");
        }
        other => panic!("{other:?}"),
    }
    assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
}

#[test]
fn a_network_without_a_route_is_an_error_at_once() {
    match options().connect("203.0.113.9:7471") {
        Err(Error::AddressUnresolved { errno, .. }) => assert_eq!(errno, libc::ENETUNREACH),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_loopback_address_has_no_device_and_the_message_says_what_to_use() {
    match options().connect("127.0.0.1:7471") {
        Err(error @ Error::RouteUnresolved { errno, .. }) => {
            assert_eq!(errno, libc::ENODEV);
            assert!(error.to_string().contains("use the address of the interface that has"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_server_that_never_accepts_is_not_waited_for_beyond_the_timeout() {
    let listener = Listener::bind(address()).unwrap();
    let started = Instant::now();
    let mut client = options().prepare(listener.local_addr().unwrap()).unwrap();
    client.options_mut().timeout = Duration::from_millis(700);
    match client.connect() {
        Err(Error::TimedOut { step, timeout }) => {
            assert!(step.starts_with("rdma_connect"), "{step}");
            assert_eq!(timeout, Duration::from_millis(700));
        }
        other => panic!("{other:?}"),
    }
    assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
    // The request is still there, of a peer that has gone: accepting it ends at once, and the listener goes on.
    let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
    let accepting = Instant::now();
    let error = request.accept(&options()).unwrap_err();
    println!("{error} {:?}", accepting.elapsed());
    assert!(accepting.elapsed() < AT_ONCE, "{:?}: {error}", accepting.elapsed());
    std::thread::scope(|scope| {
        let server = scope.spawn(|| listener.accept().unwrap());
        options().connect(listener.local_addr().unwrap()).unwrap();
        server.join().unwrap();
    });
}

#[test]
fn names_that_do_not_exist_and_addresses_of_another_host_are_told_apart() {
    assert!(matches!(options().connect("nobody.invalid:7471"), Err(Error::Lookup { .. })));
    let error = Listener::bind("192.0.2.77:7471").unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL), "{error}");
}

#[test]
fn an_optional_source_address_is_taken_and_a_foreign_one_refused() {
    let listener = Listener::bind(address()).unwrap();
    let target = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| listener.accept().unwrap());
        let mut options = options();
        options.source = Some(SocketAddr::new(ip(), 23_456));
        let client = options.connect(target).unwrap();
        assert_eq!(client.local_addr(), options.source);
        assert_eq!(server.join().unwrap().peer_addr(), options.source);
    });
    let mut options = options();
    options.source = Some("192.0.2.77:0".parse().unwrap());
    let error = options.connect(target).unwrap_err();
    assert!(matches!(error, Error::AddressUnresolved { .. }), "{error}");
}
