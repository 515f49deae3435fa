//! Waiting for completions, by polling or by events, and not for ever.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use verbs::{CompletionQueue, WorkCompletion};

/// After so many polls that came up empty, others may have the processor: a device that is software needs one itself, and where nobody
/// wants it, it comes back at once. So many polls take longer than the usual answer of a device that is not.
const POLLS: u32 = 2000;
/// Looking into memory is that much quicker than a poll.
const LOOKS: u32 = 20 * POLLS;

/// After so many rounds of that, the clock is read.
const ROUNDS: u32 = 16;

/// Takes completions off a queue, up to 16 at a time, as perftest does.
pub(crate) struct Completions<'a> {
    cq: &'a CompletionQueue,
    events: bool,
    timeout: Duration,
    array: [WorkCompletion; 16],
}

impl<'a> Completions<'a> {
    pub(crate) fn new(cq: &'a CompletionQueue, events: bool, timeout: Duration) -> Self {
        Self { cq, events, timeout, array: [WorkCompletion::default(); 16] }
    }

    /// At least one completion.
    #[inline]
    pub(crate) fn take(&mut self) -> Result<&[WorkCompletion]> {
        let count = match self.events {
            true => self.cq.wait(&mut self.array, Some(self.timeout))?.len(),
            false => {
                spin(POLLS, self.timeout, || Ok(Some(self.cq.poll(&mut self.array)?.len()).filter(|count| *count > 0)))?
                    .unwrap_or(0)
            }
        };
        if count == 0 { Err(no_progress(self.timeout)) } else { Ok(&self.array[..count]) }
    }

    /// Waits until memory is as it should be. A request that fails meanwhile ends it.
    #[inline]
    pub(crate) fn watch(&mut self, mut is_there: impl FnMut() -> bool) -> Result<()> {
        if spin(LOOKS, self.timeout, || Ok(is_there().then_some(())))?.is_some() {
            return Ok(());
        }
        for completion in self.cq.poll(&mut self.array)? {
            completion.success()?;
        }
        Err(no_progress(self.timeout))
    }
}

/// Tries until there is something; `None` when the time is over. The clock is read only now and then.
#[inline]
fn spin<T>(tries: u32, timeout: Duration, mut attempt: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let mut deadline = None;
    loop {
        for _ in 0..ROUNDS {
            for _ in 0..tries {
                if let Some(found) = attempt()? {
                    return Ok(Some(found));
                }
            }
            thread::yield_now();
        }
        let now = Instant::now();
        if now > *deadline.get_or_insert(now + timeout) {
            return Ok(None);
        }
    }
}

#[cold]
fn no_progress(timeout: Duration) -> anyhow::Error {
    anyhow!("the peer made no progress for {timeout:?}; it is gone, or the way to it is cut")
}
