//! Requests that fail: with which status, at which end, and what becomes of those behind them.
//!
//! rxe names some failures otherwise than the specification, and Linux 6.12 otherwise than 6.1; each set of statuses says which.

use verbs::*;

use super::{failure, ids, statuses};
use crate::harness::*;

use WorkCompletionStatus as Status;

#[test]
fn a_failed_completion_gives_its_identifier_and_its_status_and_nothing_that_is_undefined() {
    let (a, b) = pair();
    for id in [11, 12] {
        b.qp.post_receive(&ReceiveRequest::new(id, &[])).unwrap();
    }
    b.qp.move_to_error().unwrap();
    b.qp.post_send(&SendRequest::send(13, &[])).unwrap();
    let mut all = b.completions(3);
    // The two queues of a queue pair are flushed independently of each other.
    all.sort_by_key(WorkCompletion::wr_id);
    // On rxe each looks like a SEND that moved no bytes, and says so to nobody.
    assert_eq!(ids(&all), [11, 12, 13]);
    for completion in &all {
        let error = completion.success().unwrap_err();
        assert_eq!((error.status, error.qp_num), (Status::WORK_REQUEST_FLUSHED, b.qp.qp_num()));
        assert!(!format!("{completion:?} {completion}").contains("SEND"), "{completion:?}");
    }
    drop(a);
}

#[test]
fn an_error_completes_each_request_at_both_ends_though_none_was_signaled() {
    let (a, b) = pair();
    for id in [1, 2] {
        b.qp.post_receive(&ReceiveRequest::new(id, &[])).unwrap();
    }
    let (source, target) = (a.region(64, RW), b.region(64, RW));
    let slices = [source.slice(..).unwrap()];
    let (bad, good) = (RemoteSlice::new(4096, 64, 0x00de_ad00).unwrap(), target.remote_slice(..).unwrap());
    let mut chain = [
        SendRequest::rdma_write(3, &slices, bad),
        SendRequest::rdma_write(4, &slices, good),
        SendRequest::rdma_read(5, &slices, good),
    ];
    a.qp.post_send_chain(&mut chain).unwrap();
    let sent = a.completions(3);
    let flushed = Status::WORK_REQUEST_FLUSHED;
    assert_eq!((ids(&sent), statuses(&sent)), (vec![3, 4, 5], vec![Status::REMOTE_ACCESS_ERROR, flushed, flushed]));
    let received = b.completions(2);
    assert_eq!((ids(&received), statuses(&received)), (vec![1, 2], vec![flushed, flushed]));
    for side in [&a, &b] {
        becomes(&side.qp, QueuePairState::ERROR);
    }
    // What is posted now is taken, and flushed in its order.
    for id in 6..9 {
        a.qp.post_send(&SendRequest::send(id, &[])).unwrap();
        a.qp.post_receive(&ReceiveRequest::new(10 + id, &[])).unwrap();
    }
    // rxe looks at its receives only when it is told to, and so it is told once more.
    a.qp.move_to_error().unwrap();
    let mut later = a.completions(6);
    assert!(later.iter().all(|completion| failure(completion) == flushed));
    later.sort_by_key(|completion| completion.wr_id() / 10);
    assert_eq!(ids(&later), [6, 7, 8, 16, 17, 18]);
}

#[test]
fn a_receive_that_cannot_take_the_message_fails_both_ends_and_the_next_one_is_flushed() {
    for case in 0..3 {
        let (a, b) = pair();
        let source = a.region(8192, RW);
        let (target, read_only) = (b.region(2000, RW), b.region(2000, AccessFlags::empty()));
        let (length, slice) = match case {
            0 => (128, target.slice(..64).unwrap()),
            // Several packets, the first of which fit.
            1 => (8192, target.slice(..).unwrap()),
            _ => (128, read_only.slice(..).unwrap()),
        };
        for id in [1, 2] {
            b.qp.post_receive(&ReceiveRequest::new(id, &[slice])).unwrap();
        }
        a.qp.post_send(&SendRequest::send(3, &[source.slice(..length).unwrap()])).unwrap();
        let received = b.completions(2);
        // The specification has local length error or local protection error, and remote invalid request or remote operation error; rxe
        // has local queue pair operation error, and remote operation error.
        let at_receiver =
            [Status::LOCAL_LENGTH_ERROR, Status::LOCAL_PROTECTION_ERROR, Status::LOCAL_QUEUE_PAIR_OPERATION_ERROR];
        assert!(at_receiver.contains(&failure(&received[0])), "case {case}: {received:?}");
        assert_eq!((ids(&received), failure(&received[1])), (vec![1, 2], Status::WORK_REQUEST_FLUSHED));
        let text = received[0].success().unwrap_err().to_string();
        assert!(text.contains("as large as the message") || text.contains("smaller than the message"), "{text}");
        let sent = failure(&a.completion());
        assert!(
            [Status::REMOTE_INVALID_REQUEST, Status::REMOTE_OPERATION_ERROR].contains(&sent),
            "case {case}: {sent}"
        );
        for side in [&a, &b] {
            becomes(&side.qp, QueuePairState::ERROR);
        }
        assert_eq!(read_only.to_vec(..).unwrap(), [0; 2000]);
    }
}

#[test]
fn memory_that_may_not_be_written_is_not_written_by_a_read_nor_by_a_peer() {
    let (a, b) = pair();
    let mut source = b.region(64, RW);
    source.fill(9);
    let read_only = a.region(64, AccessFlags::empty());
    let slices = [read_only.slice(..).unwrap()];
    a.qp.post_send(&SendRequest::rdma_read(1, &slices, source.remote_slice(..).unwrap())).unwrap();
    let status = failure(&a.completion());
    assert!([Status::LOCAL_PROTECTION_ERROR, Status::LOCAL_QUEUE_PAIR_OPERATION_ERROR].contains(&status), "{status}");
    assert_eq!(read_only.to_vec(..).unwrap(), [0; 64]);
    // A region without rights for peers has no key to give away; one that is guessed does not help.
    let (a, b) = pair();
    let hidden = b.region(64, AccessFlags::empty());
    assert!(hidden.remote_slice(..).is_err());
    let guessed = RemoteSlice::new(hidden.as_ptr() as u64, 64, hidden.slice(..).unwrap().lkey()).unwrap();
    let source = a.region(64, RW);
    a.qp.post_send(&SendRequest::rdma_write(1, &[source.slice(..).unwrap()], guessed)).unwrap();
    assert_eq!(failure(&a.completion()), Status::REMOTE_ACCESS_ERROR);
    assert_eq!(hidden.to_vec(..).unwrap(), [0; 64]);
}

/// A request to the peer's memory.
type Operation = for<'a> fn(&'a [LocalSlice<'a>], RemoteSlice) -> SendRequest<'a>;

const OPERATIONS: [(AccessFlags, Operation); 4] = [
    (AccessFlags::REMOTE_WRITE, |slices, remote| SendRequest::rdma_write(1, slices, remote)),
    (AccessFlags::REMOTE_READ, |slices, remote| SendRequest::rdma_read(1, slices, remote)),
    (AccessFlags::REMOTE_ATOMIC, |slices, remote| SendRequest::fetch_and_add(1, slices, remote, 1)),
    (AccessFlags::REMOTE_ATOMIC, |slices, remote| SendRequest::compare_and_swap(1, slices, remote, 0, 1)),
];

const ALL: AccessFlags = RW.union(AccessFlags::REMOTE_ATOMIC);

#[test]
fn what_the_queue_pair_and_what_the_region_does_not_allow_are_told_apart_for_each_operation() {
    for (right, operation) in OPERATIONS {
        for of_region in [false, true] {
            let mut options = options();
            options.access = if of_region { ALL } else { ALL - right };
            let (a, b) = pair_with(&options);
            let region = b.region(8, if of_region { ALL - right } else { ALL });
            let source = a.region(8, RW);
            let slices = [source.slice(..).unwrap()];
            a.qp.post_send(&operation(&slices, region.remote_slice(..).unwrap())).unwrap();
            let error = a.completion().success().unwrap_err();
            let (status, text) = match of_region {
                true => (Status::REMOTE_ACCESS_ERROR, "the rkey, the range or the rights of the peer's region"),
                false => (Status::REMOTE_INVALID_REQUEST, "the peer's queue pair does not allow the operation"),
            };
            assert_eq!(error.status, status, "{right:?}, of the region: {of_region}");
            assert!(error.to_string().contains(text), "{error}");
        }
    }
}
