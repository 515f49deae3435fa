//! Waiting for completions, by polling or by events, and not for ever.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use verbs::{CompletionQueue, WorkCompletion};

/// After so long in vain, others may have the processor: a device that is software needs one itself, and where nobody wants it, it comes
/// back at once. It is longer than the usual answer of a device that is not.
const PATIENCE: Duration = Duration::from_micros(10);

/// Attempts between two looks at the clock, at most.
const MAX_ATTEMPTS: u32 = 1 << 14;

/// Takes completions off a queue, up to 16 at a time, as perftest does.
pub(crate) struct Completions<'a> {
    cq: &'a CompletionQueue,
    events: bool,
    timeout: Duration,
    array: [WorkCompletion; 16],
    polls: Spin,
    looks: Spin,
}

impl<'a> Completions<'a> {
    pub(crate) fn new(cq: &'a CompletionQueue, events: bool, timeout: Duration) -> Self {
        Self {
            cq,
            events,
            timeout,
            array: [WorkCompletion::default(); 16],
            polls: Spin::default(),
            looks: Spin::default(),
        }
    }

    /// At least one completion.
    #[inline]
    pub(crate) fn take(&mut self) -> Result<&[WorkCompletion]> {
        let timeout = self.timeout;
        let found = self.take_or_none()?;
        if found.is_empty() { Err(no_progress(timeout)) } else { Ok(found) }
    }

    /// At least one completion, or none when the time is over.
    #[inline]
    pub(crate) fn take_or_none(&mut self) -> Result<&[WorkCompletion]> {
        let count = match self.events {
            true => self.cq.wait(&mut self.array, Some(self.timeout))?.len(),
            false => {
                let poll = || Ok(Some(self.cq.poll(&mut self.array)?.len()).filter(|count| *count > 0));
                self.polls.until(self.timeout, poll)?.unwrap_or(0)
            }
        };
        Ok(&self.array[..count])
    }

    /// Waits until memory is as it should be. A request that fails meanwhile ends it.
    #[inline]
    pub(crate) fn watch(&mut self, mut is_there: impl FnMut() -> bool) -> Result<()> {
        if self.looks.until(self.timeout, || Ok(is_there().then_some(())))?.is_some() {
            return Ok(());
        }
        for completion in self.cq.poll(&mut self.array)? {
            completion.success()?;
        }
        Err(no_progress(self.timeout))
    }
}

/// Trying again and again. It learns how many attempts are made in the time after which the processor is offered to others.
struct Spin {
    attempts: u32,
}

impl Default for Spin {
    fn default() -> Self {
        Self { attempts: 16 }
    }
}

impl Spin {
    /// Tries until there is something; `None` when the time is over.
    #[inline]
    fn until<T>(&mut self, timeout: Duration, mut attempt: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
        // What is there at once needs no look at the clock.
        for _ in 0..self.attempts {
            if let Some(found) = attempt()? {
                return Ok(Some(found));
            }
        }
        let deadline = Instant::now() + timeout;
        loop {
            let start = Instant::now();
            for _ in 0..self.attempts {
                if let Some(found) = attempt()? {
                    return Ok(Some(found));
                }
            }
            let now = Instant::now();
            if now > deadline {
                return Ok(None);
            }
            self.attempts = match now - start {
                long if long > PATIENCE => (self.attempts / 2).max(1),
                short if short < PATIENCE / 2 => (self.attempts * 2).min(MAX_ATTEMPTS),
                _ => self.attempts,
            };
            thread::yield_now();
        }
    }
}

#[cold]
pub(crate) fn no_progress(timeout: Duration) -> anyhow::Error {
    anyhow!(
        "the peer made no progress for {timeout:?}; it is gone, or the way to it is cut, or a message of UC or UD got lost"
    )
}
