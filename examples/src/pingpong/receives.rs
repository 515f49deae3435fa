//! The receives that are posted.

use anyhow::Result;
use verbs::{ReceiveQueue, ReceiveRequest};

use super::Buffer;

/// The receives of a queue: those that are posted, and those that are used up. The `wr_id` of each is its place in the [`Buffer`].
#[derive(Debug)]
pub struct Receives {
    depth: usize,
    used: Vec<u64>,
}

impl Receives {
    /// Posts `depth` receives into the places of `buffer`.
    ///
    /// # Errors
    ///
    /// The queue is smaller.
    pub fn post(queue: &impl ReceiveQueue, buffer: &Buffer, depth: u32) -> Result<Self> {
        let mut receives = Self { depth: depth as usize, used: buffer.places(depth) };
        receives.keep_above(0, queue, buffer)?;
        Ok(receives)
    }

    /// Notes that the one of a place is used up, and that its message has been looked at.
    pub fn used(&mut self, place: u64) {
        self.used.push(place);
    }

    /// If there are no more than `few`, posts as many as there is room for, with one doorbell.
    ///
    /// # Errors
    ///
    /// The queue pair has failed.
    pub fn keep_above(&mut self, few: u32, queue: &impl ReceiveQueue, buffer: &Buffer) -> Result<()> {
        if self.depth.saturating_sub(self.used.len()) <= few as usize {
            let places = self.used.iter().map(|place| buffer.place(*place)).collect::<Result<Vec<_>>>()?;
            let requests = self.used.iter().zip(&places).map(|(place, slices)| ReceiveRequest::new(*place, slices));
            queue.post_receive_chain(&mut requests.collect::<Vec<_>>())?;
            self.used.clear();
        }
        Ok(())
    }
}
