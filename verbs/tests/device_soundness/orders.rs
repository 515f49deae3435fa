use std::mem::forget;
use std::thread;
use std::time::{Duration, Instant};

use crate::handles::handles;
use crate::harness::in_time;
use crate::harness::resources::{resources_of, used};

/// How many orders are tried at least, and for how long.
const ROUNDS: usize = 200;
const TIME: Duration = Duration::from_secs(30);

/// What a test may take, at most. (Rounds take from 30 ms on; a machine in software emulation that is not alone has been seen to take 200.)
const DEADLINE: Duration = Duration::from_secs(300);

#[test]
fn after_rounds_of_drops_in_random_orders_there_is_as_much_as_before() {
    in_time("rounds of drops", DEADLINE, || {
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
        while rounds < ROUNDS || start.elapsed() < TIME {
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

#[test]
fn a_handle_that_is_forgotten_holds_up_none_of_the_others() {
    for index in 0..handles().len() {
        in_time(&format!("the handle at {index}"), DEADLINE, move || {
            let mut handles = handles();
            let (name, forgotten) = handles.remove(index);
            forget(forgotten);
            drop(handles);
            // What is left is what the handle keeps, and of two queue pairs at most itself.
            let pairs = resources_of(&["qp"]);
            let is_pair = name.contains("queue pair") || name == "its peer";
            assert_eq!(pairs.len(), usize::from(is_pair), "{name}: {pairs:?}");
        });
    }
}
