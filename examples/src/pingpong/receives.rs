//! The receives that are posted.

use anyhow::Result;
use verbs::{LocalSlice, ReceiveQueue, ReceiveRequest};

use super::RECEIVE;

/// How many receives are posted, and how many there is room for. All of them go to the same place.
#[derive(Debug)]
pub struct Receives {
    depth: u32,
    posted: u32,
}

impl Receives {
    /// Posts `depth` receives into `place`.
    ///
    /// # Errors
    ///
    /// The queue is smaller.
    pub fn post(queue: &impl ReceiveQueue, place: LocalSlice<'_>, depth: u32) -> Result<Self> {
        let mut receives = Self { depth, posted: 0 };
        receives.keep_above(0, queue, place)?;
        Ok(receives)
    }

    /// Notes that one is used up.
    pub fn used(&mut self) {
        self.posted = self.posted.saturating_sub(1);
    }

    /// If there are no more than `few`, posts as many as there is room for, with one doorbell.
    ///
    /// # Errors
    ///
    /// The queue pair has failed.
    pub fn keep_above(&mut self, few: u32, queue: &impl ReceiveQueue, place: LocalSlice<'_>) -> Result<()> {
        if self.posted <= few {
            let places = [place];
            let missing = self.posted..self.depth;
            let mut requests: Vec<_> = missing.map(|_| ReceiveRequest::new(RECEIVE, &places)).collect();
            queue.post_receive_chain(&mut requests)?;
            self.posted = self.depth;
        }
        Ok(())
    }
}
