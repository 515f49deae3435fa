//! Datagrams: the queue pair of a service by its address.

use std::thread;
use std::time::Duration;

use cm::*;
use verbs::{AccessFlags, Grh, ReceiveRequest, SendRequest};

use crate::harness::*;

const UDP_QKEY: u32 = 0x0123_4567;

#[test]
fn a_datagram_reaches_the_service_and_the_answer_the_sender() {
    let before = possessions_to_keep();
    datagrams_go_to_and_fro();
    has_only(before);
}

fn datagrams_go_to_and_fro() {
    let listener = DatagramListener::bind(address()).unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
            assert_eq!(&request.private_data()[..6], b"hello\0");
            assert_eq!(request.private_data().len(), 180);
            let qp = request.create_queue_pair(&options()).unwrap();
            let mut region = qp.protection_domain().register(vec![0u8; 256], AccessFlags::LOCAL_WRITE).unwrap();
            qp.post_receive(&ReceiveRequest::new(1, &[region.slice(..128).unwrap()])).unwrap();
            request.accept(&qp, b"welcome").unwrap();
            let done = completions(qp.recv_cq(), 1)[0];
            let datagram = done.success().unwrap().datagram().unwrap();
            assert_eq!(region.to_vec(Grh::LEN..Grh::LEN + 4).unwrap(), b"ping");
            let grh = datagram.grh(&region, 0).unwrap();
            let handle =
                qp.protection_domain().create_address_handle_from_completion(1, &datagram, grh.as_ref()).unwrap();
            region.write_at(200, b"pong").unwrap();
            let message = [region.slice(200..204).unwrap()];
            let answer = SendRequest::send_to(2, &message, &handle, datagram.source_qp_num(), UDP_QKEY).signaled();
            qp.post_send(&answer).unwrap();
            completions(qp.send_cq(), 1)[0].success().unwrap();
            qp.qp_num()
        });
        let mut options = options();
        options.private_data = b"hello".to_vec();
        let service = options.connect_datagram(address).unwrap();
        let peer = service.peer();
        assert_eq!(peer.qkey, UDP_QKEY);
        assert_eq!(&peer.private_data[..8], b"welcome\0");
        assert_eq!(peer.private_data.len(), 136);
        let mut region = service.protection_domain().register(vec![0u8; 256], AccessFlags::LOCAL_WRITE).unwrap();
        service.queue_pair().post_receive(&ReceiveRequest::new(3, &[region.slice(..128).unwrap()])).unwrap();
        region.write_at(200, b"ping").unwrap();
        let message = [region.slice(200..204).unwrap()];
        service.queue_pair().post_send(&service.send(4, &message)).unwrap();
        let done = completions(service.completion_queue(), 1)[0];
        assert_eq!(done.wr_id(), 3);
        assert_eq!(region.to_vec(Grh::LEN..Grh::LEN + 4).unwrap(), b"pong");
        assert_eq!(done.success().unwrap().datagram().unwrap().source_qp_num(), peer.qp_num);
        assert_eq!(server.join().unwrap(), peer.qp_num);
    });
}

#[test]
fn a_service_that_refuses_and_one_that_is_not_there_are_told_apart() {
    match options().connect_datagram(address()) {
        Err(Error::DatagramRejected { status, .. }) => assert_eq!(status, DatagramStatus::UNSUPPORTED),
        other => panic!("{other:?}"),
    }
    let listener = DatagramListener::bind(address()).unwrap();
    let address = listener.local_addr().unwrap();
    for by_drop in [false, true] {
        thread::scope(|scope| {
            let client = scope.spawn(|| options().connect_datagram(address));
            let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
            match by_drop {
                true => drop(request),
                false => request.reject(b"not today").unwrap(),
            }
            match client.join().unwrap() {
                Err(Error::DatagramRejected { status, private_data, .. }) => {
                    assert_eq!(status, DatagramStatus::REJECTED);
                    let expected: &[u8] = if by_drop { b"\0" } else { b"not today\0" };
                    assert_eq!(&private_data[..expected.len()], expected);
                }
                other => panic!("{other:?}"),
            }
        });
    }
}

#[test]
fn private_data_of_datagrams_is_exact_up_to_its_limits() {
    let listener = DatagramListener::bind(address()).unwrap();
    let address = listener.local_addr().unwrap();
    for (asked, answered) in [(0, 0), (1, 1), (180, 136)] {
        thread::scope(|scope| {
            let client = scope.spawn(move || {
                let mut options = options();
                options.private_data = vec![7; asked];
                options.connect_datagram(address)
            });
            let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
            let mut expected = vec![7; asked];
            expected.resize(180, 0);
            assert_eq!(request.private_data(), expected);
            let qp = request.create_queue_pair(&options()).unwrap();
            request.accept(&qp, &vec![9; answered]).unwrap();
            let mut expected = vec![9; answered];
            expected.resize(136, 0);
            assert_eq!(client.join().unwrap().unwrap().peer().private_data, expected);
        });
    }
    let mut options = options();
    options.private_data = vec![7; 181];
    let error = options.connect_datagram(address).unwrap_err().to_string();
    assert!(error.ends_with("private_data is 181 bytes, but the port space UDP has room for 180"), "{error}");
}

#[test]
fn a_service_that_never_answers_is_not_waited_for_beyond_the_timeout() {
    let listener = DatagramListener::bind(address()).unwrap();
    let mut options = options();
    options.timeout = Duration::from_secs(5);
    let error = options.connect_datagram(listener.local_addr().unwrap()).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error}");
}

#[test]
fn ports_of_datagrams_are_others_than_those_of_connections() {
    let connections = Listener::bind(address()).unwrap();
    DatagramListener::bind(connections.local_addr().unwrap()).unwrap();
}

#[test]
fn a_queue_pair_of_another_device_is_not_told_to_who_asks_through_this_one() {
    let listener = DatagramListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::scope(|scope| {
        let here = scope.spawn(move || options().connect_datagram((ip(), port)));
        let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
        let qp = request.create_queue_pair(&options()).unwrap();
        let number = qp.qp_num();
        request.accept(&qp, b"").unwrap();
        assert_eq!(here.join().unwrap().unwrap().peer().qp_num, number);
        for accepted in [false, true] {
            let there = scope.spawn(move || {
                let mut over_the_wire = options();
                over_the_wire.source = Some((ip(), 0).into());
                over_the_wire.connect_datagram((peer_ip(), port))
            });
            let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
            if accepted {
                let own = request.create_queue_pair(&options()).unwrap();
                request.accept(&own, b"").unwrap();
                assert_eq!(there.join().unwrap().unwrap().peer().qp_num, own.qp_num());
            } else {
                let error = request.accept(&qp, b"").unwrap_err();
                assert!(matches!(error, Error::InvalidArgument { call: "rdma_accept", .. }), "{error}");
                let (own, other) = (setting("RDMA_TEST_DEVICE"), setting("RDMA_TEST_PEER_DEVICE"));
                let text = error.to_string();
                assert!(text.contains(&format!("of another context of {own}")) && text.ends_with(&other), "{text}");
                match there.join().unwrap() {
                    Err(Error::DatagramRejected { status, .. }) => assert_eq!(status, DatagramStatus::REJECTED),
                    other => panic!("{other:?}"),
                }
            }
        }
    });
}
