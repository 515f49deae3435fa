//! Completions that do not fit, that nobody waits for, and that outlive their queue pair; and how to wait.

use std::ptr;
use std::time::{Duration, Instant};

use verbs::*;

use super::ids;
use crate::harness::*;

const SHORT: Duration = Duration::from_millis(100);

#[test]
fn completions_that_do_not_fit_are_lost_and_each_loss_is_an_event_that_names_the_queue() {
    let context = open();
    let b = Side::on(context.clone());
    let channel = context.create_completion_channel().unwrap();
    let small = CompletionQueueBuilder::new(&context, 1).channel(&channel).build().unwrap();
    let qp = QueuePair::<Rc>::builder(&b.pd, &small, &small).max_send_wr(8).build().unwrap();
    let (local, remote) = (qp.local_endpoint(1, &GidFilter::default()).unwrap(), b.local());
    qp.connect(&local, &remote.endpoint, &options()).unwrap();
    b.qp.connect(&remote, &local.endpoint, &options()).unwrap();
    for id in 0..6 {
        b.qp.post_receive(&ReceiveRequest::new(id, &[])).unwrap();
        qp.post_send(&SendRequest::send(id, &[]).signaled()).unwrap();
        // All six arrive.
        assert_eq!(b.completion().success().unwrap().wr_id(), id);
    }
    let fits = u64::from(small.capacity());
    assert!((1..6).contains(&fits), "{fits}");
    assert!(!small.has_failed());
    for _ in fits..6 {
        let event = context.async_event(Some(LIMIT)).unwrap().expect("an event for each that is lost");
        assert_eq!(event.event_type(), AsyncEventType::COMPLETION_QUEUE_ERROR, "{event}");
        assert!(event.is_for(&small) && !event.is_for(&b.cq));
    }
    assert_eq!(context.async_event(Some(SHORT)).unwrap(), None);
    let mut room = [WorkCompletion::default(); 8];
    assert_eq!(ids(small.poll(&mut room).unwrap()), (0..fits).collect::<Vec<_>>());
    assert!(small.poll(&mut room).unwrap().is_empty());
    assert_eq!(qp.state().unwrap(), QueuePairState::READY_TO_SEND);
    // Nobody waits for what was lost: not for ever, and not for a while.
    assert!(small.has_failed() && !b.cq.has_failed());
    for error in [small.wait(&mut room, None).unwrap_err(), small.poll_or_arm(Notify::Any, &mut room).unwrap_err()] {
        assert_eq!(error.raw_os_error(), Some(libc::EOVERFLOW));
        assert!(error.to_string().contains("the queue is broken: it overflowed"), "{error}");
    }
}

#[test]
fn a_wait_finds_what_came_before_it_and_a_burst_that_is_larger_than_its_room() {
    let (a, b) = pair();
    let mut room = [WorkCompletion::default(); 2];
    for round in 0..50 {
        for id in 0..5 {
            b.qp.post_receive(&ReceiveRequest::new(id, &[])).unwrap();
        }
        let mut chain: Vec<_> = (0..5).map(|id| SendRequest::send(id, &[]).signaled()).collect();
        a.qp.post_send_chain(&mut chain).unwrap();
        // They are all there: to arm the queue now brings no event on rxe.
        assert_eq!(ids(&a.completions(5)), [0, 1, 2, 3, 4]);
        let mut got = Vec::new();
        while got.len() < 5 {
            let some = b.cq.wait(&mut room, Some(LIMIT)).unwrap();
            assert!(!some.is_empty(), "round {round}: {got:?}");
            got.extend(ids(some));
        }
        assert_eq!(got, [0, 1, 2, 3, 4]);
    }
    assert!(b.cq.wait(&mut room, Some(Duration::ZERO)).unwrap().is_empty());
}

/// A signal to this process every 10 ms that interrupts what sleeps, as long as this lives.
struct Alarm;

impl Alarm {
    fn set(interval: libc::suseconds_t) {
        let time = libc::timeval { tv_sec: 0, tv_usec: interval };
        let timer = libc::itimerval { it_interval: time, it_value: time };
        // SAFETY: `timer` outlives the call.
        assert_eq!(unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, ptr::null_mut()) }, 0);
    }

    fn new() -> Self {
        extern "C" fn nothing(_: libc::c_int) {}
        // SAFETY: all zeroes are a valid structure, without SA_RESTART; the handler does nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as *const () as usize;
            assert_eq!(libc::sigaction(libc::SIGALRM, &action, ptr::null_mut()), 0);
        }
        Self::set(10_000);
        Self
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        Self::set(0);
    }
}

#[test]
fn signals_neither_end_a_wait_nor_make_it_longer() {
    // A wait that begins again at each signal would have no end.
    in_time("waits that are interrupted", 2 * LIMIT, waits_are_interrupted);
}

fn waits_are_interrupted() {
    let (a, b) = pair();
    let alarm = Alarm::new();
    let waits: [&dyn Fn() -> bool; 2] = [
        &|| b.cq.wait(&mut [WorkCompletion::default()], Some(Duration::from_millis(300))).unwrap().is_empty(),
        &|| b.context.async_event(Some(Duration::from_millis(300))).unwrap().is_none(),
    ];
    for nothing_came in waits {
        let start = Instant::now();
        assert!(nothing_came());
        let elapsed = start.elapsed();
        assert!(elapsed >= Duration::from_millis(300) && elapsed < LIMIT, "{elapsed:?}");
    }
    // Nor do they cost a completion.
    for _ in 0..20 {
        b.qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(b.completion().success().unwrap().wr_id(), 1));
            std::thread::sleep(Duration::from_millis(15));
            a.qp.post_send(&SendRequest::send(2, &[]).signaled()).unwrap();
        });
        a.completion().success().unwrap();
    }
    drop(alarm);
}

#[test]
fn completions_of_a_queue_pair_that_is_gone_are_not_taken_for_those_of_the_next_one() {
    let context = open();
    let pd = context.create_protection_domain().unwrap();
    let cq = context.create_completion_queue(64).unwrap();
    let connected = || {
        let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).max_send_wr(8).build().unwrap();
        let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
        // Connected to itself.
        qp.connect(&local, &local.endpoint, &options()).unwrap();
        qp
    };
    for round in 0..50u64 {
        let qp = connected();
        let (number, first) = (qp.qp_num(), 1000 * round);
        let mut sends = SelectiveSignaling::new(&qp, 1, first);
        qp.post_receive(&ReceiveRequest::new(first + 500, &[])).unwrap();
        sends.post(&qp, &mut SendRequest::send(0, &[])).unwrap();
        // Both are done: the flush of what is posted behind them has come. Then nobody polls, and the queue pair goes.
        let mut all = Vec::new();
        let deadline = Instant::now() + LIMIT;
        while all.len() < 2 {
            assert!(Instant::now() < deadline, "{all:?}");
            let mut room = [WorkCompletion::default(); 8];
            all.extend(cq.poll(&mut room).unwrap().iter().copied());
            // Those of the one before, if this device keeps them.
            all.retain(|completion| completion.wr_id() >= first);
        }
        for completion in &all {
            assert_eq!(completion.success().unwrap().qp_num(), number);
        }
        qp.post_receive(&ReceiveRequest::new(first + 501, &[])).unwrap();
        sends.post(&qp, &mut SendRequest::send(0, &[])).unwrap();
        drop(qp);
        // The counter of the next queue pair, whatever its number, does not count them.
        let next = connected();
        let mut counter = SelectiveSignaling::new(&next, 1, first + 1000);
        counter.post(&next, &mut SendRequest::send_with_imm(0, &[], 1)).unwrap();
        let mut room = [WorkCompletion::default(); 8];
        for completion in cq.poll(&mut room).unwrap() {
            assert!(completion.wr_id() < first + 1000, "{completion:?}");
            assert_eq!(counter.retire(completion), 0);
            assert_eq!(completion.qp_num(), number);
        }
        assert_eq!(counter.outstanding(), 1);
        drop(next);
        while !cq.poll(&mut room).unwrap().is_empty() {}
    }
    // A number that is given twice is tested on the null provider: this device takes long to do so.
}
