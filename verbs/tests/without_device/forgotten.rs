//! What a program forgets is leaked, and nothing more: what is left is used and destroyed as before, and nothing waits for it.

use std::any::Any;
use std::mem::{ManuallyDrop, forget};
use std::sync::mpsc;
use std::thread;

use verbs::*;

use crate::null_provider::handles::{Handle, handles};
use crate::null_provider::{Kind, NullProvider};
use crate::{Bench, LONG};

/// Runs a test on a thread of its own; one that hangs fails.
fn in_time(what: &str, test: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match is_done.recv_timeout(LONG) {
        // The thread is not waited for: it hangs.
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: not done after {LONG:?}"),
        _ => thread.join().unwrap_or_else(|_| panic!("{what}: it failed")),
    }
}

#[test]
fn a_handle_that_is_forgotten_leaks_what_it_holds_and_nothing_else() {
    let count = handles_of(NullProvider::new()).0.len();
    for index in 0..count {
        in_time(&format!("the handle at {index}"), move || {
            let (mut handles, provider) = handles_of(NullProvider::new());
            let (name, forgotten) = handles.remove(index);
            forget(forgotten);
            let handles = use_elsewhere(handles);
            // From the first one made to the last, and on another thread than they were made on.
            thread::spawn(move || drop(handles)).join().unwrap();
            provider.assert_no_violation();
            let left = provider.live_objects();
            // Nothing is destroyed that is still used, so what is left is what the handle keeps, and the context with it.
            let keeps_nothing = ["device list", "device", "attachment", "asynchronous event"].contains(&name);
            assert_eq!(left.contains(&Kind::Context), !keeps_nothing, "{name}: {left:?}");
            let pairs = left.iter().filter(|kind| **kind == Kind::QueuePair).count();
            let is_pair = name.contains("queue pair") || ["flow", "receiving end of XRC"].contains(&name);
            assert_eq!(pairs, usize::from(is_pair), "{name}: {left:?}");
            provider.forget_what_is_left();
        });
    }
}

/// Uses what is left on other threads than it was made on: one waits for what another posts.
fn use_elsewhere(handles: Vec<Handle>) -> Vec<Handle> {
    fn find<'a, T: Any>(handles: &'a [Handle], wanted: &str) -> Option<&'a T> {
        let (_, handle) = handles.iter().find(|(name, _)| *name == wanted)?;
        Some(handle.downcast_ref().expect("the name says what it is"))
    }
    let cq = find::<CompletionQueue>(&handles, "completion queue").cloned();
    let (tell, told) = mpsc::channel();
    let poster = thread::spawn(move || {
        // One of them at most is not there.
        let pairs = ["queue pair", "queue pair with an atomic write under way"];
        for (id, name) in (1000..).zip(pairs) {
            if let Some(qp) = find::<QueuePair<Rc>>(&handles, name) {
                qp.post_receive(&ReceiveRequest::new(id + 100, &[])).unwrap();
                qp.post_send(&SendRequest::send(id, &[]).signaled()).unwrap();
                assert_eq!(qp.state().unwrap(), QueuePairState::READY_TO_SEND, "{name}");
                tell.send(id).unwrap();
            }
        }
        if let Some(pd) = find::<ProtectionDomain>(&handles, "domain") {
            assert_eq!(pd.register(vec![0u8; 64], AccessFlags::empty()).unwrap().len(), 64);
        }
        if let Some(context) = find::<Context>(&handles, "context") {
            assert_eq!(context.port(1).unwrap().state(), PortState::ACTIVE);
            assert_eq!(context.try_async_event().unwrap(), None);
        }
        drop(tell);
        handles
    });
    if let Some(cq) = cq {
        let waiter = thread::spawn(move || {
            let (mut seen, mut room) = (Vec::new(), [WorkCompletion::default(); 8]);
            for id in told {
                while !seen.contains(&id) {
                    let some = cq.wait(&mut room, Some(LONG)).unwrap();
                    assert!(!some.is_empty(), "{id} has not completed; {seen:?} have");
                    seen.extend(some.iter().map(WorkCompletion::wr_id));
                }
            }
        });
        waiter.join().unwrap();
    }
    poster.join().unwrap()
}

fn handles_of(provider: NullProvider) -> (Vec<Handle>, NullProvider) {
    (handles(&provider), provider)
}

#[test]
fn handles_of_every_kind_dropped_in_random_orders_leave_nothing() {
    // Numbers as good as any, and the same each time.
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % below as u64) as usize
    };
    for order in 0..500 {
        let (mut handles, provider) = handles_of(NullProvider::new());
        while !handles.is_empty() {
            let (name, handle) = handles.swap_remove(random(handles.len()));
            drop(handle);
            assert_eq!(provider.take_violations(), [""; 0], "order {order}, {name}");
        }
        provider.assert_clean();
    }
}

#[test]
fn handles_dropped_one_by_one_from_either_end_leave_nothing() {
    for reversed in [false, true] {
        let (mut handles, provider) = handles_of(NullProvider::new());
        if reversed {
            handles.reverse();
        }
        for (name, handle) in handles {
            drop(handle);
            assert_eq!(provider.take_violations(), [""; 0], "{name}");
        }
        provider.assert_clean();
    }
}

#[test]
fn handles_dropped_in_a_panic_of_another_thread_leave_nothing() {
    let (handles, provider) = handles_of(NullProvider::new());
    let panicked = thread::spawn(move || {
        let _handles = handles;
        panic!("on purpose");
    });
    assert!(panicked.join().is_err());
    provider.assert_clean();
}

#[test]
fn chains_and_views_that_are_forgotten_hold_up_nobody() {
    in_time("chains and views", || {
        let mut bench = Bench::new();
        let mut batch = SendBatch::with_capacity(1);
        for round in 0..3 {
            let mut chain = batch.begin();
            for wr_id in 0..10 {
                chain.push_with(SendRequest::send(wr_id, &[]).signaled(), &[bench.region.slice(..8).unwrap()]);
            }
            if round == 1 {
                bench.qp.post_send_chain(&mut chain).unwrap();
                assert_eq!(bench.polled().len(), 10);
            }
            let _forgotten = ManuallyDrop::new(chain);
            let (front, back) = bench.region.as_local_mut().split_at_mut(8).unwrap();
            let _forgotten = ManuallyDrop::new((front, back));
            bench.region.write_at(0, &[round]).unwrap();
        }
        forget(batch);
        // Whoever waits, polls and posts on other threads notices nothing of what was forgotten.
        forget((bench.cq.clone(), bench.cq.channel().unwrap().clone(), bench.context.clone()));
        let Bench { cq, qp, .. } = &bench;
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut room = [WorkCompletion::default(); 1];
                cq.wait(&mut room, Some(LONG)).unwrap()[0].wr_id()
            });
            scope.spawn(|| qp.post_send(&SendRequest::send(7, &[]).signaled()).unwrap());
            assert_eq!(waiter.join().unwrap(), 7);
        });
        let Bench { qp, region, cq, pd, context, provider } = bench;
        drop(qp);
        drop(region);
        drop((cq, pd, context));
        provider.assert_no_violation();
        assert_eq!((provider.live(Kind::CompletionQueue), provider.live(Kind::QueuePair)), (1, 0));
        provider.forget_what_is_left();
    });
}

#[test]
fn a_queue_is_polled_and_posted_to_while_its_completions_are_looked_at() {
    let bench = Bench::new();
    let mut batch = SendBatch::with_capacity(4);
    let (mut outer, mut inner) = ([WorkCompletion::default(); 4], [WorkCompletion::default(); 4]);
    for wr_id in 0..8 {
        bench.qp.post_send(&SendRequest::send(wr_id, &[]).signaled()).unwrap();
    }
    let mut seen = Vec::new();
    for completion in bench.cq.poll(&mut outer).unwrap() {
        seen.push(completion.wr_id());
        let mut chain = batch.begin();
        chain.push(SendRequest::send(100 + completion.wr_id(), &[]).signaled());
        bench.qp.post_send_chain(&mut chain).unwrap();
        // The outer part stays what it is.
        seen.extend(bench.cq.poll(&mut inner).unwrap().iter().map(WorkCompletion::wr_id));
    }
    assert_eq!(seen, [0, 4, 5, 6, 7, 1, 100, 101, 2, 102, 3, 103]);
    bench.provider.assert_no_violation();
}
