//! [`CompletionQueue`]: where the outcomes of work requests are found.
//!
//! # Safety
//!
//! `Inner::cq` came from `ibv_create_cq` and is destroyed only when `Inner` is dropped, or is alive as long as `Inner::lender` is. Each
//! queue pair on it holds the `Inner`. On a channel, its context pointer is `Inner::events`, and it is destroyed under the channel's lock.
//! Its field `cqe` is read and written under `Inner::capacity`'s lock only, but for reads of the provider's.
#![allow(unsafe_code)]

mod builder;
mod raw;
mod resize;
mod wait;

use std::ffi::c_int;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::completion_channel::{CompletionChannel, Events};
use crate::context::Context;
use crate::dispatch;
use crate::error::Result;
use crate::ffi;
use crate::lender::Lender;
use crate::object_id::{Identity, ObjectId};
use crate::poll_error::PollError;
use crate::work_completion::WorkCompletion;

use resize::Capacity;

pub use builder::CompletionQueueBuilder;
pub use wait::Notify;

struct Inner {
    cq: NonNull<ffi::ibv_cq>,
    events: Arc<Events>,
    // Such a queue has no channel.
    lender: Option<Lender>,
    // Destroyed after the queue: libibverbs refuses to destroy a channel that a queue still uses.
    channel: Option<CompletionChannel>,
    /// How many completions it holds.
    capacity: Capacity,
    identity: Identity,
    context: Context,
}

// SAFETY: libibverbs takes the queue's lock in every verb that is given it, and we reach `cq` only through verbs.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.lender.is_some() {
            return;
        }
        let lock = self.channel.as_ref().map(CompletionChannel::lock);
        // SAFETY: the queue is alive, and under the lock no further event of it is taken.
        unsafe { self.events.ack(self.cq.as_ptr()) };
        // SAFETY: the queue is alive, is destroyed only here, and no queue pair uses it: each held us and is gone.
        let code = unsafe { ffi::ibv_destroy_cq(self.cq.as_ptr()) };
        drop(lock);
        if code != 0 {
            // The queue lives on, and the channel may still hand out its events.
            std::mem::forget(self.events.clone());
        }
    }
}

/// `struct ibv_cq`: where the completions of the requests of one or more queue pairs are found.
///
/// A queue that overflows loses completions, and no poll tells, but an asynchronous event; make it large enough for all requests of its
/// queue pairs, signaled or not, since each can complete with an error. Who takes the context's
/// [asynchronous events](Context::async_event) is told by [`wait`](Self::wait), too, when the queue is empty and has lost some.
///
/// A clone is another handle to the same queue.
#[doc(alias = "ibv_cq")]
#[derive(Clone)]
pub struct CompletionQueue {
    // `Inner::cq` once more: a poll that finds it here costs one instruction less.
    cq: NonNull<ffi::ibv_cq>,
    inner: Arc<Inner>,
}

// SAFETY: as for `Inner`, which keeps the queue alive.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl Context {
    /// `ibv_create_cq`: makes a completion queue for at least `entries` completions, without a channel: it is polled and
    /// not waited for. [`CompletionQueueBuilder`] has the other choices.
    ///
    /// # Errors
    ///
    /// As those of [`CompletionQueueBuilder::build`].
    ///
    /// # References
    ///
    /// [ibv_create_cq(3)](https://man7.org/linux/man-pages/man3/ibv_create_cq.3.html)
    #[doc(alias = "ibv_create_cq")]
    pub fn create_completion_queue(&self, entries: u32) -> Result<CompletionQueue> {
        CompletionQueueBuilder::new(self, entries).build()
    }
}

impl CompletionQueue {
    /// `ibv_poll_cq`: takes completions off the queue, as many as are there and as `completions` has room for, and returns
    /// the part that was filled in. An empty queue is not an error: the part is empty.
    ///
    /// Make the array once and use it again: filling a new one with defaults costs more than the poll.
    ///
    /// # Errors
    ///
    /// [`PollError`]: the queue is broken, since it overflowed or the device is gone.
    ///
    /// # References
    ///
    /// [ibv_poll_cq(3)](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html)
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn example(queue: &verbs::CompletionQueue) -> verbs::Result<()> {
    /// let mut completions = [verbs::WorkCompletion::default(); 16];
    /// for completion in queue.poll(&mut completions)? {
    ///     println!("request {} did {}", completion.wr_id(), completion.success()?.opcode());
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_poll_cq")]
    #[inline]
    pub fn poll<'a>(&self, completions: &'a mut [WorkCompletion]) -> Result<&'a mut [WorkCompletion], PollError> {
        let room = c_int::try_from(completions.len()).unwrap_or(c_int::MAX);
        // SAFETY: the queue is alive, and `completions` has room for `room` of `ibv_wc`, which is what a `WorkCompletion` is.
        let count = unsafe { dispatch::poll_cq(self.as_raw(), room, completions.as_mut_ptr().cast()) };
        // A negative count is a large one here.
        // One comparison tells what is rare apart: nothing, an error, a lie. On the null provider a poll of 16 costs 480 instructions
        // this way, and 482 with a comparison each; an empty one 16, and 14.
        let last = count.wrapping_sub(1) as u32 as usize;
        if last < completions.len() { Ok(&mut completions[..=last]) } else { none_or_error(count) }
    }

    /// The number by which an [`AsyncEvent`](crate::AsyncEvent) names the queue.
    pub fn id(&self) -> ObjectId {
        self.inner.identity.id()
    }

    /// Whether the queue has overflowed, and has lost completions, or cannot be used for another reason, as an
    /// [asynchronous event](crate::AsyncEventType::COMPLETION_QUEUE_ERROR) has told that the program [took](Context::async_event).
    pub fn has_failed(&self) -> bool {
        self.inner.identity.has_failed()
    }

    /// The context in which the queue was made.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The channel on which the queue was made.
    pub fn channel(&self) -> Option<&CompletionChannel> {
        self.inner.channel.as_ref()
    }

    /// The queue in libibverbs' terms; valid as long as `self`, and not to be destroyed.
    #[inline]
    pub fn as_raw(&self) -> *mut ffi::ibv_cq {
        self.cq.as_ptr()
    }
}

/// What a poll that filled nothing in tells.
fn none_or_error<'a>(count: c_int) -> Result<&'a mut [WorkCompletion], PollError> {
    if count == 0 { Ok(&mut []) } else { Err(PollError { extended: false, count }) }
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue")
            .field("device", &self.context().device().name())
            .field("capacity", &self.capacity())
            .field("channel", &self.channel().is_some())
            .finish()
    }
}
