//! Latency: one message at a time.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use examples::exchange::Role;
use verbs::{InlineSlice, QueuePair, SendRequest};

use crate::completions::Completions;
use crate::end::{Byte, End};
use crate::options::{Goal, Operation, Options};
use crate::progress::Progress;
use crate::receives::{RECEIVE, Receives};
use crate::request::{Message, Step};
use crate::row::Share;
use crate::samples::Samples;
use crate::service::Service;

/// What an RDMA WRITE has in its last byte: the last one of a test this, the others the numbers from 1 to [`COUNTED`].
const LAST: u8 = 255;
const COUNTED: u64 = 250;

/// The byte by which an end sees that an RDMA WRITE of `size` bytes has arrived: its last one.
pub(crate) fn doorstep<T: Service>(end: &End<T>, size: usize) -> Byte<'_> {
    end.byte(end.incoming(0) + size - 1)
}

/// Measures at the client, which begins and knows when to end; the server answers.
pub(crate) fn run<T: Service>(
    end: &End<T>,
    receives: &mut Receives<'_, T>,
    options: &Options,
    step: Step,
    role: Role,
    progress: &Progress,
) -> Result<Share> {
    let Step { size, goal, .. } = step;
    let message = Message::new(end, options.op, 0, step)?;
    let mut test = Latency {
        qp: &end.qps[0],
        completions: Completions::new(&end.cq, options.events, options.timeout()),
        next: message.request()?.signaled(),
        last: message.last()?.signaled(),
        inline: end.inline_data(size).map(<[u8]>::to_vec),
        message: &message,
        ours: end.byte(end.outgoing(0) + size - 1),
        theirs: doorstep(end, size),
        arriving: (T::HEADER + size) as u32,
    };
    match (options.op, role) {
        (Operation::Send, Role::Client) => test.ping(receives, Clock::new(goal, progress)?),
        (Operation::Send, Role::Server) => test.pong(receives),
        (Operation::Write, Role::Client) => test.write_and_watch(Clock::new(goal, progress)?),
        (Operation::Write, Role::Server) => test.watch_and_write(),
        (Operation::Read | Operation::Atomic, Role::Client) => test.one_by_one(Clock::new(goal, progress)?),
        (Operation::Read | Operation::Atomic, Role::Server) => Ok(Share::default()),
    }
}

/// One end of a test of latency: it has one queue pair, and one request under way.
struct Latency<'a, T: Service> {
    qp: &'a QueuePair<T>,
    completions: Completions<'a>,
    next: SendRequest<'a, T>,
    last: SendRequest<'a, T>,
    /// How many bytes a message has as it arrives.
    arriving: u32,
    message: &'a Message<'a, T>,
    /// The data, where it is sent inline.
    inline: Option<Vec<u8>>,
    /// The last byte of what this end writes, and of what the peer writes.
    ours: Byte<'a>,
    theirs: Byte<'a>,
}

impl<T: Service> Latency<'_, T> {
    fn post(&self, is_last: bool) -> Result<()> {
        Ok(self.qp.post_send(if is_last { &self.last } else { &self.next })?)
    }

    /// SENDs a message and waits for the answer.
    fn ping(&mut self, receives: &mut Receives<'_, T>, mut clock: Clock<'_>) -> Result<Share> {
        loop {
            let is_last = clock.next_is_last();
            self.post(is_last)?;
            // The receive that the previous answer used up, if there was one: the message is on its way meanwhile.
            if clock.count > 0 {
                receives.used(0)?;
            }
            self.arrival(true)?;
            clock.tick();
            if is_last {
                receives.used(0)?;
                return Ok(clock.share(2));
            }
        }
    }

    /// Waits for a message and SENDs the answer, until the message says that it is the last one.
    fn pong(&mut self, receives: &mut Receives<'_, T>) -> Result<Share> {
        let mut is_last = self.arrival(false)?;
        loop {
            self.post(is_last)?;
            receives.used(0)?;
            if is_last {
                self.completion()?;
                return Ok(Share::default());
            }
            is_last = self.arrival(true)?;
        }
    }

    /// Waits until the peer's message has arrived and, unless there is none, this end's has completed, in whichever order.
    /// Whether the message says that it is the last one.
    fn arrival(&mut self, with_completion: bool) -> Result<bool> {
        let (mut arrived, mut completed) = (None, !with_completion);
        loop {
            if let (Some(is_last), true) = (arrived, completed) {
                return Ok(is_last);
            }
            for completion in self.completions.take()? {
                let done = completion.success()?;
                if done.wr_id() & RECEIVE == 0 {
                    completed = true;
                } else if done.byte_len() == Some(self.arriving) {
                    arrived = Some(done.imm_data().is_some());
                } else {
                    bail!("a message of {:?} bytes arrived instead of {}", done.byte_len(), self.arriving);
                }
            }
        }
    }

    /// Waits for the completion of the only request.
    fn completion(&mut self) -> Result<()> {
        self.completions.take()?[0].success()?;
        Ok(())
    }

    /// Writes to the peer's memory, `value` into the last byte.
    fn write(&mut self, value: u8) -> Result<()> {
        let Some(data) = &mut self.inline else {
            self.ours.set(value);
            return self.post(false);
        };
        if let Some(last) = data.last_mut() {
            *last = value;
        }
        Ok(self.qp.post_send(&self.message.inline(&[InlineSlice::new(data)])?.signaled())?)
    }

    /// Writes to the peer's memory, and watches its own for the answer.
    fn write_and_watch(&mut self, mut clock: Clock<'_>) -> Result<Share> {
        loop {
            let is_last = clock.next_is_last();
            let value = if is_last { LAST } else { (clock.count % COUNTED + 1) as u8 };
            self.write(value)?;
            self.completions.watch(|| self.theirs.get() == value)?;
            self.completion()?;
            clock.tick();
            if is_last {
                return Ok(clock.share(2));
            }
        }
    }

    /// Watches its memory, and writes to the peer's what has arrived.
    fn watch_and_write(&mut self) -> Result<Share> {
        let mut before = 0;
        loop {
            let mut value = 0;
            self.completions.watch(|| {
                value = self.theirs.get();
                value != before
            })?;
            // The previous answer has arrived, so its memory may be changed.
            if before != 0 {
                self.completion()?;
            }
            self.write(value)?;
            if value == LAST {
                self.completion()?;
                return Ok(Share::default());
            }
            before = value;
        }
    }

    /// Requests to which the peer's device alone answers.
    fn one_by_one(&mut self, mut clock: Clock<'_>) -> Result<Share> {
        loop {
            let is_last = clock.next_is_last();
            self.post(is_last)?;
            self.completion()?;
            clock.tick();
            if is_last {
                return Ok(clock.share(1));
            }
        }
    }
}

/// Takes the times, and knows when it is time to end. It is read once an iteration.
struct Clock<'a> {
    start: Instant,
    before: Instant,
    count: u64,
    wanted: u64,
    deadline: Option<Instant>,
    samples: Samples,
    progress: &'a Progress,
}

impl<'a> Clock<'a> {
    fn new(goal: Goal, progress: &'a Progress) -> Result<Self> {
        let samples = Samples::new()?;
        let start = Instant::now();
        let (wanted, deadline) = match goal {
            Goal::Iterations(count) => (count, None),
            Goal::Seconds(seconds) => (u64::MAX, Some(start + Duration::from_secs(seconds))),
        };
        Ok(Self { start, before: start, count: 0, wanted, deadline, samples, progress })
    }

    /// Whether the iteration that is about to begin is the last one.
    #[inline]
    fn next_is_last(&self) -> bool {
        self.count + 1 == self.wanted || self.deadline.is_some_and(|deadline| self.before >= deadline)
    }

    /// An iteration is over, and the next one begins.
    #[inline]
    fn tick(&mut self) {
        let now = Instant::now();
        self.samples.add(now - self.before);
        self.before = now;
        self.count += 1;
        self.progress.set(self.count);
    }

    /// What was measured, if an iteration is `hops` messages one after the other.
    fn share(self, hops: u32) -> Share {
        Share {
            messages: self.count,
            arrived: 0,
            elapsed: self.before - self.start,
            latency: Some(self.samples.summary(hops)),
        }
    }
}
