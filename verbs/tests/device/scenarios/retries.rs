//! Peers that are not ready, not there, or no more there.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use verbs::*;

use super::{failure, ids};
use crate::harness::*;

use WorkCompletionStatus as Status;

/// Options by which a silent peer is given up soon: 2 retries, 17 ms apart.
fn impatient() -> ConnectOptions {
    let mut options = options();
    (options.retry_count, options.ack_timeout) = (2, AckTimeout::from_code(12).unwrap());
    options
}

#[test]
fn a_sender_that_may_wait_without_end_waits_for_the_receive_that_comes_late() {
    let mut lanes = Vec::new();
    for timeout_code in [12, 15, 18] {
        for retry_count in [2, 7] {
            let mut options = options();
            (options.retry_count, options.rnr_retry_count) = (retry_count, 7);
            options.ack_timeout = AckTimeout::from_code(timeout_code).unwrap();
            let (a, b) = pair_with(&options);
            a.qp.post_send(&SendRequest::send(5, &[]).signaled()).unwrap();
            lanes.push((timeout_code, retry_count, a, b));
        }
    }
    std::thread::sleep(Duration::from_millis(1500));
    for (timeout_code, retry_count, a, b) in lanes {
        let lane = format!("timeout {timeout_code}, {retry_count} retries");
        b.qp.post_receive(&ReceiveRequest::new(6, &[])).unwrap();
        let sent = a.completion();
        // rxe of Linux 6.1 may count the waiting against the retries of the transport, and 7 of those are without end. (Short timeouts
        // may also be over while a busy machine does something else.)
        let may_fail = retry_count == 2 && (kernel() < LATER || timeout_code < 18);
        if may_fail && sent.status() == Status::RETRY_COUNTER_EXCEEDED {
            continue;
        }
        assert_eq!((sent.wr_id(), sent.status()), (5, Status::SUCCESS), "{lane}");
        assert_eq!(b.completion().success().unwrap().wr_id(), 6, "{lane}");
    }
}

#[test]
fn a_wrong_queue_pair_number_and_wrong_sequence_numbers_are_a_retry_counter_exceeded_that_says_what_to_compare() {
    type Change = fn(&mut Endpoint);
    let changes: [Change; 3] = [
        |endpoint| endpoint.qp_num = 0xab_cdef,
        |endpoint| endpoint.psn -= 1000,
        // What is sent then looks as if it had arrived before. (With numbers from 2^23 on, rxe takes that for success.)
        |endpoint| endpoint.psn += 1000,
    ];
    for change in changes {
        let (a, b) = (Side::new(), Side::new());
        let (mut from, mut to) = (a.local(), b.local());
        (from.endpoint.psn, to.endpoint.psn) = (0x12_3456, 0x65_4321);
        // What each end is told of the other is wrong.
        let (mut wrong_from, mut wrong_to) = (from.endpoint, to.endpoint);
        change(&mut wrong_from);
        change(&mut wrong_to);
        a.qp.connect(&from, &wrong_to, &impatient()).unwrap();
        b.qp.connect(&to, &wrong_from, &impatient()).unwrap();
        b.qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
        let start = Instant::now();
        a.qp.post_send(&SendRequest::send(2, &[])).unwrap();
        let error = a.completion().success().unwrap_err();
        assert_eq!(error.status, Status::RETRY_COUNTER_EXCEEDED);
        assert!(error.to_string().contains("PSNs, path MTU or GIDs of both ends do not agree"), "{error}");
        assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
        assert!(b.cq.poll(&mut [WorkCompletion::default()]).unwrap().is_empty());
    }
}

/// Set for the child of the test below.
const PEER: &str = "RDMA_TEST_PEER_PROCESS";

/// How many messages the peer takes; one that is asked to wait for a receive might count that against the retries of the transport.
const RECEIVES: u64 = 400;

/// A peer that says where it is, is told who sends, and receives until it is killed.
fn receive_for_ever() {
    let b = Side::build(open_peer(), |builder| builder.max_recv_wr(RECEIVES as u32));
    let local = b.local();
    b.qp.init(&local, &options()).unwrap();
    for id in 0..RECEIVES {
        b.qp.post_receive(&ReceiveRequest::new(id, &[])).unwrap();
    }
    println!("\nendpoint {}", local.endpoint);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    b.qp.connect(&local, &line.trim().parse().unwrap(), &options()).unwrap();
    println!("\nconnected");
    for id in 0.. {
        assert_eq!(b.completion().success().unwrap().wr_id(), id);
    }
}

#[test]
fn a_peer_that_is_killed_in_mid_stream_is_told_as_a_completion_and_the_rest_is_flushed() {
    if std::env::var_os(PEER).is_some() {
        receive_for_ever();
    }
    let name = "a_peer_that_is_killed_in_mid_stream_is_told_as_a_completion_and_the_rest_is_flushed";
    let mut peer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", &format!("scenarios::retries::{name}")])
        .env(PEER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(peer.stdout.take().unwrap()).lines();
    let mut next = |start: &str| {
        let line = lines.find(|line| line.as_ref().unwrap().starts_with(start)).expect("the peer lives").unwrap();
        line[start.len()..].trim().to_owned()
    };
    let a = Side::new();
    let local = a.local();
    let remote: Endpoint = next("endpoint").parse().unwrap();
    writeln!(peer.stdin.as_ref().unwrap(), "{}", local.endpoint).unwrap();
    // 4 retries, half a second apart: more than a busy machine takes to answer.
    let mut options = options();
    (options.retry_count, options.ack_timeout) = (4, AckTimeout::from_code(17).unwrap());
    a.qp.connect(&local, &remote, &options).unwrap();
    next("connected");
    let (mut posted, mut done, mut last) = (0, 0, None);
    let mut room = [WorkCompletion::default(); 8];
    let deadline = Instant::now() + LIMIT;
    let (mut killed, mut gone) = (false, false);
    while last.is_none() {
        assert!(Instant::now() < deadline, "{posted} were posted, {done} are done");
        gone = gone || killed && peer.try_wait().unwrap().is_some();
        // Some receives stay for what is posted once the peer is gone.
        let most = if gone { RECEIVES } else { RECEIVES - 8 };
        while posted < most.min(done + 4) {
            a.qp.post_send(&SendRequest::send(posted, &[]).signaled()).unwrap();
            posted += 1;
        }
        for completion in a.cq.poll(&mut room).unwrap() {
            if last.is_some() {
                assert_eq!(failure(completion), Status::WORK_REQUEST_FLUSHED);
            } else if completion.success().is_err() {
                assert!(killed, "{completion:?}");
                last = Some(failure(completion));
            }
            assert_eq!(completion.wr_id(), done);
            done += 1;
        }
        if done >= 100 && !killed {
            peer.kill().unwrap();
            killed = true;
        }
    }
    assert_eq!(last, Some(Status::RETRY_COUNTER_EXCEEDED));
    let rest = a.completions((posted - done) as usize);
    assert_eq!(ids(&rest), (done..posted).collect::<Vec<_>>());
    assert!(rest.iter().all(|completion| failure(completion) == Status::WORK_REQUEST_FLUSHED));
    peer.wait().unwrap();
    assert!((100..RECEIVES).contains(&done), "{done}");
}
