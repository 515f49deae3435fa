//! What was measured, as a table for people.

use std::time::Duration;

use crate::OPTIMISATION;
use crate::loops::theirs;
use crate::rows::Row;
use crate::time::Sample;

/// A sample of less is one of the clock.
const SHORTEST: Duration = Duration::from_micros(100);

/// What an operation takes, in nanoseconds.
struct Figures {
    ours: f64,
    theirs: f64,
    ratio: f64,
}

impl Figures {
    /// `None`: nothing was measured.
    fn new(row: &Row, samples: &[Sample]) -> Option<Self> {
        let long = |sample: &&Sample| sample.times.iter().all(|time| *time >= SHORTEST);
        let samples: Vec<&Sample> = samples.iter().filter(long).collect();
        let each = |side: usize| {
            samples
                .iter()
                .map(move |sample| sample.times[side].as_nanos() as f64 / (sample.turns * row.operations) as f64)
        };
        Some(Self {
            ours: median(each(0).collect())?,
            theirs: median(each(1).collect())?,
            ratio: median(each(0).zip(each(1)).map(|(ours, theirs)| ours / theirs).collect())?,
        })
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// Prints the rows that were measured.
pub(crate) fn print(rows: &[(&Row, Vec<Sample>)]) {
    let measured: Vec<_> = rows.iter().filter_map(|(row, samples)| Some((row, Figures::new(row, samples)?))).collect();
    // Criterion was told to list the rows, or to test them.
    if measured.is_empty() {
        return;
    }
    println!(
        "Nanoseconds of one operation on the null provider, whose own are in both figures; C: {},",
        theirs::compiler()
    );
    println!("{OPTIMISATION}. Medians of samples of both sides, taken in turns; of their ratios too.\n");
    println!("| operation | Rust | C | Rust / C |");
    println!("|---|--:|--:|--:|");
    for (row, Figures { ours, theirs, ratio }) in measured {
        println!("| {} | {ours:.2} | {theirs:.2} | {ratio:.2} |", row.name);
    }
}
