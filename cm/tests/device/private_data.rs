//! Private data both ways: exact bytes, and zeroes behind them.

use cm::*;

use crate::harness::*;

/// `data`, and zeroes up to `length`.
fn padded(data: &[u8], length: usize) -> Vec<u8> {
    let mut all = data.to_vec();
    all.resize(length, 0);
    all
}

fn bytes(length: usize) -> Vec<u8> {
    (1..=length).map(|index| index as u8).collect()
}

#[test]
fn private_data_of_0_1_and_the_limit_arrive_exactly_with_zeroes_behind() {
    for (request, accept) in [(0, 0), (1, 1), (9, 5), (56, 196)] {
        let (mut connecting, mut accepting) = (options(), options());
        connecting.private_data = bytes(request);
        accepting.private_data = bytes(accept);
        let (client, server) = pair_with(&connecting, &accepting);
        assert_eq!(server.private_data(), padded(&bytes(request), 56), "request of {request}");
        assert_eq!(client.private_data(), padded(&bytes(accept), 196), "answer of {accept}");
    }
}

#[test]
fn private_data_beyond_the_limit_is_refused_before_anything_is_sent() {
    let mut connecting = options();
    connecting.private_data = bytes(57);
    let error = connecting.connect(address()).unwrap_err().to_string();
    assert_eq!(error, "rdma_connect: private_data is 57 bytes, but the port space TCP has room for 56");

    let listener = Listener::bind(address()).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| options().connect(address));
        let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
        // The id's own calls lose nothing: the same request can be answered once more.
        let error = request.id().reject(&bytes(149)).unwrap_err().to_string();
        assert_eq!(error, "rdma_reject: private_data is 149 bytes, but the port space TCP has room for 148");
        let mut accepting = options();
        accepting.private_data = bytes(197);
        let error = request.prepare(&accepting).unwrap_err().to_string();
        assert_eq!(error, "rdma_accept: private_data is 197 bytes, but the port space TCP has room for 196");
        // The request was dropped with the error.
        assert!(matches!(client.join().unwrap(), Err(Error::Rejected { .. })));
    });
}

#[test]
fn a_refusal_carries_private_data_up_to_its_limit() {
    let listener = Listener::bind(address()).unwrap();
    let address = listener.local_addr().unwrap();
    for length in [0, 1, 5, 148] {
        std::thread::scope(|scope| {
            let client = scope.spawn(|| options().connect(address));
            listener.next_request(Some(LIMIT)).unwrap().unwrap().reject(&bytes(length)).unwrap();
            match client.join().unwrap() {
                Err(Error::Rejected { rejection, .. }) => {
                    assert_eq!(rejection.reason, RejectReason::CONSUMER_DEFINED);
                    assert_eq!(rejection.private_data, padded(&bytes(length), 148));
                }
                other => panic!("{other:?}"),
            }
        });
    }
}
