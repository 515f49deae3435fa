//! [`ReceiveSlots`]: receives of one size, posted again in chains.
//!
//! # Safety
//!
//! A [`Waiting`] chain hands out different requests: no slot is in the list of those that wait twice.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::Range;

use crate::chain::sealed::{Request as _, Requests};
use crate::error::{Error, Result};
use crate::ffi;
use crate::held_slice::HeldSlice;
use crate::post_error::PostError;
use crate::prepared_receive::PreparedReceive;
use crate::receive_queue::ReceiveQueue;
use crate::work_completion::WorkCompletion;

/// Where a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In the list of those that will be posted.
    Waiting,
    /// In the receive queue.
    Posted,
    /// With the program.
    Taken,
}

/// Part of a memory region, cut into slots of one size that receive messages: posted in chains, one doorbell for all that are free.
///
/// A slot goes round: [`refill`](Self::refill) posts it; when its receive has completed, [`take`](Self::take) tells where the message
/// is; once the program is done with that, [`release`](Self::release) has it posted again at the next refill. Nothing is allocated on
/// the way.
///
/// # Examples
///
/// ```no_run
/// # use verbs::{CompletionQueue, MemoryRegion, QueuePair, Rc, ReceiveSlots, WorkCompletion};
/// # fn example(qp: &QueuePair<Rc>, cq: &CompletionQueue, region: MemoryRegion<Vec<u8>>) -> verbs::Result<()> {
/// let mut receives = ReceiveSlots::new(region.hold(..64 * 256)?, 256, 0)?;
/// receives.refill(qp)?;
/// let mut completions = [WorkCompletion::default(); 16];
/// loop {
///     for completion in cq.poll(&mut completions)? {
///         completion.success()?;
///         if let Some(range) = receives.take(completion) {
///             println!("{:?}", region.to_vec(range)?);
///             receives.release(completion.wr_id())?;
///         }
///     }
///     if receives.waiting() >= 16 {
///         receives.refill(qp)?;
///     }
/// }
/// # }
/// ```
pub struct ReceiveSlots {
    requests: Box<[PreparedReceive]>,
    states: Box<[State]>,
    /// The slots that will be posted.
    waiting: Vec<usize>,
    first_wr_id: u64,
    /// Where in the region the first slot begins.
    offset: usize,
    slot_len: usize,
}

impl ReceiveSlots {
    /// Cuts `memory` into slots of `slot_len` bytes; a rest at the end is not used. The receive of the slot at index *n* has the
    /// identifier `first_wr_id` + *n*. None is posted yet.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: `slot_len` is 0 or larger than `memory`.
    pub fn new(memory: HeldSlice, slot_len: usize, first_wr_id: u64) -> Result<Self> {
        let slots = (memory.len() as usize).checked_div(slot_len).unwrap_or(0);
        if slots == 0 {
            let rule = format!("a slot has 1 to {} bytes, which is all the memory", memory.len());
            return Err(Error::invalid("ibv_post_recv", "slot_len", slot_len, rule));
        }
        let offset = memory.offset();
        let receive = |index: usize| {
            let mut receive = PreparedReceive::new(first_wr_id.wrapping_add(index as u64), [memory.clone()]);
            receive.set_range(0, offset + index * slot_len..offset + (index + 1) * slot_len)?;
            Ok(receive)
        };
        Ok(Self {
            requests: (0..slots).map(receive).collect::<Result<_>>()?,
            states: vec![State::Waiting; slots].into(),
            waiting: (0..slots).collect(),
            first_wr_id,
            offset,
            slot_len,
        })
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether there is no slot: never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many slots are free, and posted by the next refill.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// `ibv_post_recv` or `ibv_post_srq_recv` of all free slots, as one chain. Returns how many.
    ///
    /// # Errors
    ///
    /// As those of [`ReceiveQueue::post_receive_chain`]. Slots that the device did not take wait for the next refill; if that is unknown,
    /// they are treated as taken.
    #[doc(alias = "ibv_post_recv")]
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline]
    pub fn refill(&mut self, queue: &impl ReceiveQueue) -> Result<usize, PostError> {
        let mut chain = Waiting { requests: &self.requests, waiting: &self.waiting };
        let (posted, result) = match queue.post_receive_chain(&mut chain) {
            Ok(()) => (self.waiting.len(), Ok(self.waiting.len())),
            Err(error) => (error.accepted().unwrap_or(self.waiting.len()), Err(error)),
        };
        for slot in self.waiting.drain(..posted) {
            self.states[slot] = State::Posted;
        }
        result
    }

    /// Takes a slot whose receive has completed, and tells where in the region its message is: as many bytes as have arrived, or none if
    /// the receive failed or told only of an RDMA WRITE with immediate. `None`: it is not the completion of such a receive.
    #[inline]
    pub fn take(&mut self, completion: &WorkCompletion) -> Option<Range<usize>> {
        let slot = self.slot(completion.wr_id(), State::Posted)?;
        self.states[slot] = State::Taken;
        let arrived =
            completion.success().ok().filter(|success| success.opcode() == crate::WorkCompletionOpcode::RECEIVE);
        let length = arrived.and_then(|success| success.byte_len()).unwrap_or(0) as usize;
        let start = self.offset + slot * self.slot_len;
        Some(start..start + length.min(self.slot_len))
    }

    /// Gives a taken slot back, to be posted by the next refill. `wr_id` is that of its completion.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: the program does not have that slot.
    #[inline]
    pub fn release(&mut self, wr_id: u64) -> Result<()> {
        let Some(slot) = self.slot(wr_id, State::Taken) else { return Err(not_taken(wr_id)) };
        self.states[slot] = State::Waiting;
        self.waiting.push(slot);
        Ok(())
    }

    /// Gives back the slots that are in the receive queue: the queue pair was moved to RESET, and its requests are gone.
    pub fn reset(&mut self) {
        for (slot, state) in self.states.iter_mut().enumerate().filter(|(_, state)| **state == State::Posted) {
            *state = State::Waiting;
            self.waiting.push(slot);
        }
    }

    #[inline]
    fn slot(&self, wr_id: u64, state: State) -> Option<usize> {
        let slot = usize::try_from(wr_id.wrapping_sub(self.first_wr_id)).ok()?;
        (self.states.get(slot) == Some(&state)).then_some(slot)
    }
}

#[cold]
fn not_taken(wr_id: u64) -> Error {
    Error::invalid("ibv_post_recv", "wr_id", wr_id, "only a slot that was taken, and only once, is released")
}

/// The chain of the free slots.
struct Waiting<'a> {
    requests: &'a [PreparedReceive],
    waiting: &'a [usize],
}

// SAFETY: the requests are in cells, borrowed from what the caller has borrowed mutably, and different ones.
unsafe impl Requests<ffi::ibv_recv_wr, ()> for Waiting<'_> {
    #[inline]
    fn length(&self) -> usize {
        self.waiting.len()
    }

    #[inline]
    fn as_wr(&self, index: usize) -> *mut ffi::ibv_recv_wr {
        self.requests[self.waiting[index]].as_wr()
    }
}

impl fmt::Debug for ReceiveSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveSlots")
            .field("slots", &self.len())
            .field("slot_len", &self.slot_len)
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}
