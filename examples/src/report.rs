//! What the programs print.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;

use crate::exchange::is_broken_pipe;

/// Runs a program; an error is printed and ends it with status 1.
pub fn run(program: impl FnOnce(&mut dyn Write) -> Result<()>) -> ExitCode {
    let mut out = io::stdout().lock();
    match program(&mut out).and_then(|()| Ok(out.flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// How many iterations.
    pub iterations: u64,
    /// How many bytes were moved in all of them, both ways together.
    pub bytes: u64,
    /// How long they took.
    pub elapsed: Duration,
}

impl std::fmt::Display for Measurement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        let per_iteration = seconds * 1e6 / self.iterations as f64;
        let gigabits = self.bytes as f64 * 8.0 / seconds / 1e9;
        let Self { iterations, bytes, .. } = self;
        write!(
            f,
            "{iterations} iterations, {bytes} bytes in {seconds:.3} s, {per_iteration:.2} µs per iteration, {gigabits:.3} Gbit/s"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measurement_prints_its_rates() {
        let measurement = Measurement { iterations: 1000, bytes: 8_192_000, elapsed: Duration::from_millis(250) };
        assert_eq!(
            measurement.to_string(),
            "1000 iterations, 8192000 bytes in 0.250 s, 250.00 µs per iteration, 0.262 Gbit/s"
        );
    }
}
