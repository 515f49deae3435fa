//! Connections that do not come about because somebody says no.

use std::thread;

use cm::*;

use crate::harness::*;

#[test]
fn where_nobody_listens_the_host_refuses() {
    match options().connect(address()) {
        Err(Error::Rejected { rejection, address }) => {
            assert_eq!(rejection.reason, RejectReason::INVALID_SERVICE_ID);
            assert_eq!(rejection.reason.as_raw(), 8);
            assert_eq!(rejection.private_data, vec![0; 148]);
            assert_eq!(address.ip(), ip());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_that_is_dropped_is_refused() {
    let listener = Listener::bind(address()).unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let client = scope.spawn(|| options().connect(address));
        drop(listener.next_request(Some(LIMIT)).unwrap().unwrap());
        match client.join().unwrap() {
            Err(Error::Rejected { rejection, .. }) => assert_eq!(rejection.reason, RejectReason::CONSUMER_DEFINED),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_connection_that_was_prepared_can_still_be_refused() {
    let listener = Listener::bind(address()).unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let client = scope.spawn(|| options().connect(address));
        let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
        let prepared = request.prepare(&options()).unwrap();
        prepared.reject(b"full").unwrap();
        match client.join().unwrap() {
            Err(Error::Rejected { rejection, .. }) => assert_eq!(&rejection.private_data[..5], b"full\0"),
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn requests_that_wait_when_their_listener_goes_are_refused() {
    let listener = Listener::bind(address()).unwrap();
    let address = listener.local_addr().unwrap();
    let before = possessions_to_keep();
    let clients = [(); 2].map(|()| thread::spawn(move || options().connect(address)));
    // One that was taken, and one that waits.
    let taken = listener.next_request(Some(LIMIT)).unwrap().unwrap();
    assert!(becomes_readable(&listener, LIMIT), "the other one's request does not come");
    drop(listener);
    drop(taken);
    for client in clients {
        match client.join().unwrap() {
            Err(Error::Rejected { rejection, .. }) => assert_eq!(rejection.reason, RejectReason::CONSUMER_DEFINED),
            other => panic!("{other:?}"),
        }
    }
    // Whoever asks now is told that nobody listens.
    match options().connect(address) {
        Err(Error::Rejected { rejection, .. }) => assert_eq!(rejection.reason, RejectReason::INVALID_SERVICE_ID),
        other => panic!("{other:?}"),
    }
    // The listener had a descriptor, and an id.
    let (descriptors, [qp, cq, mr, pd, ids]) = before;
    has_only((descriptors - 1, [qp, cq, mr, pd, ids - 1]));
}

#[test]
fn an_address_that_another_listener_has_is_its_own_error() {
    let listener = Listener::bind(address()).unwrap();
    let address = listener.local_addr().unwrap();
    match Listener::bind(address) {
        Err(error @ Error::AddressInUse { .. }) => {
            assert_eq!(error.raw_os_error(), Some(98));
            assert!(error.to_string().contains(&address.to_string()), "{error}");
        }
        other => panic!("{other:?}"),
    }
    drop(listener);
    Listener::bind(address).unwrap();
}
