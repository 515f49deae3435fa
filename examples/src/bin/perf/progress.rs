//! A bar that grows, on runs that take long enough for somebody at a terminal to wonder.

use std::io::{IsTerminal, stderr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::options::Goal;

/// Shorter runs have no bar.
const QUIET: Duration = Duration::from_secs(1);
const INTERVAL: Duration = Duration::from_millis(200);

/// The count of messages so far. A thread of its own draws it: the test only stores a number now and then.
#[derive(Default)]
pub(crate) struct Progress {
    count: Arc<AtomicU64>,
    drawing: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Progress {
    /// Begins a run of `size` bytes that ends when `goal` is reached on each of the `qps` queue pairs.
    pub(crate) fn start(size: usize, goal: Goal, qps: u64) -> Self {
        let mut progress = Self::default();
        if stderr().is_terminal() {
            let (stop, stopped) = channel();
            let count = Arc::clone(&progress.count);
            let start = Instant::now();
            let draw = move || {
                if stopped.recv_timeout(QUIET) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
                let bar = bar(size, goal, qps);
                while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    bar.set_position(match goal {
                        Goal::Iterations(_) => count.load(Ordering::Relaxed),
                        Goal::Seconds(_) => start.elapsed().as_secs(),
                    });
                }
                bar.finish_and_clear();
            };
            progress.drawing = Some((stop, thread::spawn(draw)));
        }
        progress
    }

    #[inline]
    pub(crate) fn set(&self, count: u64) {
        self.count.store(count, Ordering::Relaxed);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.drawing.take() {
            drop(stop);
            // It only draws; a bar that could not be drawn is no loss.
            let _ = thread.join();
        }
    }
}

fn bar(size: usize, goal: Goal, qps: u64) -> ProgressBar {
    let (length, unit) = match goal {
        Goal::Iterations(count) => (count * qps, "messages"),
        Goal::Seconds(seconds) => (seconds, "seconds"),
    };
    let template = format!("{size} bytes {{bar:40}} {{pos}} of {{len}} {unit}, {{eta}} left");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}
