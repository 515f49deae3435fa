//! Arming a queue and waiting for it.
//!
//! # Safety
//!
//! Verbs are given a queue that is alive.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fmt;
use std::time::{Duration, Instant};

use crate::completion_channel::CompletionChannel;
use crate::completion_queue::CompletionQueue;
use crate::error::{Error, Result};
use crate::ffi;
use crate::poll_error::PollError;
use crate::returns::zero_or_errno;
use crate::work_completion::WorkCompletion;

/// What a channel tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notify {
    /// The next completion.
    Any,
    /// The next completion of a receive whose message was sent as solicited, or of a request that failed.
    ///
    /// Not every device tells of all that fail: rxe of Linux 6.12 does not tell of receives that are flushed. A program that sleeps until
    /// a solicited message comes does well to look now and then whether the queue pair is in ERROR.
    Solicited,
}

impl fmt::Display for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "any completion",
            Self::Solicited => "a solicited completion",
        })
    }
}

impl CompletionQueue {
    /// `ibv_req_notify_cq`: asks the channel to tell of the next completion. One that is already there does not count, so
    /// poll once more after arming; [`poll_or_arm`](Self::poll_or_arm) and [`wait`](Self::wait) do.
    ///
    /// # Errors
    ///
    /// `EIO` or `ENODEV`: the device is gone. Other numbers are the provider's.
    ///
    /// # References
    ///
    /// [ibv_req_notify_cq(3)](https://man7.org/linux/man-pages/man3/ibv_req_notify_cq.3.html)
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn arm(&self, notify: Notify) -> Result<()> {
        let solicited_only = c_int::from(notify == Notify::Solicited);
        // SAFETY: the queue is alive.
        zero_or_errno(unsafe { ffi::ibv_req_notify_cq(self.as_raw(), solicited_only) })
            .map_err(|errno| errno.of("ibv_req_notify_cq", format_args!("{notify}")))
    }

    /// Takes completions off the queue as [`poll`](Self::poll) does, and sleeps until there are some. An empty part is
    /// returned when `timeout` is over; `None` waits for ever.
    ///
    /// It arms the queue and polls again before it sleeps, so that no completion is missed.
    ///
    /// # Errors
    ///
    /// As those of [`wait_for`](Self::wait_for).
    #[inline]
    pub fn wait<'a>(
        &self,
        completions: &'a mut [WorkCompletion],
        timeout: Option<Duration>,
    ) -> Result<&'a mut [WorkCompletion]> {
        self.wait_for(Notify::Any, completions, timeout)
    }

    /// Waits as [`wait`](Self::wait) does, and with [`Notify::Solicited`] sleeps through completions that are not solicited: they are
    /// taken together with the solicited one that ends the sleep. What is there already is taken at once, solicited or not.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: the queue was made without a channel.
    /// * [`Error::Poll`]: the queue is empty and [has lost completions](Self::has_failed) (`EOVERFLOW`), which it does not wait for. A wait
    ///   that sleeps already when that becomes known sleeps on.
    /// * The provider's error: the device is gone.
    ///
    /// # References
    ///
    /// [ibv_get_cq_event(3)](https://man7.org/linux/man-pages/man3/ibv_get_cq_event.3.html)
    #[doc(alias = "ibv_get_cq_event")]
    #[doc(alias = "ibv_ack_cq_events")]
    pub fn wait_for<'a>(
        &self,
        notify: Notify,
        completions: &'a mut [WorkCompletion],
        timeout: Option<Duration>,
    ) -> Result<&'a mut [WorkCompletion]> {
        if completions.is_empty() {
            return self.waitable().map(|_| completions);
        }
        let count =
            self.wait_until(notify, timeout, || Ok(Some(self.poll(completions)?.len()).filter(|count| *count > 0)))?;
        Ok(&mut completions[..count.unwrap_or(0)])
    }

    /// Takes completions off the queue as [`poll`](Self::poll) does. If there are none, the returned part is empty and the queue is armed:
    /// the [channel](Self::channel) becomes readable when the next one is there.
    ///
    /// It is for event loops, which sleep until the channel is readable and then [take its events](CompletionChannel::take_events). The
    /// queue is polled again after it was armed, so that no completion is missed.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: the queue was made without a channel, or `completions` has no room.
    /// * As those of [`poll`](Self::poll) and [`arm`](Self::arm).
    ///
    /// # References
    ///
    /// [ibv_req_notify_cq(3)](https://man7.org/linux/man-pages/man3/ibv_req_notify_cq.3.html)
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use verbs::{CompletionChannel, CompletionQueue, Notify, WorkCompletion};
    /// # fn example(channel: &CompletionChannel, queues: &[CompletionQueue], sleep_until_readable: impl Fn()) -> verbs::Result<()> {
    /// let mut completions = [WorkCompletion::default(); 16];
    /// loop {
    ///     let mut idle = true;
    ///     for queue in queues {
    ///         for completion in queue.poll_or_arm(Notify::Any, &mut completions)? {
    ///             idle = false;
    ///             println!("{completion:?}");
    ///         }
    ///     }
    ///     if idle {
    ///         sleep_until_readable(); // until `channel` is, which is `AsFd`
    ///         channel.take_events()?;
    ///     }
    /// }
    /// # }
    /// ```
    #[doc(alias = "ibv_req_notify_cq")]
    pub fn poll_or_arm<'a>(
        &self,
        notify: Notify,
        completions: &'a mut [WorkCompletion],
    ) -> Result<&'a mut [WorkCompletion]> {
        if completions.is_empty() {
            return Err(Error::invalid("ibv_poll_cq", "the room for completions", 0, "it has to be for one at least"));
        }
        let count = self.poll_or_arm_by(notify, || {
            let count = self.poll(completions)?.len();
            Ok((count > 0).then_some(count))
        })?;
        Ok(&mut completions[..count.unwrap_or(0)])
    }

    /// What `poll` finds. `None`: nothing, and the queue is armed.
    pub(crate) fn poll_or_arm_by<R>(
        &self,
        notify: Notify,
        mut poll: impl FnMut() -> Result<Option<R>, PollError>,
    ) -> Result<Option<R>> {
        self.waitable()?;
        if let Some(found) = poll()? {
            return Ok(Some(found));
        }
        self.arm(notify)?;
        // What came before the queue was armed makes no event.
        match poll()? {
            // What was lost will never come.
            None if self.has_failed() => Err(PollError { extended: false, count: -libc::EOVERFLOW }.into()),
            found => Ok(found),
        }
    }

    /// Sleeps until `poll` finds something. `None`: it found nothing until `timeout` was over.
    pub(crate) fn wait_until<R>(
        &self,
        notify: Notify,
        timeout: Option<Duration>,
        mut poll: impl FnMut() -> Result<Option<R>, PollError>,
    ) -> Result<Option<R>> {
        let channel = self.waitable()?;
        // A time that is too far off to be counted is for ever.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(found) = self.poll_or_arm_by(notify, &mut poll)? {
                return Ok(Some(found));
            }
            if !channel.wait_for(&self.inner.events, deadline)? {
                return Ok(poll()?);
            }
        }
    }

    /// `ibv_get_cq_event` without sleeping: takes the queue's event from its channel if it is there, and tells whether it was. Events
    /// of other queues that come before it are taken too, and kept for those.
    ///
    /// It is for event loops that want to know which queue of a [channel](Self::channel) has an event, and so is not armed any more; where
    /// each queue is [polled](Self::poll_or_arm) in its turn, [`CompletionChannel::take_events`] is simpler.
    ///
    /// A thread that [waits](Self::wait) takes the events of all queues of its channel, so the descriptor may not be readable although
    /// this queue has an event: have an event loop watch a channel on which no thread waits.
    ///
    /// # Errors
    ///
    /// As those of [`wait_for`](Self::wait_for).
    ///
    /// # References
    ///
    /// [ibv_get_cq_event(3)](https://man7.org/linux/man-pages/man3/ibv_get_cq_event.3.html)
    #[doc(alias = "ibv_get_cq_event")]
    #[doc(alias = "ibv_ack_cq_events")]
    pub fn take_event(&self) -> Result<bool> {
        self.waitable()?.take_event_of(&self.inner.events)
    }

    /// The channel that tells of completions.
    fn waitable(&self) -> Result<&CompletionChannel> {
        self.inner.channel.as_ref().ok_or_else(|| {
            let rule = "only a channel can be waited for";
            Error::invalid("ibv_get_cq_event", "the queue's channel", "none", rule)
        })
    }
}
