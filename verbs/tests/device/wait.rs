use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use verbs::*;

use crate::harness::*;

#[test]
fn waiting_ends_with_nothing_when_the_time_is_over() {
    let side = Side::new();
    let start = Instant::now();
    let mut room = [WorkCompletion::default(); 4];
    assert!(side.cq.wait(&mut room, Some(Duration::from_millis(100))).unwrap().is_empty());
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(100) && elapsed < LIMIT, "{elapsed:?}");
    assert!(side.cq.wait(&mut room, Some(Duration::ZERO)).unwrap().is_empty());
    assert!(side.cq.wait(&mut [], None).unwrap().is_empty());
}

#[test]
fn a_queue_without_a_channel_cannot_be_waited_for() {
    let cq = open().create_completion_queue(4).unwrap();
    assert!(cq.channel().is_none());
    let error = cq.wait(&mut [WorkCompletion::default()], None).unwrap_err();
    assert!(error.to_string().contains("only a channel can be waited for"), "{error}");
}

#[test]
fn no_wake_up_is_lost_when_two_threads_answer_each_other() {
    const ROUNDS: usize = 500;
    let (a, b) = pair();
    let bounce = |side: &Side, first: bool| {
        for round in 0..ROUNDS {
            side.qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
            let send = || side.qp.post_send(&SendRequest::send(2, &[]).signaled()).unwrap();
            if first {
                send();
                assert_eq!(side.completions(2).len(), 2, "round {round}");
            } else {
                // The receive of this round, and the send that answers it.
                let got = side.completion();
                assert_eq!(got.wr_id(), 1, "round {round}");
                send();
                assert_eq!(side.completion().wr_id(), 2, "round {round}");
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| bounce(&b, false));
        scope.spawn(|| bounce(&a, true));
    });
}

#[test]
fn threads_that_share_a_channel_each_get_the_completions_of_their_own_queue() {
    const ROUNDS: u64 = 200;
    let context = open();
    let pd = context.create_protection_domain().unwrap();
    let channel = context.create_completion_channel().unwrap();
    let make = || {
        let cq = CompletionQueueBuilder::new(&context, 16).channel(&channel).build().unwrap();
        let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).build().unwrap();
        (cq, qp)
    };
    let lanes: Vec<_> = (0..3)
        .map(|_| {
            let (cq, qp) = make();
            let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
            // Connected to itself.
            qp.connect(&local, &local.endpoint, &options()).unwrap();
            (cq, qp)
        })
        .collect();
    thread::scope(|scope| {
        for (lane, (cq, qp)) in (0u64..).zip(&lanes) {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let id = 1000 * lane + round;
                    qp.post_receive(&ReceiveRequest::new(id, &[])).unwrap();
                    qp.post_send(&SendRequest::send(id, &[]).signaled()).unwrap();
                    let got = completions(cq, 2);
                    assert!(got.iter().all(|wc| wc.success().unwrap().wr_id() == id), "{got:?}");
                }
            });
        }
    });
}

#[test]
fn ten_thousand_completions_of_a_sender_that_does_not_wait_are_all_waited_for() {
    const ROUNDS: u64 = 10_000;
    const AHEAD: u64 = 32;
    let side = Side::build(open(), |builder| builder.max_send_wr(64));
    let local = side.local();
    // Connected to itself.
    side.qp.connect(&local, &local.endpoint, &options()).unwrap();
    let seen = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let nowhere = RemoteSlice::new(0, 0, 0).unwrap();
            for wr_id in 0..ROUNDS {
                // The completion queue is not to overflow. One request is ahead, or many: now and then the waiter has to sleep.
                let ahead = if wr_id % 64 < 32 { 1 } else { AHEAD };
                until("the waiter follows", || wr_id < seen.load(Ordering::Acquire) + ahead);
                side.qp.post_send(&SendRequest::rdma_write(wr_id, &[], nowhere).signaled()).unwrap();
            }
        });
        let mut room = [WorkCompletion::default(); 3];
        let mut next = 0;
        while next < ROUNDS {
            let some = side.cq.wait(&mut room, Some(LIMIT)).unwrap();
            assert!(!some.is_empty(), "nothing came after {next}");
            for completion in some {
                assert_eq!(completion.success().unwrap().wr_id(), next);
                next += 1;
            }
            seen.store(next, Ordering::Release);
        }
    });
}

#[test]
fn a_thread_waits_on_though_all_other_handles_are_dropped_meanwhile() {
    for round in 0..5 {
        let (a, b) = pair();
        let Side { context, pd, cq, qp } = b;
        let channel = cq.channel().unwrap().clone();
        qp.post_receive(&ReceiveRequest::new(round, &[])).unwrap();
        let (tell, told) = mpsc::channel();
        let own = cq.clone();
        let waiter = thread::spawn(move || {
            tell.send(thread_number()).unwrap();
            let mut room = [WorkCompletion::default(); 1];
            let id = own.wait(&mut room, Some(LIMIT)).unwrap()[0].success().unwrap().wr_id();
            // The last handle of the queue, and with it of its channel.
            drop(own);
            id
        });
        let number = told.recv().unwrap();
        until("the waiter sleeps", || is_asleep(&number));
        drop((channel, cq, pd, context));
        a.qp.post_send(&SendRequest::send(7, &[]).signaled()).unwrap();
        assert_eq!(waiter.join().unwrap(), round);
        assert_eq!(a.completion().success().unwrap().wr_id(), 7);
        drop(qp);
    }
}

#[test]
fn a_queue_with_events_that_nobody_took_or_acked_is_dropped_at_once() {
    // In a thread of its own: a drop that hangs is to fail the test and not to hang it.
    let (done, wait) = mpsc::channel();
    thread::spawn(move || {
        for taken in [false, true] {
            let (a, b) = pair();
            a.cq.arm(Notify::Any).unwrap();
            b.qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
            a.qp.post_send(&SendRequest::send(2, &[]).signaled()).unwrap();
            b.completion();
            readable(a.cq.channel().unwrap());
            if taken {
                // A second queue on the channel: waiting for it takes the first one's event.
                let other =
                    CompletionQueueBuilder::new(&a.context, 4).channel(a.cq.channel().unwrap()).build().unwrap();
                let time = Some(Duration::from_millis(50));
                assert!(other.wait(&mut [WorkCompletion::default()], time).unwrap().is_empty());
            }
            drop(a);
        }
        done.send(()).unwrap();
    });
    wait.recv_timeout(LIMIT).expect("a drop hangs, or a check in the thread failed");
}

/// Waits until a descriptor is readable.
fn readable(channel: &CompletionChannel) {
    use std::os::fd::AsRawFd;
    let mut poll = libc::pollfd { fd: channel.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `poll` is one structure and outlives the call.
    let count = unsafe { libc::poll(&mut poll, 1, LIMIT.as_millis() as i32) };
    assert_eq!((count, poll.revents), (1, libc::POLLIN));
}

#[test]
fn solicited_only_is_woken_by_a_solicited_message_and_by_an_error() {
    let (a, b) = pair();
    let quiet = |side: &Side| {
        let mut poll = libc::pollfd { fd: raw(side), events: libc::POLLIN, revents: 0 };
        // SAFETY: `poll` is one structure and outlives the call.
        unsafe { libc::poll(&mut poll, 1, 100) == 0 }
    };
    for _ in 0..3 {
        b.qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
    }
    b.cq.arm(Notify::Solicited).unwrap();
    a.qp.post_send(&SendRequest::send(2, &[]).signaled()).unwrap();
    a.completion().success().unwrap();
    assert!(quiet(&b));
    a.qp.post_send(&SendRequest::send(2, &[]).solicited().signaled()).unwrap();
    readable(b.cq.channel().unwrap());
    assert_eq!(b.completions(2).len(), 2);
    assert!(b.cq.take_event().unwrap());
    assert!(quiet(&b));
    // A receive that is flushed counts as solicited; with rxe of Linux 6.12 it does not.
    b.cq.arm(Notify::Solicited).unwrap();
    b.qp.move_to_error().unwrap();
    if kernel() == (6, 1) {
        readable(b.cq.channel().unwrap());
    }
    let mut room = [WorkCompletion::default(); 2];
    until("the receive is flushed", || b.cq.poll(&mut room).unwrap().len() == 1);
    assert_eq!(room[0].status(), WorkCompletionStatus::WORK_REQUEST_FLUSHED);
}

fn raw(side: &Side) -> i32 {
    use std::os::fd::AsRawFd;
    side.cq.channel().unwrap().as_fd().as_raw_fd()
}
