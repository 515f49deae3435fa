use std::time::{Duration, Instant};

use verbs::*;

use crate::null_provider::Fault;
use crate::{Bench, LONG, take_event};

const SHORT: Duration = Duration::from_millis(2);

#[test]
fn a_wait_ends_when_a_completion_comes_or_the_time_is_over() {
    let bench = Bench::new();
    let mut room = [WorkCompletion::default(); 4];
    let begin = Instant::now();
    assert!(bench.cq.wait(&mut room, Some(SHORT)).unwrap().is_empty());
    assert!(begin.elapsed() >= SHORT);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut room = [WorkCompletion::default(); 4];
            bench.cq.wait(&mut room, Some(LONG)).unwrap().iter().map(WorkCompletion::wr_id).collect::<Vec<_>>()
        });
        bench.qp.post_send(&SendRequest::send(5, &[]).signaled()).unwrap();
        assert_eq!(waiter.join().unwrap(), [5]);
    });
}

#[test]
fn each_event_that_was_taken_is_acked_before_the_queue_is_destroyed() {
    let bench = Bench::new();
    for wr_id in 0..10 {
        take_event(&bench.provider, &bench.cq, || {
            bench.qp.post_send(&SendRequest::send(wr_id, &[]).signaled()).unwrap();
        });
    }
    assert_eq!(bench.provider.unacked(&bench.cq), 10);
    // Dropping the rest does as the name says; the provider fails the test otherwise.
}

#[test]
fn an_event_that_another_thread_took_wakes_the_queue_that_it_was_for() {
    let bench = Bench::new();
    let channel = bench.cq.channel().unwrap();
    let queues = [(); 4].map(|()| CompletionQueueBuilder::new(&bench.context, 8).channel(channel).build().unwrap());
    let pairs = queues.each_ref().map(|cq| {
        let qp = QueuePair::<Rc>::builder(&bench.pd, cq, cq).build().unwrap();
        crate::connect(&qp);
        qp
    });
    for round in 0..50 {
        std::thread::scope(|scope| {
            let waiters = queues.each_ref().map(|cq| {
                scope.spawn(move || {
                    let mut room = [WorkCompletion::default(); 4];
                    cq.wait(&mut room, Some(LONG)).unwrap().iter().map(WorkCompletion::wr_id).collect::<Vec<_>>()
                })
            });
            for qp in &pairs {
                qp.post_send(&SendRequest::send(round, &[]).signaled()).unwrap();
            }
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), [round]);
            }
        });
    }
}

#[test]
fn a_thread_waits_on_though_all_other_handles_are_dropped_meanwhile() {
    for taken_first in [false, true] {
        let Bench { qp, region, cq, pd, context, provider } = Bench::new();
        let channel = cq.channel().unwrap().clone();
        let own = cq.clone();
        let waiter = std::thread::spawn(move || {
            let mut room = [WorkCompletion::default(); 1];
            let wr_id = own.wait(&mut room, Some(LONG)).unwrap()[0].wr_id();
            // The queue pair may be gone by now, and this the last handle of the queue and its channel.
            drop(own);
            wr_id
        });
        drop((region, channel, cq, pd, context));
        qp.post_send(&SendRequest::send(9, &[]).signaled()).unwrap();
        if taken_first {
            assert_eq!(waiter.join().unwrap(), 9);
            drop(qp);
        } else {
            drop(qp);
            assert_eq!(waiter.join().unwrap(), 9);
        }
        provider.assert_clean();
    }
}

#[test]
fn a_channel_that_fails_is_an_error_of_the_wait() {
    let bench = Bench::new();
    let mut room = [WorkCompletion::default(); 4];
    bench.cq.arm(Notify::Any).unwrap();
    bench.qp.post_send(&SendRequest::send(1, &[]).signaled()).unwrap();
    bench.cq.poll(&mut room).unwrap();
    bench.provider.fault("ibv_get_cq_event", Fault { errno: libc::ENODEV, returns: None });
    let error = bench.cq.wait(&mut room, Some(LONG)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    assert!(error.to_string().contains("ibv_get_cq_event"), "{error}");
    // One that only was interrupted is not.
    bench.provider.fault("ibv_get_cq_event", Fault { errno: libc::EINTR, returns: None });
    assert!(bench.cq.wait(&mut room, Some(SHORT)).unwrap().is_empty());
    bench.provider.fail("ibv_req_notify_cq", libc::EIO);
    assert_eq!(bench.cq.wait(&mut room, Some(LONG)).unwrap_err().raw_os_error(), Some(libc::EIO));
}

#[test]
fn a_queue_without_a_channel_cannot_be_waited_for() {
    let bench = Bench::new();
    let cq = bench.context.create_completion_queue(8).unwrap();
    let error = cq.wait(&mut [WorkCompletion::default(); 1], Some(SHORT)).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }));
}

#[test]
fn a_hundred_thousand_waits_with_a_sender_beside_them_miss_no_completion() {
    const ROUNDS: u64 = 100_000;
    let bench = Bench::build(|builder| builder.max_send_wr(64));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for wr_id in 0..ROUNDS {
                // The queue may be full of what nobody has taken yet.
                while bench.qp.post_send(&SendRequest::send(wr_id, &[]).signaled()).is_err() {
                    std::thread::yield_now();
                }
            }
        });
        let mut room = [WorkCompletion::default(); 3];
        let mut next = 0;
        while next < ROUNDS {
            let some = bench.cq.wait(&mut room, Some(LONG)).unwrap();
            assert!(!some.is_empty(), "nothing came after {next}");
            for completion in some {
                assert_eq!(completion.success().unwrap().wr_id(), next);
                next += 1;
            }
        }
    });
}
