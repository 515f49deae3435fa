//! The receives that are posted for the peer's SENDs.

use anyhow::Result;
use verbs::{PreparedReceive, QueuePair, SharedReceiveQueue};

use crate::end::End;
use crate::service::Service;

/// Tells receives from sends in `wr_id`; the rest of it is the index of the queue.
pub(crate) const RECEIVE: u64 = 1 << 63;

/// How many receives are posted with one doorbell at most.
const CHAIN: usize = 16;

/// The receive queues, kept full: one for each queue pair, or one for all.
pub(crate) struct Receives<'a, T: Service>(Vec<Queue<'a, T>>);

struct Queue<'a, T: Service> {
    target: Target<'a, T>,
    /// Receives that are posted again and again.
    chain: Vec<PreparedReceive>,
    /// How many of those that were posted are used up.
    used: usize,
}

enum Target<'a, T: Service> {
    Own(&'a QueuePair<T>),
    Shared(&'a SharedReceiveQueue),
}

impl<'a, T: Service> Receives<'a, T> {
    /// Fills the receive queues. All messages of a queue arrive in the same place.
    pub(crate) fn post(end: &'a End<T>, depth: u32) -> Result<Self> {
        let targets: Vec<_> = match &end.srq {
            Some(srq) => vec![Target::Shared(srq)],
            None => end.qps.iter().map(Target::Own).collect(),
        };
        let queue = |(index, target)| Queue::full(end, index, target, depth as usize);
        Ok(Self(targets.into_iter().enumerate().map(queue).collect::<Result<_>>()?))
    }

    /// Notes that a receive of the queue at `index` is used up; when there is a chain of them, they are posted again.
    #[inline]
    pub(crate) fn used(&mut self, index: usize) -> Result<()> {
        let queue = &mut self.0[index];
        queue.used += 1;
        if queue.used == queue.chain.len() { queue.refill(queue.used) } else { Ok(()) }
    }
}

impl<'a, T: Service> Queue<'a, T> {
    fn full(end: &End<T>, index: usize, target: Target<'a, T>, depth: usize) -> Result<Self> {
        let count = (depth / 2).clamp(1, CHAIN);
        let place = end.hold_incoming(index)?;
        let receive = || PreparedReceive::new(RECEIVE | index as u64, [place.clone()]);
        let mut queue = Self { target, chain: (0..count).map(|_| receive()).collect(), used: depth };
        while queue.used > 0 {
            queue.refill(queue.used.min(count))?;
        }
        Ok(queue)
    }

    fn refill(&mut self, count: usize) -> Result<()> {
        let chain = &mut self.chain[..count];
        match self.target {
            Target::Own(qp) => qp.post_receive_chain(chain)?,
            Target::Shared(srq) => srq.post_receive_chain(chain)?,
        }
        self.used -= count;
        Ok(())
    }
}
