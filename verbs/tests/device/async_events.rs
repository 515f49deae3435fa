use std::thread;
use std::time::Duration;

use verbs::*;

use crate::harness::*;

/// The next event of a context.
fn event(context: &Context) -> AsyncEvent {
    context.async_event(Some(LIMIT)).unwrap().expect("an event")
}

/// Lets the queue of A's completions overflow: more sends than it holds complete, and nobody polls.
pub(crate) fn overflow(context: &Context) -> (Side, Side, CompletionQueue, QueuePair<Rc>) {
    let (a, b) = (Side::on(context.clone()), Side::on(context.clone()));
    let small = context.create_completion_queue(1).unwrap();
    let qp = QueuePair::<Rc>::builder(&a.pd, &small, &a.cq).build().unwrap();
    let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
    let remote = b.local();
    qp.connect(&local, &remote.endpoint, &options()).unwrap();
    b.qp.connect(&remote, &local.endpoint, &options()).unwrap();
    let count = small.capacity() + 1;
    for id in 0..u64::from(count) {
        b.qp.post_receive(&ReceiveRequest::new(id, &[])).unwrap();
        qp.post_send(&SendRequest::send(id, &[]).signaled()).unwrap();
        b.completion().success().unwrap();
    }
    (a, b, small, qp)
}

#[test]
fn a_completion_queue_that_overflows_is_told_and_named() {
    let context = open();
    assert_eq!(context.try_async_event().unwrap(), None);
    let (a, _b, small, qp) = overflow(&context);
    let event = event(&context);
    assert_eq!(event.event_type(), AsyncEventType::COMPLETION_QUEUE_ERROR, "{event}");
    assert_eq!(event.source(), AsyncEventSource::CompletionQueue(Some(small.id())));
    assert!(event.is_for(&small) && !event.is_for(&a.cq) && !event.is_for(&qp));
}

#[test]
fn objects_are_dropped_while_other_threads_take_their_events_and_while_nobody_does() {
    let context = open();
    for _ in 0..20 {
        // Its event stays where it is.
        drop(overflow(&context));
        thread::scope(|scope| {
            let taker = scope.spawn(|| context.async_event(Some(Duration::from_millis(20))).unwrap());
            let (_a, _b, small, _qp) = overflow(&context);
            let id = small.id();
            drop((_qp, small));
            // Whether the thread had the event or the queue went first; it is never half of one.
            if let Some(event) = taker.join().unwrap() {
                assert_eq!(event.event_type(), AsyncEventType::COMPLETION_QUEUE_ERROR);
                assert!(
                    [None, Some(id)].map(AsyncEventSource::CompletionQueue).contains(&event.source()),
                    "{event:?} of {id}"
                );
            }
        });
        while context.try_async_event().unwrap().is_some() {}
    }
}

#[test]
fn a_wait_for_an_event_ends_with_nothing_when_the_time_is_over() {
    let context = open();
    let start = std::time::Instant::now();
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                assert_eq!(context.async_event(Some(Duration::from_millis(100))).unwrap(), None);
            });
        }
    });
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(100) && elapsed < LIMIT, "{elapsed:?}");
}
