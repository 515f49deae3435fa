//! Times, and what they say: the percentiles.

use std::time::Duration;

use anyhow::{Context, Result};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// How many times are kept as they are before they are counted: counting takes longer than keeping.
const ROOM: usize = 1 << 16;

/// Times that were measured.
pub(crate) struct Samples {
    kept: Vec<u64>,
    /// Nanoseconds, to three digits, as large as they come.
    histogram: Histogram<u64>,
}

/// What the times say, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) min: f64,
    pub(crate) median: f64,
    pub(crate) mean: f64,
    pub(crate) p99: f64,
    pub(crate) p99_9: f64,
    pub(crate) max: f64,
}

impl Samples {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self { kept: Vec::with_capacity(ROOM), histogram: Histogram::new(3).context("cannot make a histogram")? })
    }

    #[inline]
    pub(crate) fn add(&mut self, time: Duration) {
        if self.kept.len() == ROOM {
            self.count();
        }
        self.kept.push(time.as_nanos() as u64);
    }

    #[cold]
    fn count(&mut self) {
        for nanoseconds in self.kept.drain(..) {
            // The histogram grows with what it is given.
            let _ = self.histogram.record(nanoseconds);
        }
    }

    /// The percentiles of the times, each divided by `hops`.
    pub(crate) fn summary(mut self, hops: u32) -> Summary {
        self.count();
        let microseconds = |nanoseconds: f64| nanoseconds / f64::from(hops) / 1000.0;
        let quantile = |share: f64| microseconds(self.histogram.value_at_quantile(share) as f64);
        Summary {
            min: microseconds(self.histogram.min() as f64),
            median: quantile(0.5),
            mean: microseconds(self.histogram.mean()),
            p99: quantile(0.99),
            p99_9: quantile(0.999),
            max: microseconds(self.histogram.max() as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_one_hop() {
        let mut samples = Samples::new().unwrap();
        // More than there is room for, in an order that is not theirs.
        for number in 0..100_000_u64 {
            samples.add(Duration::from_micros((number * 7919) % 100_000 + 1));
        }
        let summary = samples.summary(2);
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.001;
        assert!(near(summary.min, 0.5) && near(summary.max, 50_000.0), "{summary:?}");
        assert!(near(summary.median, 25_000.0) && near(summary.mean, 25_000.25), "{summary:?}");
        assert!(near(summary.p99, 49_500.0) && near(summary.p99_9, 49_950.0), "{summary:?}");
    }

    #[test]
    fn a_time_of_hours_is_counted_too() {
        let mut samples = Samples::new().unwrap();
        samples.add(Duration::from_secs(7200));
        assert!(samples.summary(1).max >= 7.2e9);
    }
}
