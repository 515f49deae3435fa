use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use verbs::*;

use crate::{Bench, LONG, connect};

const SHORT: Duration = Duration::from_millis(2);

#[test]
fn a_queue_is_resized_and_keeps_what_is_in_it() {
    let bench = Bench::new();
    let other_handle = bench.cq.clone();
    for wr_id in 0..5 {
        bench.qp.post_receive(&ReceiveRequest::new(wr_id, &[])).unwrap();
    }
    bench.cq.resize(500).unwrap();
    assert_eq!((bench.cq.capacity(), other_handle.capacity()), (500, 500));
    let error = bench.cq.resize(4).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    assert!(error.to_string().ends_with("more completions than that may be waiting: poll them first"), "{error}");
    for entries in [0, (1 << 22) + 1, u32::MAX] {
        let error = bench.cq.resize(entries).unwrap_err();
        assert!(error.to_string().ends_with("null0 takes 1 to 4194304 entries"), "{error}");
    }
    assert_eq!(bench.cq.capacity(), 500);
    assert_eq!(bench.polled(), [0, 1, 2, 3, 4]);
    bench.cq.resize(4).unwrap();
    assert_eq!(bench.cq.capacity(), 4);
}

#[test]
fn the_capacity_is_read_while_other_threads_resize_and_poll() {
    let bench = Bench::new();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let resizers = [100, 200].map(|entries| {
            let cq = bench.cq.clone();
            scope.spawn(move || {
                for _ in 0..500 {
                    cq.resize(entries).unwrap();
                }
            })
        });
        let reader = scope.spawn(|| {
            let mut room = [WorkCompletion::default(); 1];
            while !done.load(Ordering::Relaxed) {
                assert!([64, 100, 200].contains(&bench.cq.capacity()), "{}", bench.cq.capacity());
                assert!(bench.cq.poll(&mut room).unwrap().is_empty());
            }
        });
        for resizer in resizers {
            resizer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
}

#[test]
fn moderation_reaches_the_device_in_microseconds() {
    let bench = Bench::new();
    bench.cq.moderate(16, Duration::from_nanos(99_001)).unwrap();
    assert_eq!(bench.provider.moderation(&bench.cq), (16, 100));
    bench.cq.moderate(0, Duration::ZERO).unwrap();
    assert_eq!(bench.provider.moderation(&bench.cq), (0, 0));
    assert_eq!(bench.cq.moderate(2000, Duration::ZERO).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    for period in [Duration::from_micros(65_536), Duration::MAX] {
        let error = bench.cq.moderate(1, period).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "cq_period", .. }), "{error:?}");
    }
}

#[test]
fn an_event_is_taken_without_sleeping_and_told_once() {
    let bench = Bench::new();
    let channel = bench.cq.channel().unwrap();
    let other = CompletionQueueBuilder::new(&bench.context, 8).channel(channel).build().unwrap();
    let post = || bench.qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
    assert!(!bench.cq.take_event().unwrap());
    // Not armed, no event.
    post();
    assert!(!bench.cq.take_event().unwrap());
    bench.cq.arm(Notify::Any).unwrap();
    post();
    // The other queue takes the event from the channel, and does not have it.
    assert!(!other.take_event().unwrap());
    assert_eq!(bench.provider.unacked(&bench.cq), 1);
    assert!(bench.cq.take_event().unwrap());
    assert!(!bench.cq.take_event().unwrap());
    let error = bench.context.create_completion_queue(8).unwrap().take_event().unwrap_err();
    assert!(error.to_string().contains("only a channel can be waited for"), "{error}");
    bench.cq.arm(Notify::Any).unwrap();
    post();
    bench.provider.fail("ibv_get_cq_event", libc::ENODEV);
    assert_eq!(bench.cq.take_event().unwrap_err().raw_os_error(), Some(libc::ENODEV));
    assert!(bench.cq.take_event().unwrap());
}

#[test]
fn a_thread_that_waits_has_its_event_though_another_takes_events_all_the_time() {
    let bench = Bench::new();
    let channel = bench.cq.channel().unwrap();
    let other = CompletionQueueBuilder::new(&bench.context, 8).channel(channel).build().unwrap();
    let qp = QueuePair::<Rc>::builder(&bench.pd, &other, &other).build().unwrap();
    connect(&qp);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let taker = scope.spawn(|| {
            let mut taken = 0;
            while !done.load(Ordering::Relaxed) {
                taken += u32::from(bench.cq.take_event().unwrap());
            }
            taken
        });
        let mut room = [WorkCompletion::default(); 4];
        for wr_id in 0..100 {
            bench.cq.arm(Notify::Any).unwrap();
            let waiter = scope.spawn(|| {
                let mut room = [WorkCompletion::default(); 4];
                other.wait(&mut room, Some(LONG)).unwrap().iter().map(WorkCompletion::wr_id).collect::<Vec<_>>()
            });
            thread::sleep(SHORT / 8);
            bench.qp.post_receive(&ReceiveRequest::new(wr_id, &[])).unwrap();
            qp.post_receive(&ReceiveRequest::new(wr_id, &[])).unwrap();
            assert_eq!(waiter.join().unwrap(), [wr_id]);
            assert_eq!(bench.cq.poll(&mut room).unwrap().len(), 1);
        }
        done.store(true, Ordering::Relaxed);
        // Events of one queue that come between two looks are one.
        let taken = taker.join().unwrap() + u32::from(bench.cq.take_event().unwrap());
        assert!((1..=100).contains(&taken), "{taken}");
    });
}

#[test]
fn a_wait_for_solicited_completions_takes_what_is_there_and_ends_when_the_time_is_over() {
    let bench = Bench::new();
    let mut room = [WorkCompletion::default(); 4];
    assert!(bench.cq.wait_for(Notify::Solicited, &mut room, Some(SHORT)).unwrap().is_empty());
    assert_eq!(bench.provider.armed(&bench.cq), Some(Notify::Solicited));
    bench.qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
    assert_eq!(bench.cq.wait_for(Notify::Solicited, &mut room, Some(LONG)).unwrap()[0].wr_id(), 1);
    assert!(bench.cq.wait(&mut room, Some(SHORT)).unwrap().is_empty());
    assert_eq!(bench.provider.armed(&bench.cq), Some(Notify::Any));
}
