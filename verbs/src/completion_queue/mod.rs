//! [`CompletionQueue`]: where the outcomes of work requests are found.
//!
//! # Safety
//!
//! `Inner::cq` came from `ibv_create_cq`, is destroyed only when `Inner` is dropped, and each queue pair on it holds the
//! `Inner`. On a channel, its context pointer is `Inner::events`, and it is destroyed under the channel's lock.
//! Its field `cqe` is read and written under `Inner::capacity`'s lock only, but for reads of the provider's.
#![allow(unsafe_code)]

mod resize;
mod wait;

use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::completion_channel::{CompletionChannel, Events};
use crate::completion_fields::CompletionFields;
use crate::context::Context;
use crate::dispatch;
use crate::error::Result;
use crate::extended_completion_queue::{ExtendedCompletionQueue, is_complete};
use crate::ffi;
use crate::object_id::{Identity, ObjectId};
use crate::poll_error::PollError;
use crate::returns::{Errno, null_and_errno};
use crate::work_completion::WorkCompletion;

use resize::Capacity;

pub use wait::Notify;

struct Inner {
    cq: NonNull<ffi::ibv_cq>,
    events: Arc<Events>,
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
/// A queue that overflows loses completions, and the device then reports an asynchronous event; make it large enough for
/// all requests of its queue pairs, signaled or not, since each can complete with an error.
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
    #[doc(alias = "ibv_create_cq")]
    pub fn create_completion_queue(&self, entries: u32) -> Result<CompletionQueue> {
        CompletionQueueBuilder::new(self, entries).build()
    }
}

/// `ibv_create_cq` and its arguments.
#[derive(Clone, Debug)]
#[must_use = "a builder makes nothing before `build` is called"]
pub struct CompletionQueueBuilder {
    context: Context,
    entries: u32,
    channel: Option<CompletionChannel>,
    comp_vector: u32,
}

impl CompletionQueueBuilder {
    /// A queue for at least `entries` completions, from 1 to the device's
    /// [`max_cqe`](crate::DeviceAttributes::max_cqe).
    pub fn new(context: &Context, entries: u32) -> Self {
        Self { context: context.clone(), entries, channel: None, comp_vector: 0 }
    }

    /// The channel through which to [`wait`](CompletionQueue::wait) for completions. Default: none.
    pub fn channel(mut self, channel: &CompletionChannel) -> Self {
        self.channel = Some(channel.clone());
        self
    }

    /// The interrupt vector that tells of completions, below the context's
    /// [`completion_vectors`](Context::completion_vectors). Default: 0.
    pub fn comp_vector(mut self, comp_vector: u32) -> Self {
        self.comp_vector = comp_vector;
        self
    }

    /// `ibv_create_cq`: makes the queue. The device may round its size up; [`capacity`](CompletionQueue::capacity) tells.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): the channel comes from another [`Context`].
    /// * `EINVAL`: there are too many entries or none, or there is no such completion vector.
    /// * `ENOMEM`: the device has no more queues, or no memory.
    ///
    /// # References
    ///
    /// [ibv_create_cq(3)](https://man7.org/linux/man-pages/man3/ibv_create_cq.3.html); InfiniBand Architecture
    /// Specification, volume 1, chapter 11.2.8.
    pub fn build(self) -> Result<CompletionQueue> {
        self.create("ibv_create_cq", |context, cqe, cq_context, channel, vector| {
            // SAFETY: as `create` says.
            unsafe { ffi::ibv_create_cq(context, cqe, cq_context, channel, vector) }
        })
    }

    /// `ibv_create_cq_ex`: makes a queue whose completions have the fields `F`, a tuple of types of
    /// [`completion_field`](crate::completion_field).
    ///
    /// # Errors
    ///
    /// * As those of [`build`](Self::build).
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the provider has no such queues, or lacks one of the fields.
    ///
    /// # References
    ///
    /// [ibv_create_cq_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
    #[doc(alias = "ibv_create_cq_ex")]
    pub fn build_extended<F: CompletionFields>(self) -> Result<ExtendedCompletionQueue<F>> {
        const VERB: &str = "ibv_create_cq_ex";
        let mut extended: *mut ffi::ibv_cq_ex = ptr::null_mut();
        let queue = self.create(VERB, |context, cqe, cq_context, channel, vector| {
            // SAFETY: all zeroes are a valid structure.
            let mut attributes: ffi::ibv_cq_init_attr_ex = unsafe { std::mem::zeroed() };
            attributes.cqe = cqe as u32;
            attributes.cq_context = cq_context;
            attributes.channel = channel;
            attributes.comp_vector = vector as u32;
            // A failed completion names its queue pair.
            attributes.wc_flags = F::FLAGS | u64::from(ffi::ibv_create_cq_wc_flags::IBV_WC_EX_WITH_QP_NUM.0);
            // SAFETY: as `create` says. An `ibv_cq_ex` begins as an `ibv_cq` does.
            unsafe {
                extended = ffi::ibv_create_cq_ex(context, &mut attributes);
                ffi::ibv_cq_ex_to_cq(extended)
            }
        })?;
        let unsupported = || Errno(libc::EOPNOTSUPP).of(VERB, "the readers of the fields");
        let cq = NonNull::new(extended).ok_or_else(unsupported)?;
        // SAFETY: the queue is alive, and was made with the flags of `F`.
        unsafe {
            if !is_complete::<F>(cq.as_ref()) {
                return Err(unsupported());
            }
            Ok(ExtendedCompletionQueue::new(cq, queue))
        }
    }

    /// Makes a queue by `create`, which is called with a context that is open, a channel of that context or null, and a context pointer
    /// that is valid as long as the queue.
    fn create(
        self,
        verb: &'static str,
        create: impl FnOnce(
            *mut ffi::ibv_context,
            c_int,
            *mut c_void,
            *mut ffi::ibv_comp_channel,
            c_int,
        ) -> *mut ffi::ibv_cq,
    ) -> Result<CompletionQueue> {
        let Self { context, entries, channel, comp_vector } = self;
        if let Some(channel) = &channel {
            context.must_be(channel.context(), verb, "channel")?;
        }
        let events = Arc::<Events>::default();
        let raw_channel = channel.as_ref().map_or(ptr::null_mut(), CompletionChannel::as_raw);
        // Beyond what an `int` holds the device's answer is the same: too many.
        let (cqe, vector) = (clamp(entries), clamp(comp_vector));
        let cq_context = Arc::as_ptr(&events).cast_mut().cast();
        let cq = null_and_errno(create(context.as_raw(), cqe, cq_context, raw_channel, vector)).map_err(|errno| {
            let remedy = creation_remedy(errno, &context, entries, comp_vector);
            errno.with_remedy(verb, format_args!("{entries} entries, vector {comp_vector}"), remedy)
        })?;
        let identity = Identity::new(&context, cq.as_ptr());
        // SAFETY: the queue was made just now, and nobody else has it.
        let capacity = Capacity::new(unsafe { cq.as_ref().cqe });
        Ok(CompletionQueue { cq, inner: Arc::new(Inner { cq, events, channel, capacity, identity, context }) })
    }
}

fn clamp(value: u32) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

#[cold]
fn creation_remedy(errno: Errno, context: &Context, entries: u32, comp_vector: u32) -> String {
    let vectors = context.completion_vectors();
    if errno.0 == libc::EINVAL && comp_vector >= vectors {
        return format!("{} has {vectors} completion vectors, from 0", context.device().name());
    }
    match context.device_attributes() {
        Ok(device) if errno.0 == libc::EINVAL && !(1..=device.max_cqe()).contains(&entries) => {
            format!("{} takes 1 to {} entries", context.device().name(), device.max_cqe())
        }
        _ => String::new(),
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
    if count == 0 { Ok(&mut []) } else { Err(PollError { count }) }
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
