use std::collections::HashSet;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use verbs::*;

use AsyncEventSource as Source;
use AsyncEventType as Type;

use crate::null_provider::Fault;
use crate::{Bench, ERRNOS, LONG};

const SHORT: Duration = Duration::from_millis(2);

/// The types of events, by what they are of.
const OF_QUEUE_PAIRS: [Type; 8] = [
    Type::QUEUE_PAIR_FATAL,
    Type::QUEUE_PAIR_REQUEST_ERROR,
    Type::QUEUE_PAIR_ACCESS_ERROR,
    Type::COMMUNICATION_ESTABLISHED,
    Type::SEND_QUEUE_DRAINED,
    Type::PATH_MIGRATED,
    Type::PATH_MIGRATION_ERROR,
    Type::LAST_WORK_QUEUE_ELEMENT_REACHED,
];
const OF_PORTS: [Type; 7] = [
    Type::PORT_ACTIVE,
    Type::PORT_ERROR,
    Type::LID_CHANGE,
    Type::PKEY_CHANGE,
    Type::SUBNET_MANAGER_CHANGE,
    Type::CLIENT_REREGISTER,
    Type::GID_CHANGE,
];

fn next(context: &Context) -> AsyncEvent {
    context.async_event(Some(LONG)).unwrap().expect("an event")
}

#[test]
fn each_event_names_what_it_is_of() {
    let bench = Bench::new();
    let Bench { provider, context, qp, cq, pd, .. } = &bench;
    for event_type in OF_QUEUE_PAIRS {
        provider.raise(context, event_type, qp.as_raw() as usize);
        let event = next(context);
        assert_eq!(event.event_type(), event_type);
        assert_eq!(event.source(), Source::QueuePair { qp_num: qp.qp_num(), id: Some(qp.id()) });
        assert!(event.is_for(qp) && !event.is_for(cq));
    }
    for event_type in OF_PORTS {
        provider.raise(context, event_type, 1);
        let event = next(context);
        assert_eq!((event.event_type(), event.source()), (event_type, Source::Port(1)));
        assert!(!event.is_for(qp) && !event.is_for(cq));
    }
    provider.raise(context, Type::COMPLETION_QUEUE_ERROR, cq.as_raw() as usize);
    let event = next(context);
    assert_eq!(event.source(), Source::CompletionQueue(Some(cq.id())));
    let others = (context.create_completion_queue(8).unwrap(), QueuePair::<Rc>::builder(pd, cq, cq).build().unwrap());
    assert!(event.is_for(cq) && !event.is_for(&others.0) && !event.is_for(&others.1) && !event.is_for(qp));
    for event_type in [Type::DEVICE_FATAL, Type::DEVICE_SPEED_CHANGE] {
        provider.raise(context, event_type, 0);
        assert_eq!(next(context).source(), Source::Device);
    }
    provider.raise(context, Type::from_raw(77), 12345);
    let event = next(context);
    assert_eq!((event.event_type().as_raw(), event.source()), (77, Source::Unknown));
    assert_eq!(context.try_async_event().unwrap(), None);
}

#[test]
fn a_wait_for_an_event_ends_when_one_comes_or_the_time_is_over() {
    let bench = Bench::new();
    let begin = Instant::now();
    assert_eq!(bench.context.async_event(Some(SHORT)).unwrap(), None);
    assert!(begin.elapsed() >= SHORT);
    assert_eq!(bench.context.async_event(Some(Duration::ZERO)).unwrap(), None);
    thread::scope(|scope| {
        let waiters = [Some(LONG), None, Some(Duration::MAX)].map(|time| {
            let context = &bench.context;
            scope.spawn(move || context.async_event(time).unwrap().unwrap().event_type())
        });
        for _ in &waiters {
            bench.provider.raise(&bench.context, Type::PORT_ACTIVE, 1);
        }
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Type::PORT_ACTIVE);
        }
    });
}

#[test]
fn each_event_goes_to_one_of_the_threads_and_none_of_them_hangs() {
    const EVENTS: u32 = 400;
    let bench = Bench::new();
    let Bench { provider, context, .. } = &bench;
    let count = &AtomicU32::new(0);
    thread::scope(|scope| {
        let takers = [(); 4].map(|()| {
            scope.spawn(move || {
                let mut taken = Vec::new();
                // The last ones find nothing, though the descriptor was readable for a moment.
                while count.load(Ordering::Relaxed) < EVENTS {
                    if let Some(event) = context.async_event(Some(Duration::from_millis(100))).unwrap() {
                        taken.push(event.event_type().as_raw());
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
                taken
            })
        });
        for number in 0..EVENTS {
            provider.raise(context, Type::from_raw(1000 + number), 0);
        }
        let mut all: Vec<u32> = takers.into_iter().flat_map(|taker| taker.join().unwrap()).collect();
        all.sort_unstable();
        assert_eq!(all, (1000..1000 + EVENTS).collect::<Vec<_>>());
    });
}

#[test]
fn an_object_is_destroyed_while_another_thread_takes_its_event() {
    let bench = Bench::new();
    let Bench { provider, context, pd, cq, .. } = &bench;
    provider.dawdle(SHORT);
    for round in 0..50 {
        let qp = QueuePair::<Rc>::builder(pd, cq, cq).build().unwrap();
        let own = context.create_completion_queue(8).unwrap();
        let (qp_num, qp_id, own_id) = (qp.qp_num(), qp.id(), own.id());
        provider.raise(context, Type::QUEUE_PAIR_FATAL, qp.as_raw() as usize);
        provider.raise(context, Type::COMPLETION_QUEUE_ERROR, own.as_raw() as usize);
        let taken = thread::scope(|scope| {
            let taker = scope.spawn(|| [(); 2].map(|()| context.async_event(Some(20 * SHORT)).unwrap()));
            thread::sleep(SHORT * (round % 5) / 2);
            // The order is the events', so that the second one is taken while the first object is destroyed, now and then.
            drop((qp, own));
            taker.join().unwrap()
        });
        // An event that was not yet handed out goes with its object; one that was is whole.
        for event in taken.into_iter().flatten() {
            match event.source() {
                Source::QueuePair { qp_num: number, id } => {
                    assert_eq!(number, qp_num);
                    assert!(id.is_none_or(|id| id == qp_id));
                }
                Source::CompletionQueue(id) => assert!(id.is_none_or(|id| id == own_id)),
                other => panic!("{other:?}"),
            }
        }
    }
    // Nothing waits for an ack, which the provider would report.
    provider.assert_no_violation();
}

#[test]
fn events_that_nobody_takes_hold_up_nothing() {
    let bench = Bench::new();
    for event_type in OF_QUEUE_PAIRS {
        bench.provider.raise(&bench.context, event_type, bench.qp.as_raw() as usize);
    }
    bench.provider.raise(&bench.context, Type::COMPLETION_QUEUE_ERROR, bench.cq.as_raw() as usize);
    // Dropping the rest does as the name says; the provider fails the test otherwise.
}

#[test]
fn an_event_that_was_kept_is_not_taken_for_one_of_a_later_object() {
    let bench = Bench::new();
    let Bench { provider, context, pd, cq, .. } = &bench;
    let qp = QueuePair::<Rc>::builder(pd, cq, cq).build().unwrap();
    provider.raise(context, Type::QUEUE_PAIR_FATAL, qp.as_raw() as usize);
    let event = next(context);
    drop(qp);
    let later: Vec<_> = (0..8).map(|_| QueuePair::<Rc>::builder(pd, cq, cq).build().unwrap()).collect();
    assert!(later.iter().all(|qp| !event.is_for(qp)));
    let ids: HashSet<ObjectId> = later.iter().map(QueuePair::id).chain([cq.id(), bench.qp.id()]).collect();
    assert_eq!(ids.len(), 10);
}

#[test]
fn an_object_that_the_crate_did_not_make_has_no_number() {
    let bench = Bench::new();
    let Bench { provider, context, .. } = &bench;
    // SAFETY: the context is open, and there is no channel.
    let raw = unsafe { ffi::ibv_create_cq(context.as_raw(), 4, std::ptr::null_mut(), std::ptr::null_mut(), 0) };
    provider.raise(context, Type::COMPLETION_QUEUE_ERROR, raw as usize);
    assert_eq!(next(context).source(), Source::CompletionQueue(None));
    // SAFETY: the queue was made above, and is destroyed once.
    assert_eq!(unsafe { ffi::ibv_destroy_cq(raw) }, 0);
}

#[test]
fn an_event_that_cannot_be_taken_is_an_error_of_the_call() {
    let bench = Bench::new();
    let Bench { provider, context, .. } = &bench;
    for errno in ERRNOS {
        provider.fail("ibv_get_async_event", errno);
        let error = context.async_event(Some(LONG)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno), "{error}");
        assert!(error.to_string().contains("ibv_get_async_event"), "{error}");
    }
    // One that only was interrupted is not.
    provider.fault("ibv_get_async_event", Fault { errno: libc::EINTR, returns: None });
    assert_eq!(context.async_event(Some(SHORT)).unwrap(), None);
}

#[test]
fn the_contexts_descriptor_is_readable_as_long_as_there_are_events() {
    let bench = Bench::new();
    let Bench { provider, context, .. } = &bench;
    let readable = || {
        let mut poll = libc::pollfd { fd: context.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `poll` is one structure and outlives the call.
        unsafe { libc::poll(&mut poll, 1, 0) == 1 }
    };
    assert!(!readable());
    for _ in 0..2 {
        provider.raise(context, Type::GID_CHANGE, 1);
    }
    assert!(readable());
    next(context);
    assert!(readable());
    next(context);
    assert!(!readable());
}
