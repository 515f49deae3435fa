//! [`SelectiveSignaling`]: few completions, and a send queue that does not overflow.
//!
//! # Safety
//!
//! The requests that are written to are initialised, and the caller's alone.
#![allow(unsafe_code)]

use crate::chain::sealed::Request;
use crate::chain::{PreparedRequest, SendChain};
use crate::ffi;
use crate::post_error::{PostError, Reason};
use crate::queue_pair::QueuePair;
use crate::send_request::SendRequest;
use crate::transport::Transport;
use crate::work_completion::WorkCompletion;
use crate::work_request::WorkRequest as _;

const SIGNALED: u32 = ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;

/// Counts the slots of a queue pair's send queue, and has every so many requests signaled.
///
/// A slot of the send queue is free again when a *signaled* request that was posted later than the one in it, or that one itself, has
/// completed and was polled. A program that signals each request polls more than it has to; one that signals too few finds its queue
/// full for ever. Here each request gets the next identifier, and each `every`th one is signaled; its completion says that it *and all
/// before it* are done. [`signaled`](SendRequest::signaled) on a request has no effect; [`signal_next`](Self::signal_next) has.
///
/// All sends of the queue pair have to be posted through its counter. The identifiers tell their completions from those of receives, so
/// choose the first one far from those. They also tell them from those of a queue pair that had the same number before and is gone, which
/// may still be in the completion queue: begin where that one's counter ended, at its [`next_wr_id`](Self::next_wr_id).
///
/// # Examples
///
/// ```no_run
/// # use verbs::{CompletionQueue, LocalSlice, QueuePair, Rc, RemoteSlice, SelectiveSignaling, SendRequest, WorkCompletion};
/// # fn example(qp: &QueuePair<Rc>, cq: &CompletionQueue, page: LocalSlice<'_>, pages: &[RemoteSlice]) -> verbs::Result<()> {
/// let mut sends = SelectiveSignaling::new(qp, 16, 0);
/// let mut completions = [WorkCompletion::default(); 16];
/// for remote in pages {
///     while sends.free_slots() == 0 {
///         for completion in cq.poll(&mut completions)? {
///             completion.success()?;
///             sends.retire(completion);
///         }
///     }
///     sends.post(qp, &mut SendRequest::rdma_write(0, &[page], *remote))?;
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "selective signaling")]
#[derive(Clone, Debug)]
pub struct SelectiveSignaling {
    qp_num: u32,
    slots: u32,
    every: u32,
    /// The identifier of the next request.
    next: u64,
    /// How many requests before that one are not known to be done.
    outstanding: u32,
    /// How many of those were posted after the last signaled one.
    unsignaled: u32,
    signal_next: bool,
}

impl SelectiveSignaling {
    /// Counts the sends of `qp`, none of which is outstanding, and has every `every`th one signaled: from 1, which is each, to half the
    /// slots of the queue, beyond which it would run dry while a completion is awaited. The first request gets `first_wr_id`.
    pub fn new<T: Transport>(qp: &QueuePair<T>, every: u32, first_wr_id: u64) -> Self {
        let slots = qp.capabilities().max_send_wr;
        Self {
            qp_num: qp.qp_num(),
            slots,
            every: every.clamp(1, (slots / 2).max(1)),
            next: first_wr_id,
            outstanding: 0,
            unsignaled: 0,
            signal_next: false,
        }
    }

    /// How many requests the send queue takes now.
    #[inline]
    pub fn free_slots(&self) -> u32 {
        self.slots - self.outstanding
    }

    /// How many requests were posted and are not known to be done.
    #[inline]
    pub fn outstanding(&self) -> u32 {
        self.outstanding
    }

    /// The identifier of the next request.
    #[inline]
    pub fn next_wr_id(&self) -> u64 {
        self.next
    }

    /// Has the next request signaled, whether or not its turn has come; of a chain, the last one. For the last request before a pause,
    /// for example.
    pub fn signal_next(&mut self) {
        self.signal_next = true;
    }

    /// `ibv_post_send` of a request, which gets the next identifier and is signaled if its turn has come.
    ///
    /// # Errors
    ///
    /// The request is not counted unless it is unknown whether the device took it.
    ///
    /// * [`QueueFull`](crate::PostErrorKind::QueueFull): there is no free slot.
    /// * [`Invalid`](crate::PostErrorKind::Invalid): `qp` is not the queue pair whose sends are counted.
    /// * As those of [`QueuePair::post_send`].
    ///
    /// # References
    ///
    /// [ibv_post_send(3)](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub fn post<T: Transport>(&mut self, qp: &QueuePair<T>, request: &mut SendRequest<'_, T>) -> Result<(), PostError> {
        self.check(qp, 1)?;
        let unsignaled = self.number(request.as_wr(), 0, self.unsignaled, self.signal_next);
        qp.post_send(request).map_err(|error| self.one_refused(error))?;
        self.posted(1, unsignaled);
        Ok(())
    }

    /// `ibv_post_send` of a prepared request, as [`post`](Self::post).
    ///
    /// # Errors
    ///
    /// As those of [`post`](Self::post).
    ///
    /// # References
    ///
    /// [ibv_post_send(3)](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub fn post_prepared<T: Transport, P: PreparedRequest<T>>(
        &mut self,
        qp: &QueuePair<T>,
        request: &mut P,
    ) -> Result<(), PostError> {
        self.check(qp, 1)?;
        let unsignaled = self.number(request.as_wr(), 0, self.unsignaled, self.signal_next);
        qp.post_prepared_send(request).map_err(|error| self.one_refused(error))?;
        self.posted(1, unsignaled);
        Ok(())
    }

    /// `ibv_post_send` of a chain, whose requests get the next identifiers and are signaled where their turn has come.
    ///
    /// # Errors
    ///
    /// As those of [`post`](Self::post). A chain for which there are not enough free slots is not posted at all; of one that the device
    /// refuses in its midst, the requests that were [accepted](PostError::accepted) are counted.
    ///
    /// # References
    ///
    /// [ibv_post_send(3)](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub fn post_chain<T: Transport, C: SendChain<T> + ?Sized>(
        &mut self,
        qp: &QueuePair<T>,
        requests: &mut C,
    ) -> Result<(), PostError> {
        let count = requests.length();
        self.check(qp, count)?;
        let mut unsignaled = self.unsignaled;
        for index in 0..count {
            let signal = self.signal_next && index + 1 == count;
            // SAFETY: there are `count` requests.
            let wr = unsafe { requests.as_wr(index) };
            unsignaled = self.number(wr, index, unsignaled, signal);
        }
        match qp.post_send_chain(requests) {
            // There are free slots for them, whose number has 32 bits.
            Ok(()) => self.posted(count as u32, unsignaled),
            Err(error) => return Err(self.refused(requests, error)),
        }
        Ok(())
    }

    /// Takes note of a completion. Returns how many requests are now known to be done: none if it is the completion of another queue
    /// pair's request, or of a receive.
    ///
    /// A completion with an error is one, too. After it each request completes, signaled or not.
    #[inline]
    pub fn retire(&mut self, completion: &WorkCompletion) -> u32 {
        let oldest = self.next.wrapping_sub(self.outstanding.into());
        let index = completion.wr_id().wrapping_sub(oldest);
        if completion.qp_num() != self.qp_num || index >= self.outstanding.into() {
            return 0;
        }
        // Less than `outstanding`, which has 32 bits.
        let done = index as u32 + 1;
        self.outstanding -= done;
        self.unsignaled = self.unsignaled.min(self.outstanding);
        done
    }

    /// Forgets what is outstanding: the queue pair was moved to RESET, and its requests are gone.
    pub fn reset(&mut self) {
        (self.outstanding, self.unsignaled, self.signal_next) = (0, 0, false);
    }

    #[inline]
    fn check<T: Transport>(&self, qp: &QueuePair<T>, count: usize) -> Result<(), PostError> {
        if qp.qp_num() == self.qp_num && count <= self.free_slots() as usize {
            return Ok(());
        }
        Err(self.unfit(qp.qp_num(), count))
    }

    #[cold]
    fn unfit(&self, qp_num: u32, requests: usize) -> PostError {
        let (errno, reason) = if qp_num == self.qp_num {
            (libc::ENOMEM, Reason::Slots { free: self.free_slots(), slots: self.slots })
        } else {
            (libc::EINVAL, Reason::OtherQueuePair { expected: self.qp_num, qp_num })
        };
        PostError { verb: ffi::ibv_send_wr::VERB, errno, accepted: Some(0), requests, reason }
    }

    /// Writes to the request at `index` of a chain. Returns how many requests there are then after the last signaled one.
    #[inline]
    fn number(&self, wr: *mut ffi::ibv_send_wr, index: usize, unsignaled: u32, signal: bool) -> u32 {
        let due = signal || unsignaled + 1 >= self.every;
        // SAFETY: the request is initialised, and the caller's alone.
        unsafe {
            (*wr).wr_id = self.next.wrapping_add(index as u64);
            (*wr).send_flags = if due { (*wr).send_flags | SIGNALED } else { (*wr).send_flags & !SIGNALED };
        }
        if due { 0 } else { unsignaled + 1 }
    }

    #[inline]
    fn posted(&mut self, count: u32, unsignaled: u32) {
        self.next = self.next.wrapping_add(count.into());
        self.outstanding += count;
        self.unsignaled = unsignaled;
        self.signal_next &= count == 0;
    }

    /// Counts a request of which it is unknown whether it was taken.
    #[cold]
    fn one_refused(&mut self, error: PostError) -> PostError {
        if error.accepted() != Some(0) {
            self.posted(1, self.unsignaled + 1);
        }
        error
    }

    /// Counts what was taken of a chain, or all of it if that is unknown.
    #[cold]
    fn refused<T: Transport, C: SendChain<T> + ?Sized>(&mut self, requests: &C, error: PostError) -> PostError {
        let taken = error.accepted().unwrap_or(requests.length()).min(requests.length());
        let mut unsignaled = self.unsignaled;
        for index in 0..taken {
            // SAFETY: there are at least `taken` requests, and each is initialised.
            let signaled = unsafe { (*requests.as_wr(index)).send_flags & SIGNALED != 0 };
            unsignaled = if signaled { 0 } else { unsignaled + 1 };
        }
        let signal_next = self.signal_next && taken < requests.length();
        self.posted(taken as u32, unsignaled);
        self.signal_next = signal_next;
        error
    }
}
