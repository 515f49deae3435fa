//! The host's time-stamp counter, which an emulated guest sees as its own.
//!
//! Left to itself the guest times the counter against an emulated timer. On a busy host that fails now and then, and a guest without
//! a known counter hangs; so it is told.
//!
//! # Safety
//!
//! Reading the counter has no precondition on a processor that runs x86-64 code.
#![allow(unsafe_code)]

use std::thread;
use std::time::{Duration, Instant};

/// Longest time to measure for.
const WINDOW: Duration = Duration::from_millis(20);

/// A measurement that has begun.
#[derive(Debug)]
pub(crate) struct Measurement {
    at: Instant,
    counter: u64,
}

impl Measurement {
    /// Begins to measure.
    pub(crate) fn begin() -> Self {
        let (at, counter) = sample();
        Self { at, counter }
    }

    /// The counter's frequency in kHz, after [`WINDOW`] at least.
    pub(crate) fn khz(&self) -> u64 {
        thread::sleep(WINDOW.saturating_sub(self.at.elapsed()));
        let (at, counter) = sample();
        let nanoseconds = at.duration_since(self.at).as_nanos();
        u64::try_from(u128::from(counter.wrapping_sub(self.counter)) * 1_000_000 / nanoseconds).unwrap_or_default()
    }
}

/// The time and the counter at that time: of some tries the one that was interrupted least.
fn sample() -> (Instant, u64) {
    let mut best: Option<(Duration, Instant, u64)> = None;
    for _ in 0..16 {
        let before = Instant::now();
        let counter = counter();
        let width = before.elapsed();
        if best.is_none_or(|(narrowest, ..)| width < narrowest) {
            best = Some((width, before, counter));
        }
    }
    best.map(|(_, at, counter)| (at, counter)).expect("several tries")
}

#[cfg(target_arch = "x86_64")]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has the instruction, and Linux lets programs use it.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the virtual machine is made for x86-64 hosts");
