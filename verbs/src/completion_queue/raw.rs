//! [`CompletionQueue`] from what C made.
//!
//! # Safety
//!
//! The caller says that the queue is alive, and until when.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use super::resize::Capacity;
use super::{CompletionQueue, Inner};
use crate::completion_channel::{CompletionChannel, Events};
use crate::context::Context;
use crate::ffi;
use crate::lender::Lender;
use crate::object_id::Identity;

impl CompletionQueue {
    /// # Safety
    ///
    /// The queue is alive and of `context`. On a channel, its context pointer is `events`. Without a lender nobody else destroys it; with
    /// one it is alive as long as the lender, and has no channel.
    pub(super) unsafe fn new(
        cq: NonNull<ffi::ibv_cq>,
        context: Context,
        events: Arc<Events>,
        channel: Option<CompletionChannel>,
        lender: Option<Lender>,
    ) -> Self {
        let identity = Identity::new(&context, cq.as_ptr());
        // SAFETY: the queue is alive, and nobody resizes it now.
        let capacity = Capacity::new(unsafe { cq.as_ref().cqe });
        let inner = Inner { cq, events, lender, channel, capacity, identity, context };
        Self { cq, inner: Arc::new(inner) }
    }

    /// Takes over a queue that was made by other means. It is destroyed when the last handle and the last queue pair on it are gone.
    ///
    /// With a `channel`, which has to be its own, it can be [waited for](Self::wait); its context pointer is then the crate's.
    ///
    /// # Safety
    ///
    /// * `cq` is alive and of `context`, and nobody else destroys or resizes it.
    /// * Queue pairs and shared receive queues that use it by other means are gone before the last handle is.
    /// * With a `channel`: the queue was made on it, each event of the queue that was taken from the channel is acked, and nobody else
    ///   takes any. Without one: each event that is taken by other means is acked before the last handle is gone.
    /// * If it was made for one thread only, the rule of
    ///   [`CompletionQueueBuilder::single_threaded`](crate::CompletionQueueBuilder::single_threaded) holds.
    pub unsafe fn from_raw(cq: NonNull<ffi::ibv_cq>, context: &Context, channel: Option<&CompletionChannel>) -> Self {
        let events = Arc::<Events>::default();
        if channel.is_some() {
            // SAFETY: the queue is alive, and the pointer is read only by those who take its events, which nobody does now.
            unsafe { (*cq.as_ptr()).cq_context = Arc::as_ptr(&events).cast_mut().cast() };
        }
        // SAFETY: as the caller says.
        unsafe { Self::new(cq, context.clone(), events, channel.cloned(), None) }
    }

    /// A handle to a queue that belongs to another library, such as one made by `rdma_create_qp`. It is polled and not waited for, and
    /// never destroyed by this crate.
    ///
    /// `lender` is dropped when the last handle and the last queue pair on it are gone, and may then have it destroyed. `context` is let
    /// go after that.
    ///
    /// # Safety
    ///
    /// * `cq` is alive as long as `lender` lives, and is of `context`.
    /// * Nobody resizes it by other means.
    /// * If it was made for one thread only, the rule of
    ///   [`CompletionQueueBuilder::single_threaded`](crate::CompletionQueueBuilder::single_threaded) holds.
    pub unsafe fn lent(cq: NonNull<ffi::ibv_cq>, context: &Context, lender: impl Send + Sync + 'static) -> Self {
        // SAFETY: as the caller says.
        unsafe { Self::new(cq, context.clone(), Arc::default(), None, Some(Lender::new(lender))) }
    }
}
