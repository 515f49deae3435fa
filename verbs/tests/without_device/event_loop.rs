use std::os::fd::{AsFd, AsRawFd};

use verbs::completion_field::ByteLen;
use verbs::*;

use crate::null_provider::{Fault, NullProvider};
use crate::{Bench, connect};

fn is_readable(channel: &CompletionChannel) -> bool {
    let mut poll = libc::pollfd { fd: channel.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `poll` is one structure and outlives the call.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

#[test]
fn a_queue_is_armed_only_when_nothing_was_found() {
    let bench = Bench::new();
    let channel = bench.cq.channel().unwrap();
    let post = |wr_id| bench.qp.post_send(&SendRequest::send(wr_id, &[]).signaled()).unwrap();
    let mut room = [WorkCompletion::default(); 2];
    let mut found =
        || bench.cq.poll_or_arm(Notify::Any, &mut room).unwrap().iter().map(|c| c.wr_id()).collect::<Vec<_>>();
    for wr_id in 0..3 {
        post(wr_id);
    }
    assert_eq!((found(), found()), (vec![0, 1], vec![2]));
    // It was not armed, so what comes now tells nobody.
    post(3);
    assert!(!is_readable(channel));
    assert_eq!((found(), found()), (vec![3], vec![]));
    post(4);
    assert!(is_readable(channel));
    assert_eq!((channel.take_events().unwrap(), channel.take_events().unwrap()), (1, 0));
    assert!(!is_readable(channel));
    assert_eq!(found(), [4]);
    bench.provider.assert_no_violation();
}

#[test]
fn what_came_before_the_queue_was_armed_is_found() {
    let provider = NullProvider::new();
    let context = provider.open();
    let pd = context.create_protection_domain().unwrap();
    let channel = context.create_completion_channel().unwrap();
    let cq = CompletionQueueBuilder::new(&context, 64).channel(&channel).build().unwrap();
    let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).build().unwrap();
    connect(&qp);
    qp.post_send(&SendRequest::send(1, &[]).signaled()).unwrap();
    // The first poll finds nothing yet.
    provider.poll_returns(0);
    let mut room = [WorkCompletion::default(); 2];
    assert_eq!(cq.poll_or_arm(Notify::Any, &mut room).unwrap()[0].wr_id(), 1);
    // It is armed all the same, which costs an event that nobody needs.
    qp.post_send(&SendRequest::send(2, &[]).signaled()).unwrap();
    assert_eq!(channel.take_events().unwrap(), 1);
    assert_eq!(cq.poll_or_arm(Notify::Any, &mut room).unwrap()[0].wr_id(), 2);
    provider.assert_no_violation();
}

#[test]
fn events_that_were_taken_for_all_queues_are_still_those_of_each() {
    let bench = Bench::new();
    let channel = bench.cq.channel().unwrap();
    let other = CompletionQueueBuilder::new(&bench.context, 64).channel(channel).build().unwrap();
    let qp = QueuePair::<Rc>::builder(&bench.pd, &other, &other).build().unwrap();
    connect(&qp);
    let mut room = [WorkCompletion::default(); 2];
    for queue in [&bench.cq, &other] {
        assert!(queue.poll_or_arm(Notify::Any, &mut room).unwrap().is_empty());
    }
    bench.qp.post_send(&SendRequest::send(1, &[]).signaled()).unwrap();
    qp.post_send(&SendRequest::send(2, &[]).signaled()).unwrap();
    assert_eq!(channel.take_events().unwrap(), 2);
    assert!(!is_readable(channel));
    assert!(bench.cq.take_event().unwrap() && other.take_event().unwrap());
    assert!(!bench.cq.take_event().unwrap() && !other.take_event().unwrap());
    drop((qp, other));
    bench.provider.assert_no_violation();
}

#[test]
fn a_queue_that_cannot_tell_and_a_room_for_nothing_are_refused() {
    let bench = Bench::new();
    let mute = bench.context.create_completion_queue(4).unwrap();
    let error = mute.poll_or_arm(Notify::Any, &mut [WorkCompletion::default(); 2]).unwrap_err();
    assert!(error.to_string().contains("only a channel can be waited for"), "{error}");
    let error = bench.cq.poll_or_arm(Notify::Any, &mut []).unwrap_err();
    assert!(error.to_string().contains("it has to be for one at least"), "{error}");
    bench.provider.fault("ibv_req_notify_cq", Fault { errno: libc::EIO, returns: None });
    let error = bench.cq.poll_or_arm(Notify::Any, &mut [WorkCompletion::default(); 2]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EIO));
}

#[test]
fn an_extended_queue_is_armed_too() {
    let provider = NullProvider::new();
    let context = provider.open();
    let pd = context.create_protection_domain().unwrap();
    let channel = context.create_completion_channel().unwrap();
    let cq = CompletionQueueBuilder::new(&context, 64).channel(&channel).build_extended::<(ByteLen,)>().unwrap();
    let queue = cq.as_completion_queue();
    let qp = QueuePair::<Rc>::builder(&pd, queue, queue).build().unwrap();
    connect(&qp);
    assert!(cq.poll_or_arm(Notify::Any).unwrap().is_none());
    qp.post_send(&SendRequest::send(1, &[]).signaled()).unwrap();
    assert!(is_readable(&channel));
    assert_eq!(channel.take_events().unwrap(), 1);
    assert_eq!(cq.poll_or_arm(Notify::Any).unwrap().unwrap().wr_id(), 1);
    provider.assert_no_violation();
}
