//! The descriptors that a program waits for.

use std::os::fd::AsFd;
use std::process::Command;

use verbs::*;

use crate::async_events::overflow;
use crate::harness::*;
use crate::readiness::{Loop, becomes_readable, flags, is_readable, misuse};

/// Sends a message, for which the queue of the receiver, which is armed, has an event; and takes the completion.
fn send(a: &Side, b: &Side) {
    b.cq.arm(Notify::Any).unwrap();
    b.qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
    a.qp.post_send(&SendRequest::send(2, &[]).signaled()).unwrap();
    a.completion().success().unwrap();
    becomes_readable(b.cq.channel().unwrap());
    let mut room = [WorkCompletion::default(); 2];
    assert_eq!(b.cq.poll(&mut room).unwrap().len(), 1);
}

#[test]
fn a_channels_descriptor_tells_of_events_and_gives_none_of_them_away() {
    let (a, b) = pair();
    let channel = b.cq.channel().unwrap();
    // SAFETY: the channel is alive.
    let real = unsafe { (*channel.as_raw()).fd };
    let before = flags(real);
    assert_ne!(before & libc::O_NONBLOCK, 0);
    let (by_edge, by_level) = (Loop::by_edge(channel), Loop::by_level(channel));
    for _ in 0..3 {
        assert!(!is_readable(channel) && !by_level.tells(0) && !by_edge.tells(0));
        misuse(channel);
        // It would sleep if the duplicate's flags were the real one's.
        assert!(!b.cq.take_event().unwrap());
        send(&a, &b);
        misuse(channel);
        assert!(is_readable(channel) && by_level.tells(0) && by_edge.tells(0) && !by_edge.tells(0));
        assert!(b.cq.take_event().unwrap());
    }
    assert_eq!(flags(real), before);
    // Events of two queues are two.
    let other = CompletionQueueBuilder::new(&b.context, 4).channel(channel).build().unwrap();
    let qp = QueuePair::<Rc>::builder(&b.pd, &other, &other).build().unwrap();
    other.arm(Notify::Any).unwrap();
    qp.init(&qp.local_endpoint(1, &GidFilter::default()).unwrap(), &options()).unwrap();
    qp.post_receive(&ReceiveRequest::new(3, &[])).unwrap();
    qp.move_to_error().unwrap();
    becomes_readable(channel);
    send(&a, &b);
    assert!(by_edge.tells(0));
    assert!(b.cq.take_event().unwrap());
    // It may have been taken too, and kept for its queue.
    assert!(other.take_event().unwrap());
    assert!(!is_readable(channel));
    // Dropping the queues waits for no event that was lost.
    send(&a, &b);
    misuse(channel);
    in_time("a queue with an event is dropped", LIMIT * 3, move || drop((qp, other, a, b)));
}

#[test]
fn a_contexts_descriptor_tells_of_asynchronous_events_and_gives_none_of_them_away() {
    let context = open();
    // SAFETY: the context is open.
    let real = unsafe { (*context.as_raw()).async_fd };
    assert_eq!(context.try_async_event().unwrap(), None);
    let before = flags(real);
    let by_edge = Loop::by_edge(&context);
    assert!(!is_readable(&context) && !by_edge.tells(0));
    misuse(&context);
    assert_eq!(context.try_async_event().unwrap(), None);
    let sides = overflow(&context);
    becomes_readable(&context);
    assert!(by_edge.tells(0) && !by_edge.tells(0));
    misuse(&context);
    let event = context.async_event(Some(LIMIT)).unwrap().unwrap();
    assert!(event.is_for(&sides.2), "{event}");
    while context.try_async_event().unwrap().is_some() {}
    assert!(!is_readable(&context) && !by_edge.tells(0));
    assert_eq!(flags(real), before);
    // Of an event that nobody could take.
    let more = overflow(&context);
    misuse(&context);
    in_time("a queue with an asynchronous event is dropped", LIMIT * 3, move || drop((sides, more)));
}

/// Says that this process runs one test, and that nothing else in it opens or closes a descriptor.
const ALONE: &str = "RDMA_TEST_ALONE";

#[test]
fn a_descriptor_is_made_for_who_asks_and_is_closed_with_its_owner() {
    if std::env::var_os(ALONE).is_none() {
        let name = "descriptors::a_descriptor_is_made_for_who_asks_and_is_closed_with_its_owner";
        let mut test = Command::new(std::env::current_exe().unwrap());
        let output = test.args(["--exact", name, "--nocapture"]).env(ALONE, "1").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    }
    let open_files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    // What the process opens once.
    drop(open());
    let before = open_files();
    let context = open();
    let channels = [(); 3].map(|()| context.create_completion_channel().unwrap());
    let owned = open_files();
    for _ in 0..3 {
        context.as_fd();
        channels[..2].iter().for_each(|channel| _ = channel.as_fd());
        assert_eq!(open_files(), owned + 3);
    }
    let real = owned - before;
    let duplicate = channels[0].as_fd().try_clone_to_owned().unwrap();
    drop(channels);
    assert_eq!(open_files(), before + real - 3 + 2);
    assert!(!is_readable(&duplicate));
    drop((duplicate, context));
    assert_eq!(open_files(), before);
}
