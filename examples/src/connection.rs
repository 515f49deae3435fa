//! What the programs on `cm` share: waiting for a connection's completions, and noticing its end.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cm::{Connection, EventChannel};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbs::{CompletionQueue, Notify, WorkCompletion, WorkCompletionStatus};

/// Takes a connection's completions off its queue.
///
/// A peer that goes away, or dies, sends nothing more, and its end is no completion but an event of the connection manager. So both
/// file descriptors are watched.
#[derive(Debug)]
pub struct Completions<'a> {
    connection: &'a Connection,
    events: EventChannel,
    timeout: Duration,
    is_over: bool,
}

impl<'a> Completions<'a> {
    /// Of a connection whose queue has a channel, as it has by default. The peer has `timeout` for each step.
    pub fn new(connection: &'a Connection, timeout: Duration) -> Self {
        Self { connection, events: connection.id().channel(), timeout, is_over: false }
    }

    /// The next completion, which is that of a success. `None`: the connection has ended.
    ///
    /// # Errors
    ///
    /// A request has failed, or nothing came in time.
    pub fn next(&mut self) -> Result<Option<WorkCompletion>> {
        let cq = self.connection.completion_queue();
        let deadline = Instant::now() + self.timeout;
        loop {
            if let Some(completion) = take(cq)? {
                return self.judge(completion);
            }
            if self.is_over {
                return Ok(None);
            }
            // Moves the queue pair to ERROR if the peer has ended the connection, so that what was posted is flushed.
            if self.connection.wait_disconnected(Some(Duration::ZERO))? {
                self.is_over = true;
                continue;
            }
            // What came before the queue was armed makes no event.
            cq.arm(Notify::Any)?;
            if let Some(completion) = take(cq)? {
                return self.judge(completion);
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                bail!("the peer said nothing for {:?}; see what it printed", self.timeout);
            }
            self.sleep(cq, remaining)?;
        }
    }

    fn judge(&mut self, completion: WorkCompletion) -> Result<Option<WorkCompletion>> {
        match completion.status() {
            // The cause was told before; and at the end there is none but the end.
            WorkCompletionStatus::WORK_REQUEST_FLUSHED => Ok(None),
            _ => match completion.success() {
                Ok(_) => Ok(Some(completion)),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Until either descriptor is readable, or the time is over.
    fn sleep(&self, cq: &CompletionQueue, timeout: Duration) -> Result<()> {
        let channel = cq.channel().context("the completion queue has no channel")?;
        let mut descriptors = [
            PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.events.as_fd(), PollFlags::IN),
        ];
        match poll(&mut descriptors, Some(&Timespec::try_from(timeout)?)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        cq.take_event()?;
        Ok(())
    }
}

fn take(cq: &CompletionQueue) -> Result<Option<WorkCompletion>> {
    let mut one = [WorkCompletion::default()];
    Ok(cq.poll(&mut one)?.first().copied())
}
