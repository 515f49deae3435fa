use verbs::*;

use crate::null_provider::{BadWr, Kind, Refusal};
use crate::{Bench, LONG, connect};

/// A shared receive queue with a queue pair on it.
fn shared(bench: &Bench, max_wr: u32) -> (SharedReceiveQueue, QueuePair<Rc>) {
    let srq = SharedReceiveQueueBuilder::new(&bench.pd, max_wr).max_sge(2).build().unwrap();
    let qp = QueuePair::builder(&bench.pd, &bench.cq, &bench.cq).shared_receive_queue(&srq).build().unwrap();
    connect(&qp);
    (srq, qp)
}

#[test]
fn queue_pairs_take_the_requests_in_the_order_of_the_messages() {
    let bench = Bench::new();
    let (srq, one) = shared(&bench, 8);
    let other = QueuePair::<Rc>::builder(&bench.pd, &bench.cq, &bench.cq).shared_receive_queue(&srq).build().unwrap();
    let slices = [bench.region.slice(..64).unwrap(), bench.region.slice(64..100).unwrap()];
    srq.post_receive(&ReceiveRequest::new(1, &slices)).unwrap();
    srq.post_receive_chain(&mut [ReceiveRequest::new(2, &slices[..1]), ReceiveRequest::new(3, &[])]).unwrap();
    srq.post_receive_chain::<[ReceiveRequest<'_>]>(&mut []).unwrap();
    for qp in [&one, &other, &one] {
        assert!(bench.provider.deliver(qp));
    }
    assert!(!bench.provider.deliver(&one));
    let mut room = [WorkCompletion::default(); 4];
    let got: Vec<_> = bench.cq.poll(&mut room).unwrap().iter().map(|wc| (wc.wr_id(), wc.qp_num())).collect();
    assert_eq!(got, [(1, one.qp_num()), (2, other.qp_num()), (3, one.qp_num())]);
}

#[test]
fn a_queue_pair_on_a_shared_queue_takes_no_receives_of_its_own() {
    let bench = Bench::new();
    let (srq, qp) = shared(&bench, 8);
    assert_eq!(qp.shared_receive_queue().map(SharedReceiveQueue::id), Some(srq.id()));
    assert!(bench.qp.shared_receive_queue().is_none());
    let caps = qp.capabilities();
    assert_eq!((caps.max_recv_wr, caps.max_recv_sge), (0, 0));
    let error = qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap_err();
    assert_eq!((error.kind(), error.accepted()), (PostErrorKind::Invalid, Some(0)));
    assert!(error.to_string().contains("the queue pair has a shared receive queue: post to that"), "{error}");
    let error = qp.post_receive_chain(&mut [ReceiveRequest::new(1, &[]), ReceiveRequest::new(2, &[])]).unwrap_err();
    assert_eq!((error.raw_os_error(), error.accepted(), error.requests()), (libc::EINVAL, Some(0), 2));
}

#[test]
fn a_full_queue_and_a_refused_request_tell_how_many_were_taken() {
    let bench = Bench::new();
    let (srq, qp) = shared(&bench, 4);
    let mut chain: Vec<_> = (0..6).map(|id| ReceiveRequest::new(id, &[])).collect();
    let error = srq.post_receive_chain(&mut chain).unwrap_err();
    assert_eq!((error.kind(), error.accepted(), error.requests()), (PostErrorKind::QueueFull, Some(4), 6));
    assert!(error.to_string().starts_with("ibv_post_srq_recv"), "{error}");
    assert!(bench.provider.deliver(&qp));
    srq.post_receive(&ReceiveRequest::new(9, &[])).unwrap();
    assert!(bench.provider.deliver(&qp));
    for (bad_wr, accepted) in [(BadWr::Refused, Some(0)), (BadWr::Null, None), (BadWr::AtBytes(7), None)] {
        bench.provider.refuse(Refusal { after: 0, errno: libc::EIO, bad_wr });
        let error = srq.post_receive(&ReceiveRequest::new(1, &[])).unwrap_err();
        assert_eq!((error.raw_os_error(), error.accepted()), (libc::EIO, accepted));
    }
    let slices = [bench.region.slice(..8).unwrap(); 3];
    let error = srq.post_receive(&ReceiveRequest::new(1, &slices)).unwrap_err();
    assert_eq!((error.kind(), error.accepted()), (PostErrorKind::Invalid, Some(0)));
    assert!(error.to_string().contains("has 3 scatter/gather entries, and the queue was made for 2"), "{error}");
}

#[test]
fn the_limit_is_told_once_and_is_then_0() {
    let bench = Bench::new();
    let (srq, qp) = shared(&bench, 8);
    let event = || bench.context.try_async_event().unwrap();
    for id in 0..8 {
        srq.post_receive(&ReceiveRequest::new(id, &[])).unwrap();
    }
    srq.set_limit(6).unwrap();
    assert_eq!(srq.attributes().unwrap().limit, 6);
    for _ in 0..2 {
        assert!(bench.provider.deliver(&qp));
        assert_eq!(event(), None);
    }
    assert!(bench.provider.deliver(&qp));
    let told = bench.context.async_event(Some(LONG)).unwrap().unwrap();
    assert_eq!(told.event_type(), AsyncEventType::SHARED_RECEIVE_QUEUE_LIMIT_REACHED);
    assert_eq!(told.source(), AsyncEventSource::SharedReceiveQueue(Some(srq.id())));
    let (other, _) = shared(&bench, 8);
    assert!(told.is_for(&srq) && !told.is_for(&other) && !told.is_for(&qp) && !told.is_for(&bench.cq));
    assert_eq!(srq.attributes().unwrap().limit, 0);
    assert!(bench.provider.deliver(&qp));
    assert_eq!(event(), None);
}

#[test]
fn sizes_beyond_the_limits_are_named() {
    let bench = Bench::new();
    for max_wr in [0, 1 << 20, u32::MAX] {
        let error = bench.pd.create_shared_receive_queue(max_wr).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        assert!(error.to_string().ends_with("null0 takes 1 to 16384 requests"), "{error}");
    }
    let error = SharedReceiveQueueBuilder::new(&bench.pd, 8).max_sge(99).build().unwrap_err();
    assert!(error.to_string().ends_with("null0 takes at most 16 scatter/gather entries a request"), "{error}");
    let (srq, _) = shared(&bench, 8);
    assert_eq!(srq.attributes().unwrap(), srq.clone().attributes().unwrap());
    let error = srq.set_limit(9).unwrap_err();
    assert!(error.to_string().ends_with("the queue holds 8 requests"), "{error}");
    let error = srq.resize(1 << 20).unwrap_err();
    assert!(error.to_string().ends_with("null0 takes 1 to 16384 requests"), "{error}");
    srq.resize(64).unwrap();
    let attributes = srq.attributes().unwrap();
    assert_eq!((attributes.max_wr, attributes.max_sge, attributes.limit), (64, 2, 0));
    assert!(srq.number().unwrap() > 0);
}

#[test]
fn the_queue_lives_as_long_as_a_queue_pair_that_uses_it() {
    let bench = Bench::new();
    let (srq, qp) = shared(&bench, 8);
    srq.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
    drop(srq);
    assert_eq!(bench.provider.live(Kind::SharedReceiveQueue), 1);
    assert!(bench.provider.deliver(&qp));
    let srq = qp.shared_receive_queue().unwrap().clone();
    drop(qp);
    srq.post_receive(&ReceiveRequest::new(2, &[])).unwrap();
    drop(srq);
    assert_eq!(bench.provider.live(Kind::SharedReceiveQueue), 0);
    assert_eq!(bench.polled(), [1]);
}

#[test]
fn posting_does_what_libibverbs_own_function_does() {
    let bench = Bench::new();
    let (srq, qp) = shared(&bench, 2);
    let request = ReceiveRequest::new(1, &[]);
    srq.post_receive(&request).unwrap();
    let mut bad_wr = std::ptr::null_mut();
    // SAFETY: the queue and the request are alive.
    let code = unsafe { ffi::ibv_post_srq_recv(srq.as_raw(), request.as_raw(), &mut bad_wr) };
    assert_eq!(code, 0);
    // SAFETY: as above.
    let code = unsafe { ffi::ibv_post_srq_recv(srq.as_raw(), request.as_raw(), &mut bad_wr) };
    assert_eq!((code, bad_wr), (libc::ENOMEM, request.as_raw()));
    assert_eq!(srq.post_receive(&request).unwrap_err().raw_os_error(), libc::ENOMEM);
    assert!(bench.provider.deliver(&qp) && bench.provider.deliver(&qp) && !bench.provider.deliver(&qp));
    assert_eq!(bench.polled(), [1, 1]);
}

#[test]
fn prepared_requests_and_slots_go_to_a_shared_queue_as_to_a_queue_pair() {
    let bench = Bench::new();
    let (srq, qp) = shared(&bench, 8);
    let hold = |range| bench.region.hold(range).unwrap();
    let mut request = PreparedReceive::new(1, [hold(..64)]);
    srq.post_prepared_receive(&request).unwrap();
    request.set_wr_id(2);
    srq.post_prepared_receive(&request).unwrap();
    let mut slots = ReceiveSlots::new(hold(..4 * 64), 64, 100).unwrap();
    assert_eq!(slots.refill(&srq).unwrap(), 4);
    for _ in 0..6 {
        assert!(bench.provider.deliver(&qp));
    }
    let mut room = [WorkCompletion::default(); 8];
    let ids: Vec<u64> = bench.cq.poll(&mut room).unwrap().iter().map(WorkCompletion::wr_id).collect();
    assert_eq!(ids, [1, 2, 100, 101, 102, 103]);
    for completion in &room[2..6] {
        let slot = (completion.wr_id() - 100) as usize;
        assert_eq!(slots.take(completion), Some(64 * slot..64 * slot + 64));
        slots.release(completion.wr_id()).unwrap();
    }
    // What the queue does not take waits.
    srq.post_receive_chain(&mut [0; 6].map(|id| ReceiveRequest::new(id, &[]))).unwrap();
    let error = slots.refill(&srq).unwrap_err();
    assert_eq!((error.kind(), error.accepted(), slots.waiting()), (PostErrorKind::QueueFull, Some(2), 2));
}
