//! What a copy has come to, and the bar while it is under way.

use std::fmt;
use std::time::{Duration, Instant};

use examples::report;
use indicatif::{ProgressBar, ProgressStyle};

/// Counts what is copied, and shows it at a terminal.
pub(crate) struct Summary {
    bar: ProgressBar,
    start: Instant,
    elapsed: Duration,
    files: u64,
    /// Bytes that went over the wire.
    bytes: u64,
    /// Bytes that were there.
    kept: u64,
    continued: u64,
    complete: u64,
    /// What is neither a file nor a folder.
    skipped: u64,
}

impl Summary {
    /// Of a copy of `bytes` bytes in all, beside which so many things are left out.
    pub(crate) fn new(bytes: u64, skipped: u64) -> Self {
        let template = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left  {msg}";
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(bytes).with_style(style);
        Self {
            bar,
            start: Instant::now(),
            elapsed: Duration::ZERO,
            files: 0,
            bytes: 0,
            kept: 0,
            continued: 0,
            complete: 0,
            skipped,
        }
    }

    /// How many files there were, and how many bytes they have.
    pub(crate) fn total(&self) -> (u64, u64) {
        (self.files, self.bytes + self.kept)
    }

    /// Which file it is.
    pub(crate) fn name(&self, name: &str) {
        self.bar.set_message(name.to_owned());
    }

    /// A file begins, of which `kept` of `size` bytes are there.
    pub(crate) fn file(&mut self, kept: u64, size: u64) {
        self.files += 1;
        self.kept += kept;
        match kept {
            0 => {}
            kept if kept == size => self.complete += 1,
            _ => self.continued += 1,
        }
        self.bar.inc(kept);
    }

    pub(crate) fn chunk(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.bar.inc(bytes as u64);
    }

    /// Says something without breaking the bar.
    pub(crate) fn note(&self, text: &str) {
        self.bar.suspend(|| report::note(text));
    }

    /// The bar goes, and the clock stops.
    pub(crate) fn finish(&mut self) {
        self.elapsed = self.start.elapsed();
        self.bar.finish_and_clear();
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, bytes, kept, continued, complete, skipped, .. } = self;
        let seconds = self.elapsed.as_secs_f64();
        let gigabits = *bytes as f64 * 8.0 / seconds / 1e9;
        write!(f, "{files} files, {bytes} bytes in {seconds:.3} s, {gigabits:.3} Gbit/s; every checksum is right")?;
        if *kept > 0 {
            write!(f, "; {kept} bytes were there: {complete} whole files, {continued} in part")?;
        }
        if *skipped > 0 {
            write!(f, "; {skipped} skipped")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_tells_what_went_and_what_was_there() {
        let mut summary = Summary::new(3000, 0);
        summary.file(0, 1000);
        summary.chunk(1000);
        summary.elapsed = Duration::from_micros(8);
        assert_eq!(summary.to_string(), "1 files, 1000 bytes in 0.000 s, 1.000 Gbit/s; every checksum is right");
        summary.file(1000, 1000);
        summary.file(400, 1000);
        summary.chunk(600);
        assert!(summary.to_string().ends_with("; 1400 bytes were there: 1 whole files, 1 in part"), "{summary}");
        assert_eq!(summary.total(), (3, 3000));
        summary.skipped = 2;
        assert!(summary.to_string().ends_with(", 1 in part; 2 skipped"), "{summary}");
    }
}
