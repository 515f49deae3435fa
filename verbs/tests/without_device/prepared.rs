use verbs::*;

use crate::Bench;
use crate::null_provider::{BadWr, Refusal};

fn remote() -> RemoteSlice {
    RemoteSlice::new(0x1000, 64, 7).unwrap()
}

#[test]
fn a_prepared_request_is_posted_as_it_is_at_the_time() {
    let bench = Bench::build(|builder| builder.max_send_sge(2));
    let slices = || [bench.region.hold(..64).unwrap(), bench.region.hold(64..128).unwrap()];
    let mut requests = [
        PreparedSend::send(1, slices()).signaled(),
        PreparedSend::rdma_write(2, slices(), remote()).signaled(),
        PreparedSend::rdma_read(3, slices(), remote()).signaled().fenced().solicited(),
    ];
    for round in 0..3 {
        for (index, request) in requests.iter_mut().enumerate() {
            request.set_wr_id(10 * round + index as u64);
            request.set_range(1, ..32 * round as usize).unwrap();
            bench.qp.post_prepared_send(request).unwrap();
        }
        assert_eq!(bench.polled(), [10 * round, 10 * round + 1, 10 * round + 2]);
    }
    // As a chain, and from another place in memory.
    let mut moved = Vec::from(requests);
    moved.reverse();
    bench.qp.post_send_chain(&mut moved).unwrap();
    assert_eq!(bench.polled(), [22, 21, 20]);
    bench.provider.assert_no_violation();
}

#[test]
fn what_an_operation_lacks_cannot_be_set() {
    let bench = Bench::new();
    let slices = || [bench.region.hold(..8).unwrap()];
    let mut requests = [
        (PreparedSend::send(1, slices()), false, false),
        (PreparedSend::send_with_imm(1, slices(), 0), false, true),
        (PreparedSend::rdma_write(1, slices(), remote()), true, false),
        (PreparedSend::rdma_write_with_imm(1, slices(), remote(), 0), true, true),
        (PreparedSend::rdma_read(1, slices(), remote()), true, false),
    ];
    for (request, has_remote, has_imm) in &mut requests {
        assert_eq!(request.set_remote(remote()).is_ok(), *has_remote, "{request:?}");
        assert_eq!(request.set_imm_data(1).is_ok(), *has_imm, "{request:?}");
    }
    let (send, ..) = &mut requests[0];
    let message = send.set_remote(remote()).unwrap_err().to_string();
    assert!(message.contains("the peer's memory is set on a request of operation send, but only"), "{message}");
    assert!(matches!(send.set_range(0, 4090..4097), Err(Error::OutOfRange { start: 4090, end: 4097, .. })));
    assert!(matches!(send.set_range(1, ..), Err(Error::InvalidArgument { .. })));
    assert!(matches!(send.set_slice(1, bench.region.hold(..).unwrap()), Err(Error::InvalidArgument { .. })));
    let mut receive = PreparedReceive::new(1, slices());
    assert!(matches!(receive.set_range(0, 4097..), Err(Error::OutOfRange { .. })));
    assert!(matches!(receive.set_range(1, ..), Err(Error::InvalidArgument { .. })));
    assert!(matches!(receive.set_slice(1, bench.region.hold(..).unwrap()), Err(Error::InvalidArgument { .. })));
}

#[test]
fn a_prepared_atomic_is_on_an_aligned_word_from_the_beginning_and_stays_so() {
    let bench = Bench::build(|builder| builder.max_send_sge(2));
    let hold = |length| bench.region.hold(..length).unwrap();
    let at = |address| RemoteSlice::new(address, 8, 7).unwrap();
    for length in [0, 4, 7, 9, 16, 4096] {
        let words = format!("the length of the slices is {length}, but the slices of an atomic operation have 8 bytes");
        for error in [
            PreparedAtomic::fetch_and_add(1, [hold(length)], at(0x1000), 1).unwrap_err(),
            PreparedAtomic::compare_and_swap(1, [hold(length)], at(0x1000), 1, 2).unwrap_err(),
        ] {
            assert!(error.to_string().contains(&words), "{error}");
        }
    }
    for misaligned in 0x1001..0x1008 {
        for error in [
            PreparedAtomic::fetch_and_add(1, [hold(8)], at(misaligned), 1).unwrap_err(),
            PreparedAtomic::compare_and_swap(1, [hold(8)], at(misaligned), 1, 2).unwrap_err(),
        ] {
            assert!(error.to_string().contains("an address that is a multiple of 8"), "{error}");
        }
    }
    // In two parts, each of which can be put elsewhere, but not made longer or shorter.
    let mut parts = PreparedAtomic::fetch_and_add(1, [hold(3), hold(5)], at(0x1000), 1).unwrap().signaled();
    for (index, length) in [(0, 3), (1, 5)] {
        parts.set_range(index, 64..64 + length).unwrap();
        parts.set_slice(index, hold(length)).unwrap();
        for wrong in [length - 1, length + 1] {
            let words = format!("the length of the slice is {wrong}, but");
            assert!(parts.set_range(index, ..wrong).unwrap_err().to_string().contains(&words));
            assert!(parts.set_slice(index, hold(wrong)).unwrap_err().to_string().contains(&words));
        }
    }
    parts.set_wr_id(7);
    parts.set_operands(1, 2);
    assert!(parts.set_range(2, ..).unwrap_err().to_string().contains("the request has 2 slices"));
    bench.qp.post_prepared_send(&parts).unwrap();
    bench.qp.post_send_chain(&mut [parts]).unwrap();
    let posted: Vec<_> = bench.completions().iter().map(|c| (c.wr_id(), c.as_raw().byte_len)).collect();
    assert_eq!(posted, [(7, 8); 2]);
    bench.provider.assert_no_violation();
}

#[test]
fn a_region_stays_registered_as_long_as_a_prepared_request_names_it() {
    let bench = Bench::new();
    let first = bench.pd.register(vec![0; 64], AccessFlags::LOCAL_WRITE).unwrap();
    let second = bench.pd.register(vec![0; 64], AccessFlags::LOCAL_WRITE).unwrap();
    let mut send = PreparedSend::send(1, [first.hold(..).unwrap()]).signaled();
    let receive = PreparedReceive::new(2, [second.hold(..).unwrap()]);
    let (first, error) = first.deregister().unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    drop((first, second));
    bench.qp.post_prepared_send(&send).unwrap();
    bench.qp.post_prepared_receive(&receive).unwrap();
    assert_eq!(bench.polled(), [1, 2]);
    // The first region goes when the request lets go of it.
    let third = bench.pd.register(vec![0; 64], AccessFlags::LOCAL_WRITE).unwrap();
    send.set_slice(0, third.hold(8..16).unwrap()).unwrap();
    let live = || bench.provider.live(crate::null_provider::Kind::Region);
    assert_eq!(live(), 3);
    drop((send, receive));
    assert_eq!(live(), 2);
    assert_eq!(third.deregister().unwrap().len(), 64);
    bench.provider.assert_no_violation();
}

#[test]
fn a_refused_chain_of_prepared_requests_tells_how_many_were_taken() {
    let bench = Bench::new();
    let mut sends: Vec<_> =
        (0..8).map(|wr_id| PreparedSend::send(wr_id, [bench.region.hold(..8).unwrap()]).signaled()).collect();
    let mut receives: [_; 8] =
        std::array::from_fn(|index| PreparedReceive::new(index as u64, [bench.region.hold(..8).unwrap()]));
    for after in [0, 3, 7] {
        bench.provider.refuse(Refusal { after, errno: libc::ENOMEM, bad_wr: BadWr::Refused });
        assert_eq!(bench.qp.post_send_chain(&mut sends).unwrap_err().accepted(), Some(after));
        bench.provider.refuse(Refusal { after, errno: libc::ENOMEM, bad_wr: BadWr::Refused });
        assert_eq!(bench.qp.post_receive_chain(&mut receives[..]).unwrap_err().accepted(), Some(after));
        assert_eq!(bench.polled().len(), 2 * after);
    }
}
