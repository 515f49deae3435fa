use std::os::fd::{AsFd, AsRawFd};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use verbs::*;

use crate::harness::*;

/// Lets B's queue have `count` completions more, of receives.
fn deliver(a: &Side, b: &Side, count: u64) {
    for id in 0..count {
        b.qp.post_receive(&ReceiveRequest::new(id, &[])).unwrap();
        a.qp.post_send(&SendRequest::send(id, &[]).signaled()).unwrap();
        a.completion().success().unwrap();
    }
}

#[test]
fn a_queue_is_resized_and_keeps_what_is_in_it() {
    let (a, b) = pair();
    let limit = a.context.device_attributes().unwrap().max_cqe();
    deliver(&a, &b, 6);
    b.cq.resize(1000).unwrap();
    assert!(b.cq.capacity() >= 1000, "{}", b.cq.capacity());
    let large = b.cq.capacity();
    let error = b.cq.resize(4).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}");
    assert!(error.to_string().contains("more completions than that may be waiting"), "{error}");
    for entries in [0, limit + 1, u32::MAX] {
        let error = b.cq.resize(entries).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}");
        assert!(error.to_string().ends_with(&format!("{} takes 1 to {limit} entries", device_name())), "{error}");
    }
    assert_eq!(b.cq.capacity(), large);
    let ids: Vec<u64> = b.completions(6).iter().map(|wc| wc.success().unwrap().wr_id()).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5]);
    b.cq.resize(4).unwrap();
    assert!((4..1000).contains(&b.cq.capacity()), "{}", b.cq.capacity());
    deliver(&a, &b, 3);
    assert_eq!(b.completions(3).len(), 3);
}

#[test]
fn a_queue_is_resized_while_messages_arrive_and_none_is_lost() {
    const MESSAGES: u64 = 300;
    let (a, b) = pair();
    thread::scope(|scope| {
        let resizer = scope.spawn(|| {
            for round in 0..100 {
                b.cq.resize(64 + 32 * (round % 3)).unwrap();
                assert!(b.cq.capacity() >= 64 + 32 * (round % 3));
            }
        });
        for id in 0..MESSAGES {
            b.qp.post_receive(&ReceiveRequest::new(id, &[])).unwrap();
            a.qp.post_send(&SendRequest::send(id, &[]).signaled()).unwrap();
            assert_eq!(b.completion().success().unwrap().wr_id(), id);
            a.completion().success().unwrap();
        }
        resizer.join().unwrap();
    });
}

#[test]
fn an_event_loop_takes_each_completion_and_sleeps_in_between() {
    const MESSAGES: u64 = 100;
    let (a, b) = pair();
    let fd = b.cq.channel().unwrap().as_fd().as_raw_fd();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut room = [WorkCompletion::default(); 4];
            let (mut ids, deadline) = (Vec::new(), Instant::now() + LIMIT);
            while ids.len() < MESSAGES as usize && Instant::now() < deadline {
                b.cq.arm(Notify::Any).unwrap();
                loop {
                    let some = b.cq.poll(&mut room).unwrap();
                    if some.is_empty() {
                        break;
                    }
                    ids.extend(some.iter().map(|wc| wc.success().unwrap().wr_id()));
                }
                while ids.len() < MESSAGES as usize && !b.cq.take_event().unwrap() && Instant::now() < deadline {
                    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
                    // SAFETY: `poll` is one structure and outlives the call.
                    unsafe { libc::poll(&mut poll, 1, 1000) };
                }
            }
            ids
        });
        for id in 0..MESSAGES {
            b.qp.post_receive(&ReceiveRequest::new(id, &[])).unwrap();
            a.qp.post_send(&SendRequest::send(id, &[]).signaled()).unwrap();
            a.completion().success().unwrap();
        }
        assert_eq!(receiver.join().unwrap(), (0..MESSAGES).collect::<Vec<_>>());
    });
    assert!(!b.cq.take_event().unwrap() || !b.cq.take_event().unwrap());
}

#[test]
fn a_wait_for_solicited_messages_sleeps_through_the_others() {
    let (a, b) = pair();
    for id in 0..3 {
        b.qp.post_receive(&ReceiveRequest::new(id, &[])).unwrap();
    }
    let send = |request: SendRequest<'_, Rc>| {
        a.qp.post_send(&request.signaled()).unwrap();
        a.completion().success().unwrap();
    };
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let b = &b;
        let waiter = scope.spawn(move || {
            tell.send(thread_number()).unwrap();
            let mut room = [WorkCompletion::default(); 4];
            b.cq.wait_for(Notify::Solicited, &mut room, Some(LIMIT)).unwrap().len()
        });
        let thread = told.recv().unwrap();
        until("the waiter sleeps", || is_asleep(&thread));
        send(SendRequest::send(1, &[]));
        send(SendRequest::send(2, &[]));
        // It sleeps on, also if it is given the time to wake up.
        thread::sleep(Duration::from_millis(200));
        assert!(is_asleep(&thread) && !waiter.is_finished());
        send(SendRequest::send(3, &[]).solicited());
        assert_eq!(waiter.join().unwrap(), 3);
    });
}
