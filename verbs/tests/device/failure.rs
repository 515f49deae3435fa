use verbs::*;

use crate::harness::*;

use WorkCompletionStatus as Status;

fn failure(completion: &WorkCompletion) -> Status {
    completion.success().unwrap_err().status
}

#[test]
fn a_full_send_queue_tells_how_many_requests_it_took() {
    // Without a receive at the peer, nothing completes.
    let (a, _b) = pair();
    let source = a.region(64, RW);
    let slices = [source.slice(..).unwrap()];
    let mut chain: Vec<_> = (0..64).map(|id| SendRequest::send(id, &slices).signaled()).collect();
    let error = a.qp.post_send_chain(&mut chain).unwrap_err();
    assert_eq!((error.kind(), error.raw_os_error(), error.requests()), (PostErrorKind::QueueFull, libc::ENOMEM, 64));
    let accepted = error.accepted().unwrap();
    assert!((8..64).contains(&accepted), "{accepted}");
    let error = a.qp.post_send(&SendRequest::send(99, &slices)).unwrap_err();
    assert_eq!((error.kind(), error.accepted()), (PostErrorKind::QueueFull, Some(0)));
    // Exactly what was taken completes, in its order.
    a.qp.move_to_error().unwrap();
    let flushed: Vec<u64> = a.completions(accepted).iter().map(WorkCompletion::wr_id).collect();
    assert_eq!(flushed, (0..accepted as u64).collect::<Vec<_>>());
    assert!(a.cq.poll(&mut [WorkCompletion::default(); 1]).unwrap().is_empty());
}

#[test]
fn a_full_receive_queue_tells_how_many_requests_it_took() {
    let side = Side::new();
    side.qp.init(&side.local(), &options()).unwrap();
    let mut chain: Vec<_> = (0..64).map(|id| ReceiveRequest::new(id, &[])).collect();
    let error = side.qp.post_receive_chain(&mut chain).unwrap_err();
    assert_eq!(error.kind(), PostErrorKind::QueueFull);
    assert!((8..64).contains(&error.accepted().unwrap()), "{error}");
    assert!(error.to_string().contains("of 64 requests were taken; the queue is full"), "{error}");
}

#[test]
fn an_invalid_request_in_mid_chain_is_found_and_those_before_it_are_carried_out() {
    let (a, b) = pair();
    // Each request has bytes of its own, and a place of its own at the peer.
    let mut source = a.region(4 * 16, RW);
    for index in 0..4 {
        source.write_at(16 * index, &[0xa0 + index as u8; 16]).unwrap();
    }
    let place = |index: usize| 16 * index..16 * (index + 1);
    let slices = [0, 1, 2, 3].map(|index| [source.slice(place(index)).unwrap()]);
    let many = [source.slice(16..17).unwrap(); 40];
    let target = b.region(4 * 16, RW);
    let remote = |index| target.remote_slice(place(index)).unwrap();
    let mut chain = [
        SendRequest::rdma_write(0, &slices[0], remote(0)).signaled(),
        SendRequest::rdma_write(1, &many, remote(1)).signaled(),
        SendRequest::rdma_write(2, &slices[2], remote(2)).signaled(),
    ];
    let error = a.qp.post_send_chain(&mut chain).unwrap_err();
    assert_eq!((error.kind(), error.accepted()), (PostErrorKind::Invalid, Some(1)));
    let done = a.completion();
    assert_eq!(done.success().unwrap().wr_id(), 0);
    a.qp.post_send(&SendRequest::rdma_write(3, &slices[3], remote(3)).signaled()).unwrap();
    assert_eq!(a.completion().success().unwrap().wr_id(), 3);
    // The last one came after whatever else was sent: the refused one was not, nor the one behind it.
    let expected = [[0xa0; 16], [0; 16], [0; 16], [0xa3; 16]].concat();
    assert_eq!(target.to_vec(..).unwrap(), expected);
    assert!(a.cq.poll(&mut [WorkCompletion::default(); 1]).unwrap().is_empty());
}

#[test]
fn posting_in_a_state_that_takes_nothing_is_an_error() {
    let side = Side::new();
    let source = side.region(64, RW);
    let slices = [source.slice(..).unwrap()];
    // rxe's provider does not say whether it took the request.
    let error = side.qp.post_receive(&ReceiveRequest::new(1, &slices)).unwrap_err();
    assert_eq!(error.kind(), PostErrorKind::Invalid);
    assert!(matches!(error.accepted(), None | Some(0)), "{error:?}");
    let error = side.qp.post_send(&SendRequest::send(1, &slices)).unwrap_err();
    assert_eq!(error.kind(), PostErrorKind::Invalid);
    assert!(matches!(error.accepted(), None | Some(0)), "{error:?}");
}

#[test]
fn what_the_peers_region_does_not_grant_is_a_remote_access_error() {
    type Case = fn(&MemoryRegion<Vec<u8>>, &MemoryRegion<Vec<u8>>) -> RemoteSlice;
    let cases: [Case; 4] = [
        // An rkey that names nothing.
        |peer, _| RemoteSlice::new(peer.as_ptr() as u64, 64, 0x00de_ad00).unwrap(),
        // Past the end.
        |peer, _| RemoteSlice::new(peer.as_ptr() as u64 + 1000, 64, peer.rkey().unwrap()).unwrap(),
        // Of another protection domain.
        |_, foreign| foreign.remote_slice(..64).unwrap(),
        // Without the right to write.
        |_, _| unreachable!("made below"),
    ];
    for (index, case) in cases.into_iter().enumerate() {
        let (a, b) = pair();
        let other_domain = b.context.create_protection_domain().unwrap();
        let (source, peer) = (a.region(64, RW), b.region(1024, RW));
        let foreign = other_domain.register(vec![0; 64], RW).unwrap();
        let read_only = b.region(64, AccessFlags::REMOTE_READ);
        let remote = if index == 3 { read_only.remote_slice(..).unwrap() } else { case(&peer, &foreign) };
        a.qp.post_send(&SendRequest::rdma_write(1, &[source.slice(..).unwrap()], remote)).unwrap();
        // It was not signaled, and completes all the same.
        let completion = a.completion();
        assert_eq!((completion.wr_id(), failure(&completion)), (1, Status::REMOTE_ACCESS_ERROR), "case {index}");
        becomes(&a.qp, QueuePairState::ERROR);
    }
}

#[test]
fn what_the_peers_queue_pair_does_not_allow_is_a_remote_invalid_request() {
    let mut options = options();
    options.access = AccessFlags::REMOTE_READ;
    let (a, b) = pair_with(&options);
    let (source, peer) = (a.region(64, RW), b.region(64, RW));
    let remote = peer.remote_slice(..).unwrap();
    a.qp.post_send(&SendRequest::rdma_write(1, &[source.slice(..).unwrap()], remote)).unwrap();
    let error = a.completion().success().unwrap_err();
    assert_eq!(error.status, Status::REMOTE_INVALID_REQUEST);
    assert!(error.to_string().contains("the peer's queue pair does not allow the operation"), "{error}");
}

#[test]
fn a_receive_that_is_too_small_fails_at_both_ends() {
    let (a, b) = pair();
    let (source, target) = (a.region(128, RW), b.region(64, RW));
    b.qp.post_receive(&ReceiveRequest::new(1, &[target.slice(..).unwrap()])).unwrap();
    b.qp.post_receive(&ReceiveRequest::new(2, &[target.slice(..).unwrap()])).unwrap();
    a.qp.post_send(&SendRequest::send(3, &[source.slice(..).unwrap()]).signaled()).unwrap();
    let received = b.completions(2);
    // The specification has a local length error and a remote invalid request; rxe has the second ones.
    let (first, sent) = (failure(&received[0]), failure(&a.completion()));
    assert!([Status::LOCAL_LENGTH_ERROR, Status::LOCAL_QUEUE_PAIR_OPERATION_ERROR].contains(&first), "{first}");
    assert!([Status::REMOTE_INVALID_REQUEST, Status::REMOTE_OPERATION_ERROR].contains(&sent), "{sent}");
    assert_eq!((received[1].wr_id(), failure(&received[1])), (2, Status::WORK_REQUEST_FLUSHED));
}

#[test]
fn a_peer_without_a_receive_is_told_after_finite_retries() {
    let mut options = options();
    options.rnr_retry_count = 1;
    options.min_rnr_timer = RnrTimer::from_code(1).unwrap();
    let (a, _b) = pair_with(&options);
    let source = a.region(64, RW);
    a.qp.post_send(&SendRequest::send(1, &[source.slice(..).unwrap()])).unwrap();
    let error = a.completion().success().unwrap_err();
    assert_eq!(error.status, Status::RNR_RETRY_COUNTER_EXCEEDED);
    assert!(error.to_string().contains("the peer had no receive posted"), "{error}");
    // The queue pair is in ERROR, and what is posted now is flushed.
    a.qp.post_send(&SendRequest::send(2, &[source.slice(..).unwrap()])).unwrap();
    assert_eq!(failure(&a.completion()), Status::WORK_REQUEST_FLUSHED);
}

#[test]
fn a_peer_that_is_gone_is_a_retry_counter_exceeded() {
    let mut options = options();
    options.retry_count = 2;
    options.ack_timeout = AckTimeout::from_code(12).unwrap();
    let (a, b) = pair_with(&options);
    let source = a.region(64, RW);
    drop(b.qp);
    a.qp.post_send(&SendRequest::send(1, &[source.slice(..).unwrap()]).signaled()).unwrap();
    assert_eq!(failure(&a.completion()), Status::RETRY_COUNTER_EXCEEDED);
}

#[test]
fn everything_is_flushed_in_its_order_once_in_error() {
    let (a, b) = pair();
    let target = b.region(64, RW);
    let slices = [target.slice(..).unwrap()];
    for id in 0..5 {
        b.qp.post_receive(&ReceiveRequest::new(id, &slices)).unwrap();
    }
    b.qp.move_to_error().unwrap();
    let flushed = b.completions(5);
    assert!(flushed.iter().all(|completion| failure(completion) == Status::WORK_REQUEST_FLUSHED));
    assert_eq!(flushed.iter().map(WorkCompletion::wr_id).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    drop(a);
}

#[test]
fn a_region_deregistered_under_a_posted_receive_stays_untouched() {
    let (a, b) = pair();
    let mut source = a.region(64, RW);
    source.fill(5);
    let target = b.region(64, RW);
    b.qp.post_receive(&ReceiveRequest::new(1, &[target.slice(..).unwrap()])).unwrap();
    let buffer = target.deregister().unwrap();
    a.qp.post_send(&SendRequest::send(2, &[source.slice(..).unwrap()]).signaled()).unwrap();
    let received = failure(&b.completion());
    assert!(
        [Status::LOCAL_PROTECTION_ERROR, Status::LOCAL_QUEUE_PAIR_OPERATION_ERROR].contains(&received),
        "{received}"
    );
    assert_eq!(failure(&a.completion()), Status::REMOTE_OPERATION_ERROR);
    assert_eq!(buffer, [0; 64]);
}
