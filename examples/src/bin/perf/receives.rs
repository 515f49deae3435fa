//! The receives that are posted for the peer's SENDs.

use anyhow::Result;
use verbs::{PreparedReceive, QueuePair, Rc};

use crate::end::End;

/// Tells receives from sends in `wr_id`; the rest of it is the queue pair's index.
pub(crate) const RECEIVE: u64 = 1 << 63;

/// How many receives are posted with one doorbell at most.
const CHAIN: usize = 16;

/// The receive queues, kept full.
pub(crate) struct Receives<'a>(Vec<Queue<'a>>);

struct Queue<'a> {
    qp: &'a QueuePair<Rc>,
    /// Receives that are posted again and again.
    chain: Vec<PreparedReceive>,
    /// How many of those that were posted are used up.
    used: usize,
}

impl<'a> Receives<'a> {
    /// Fills the receive queues. All messages of a queue pair arrive in the same place.
    pub(crate) fn post(end: &'a End, depth: u32) -> Result<Self> {
        let depth = depth as usize;
        let chain = (depth / 2).clamp(1, CHAIN);
        let mut queues = Vec::new();
        for (index, qp) in end.qps.iter().enumerate() {
            let place = end.hold_incoming(index)?;
            let receive = || PreparedReceive::new(RECEIVE | index as u64, [place.clone()]);
            let mut queue = Queue { qp, chain: (0..chain).map(|_| receive()).collect(), used: depth };
            while queue.used > 0 {
                queue.refill(queue.used.min(chain))?;
            }
            queues.push(queue);
        }
        Ok(Self(queues))
    }

    /// Notes that a receive of the queue pair at `index` is used up; when there is a chain of them, they are posted again.
    #[inline]
    pub(crate) fn used(&mut self, index: usize) -> Result<()> {
        let queue = &mut self.0[index];
        queue.used += 1;
        if queue.used == queue.chain.len() { queue.refill(queue.used) } else { Ok(()) }
    }
}

impl Queue<'_> {
    fn refill(&mut self, count: usize) -> Result<()> {
        self.qp.post_receive_chain(&mut self.chain[..count])?;
        self.used -= count;
        Ok(())
    }
}
