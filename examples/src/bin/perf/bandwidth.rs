//! Bandwidth: as many requests under way as the queue takes.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use verbs::{QueuePair, SelectiveSignaling, SendRequest, WorkCompletion};

use crate::completions::{Completions, no_progress};
use crate::end::End;
use crate::options::{Goal, Options};
use crate::progress::Progress;
use crate::receives::{RECEIVE, Receives};
use crate::request::{Message, Step};
use crate::row::Share;
use crate::service::Service;

/// The part of one end: what it sends, and what it receives.
pub(crate) struct Part {
    pub(crate) sends: bool,
    pub(crate) receives: bool,
}

/// Sends and receives until both are done.
pub(crate) fn run<T: Service>(
    end: &End<T>,
    receives: &mut Receives<'_, T>,
    options: &Options,
    step: Step,
    part: &Part,
    progress: &Progress,
) -> Result<Share> {
    let Step { size, goal, .. } = step;
    let count = if part.sends { end.qps.len() } else { 0 };
    let messages = (0..count).map(|index| Message::new(end, options.op, index, step)).collect::<Result<Vec<_>>>()?;
    let sender = |(index, message)| Sender::new(index, &end.qps[index], message, options, step);
    let mut senders = messages.iter().enumerate().map(sender).collect::<Result<Vec<_>>>()?;
    let mut arrivals = Arrivals::new(goal, if part.receives { end.qps.len() } else { 0 });
    let mut completions = Completions::new(&end.cq, options.events, options.timeout());

    let arriving = (T::HEADER + size) as u32;
    let mut moved = 0;
    let mut silence = Duration::ZERO;
    let start = Instant::now();
    let deadline = match goal {
        Goal::Iterations(_) => None,
        Goal::Seconds(seconds) => Some(start + Duration::from_secs(seconds)),
    };
    loop {
        for sender in &mut senders {
            sender.post()?;
        }
        if arrivals.are_over() && senders.iter().all(Sender::is_done) {
            break;
        }
        let found = completions.take_or_none()?;
        if found.is_empty() {
            if !(options.may_lose() && senders.iter().all(Sender::is_done)) {
                return Err(no_progress(options.timeout()));
            }
            // What has not arrived by now is lost.
            silence = options.timeout();
            break;
        }
        for completion in found {
            let done = completion.success()?;
            if done.wr_id() & RECEIVE == 0 {
                moved += senders[(done.wr_id() >> NUMBER_BITS) as usize].retire(completion);
            } else {
                if done.byte_len() != Some(arriving) {
                    bail!("a message of {:?} bytes arrived instead of {arriving}", done.byte_len());
                }
                arrivals.add(done.imm_data().is_some());
                moved += 1;
                receives.used((done.wr_id() & !RECEIVE) as usize)?;
            }
        }
        progress.set(moved);
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            senders.iter_mut().for_each(|sender| sender.stopping = true);
        }
    }
    let elapsed = start.elapsed().saturating_sub(silence);
    let messages = senders.iter().map(|sender| sender.completed).sum();
    Ok(Share { messages, arrived: arrivals.count, elapsed, latency: None })
}

/// The requests of a queue pair are numbered from its index on, in so many bits below it.
const NUMBER_BITS: u32 = 48;

/// What one queue pair sends.
struct Sender<'a, T: Service> {
    qp: &'a QueuePair<T>,
    /// Requests that are built once and posted again and again.
    chain: Vec<SendRequest<'a, T>>,
    /// The end of a test that lasts for a time.
    last: SendRequest<'a, T>,
    /// Has every so many requests signaled, and knows how many are under way.
    signaling: SelectiveSignaling,
    depth: usize,
    posted: u64,
    completed: u64,
    /// How many are to be posted in all; it is not yet known while a test lasts for a time.
    wanted: Option<u64>,
    /// The time is over.
    stopping: bool,
}

impl<'a, T: Service> Sender<'a, T> {
    fn new(
        index: usize,
        qp: &'a QueuePair<T>,
        message: &'a Message<'a, T>,
        options: &Options,
        step: Step,
    ) -> Result<Self> {
        Ok(Self {
            qp,
            chain: (0..options.post_list).map(|_| message.request()).collect::<Result<_>>()?,
            last: message.last()?,
            signaling: SelectiveSignaling::new(qp, options.interval(step.size), (index as u64) << NUMBER_BITS),
            depth: options.depth() as usize,
            posted: 0,
            completed: 0,
            wanted: match step.goal {
                Goal::Iterations(count) => Some(count),
                Goal::Seconds(_) => None,
            },
            stopping: false,
        })
    }

    /// Posts chains for as long as there is room for one.
    #[inline]
    fn post(&mut self) -> Result<()> {
        if self.stopping && self.wanted.is_none() {
            return self.post_last();
        }
        loop {
            let left = self.wanted.map_or(u64::MAX, |wanted| wanted - self.posted);
            let count = self.chain.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            if count == 0 || self.signaling.outstanding() as usize + count > self.depth {
                return Ok(());
            }
            if count as u64 == left {
                self.signaling.signal_next();
            }
            self.signaling.post_chain(self.qp, &mut self.chain[..count])?;
            self.posted += count as u64;
        }
    }

    /// Posts the request that ends a test that lasts for a time, once there is room for it.
    fn post_last(&mut self) -> Result<()> {
        if (self.signaling.outstanding() as usize) < self.depth {
            self.signaling.signal_next();
            self.signaling.post(self.qp, &mut self.last)?;
            self.posted += 1;
            self.wanted = Some(self.posted);
        }
        Ok(())
    }

    /// A signaled request has completed, and with it those before it; how many that are.
    #[inline]
    fn retire(&mut self, completion: &WorkCompletion) -> u64 {
        let count = self.signaling.retire(completion).into();
        self.completed += count;
        count
    }

    fn is_done(&self) -> bool {
        self.wanted == Some(self.completed)
    }
}

/// What has arrived.
struct Arrivals {
    /// How many messages are still to come, or how many queue pairs have not yet said that it was their last one.
    left: u64,
    count_messages: bool,
    count: u64,
}

impl Arrivals {
    fn new(goal: Goal, qps: usize) -> Self {
        let (each, count_messages) = match goal {
            Goal::Iterations(count) => (count, true),
            Goal::Seconds(_) => (1, false),
        };
        Self { left: each * qps as u64, count_messages, count: 0 }
    }

    #[inline]
    fn add(&mut self, is_last: bool) {
        self.count += 1;
        self.left -= u64::from(self.count_messages || is_last).min(self.left);
    }

    fn are_over(&self) -> bool {
        self.left == 0
    }
}
