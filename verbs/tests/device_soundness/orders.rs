use std::mem::forget;
use std::thread;
use std::time::Duration;

use crate::handles::handles;
use crate::harness::in_time;
use crate::harness::resources::{resources, used};

/// What a drop may take, at most: that of a queue pair waits for what is under way.
const DEADLINE: Duration = Duration::from_secs(120);

#[test]
fn handles_in_the_midst_of_traffic_are_dropped_in_200_random_orders() {
    in_time("200 orders", DEADLINE, || {
        // Numbers as good as any, and the same each time.
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % below as u64) as usize
        };
        for _ in 0..200 {
            let mut handles = handles();
            while !handles.is_empty() {
                drop(handles.swap_remove(random(handles.len())));
            }
        }
        assert_eq!(resources(), [""; 0]);
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
            let left = resources();
            let pairs = left.iter().filter(|line| line.starts_with("qp ")).count();
            let is_pair = name.contains("queue pair") || name == "its peer";
            assert_eq!(pairs, usize::from(is_pair), "{name}: {left:?}");
        });
    }
}
