use std::time::{Duration, Instant};

use crate::handles::handles;
use crate::harness::resources::used;

/// How long rounds are made; each takes some 30 ms on a device in software emulation.
const TIME: Duration = Duration::from_secs(20);

#[test]
fn after_many_rounds_there_is_as_much_as_before() {
    // What is made once.
    (0..3).for_each(|_| drop(handles()));
    let before = used();
    let start = Instant::now();
    let mut rounds = 0;
    while start.elapsed() < TIME {
        drop(handles());
        rounds += 1;
    }
    println!("{rounds} rounds in {:?}", start.elapsed());
    assert_eq!(used(), before, "after {rounds} rounds");
    assert!(rounds >= 50, "{rounds}");
}
