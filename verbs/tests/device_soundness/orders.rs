use std::any::Any;
use std::mem::forget;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use verbs::*;

use crate::handles::{Handle, handles};
use crate::harness::resources::{resources_of, used};
use crate::harness::*;

/// How many orders are tried at least, and for how long; unless it is said how many.
const ROUNDS: usize = 200;
const TIME: Duration = Duration::from_secs(30);
const HOW_MANY: &str = "RDMA_TEST_ROUNDS";

/// What a test may take, at most. (Rounds take from 30 ms on; a machine in software emulation that is not alone has been seen to take 200.)
const DEADLINE: Duration = Duration::from_secs(300);

#[test]
fn after_rounds_of_drops_in_random_orders_there_is_as_much_as_before() {
    let wanted: Option<usize> = std::env::var(HOW_MANY).ok().map(|rounds| rounds.parse().unwrap());
    let deadline = DEADLINE.max(Duration::from_millis(600) * wanted.unwrap_or(0) as u32);
    in_time("rounds of drops", deadline, move || {
        // Numbers as good as any, and the same each time.
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % below as u64) as usize
        };
        // What is made once.
        (0..3).for_each(|_| drop(handles()));
        let before = used();
        let (start, mut rounds) = (Instant::now(), 0);
        while wanted.map_or(rounds < ROUNDS || start.elapsed() < TIME, |wanted| rounds < wanted) {
            let mut handles = handles();
            while !handles.is_empty() {
                drop(handles.swap_remove(random(handles.len())));
            }
            rounds += 1;
        }
        println!("{rounds} rounds in {:?}", start.elapsed());
        assert_eq!(used(), before, "after {rounds} rounds");
    });
}

#[test]
fn handles_in_the_midst_of_traffic_are_dropped_in_a_panic_and_on_other_threads() {
    let before = used();
    in_time("a panic, and threads", DEADLINE, || {
        let handles_of_a_thread = handles();
        let panicked = thread::spawn(move || {
            let _handles = handles_of_a_thread;
            panic!("on purpose");
        });
        assert!(panicked.join().is_err());
        let threads = handles().into_iter().map(|handle| thread::spawn(move || drop(handle)));
        threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
    });
    // (A thread leaves mappings of its stack behind, for the next one.)
    assert_eq!(used().objects(), before.objects());
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
        // Those whose send queue is empty, connected to one that is alive, forgotten or not. One at most is not there.
        let pairs = ["its peer", "queue pair on a shared receive queue", "extended queue pair"];
        for (id, name) in (1000..).zip(pairs) {
            if let Some(qp) = find::<QueuePair<Rc>>(&handles, name) {
                // No bytes, and so no memory that would have to be there.
                let nowhere = RemoteSlice::new(0, 0, 0).unwrap();
                qp.post_send(&SendRequest::rdma_write(id, &[], nowhere).signaled()).unwrap();
                assert_eq!(qp.state().unwrap(), QueuePairState::READY_TO_SEND, "{name}");
                tell.send(id).unwrap();
            }
        }
        if let Some(srq) = find::<SharedReceiveQueue>(&handles, "shared receive queue") {
            assert!(srq.attributes().unwrap().max_wr >= 8);
        }
        if let Some(pd) = find::<ProtectionDomain>(&handles, "domain") {
            assert_eq!(pd.register(vec![0u8; 64], RW).unwrap().len(), 64);
        }
        if let Some(context) = find::<Context>(&handles, "context") {
            assert_eq!(context.port(1).unwrap().state(), PortState::ACTIVE);
        }
        drop(tell);
        handles
    });
    if let Some(cq) = cq {
        let waiter = thread::spawn(move || {
            let (mut seen, mut room) = (Vec::new(), [WorkCompletion::default(); 8]);
            for id in told {
                while !seen.contains(&id) {
                    let some = cq.wait(&mut room, Some(LIMIT)).unwrap();
                    assert!(!some.is_empty(), "{id} has not completed; {seen:?} have");
                    seen.extend(some.iter().map(|completion| completion.success().unwrap().wr_id()));
                }
            }
        });
        waiter.join().unwrap();
    }
    poster.join().unwrap()
}

#[test]
fn a_handle_that_is_forgotten_holds_up_none_of_the_others() {
    for index in 0..handles().len() {
        in_time(&format!("the handle at {index}"), DEADLINE, move || {
            let mut handles = handles();
            let (name, forgotten) = handles.remove(index);
            forget(forgotten);
            let handles = use_elsewhere(handles);
            drop(handles);
            // What is left is what the handle keeps, and of two queue pairs at most itself.
            let pairs = resources_of(&["qp"]);
            let is_pair = name.contains("queue pair") || name == "its peer";
            assert_eq!(pairs.len(), usize::from(is_pair), "{name}: {pairs:?}");
        });
    }
}
