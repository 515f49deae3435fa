//! The descriptors that a program waits for.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use verbs::*;

use crate::readiness::{Loop, flags, is_readable, misuse};
use crate::{Bench, LONG};

/// Something that can be waited for.
struct Source<'a> {
    /// What is handed out.
    fd: BorrowedFd<'a>,
    /// What libibverbs reads from.
    real: i32,
    /// Makes an event.
    make: &'a dyn Fn(),
    /// Takes an event if there is one.
    take: &'a dyn Fn() -> bool,
}

/// Tests both kinds of sources: a channel, and a context with its asynchronous events.
fn each(test: impl Fn(&Source)) {
    let bench = Bench::new();
    let channel = bench.cq.channel().unwrap();
    let complete = || {
        bench.cq.arm(Notify::Any).unwrap();
        bench.qp.post_send(&SendRequest::send(1, &[]).signaled()).unwrap();
        assert_eq!(bench.polled(), [1]);
    };
    let raise = || {
        bench.provider.raise(&bench.context, AsyncEventType::QUEUE_PAIR_FATAL, bench.qp.as_raw() as usize);
    };
    // SAFETY: the channel is alive, and the context open.
    let (of_channel, of_context) = unsafe { ((*channel.as_raw()).fd, (*bench.context.as_raw()).async_fd) };
    test(&Source { fd: channel.as_fd(), real: of_channel, make: &complete, take: &|| bench.cq.take_event().unwrap() });
    let take = || bench.context.try_async_event().unwrap().is_some();
    test(&Source { fd: bench.context.as_fd(), real: of_context, make: &raise, take: &take });
    // Where an event was lost, the provider says that a queue, or queue pair, was destroyed before it was acked.
}

#[test]
fn a_descriptor_is_readable_as_long_as_there_is_an_event() {
    each(|source| {
        assert!(!is_readable(source.fd));
        for events in [1, 2, 3] {
            (0..events).for_each(|_| (source.make)());
            for _ in 0..events {
                assert!(is_readable(source.fd));
                assert!((source.take)());
            }
            assert!(!is_readable(source.fd));
            assert!(!(source.take)());
        }
    });
}

#[test]
fn a_loop_that_is_told_of_changes_is_told_of_each_event_after_the_last_was_taken() {
    each(|source| {
        let (by_edge, by_level) = (Loop::by_edge(source.fd), Loop::by_level(source.fd));
        assert!(!by_edge.tells(0));
        for _ in 0..3 {
            (source.make)();
            assert!(by_edge.tells(0) && !by_edge.tells(0));
            assert!(by_level.tells(0) && by_level.tells(0));
            // Another one before it was taken is one more change.
            (source.make)();
            assert!(by_edge.tells(0));
            while (source.take)() {}
            assert!(!by_edge.tells(0) && !by_level.tells(0));
        }
        (source.make)();
        // Whoever begins to watch is told of what is there.
        assert!(Loop::by_edge(source.fd).tells(0));
        assert!((source.take)());
    });
}

#[test]
fn what_is_done_to_a_duplicate_takes_no_event_and_changes_nothing() {
    each(|source| {
        // The context's becomes non-blocking when it is first asked.
        assert!(!(source.take)());
        let before = flags(source.real);
        assert_ne!(before & libc::O_NONBLOCK, 0);
        for _ in 0..3 {
            misuse(source.fd);
            // It would sleep if the duplicate's flags were the real one's.
            assert!(!(source.take)());
            (source.make)();
            misuse(source.fd);
            assert!(is_readable(source.fd));
            assert!((source.take)());
        }
        assert_eq!(flags(source.real), before);
    });
}

#[test]
fn a_wait_does_not_mind_that_the_descriptor_is_blocking() {
    let bench = Bench::new();
    misuse(bench.cq.channel().unwrap());
    misuse(&bench.context);
    let short = Duration::from_millis(2);
    let begin = Instant::now();
    assert!(bench.cq.wait(&mut [WorkCompletion::default(); 1], Some(short)).unwrap().is_empty());
    assert_eq!(bench.context.async_event(Some(short)).unwrap(), None);
    assert!(begin.elapsed() >= 2 * short && begin.elapsed() < LONG + LONG);
}

#[test]
fn a_source_has_one_descriptor_which_is_not_the_real_one() {
    each(|source| assert_ne!(source.fd.as_raw_fd(), source.real));
    let bench = Bench::new();
    let channel = bench.cq.channel().unwrap();
    let fds: Vec<_> = std::thread::scope(|scope| {
        let threads =
            [(); 4].map(|()| scope.spawn(|| (channel.as_fd().as_raw_fd(), bench.context.as_fd().as_raw_fd())));
        threads.map(|thread| thread.join().unwrap()).into()
    });
    assert!(fds.iter().all(|fds| *fds == (channel.as_fd().as_raw_fd(), bench.context.as_fd().as_raw_fd())));
    assert_ne!(fds[0].0, fds[0].1);
    assert_eq!(channel.clone().as_fd().as_raw_fd(), fds[0].0);
    // No child has it.
    // SAFETY: the descriptor is open.
    let flags = unsafe { libc::fcntl(fds[0].0, libc::F_GETFD) };
    assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
}
