//! [`CompletionQueueBuilder`].
//!
//! # Safety
//!
//! Queues are made in a context that is open, on a channel of that context that is alive, with a context pointer that is valid as long
//! as the queue.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use super::CompletionQueue;
use crate::completion_channel::{CompletionChannel, Events};
use crate::completion_fields::CompletionFields;
use crate::context::Context;
use crate::error::Result;
use crate::extended_completion_queue::{ExtendedCompletionQueue, is_complete};
use crate::ffi;
use crate::ffi::ibv_create_cq_attr_flags as Flags;
use crate::returns::{Errno, null_and_errno};

const CREATE_EX: &str = "ibv_create_cq_ex";

/// `ibv_create_cq` and its arguments.
#[derive(Clone, Debug)]
#[must_use = "a builder makes nothing before `build` is called"]
pub struct CompletionQueueBuilder {
    context: Context,
    entries: u32,
    channel: Option<CompletionChannel>,
    comp_vector: u32,
    /// `enum ibv_create_cq_attr_flags`.
    flags: u32,
}

impl CompletionQueueBuilder {
    /// A queue for at least `entries` completions, from 1 to the device's
    /// [`max_cqe`](crate::DeviceAttributes::max_cqe).
    pub fn new(context: &Context, entries: u32) -> Self {
        Self { context: context.clone(), entries, channel: None, comp_vector: 0, flags: 0 }
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

    /// `IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN`: the device writes over completions that were not polled in time, and the queue goes on.
    /// Default: the queue breaks.
    #[doc(alias = "IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN")]
    pub fn ignore_overrun(mut self) -> Self {
        self.flags |= Flags::IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN.0;
        self
    }

    /// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED`: the provider takes no lock for the queue. Default: it does.
    ///
    /// # Safety
    ///
    /// As long as the queue lives, in each of these calls at a time there is at most one thread: polls of the queue, by whichever handle;
    /// resizing and dropping it; and what the provider does with the queue on behalf of its queue pairs: making, modifying and dropping
    /// them.
    #[doc(alias = "IBV_CREATE_CQ_ATTR_SINGLE_THREADED")]
    pub unsafe fn single_threaded(mut self) -> Self {
        self.flags |= Flags::IBV_CREATE_CQ_ATTR_SINGLE_THREADED.0;
        self
    }

    /// `ibv_create_cq`: makes the queue. The device may round its size up; [`capacity`](CompletionQueue::capacity) tells.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): the channel comes from another [`Context`].
    /// * `EINVAL`: there are too many entries or none, or there is no such completion vector.
    /// * `ENOMEM`: the device has no more queues, or no memory.
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the provider does not know what was asked for by
    ///   [`ignore_overrun`](Self::ignore_overrun) or [`single_threaded`](Self::single_threaded).
    ///
    /// # References
    ///
    /// [ibv_create_cq(3)](https://man7.org/linux/man-pages/man3/ibv_create_cq.3.html); InfiniBand Architecture
    /// Specification, volume 1, chapter 11.2.8.
    #[doc(alias = "ibv_create_cq")]
    pub fn build(self) -> Result<CompletionQueue> {
        if self.flags != 0 {
            return self.create_extended(0).map(|(queue, _)| queue);
        }
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
        // A failed completion names its queue pair.
        let wc_flags = F::FLAGS | u64::from(ffi::ibv_create_cq_wc_flags::IBV_WC_EX_WITH_QP_NUM.0);
        let (queue, cq) = self.create_extended(wc_flags)?;
        // SAFETY: the queue is alive, and was made with the flags of `F`.
        unsafe {
            if !is_complete::<F>(cq.as_ref()) {
                return Err(Errno(libc::EOPNOTSUPP).of(CREATE_EX, "the readers of the fields"));
            }
            Ok(ExtendedCompletionQueue::new(cq, queue))
        }
    }

    fn create_extended(self, wc_flags: u64) -> Result<(CompletionQueue, NonNull<ffi::ibv_cq_ex>)> {
        let flags = self.flags;
        let queue = self.create(CREATE_EX, |context, cqe, cq_context, channel, vector| {
            // SAFETY: all zeroes are a valid structure.
            let mut attributes: ffi::ibv_cq_init_attr_ex = unsafe { std::mem::zeroed() };
            attributes.cqe = cqe as u32;
            attributes.cq_context = cq_context;
            attributes.channel = channel;
            attributes.comp_vector = vector as u32;
            attributes.wc_flags = wc_flags;
            if flags != 0 {
                attributes.comp_mask = ffi::ibv_cq_init_attr_mask::IBV_CQ_INIT_ATTR_MASK_FLAGS.0;
                attributes.flags = flags;
            }
            // SAFETY: as `create` says. An `ibv_cq_ex` begins as an `ibv_cq` does.
            unsafe { ffi::ibv_cq_ex_to_cq(ffi::ibv_create_cq_ex(context, &mut attributes)) }
        })?;
        // It was made as an `ibv_cq_ex`.
        let cq = queue.cq.cast();
        Ok((queue, cq))
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
        let Self { context, entries, channel, comp_vector, flags: _ } = self;
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
        // SAFETY: the queue was made just now, and nobody else has it.
        Ok(unsafe { CompletionQueue::new(cq, context, events, channel, None) })
    }
}

pub(super) fn clamp(value: u32) -> c_int {
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
