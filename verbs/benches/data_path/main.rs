//! Times the data path, ours beside C's, on the null provider.
//!
//! ```text
//! cargo bench -p verbs --bench data_path
//! cargo bench -p verbs --bench data_path -- --quick 'post .* chain'
//! ```
//!
//! Criterion measures the loops of `loops/`, and takes its options and a filter. The C ones are compiled by `cc -O3` when the
//! bench runs (the environment variable `CC` names another compiler). At the end stands a table of what was measured. The
//! provider's own time is in both figures. Each loop shows that it did all it was to do, and without allocation.
//!
//! gcc 12 zeroes a request on the stack with `rep stos`, which is few instructions and much time: most of what C's fresh
//! requests cost. A `CC` that adds `-mmemset-strategy=unrolled_loop:-1:noalign` shows them without.
//!
//! Run by `cargo test`, it tries each loop out and measures nothing.

#[path = "../../tests/null_provider/mod.rs"]
mod null_provider;

#[path = "../loops/mod.rs"]
mod loops;

mod rows;
mod table;
mod time;

use std::time::Duration;
use std::{env, fs, process};

use criterion::Criterion;

use loops::theirs;
use rows::ROWS;

/// Full optimisation, as Cargo's profile `bench` has for ours.
const OPTIMISATION: &str = "-O3";

fn main() {
    let folder = env::temp_dir().join(format!("verbs-data-path-{}", process::id()));
    fs::create_dir_all(&folder).unwrap();
    let loops = theirs::Loops::load(&theirs::compile(&folder, OPTIMISATION));
    fs::remove_dir_all(&folder).unwrap();

    // Criterion would do this too, but refuses some options of Rust's own tests, which `cargo test` passes to all targets.
    if !env::args().any(|argument| argument == "--bench") {
        return ROWS.iter().for_each(|row| time::try_out(&loops, row));
    }
    let mut criterion = Criterion::default()
        .without_plots()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_millis(1000))
        .sample_size(50)
        .nresamples(10_000)
        .configure_from_args();
    let samples: Vec<_> = ROWS.iter().map(|row| (row, time::compare(&mut criterion, &loops, row))).collect();
    table::print(&samples);
}
