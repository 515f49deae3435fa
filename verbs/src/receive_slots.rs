//! [`ReceiveSlots`]: receives of one size, posted again in chains.
//!
//! # Safety
//!
//! The free slots are a chain from `first` to `last`, linked when they are released, and each is in it once: a slot is in the chain just if
//! its `refill` is the next one, and it is released only if the program has it.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::ptr;

use crate::chain::sealed::{Request as _, Requests};
use crate::error::{Error, Result};
use crate::ffi;
use crate::held_slice::HeldSlice;
use crate::post_error::PostError;
use crate::prepared_receive::PreparedReceive;
use crate::receive_queue::ReceiveQueue;
use crate::work_completion::{WorkCompletion, WorkCompletionOpcode};
use crate::work_request::{Limits, Linked};

/// In place of a generation: the program has the slot.
const TAKEN: u64 = u64::MAX;

struct Slot {
    /// Its pointer to its list is set: a slot stays where it is.
    request: PreparedReceive,
    /// The refill that the slot waits for, or has been posted by, or [`TAKEN`].
    refill: Cell<u64>,
}

/// Part of a memory region, cut into slots of one size that receive messages: posted in chains, one doorbell for all that are free.
///
/// A slot goes round: [`refill`](Self::refill) posts it; when its receive has completed, [`take`](Self::take) tells where the message
/// is; once the program is done with that, [`release`](Self::release) has it posted again at the next refill. Nothing is allocated on
/// the way.
///
/// Identifiers tell the completions of these slots from others. Where several sets of slots, or one after another, use a completion queue,
/// give each identifiers of its own: what was flushed from a queue pair that is gone may still be polled.
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
    // Only reached through shared references once they are linked: a mutable one would take them from the pointers below.
    slots: Vec<Slot>,
    /// The chain of the free slots, not ended; null if there are none.
    first: *mut ffi::ibv_recv_wr,
    last: *mut ffi::ibv_recv_wr,
    waiting: usize,
    /// How many times the queue was refilled. So a refill need not touch each slot: with a state in each, a message cost 102
    /// instructions on the null provider, and not 83.
    refills: u64,
    first_wr_id: u64,
    /// Where in the region the first slot begins.
    offset: usize,
    slot_len: usize,
}

// SAFETY: the pointers lead into the slots, which can be sent.
unsafe impl Send for ReceiveSlots {}

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
        let slot = |index: usize| {
            let mut receive = PreparedReceive::new(first_wr_id.wrapping_add(index as u64), [memory.clone()]);
            receive.set_range(0, offset + index * slot_len..offset + (index + 1) * slot_len)?;
            Ok(Slot { request: receive, refill: Cell::new(TAKEN) })
        };
        let mut this = Self {
            slots: (0..slots).map(slot).collect::<Result<_>>()?,
            first: ptr::null_mut(),
            last: ptr::null_mut(),
            waiting: 0,
            refills: 0,
            first_wr_id,
            offset,
            slot_len,
        };
        (0..slots).for_each(|slot| this.add(slot));
        Ok(this)
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is no slot: never.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many slots are free, and posted by the next refill.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// `ibv_post_recv` or `ibv_post_srq_recv` of all free slots, as one chain. Returns how many.
    ///
    /// # Errors
    ///
    /// As those of [`ReceiveQueue::post_receive_chain`]. Slots that the device did not take wait for the next refill; if that is unknown,
    /// they are treated as taken.
    ///
    /// # References
    ///
    /// [ibv_post_recv(3)](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)
    #[doc(alias = "ibv_post_recv")]
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline]
    pub fn refill(&mut self, queue: &impl ReceiveQueue) -> Result<usize, PostError> {
        let count = self.waiting;
        match queue.post_receive_chain(&mut Waiting { slots: self }) {
            Ok(()) => {
                (self.first, self.last, self.waiting) = (ptr::null_mut(), ptr::null_mut(), 0);
                self.refills += 1;
                Ok(count)
            }
            Err(error) => Err(self.refused(error)),
        }
    }

    /// Takes what was taken from the chain.
    #[cold]
    fn refused(&mut self, error: PostError) -> PostError {
        let taken = error.accepted().unwrap_or(self.waiting).min(self.waiting);
        let (mut request, left) = (self.first, self.waiting - taken);
        (self.first, self.last, self.waiting) = (ptr::null_mut(), ptr::null_mut(), 0);
        self.refills += 1;
        for index in 0..taken + left {
            // SAFETY: the chain has as many requests, and the link is read before it may be written to.
            let (wr_id, next) = unsafe { ((*request).wr_id, (*request).next) };
            if index >= taken {
                self.add(wr_id.wrapping_sub(self.first_wr_id) as usize);
            }
            request = next;
        }
        error
    }

    /// Adds a slot to the chain, in which it is not.
    #[inline]
    fn add(&mut self, slot: usize) {
        let slot = &self.slots[slot];
        slot.refill.set(self.refills);
        let request = slot.request.as_wr();
        if self.last.is_null() {
            self.first = request;
        } else {
            // SAFETY: `last` is a request of the chain.
            unsafe { (*self.last).next = request };
        }
        self.last = request;
        self.waiting += 1;
    }

    /// Takes a slot whose receive has completed, and tells where in the region its message is: as many bytes as have arrived, or none if
    /// the receive failed or told only of an RDMA WRITE with immediate. `None`: it is not the completion of such a receive.
    #[inline]
    pub fn take(&mut self, completion: &WorkCompletion) -> Option<Range<usize>> {
        let index = self.index(completion.wr_id())?;
        let slot = &self.slots[index];
        // Less than the next one: it was posted, and the program does not have it.
        if slot.refill.get() >= self.refills {
            return None;
        }
        slot.refill.set(TAKEN);
        let arrived = completion.success().ok().filter(|success| success.opcode() == WorkCompletionOpcode::RECEIVE);
        let length = arrived.and_then(|success| success.byte_len()).unwrap_or(0) as usize;
        let start = self.offset + index * self.slot_len;
        Some(start..start + length.min(self.slot_len))
    }

    /// Gives a taken slot back, to be posted by the next refill. `wr_id` is that of its completion.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: the program does not have that slot.
    #[inline]
    pub fn release(&mut self, wr_id: u64) -> Result<()> {
        match self.index(wr_id) {
            Some(index) if self.slots[index].refill.get() == TAKEN => self.add(index),
            _ => return Err(not_taken(wr_id)),
        }
        Ok(())
    }

    /// Gives back the slots that are in the receive queue: the queue pair was moved to RESET, and its requests are gone.
    pub fn reset(&mut self) {
        for index in 0..self.len() {
            if self.slots[index].refill.get() < self.refills {
                self.add(index);
            }
        }
    }

    #[inline]
    fn index(&self, wr_id: u64) -> Option<usize> {
        let index = usize::try_from(wr_id.wrapping_sub(self.first_wr_id)).ok()?;
        (index < self.slots.len()).then_some(index)
    }
}

#[cold]
fn not_taken(wr_id: u64) -> Error {
    Error::invalid("ibv_post_recv", "wr_id", wr_id, "only a slot that was taken, and only once, is released")
}

/// The chain of the free slots.
struct Waiting<'a> {
    slots: &'a mut ReceiveSlots,
}

// SAFETY: the requests of the chain are different ones, and stay where they are. They have no inline data.
unsafe impl Requests<ffi::ibv_recv_wr, ()> for Waiting<'_> {
    const INLINE: bool = false;

    #[inline]
    fn length(&self) -> usize {
        self.slots.waiting
    }

    unsafe fn as_wr(&self, index: usize) -> *mut ffi::ibv_recv_wr {
        // SAFETY: the chain has as many requests.
        (0..index).fold(self.slots.first, |request, _| unsafe { (*request).next })
    }

    #[inline]
    fn link(&mut self, _limits: Limits) -> Linked<ffi::ibv_recv_wr> {
        if !self.slots.last.is_null() {
            // SAFETY: the request is the chain's last one.
            unsafe { (*self.slots.last).next = ptr::null_mut() };
        }
        Linked { first: self.slots.first, count: self.slots.waiting, refused: ptr::null_mut() }
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
