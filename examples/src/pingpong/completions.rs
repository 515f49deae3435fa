//! Waiting for completions, by polling or by events, and not for ever.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use verbs::{CompletionQueue, WorkCompletion};

use super::Common;

/// Takes completions off a queue, up to 16 at a time.
#[derive(Debug)]
pub struct Completions<'a> {
    cq: &'a CompletionQueue,
    events: bool,
    timeout: Duration,
    causes: &'static str,
    array: [WorkCompletion; 16],
}

impl<'a> Completions<'a> {
    /// Of the queue `cq`, in the way and with the patience that `options` say. `causes` is what can be wrong if none comes.
    pub fn new(cq: &'a CompletionQueue, options: &Common, causes: &'static str) -> Self {
        let array = [WorkCompletion::default(); 16];
        Self { cq, events: options.events, timeout: options.timeout(), causes, array }
    }

    /// At least one completion.
    ///
    /// # Errors
    ///
    /// The queue is broken, or no completion came in time.
    pub fn take(&mut self) -> Result<&[WorkCompletion]> {
        let count = match self.events {
            true => self.cq.wait(&mut self.array, Some(self.timeout))?.len(),
            false => self.spin()?,
        };
        if count == 0 {
            bail!("the peer made no progress for {:?}; {}", self.timeout, self.causes);
        }
        Ok(&self.array[..count])
    }

    /// Polls until there is something, or the time is over. The clock is read only now and then.
    fn spin(&mut self) -> Result<usize> {
        let start = Instant::now();
        loop {
            for _ in 0..1000 {
                let count = self.cq.poll(&mut self.array)?.len();
                if count > 0 {
                    return Ok(count);
                }
            }
            if start.elapsed() > self.timeout {
                return Ok(0);
            }
            // A device that is software needs a processor, too.
            thread::yield_now();
        }
    }
}
