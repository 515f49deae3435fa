//! Running the loops of a row, and timing them.
//!
//! # Safety
//!
//! The C loops are given fixtures of live objects.

use std::time::{Duration, Instant};

use criterion::{Bencher, Criterion, Throughput};

use crate::loops::allocations;
use crate::loops::ours::Objects;
use crate::loops::theirs;
use crate::rows::Row;

/// So many turns of both loops take so long: of Rust's, and of C's.
pub(crate) struct Sample {
    pub(crate) turns: u64,
    pub(crate) times: [Duration; 2],
}

/// Has Criterion measure both sides, and returns the samples that it took.
///
/// Whichever it measures, the other runs right after it. What else the machine does then slows down both alike, where two
/// measurements of some seconds one after the other tell more of the machine than of the loops.
pub(crate) fn compare(criterion: &mut Criterion, loops: &theirs::Loops, row: &Row) -> Vec<Sample> {
    let mut samples = Vec::new();
    let sides = Sides::new(loops, row);
    let mut group = criterion.benchmark_group(row.name);
    group.throughput(Throughput::Elements(row.operations));
    for (side, name) in ["Rust", "C"].into_iter().enumerate() {
        group.bench_function(name, |bencher: &mut Bencher<'_>| {
            bencher.iter_custom(|turns| {
                let mut times = [Duration::ZERO; 2];
                times[side] = sides.time(side, turns);
                times[1 - side] = sides.time(1 - side, turns);
                samples.push(Sample { turns, times });
                times[side]
            });
        });
    }
    group.finish();
    samples
}

/// Runs both sides a few times.
pub(crate) fn try_out(loops: &theirs::Loops, row: &Row) {
    let sides = Sides::new(loops, row);
    sides.time(0, 3);
    sides.time(1, 3);
}

/// The loops of a row with what they work on.
struct Sides<'a> {
    row: &'a Row,
    objects: Objects,
    theirs: theirs::Loop,
    /// How often each allocates before its first turn.
    allocations: [u64; 2],
}

impl<'a> Sides<'a> {
    fn new(loops: &theirs::Loops, row: &'a Row) -> Self {
        let (objects, theirs) = (Objects::new(row.polls), loops.get(row.theirs));
        let mut sides = Self { row, objects, theirs, allocations: [0; 2] };
        sides.allocations = [0, 1].map(|side| {
            // What is allocated once and for all.
            sides.run(side, 1);
            let before = allocations::count();
            sides.run(side, 1);
            allocations::count() - before
        });
        sides
    }

    /// How long so many turns of a loop take. All of them do what they are to do, and none allocates.
    fn time(&self, side: usize, turns: u64) -> Duration {
        let before = allocations::count();
        let start = Instant::now();
        let done = self.run(side, turns);
        let time = start.elapsed();
        let allocated = allocations::count() - before;
        assert_eq!(done, turns * self.row.done, "{}: the loop did not do what it was to do", self.row.name);
        assert_eq!(allocated, self.allocations[side], "{}: the loop allocates", self.row.name);
        time
    }

    fn run(&self, side: usize, turns: u64) -> u64 {
        match side {
            0 => (self.row.ours)(&self.objects, turns).unwrap(),
            // SAFETY: the objects are alive.
            _ => unsafe { (self.theirs)(&self.objects.for_c(), turns) },
        }
    }
}
