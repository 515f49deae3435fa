//! [`CompletionChannel`]: sleep until a completion queue has something.
//!
//! # Safety
//!
//! * `Inner::channel` came from `ibv_create_comp_channel` and is destroyed only when `Inner` is dropped; each queue on the
//!   channel holds the `Inner`.
//! * The context pointer of each queue on the channel is its [`Events`]. A queue is destroyed under the channel's lock, and
//!   events are taken under it, so the queue of an event that was taken is alive until the lock is released.
//! * Each event taken is counted in `Events::unacked`, and what is counted there is acked before the queue is destroyed:
//!   no event is left over for which `ibv_destroy_cq` would wait. Nobody else takes events: the channel's descriptor is not handed out.
#![allow(unsafe_code)]

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::context::Context;
use crate::error::Result;
use crate::ffi;
use crate::readable::{set_nonblocking, wait_readable};
use crate::returns::{Errno, minus_one_and_errno, null_and_errno};
use crate::watch::Watch;

/// From this many on, unacked events are acked before the queue is destroyed, so that the counter cannot overflow.
const MAX_UNACKED: u32 = 1 << 16;

/// What the descriptor is, in errors.
const WHAT: &str = "completion channel";

/// What was taken from the channel for one completion queue.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Taken and not yet acked.
    unacked: AtomicU32,
    /// Taken and not yet seen by a thread that waits for the queue.
    pending: AtomicU32,
}

struct Inner {
    channel: NonNull<ffi::ibv_comp_channel>,
    /// Whether a thread waits for the file descriptor; the others wait for that thread.
    waiting: Mutex<bool>,
    /// Signaled when a thread has stopped waiting for the descriptor, having taken what was there.
    taken: Condvar,
    /// What is handed out in place of the file descriptor.
    watch: Watch,
    // Closed after the channel is destroyed.
    context: Context,
}

// SAFETY: libibverbs only reads the channel, but for its count of queues, which it guards with a lock.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the channel is alive, and every queue on it held us and is gone.
        let _ = unsafe { ffi::ibv_destroy_comp_channel(self.channel.as_ptr()) };
    }
}

/// `struct ibv_comp_channel`: tells when one of its completion queues that was armed has a new completion.
///
/// Several queues may share a channel, and several threads may wait on it, each for its own queue:
/// [`CompletionQueue::wait`](crate::CompletionQueue::wait). A clone is another handle to the same channel.
#[doc(alias = "ibv_comp_channel")]
#[derive(Clone)]
pub struct CompletionChannel {
    inner: Arc<Inner>,
}

impl Context {
    /// `ibv_create_comp_channel`: makes a channel for completion events.
    ///
    /// # Errors
    ///
    /// `EMFILE`: the process has too many open files.
    ///
    /// # References
    ///
    /// [ibv_create_comp_channel(3)](https://man7.org/linux/man-pages/man3/ibv_create_comp_channel.3.html)
    #[doc(alias = "ibv_create_comp_channel")]
    pub fn create_completion_channel(&self) -> Result<CompletionChannel> {
        // SAFETY: the context is open.
        let channel = null_and_errno(unsafe { ffi::ibv_create_comp_channel(self.as_raw()) })
            .map_err(|errno| errno.of("ibv_create_comp_channel", self.device().name()))?;
        // SAFETY: the channel was made just now, and nobody else has it.
        unsafe { CompletionChannel::from_raw(channel, self) }
    }
}

/// The channel's lock; while it is held no event is taken and no queue is destroyed.
pub(crate) struct Lock<'a>(MutexGuard<'a, bool>);

impl CompletionChannel {
    /// Takes over a channel that was made by other means. It is destroyed when the last handle and the last queue on it are gone. Its
    /// descriptor is made non-blocking.
    ///
    /// # Safety
    ///
    /// * `channel` is alive and of `context`, and nobody else destroys it or takes events from it.
    /// * No queue is on it but those that were made on it by this crate, or given to
    ///   [`CompletionQueue::from_raw`](crate::CompletionQueue::from_raw) with it before any event is taken.
    ///
    /// # Errors
    ///
    /// Those of `fcntl`. The channel is then destroyed, or lives on if there are queues on it.
    pub unsafe fn from_raw(channel: NonNull<ffi::ibv_comp_channel>, context: &Context) -> Result<Self> {
        let (waiting, taken, watch) = (Mutex::new(false), Condvar::new(), context.new_watch());
        let inner = Inner { channel, waiting, taken, watch, context: context.clone() };
        let channel = CompletionChannel { inner: Arc::new(inner) };
        // An event is then looked for by reading it, under the lock, without a look at the descriptor before and after: a wait that
        // sleeps makes two calls into the kernel, as C's does, and not four.
        set_nonblocking(channel.fd()).map_err(|errno| {
            errno.of("ibv_create_comp_channel", format_args!("{}, O_NONBLOCK", context.device().name()))
        })?;
        Ok(channel)
    }

    /// The context in which the channel was made.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    pub(crate) fn lock(&self) -> Lock<'_> {
        // A thread that panicked left the flag as it was, and the flag is all there is.
        Lock(self.inner.waiting.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits for an event of the queue whose events these are. `false`: there was none until the deadline.
    ///
    /// One thread waits for the file descriptor and takes the events of all queues; the others wait for that thread. So no
    /// event that one thread takes for another's queue is ever missed by the other.
    pub(crate) fn wait_for(&self, events: &Events, deadline: Option<Instant>) -> Result<bool> {
        let is_there = || events.pending.load(Ordering::Relaxed) > 0;
        let mut lock = self.lock();
        loop {
            if events.pending.swap(0, Ordering::Relaxed) > 0 {
                return Ok(true);
            }
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if remaining == Some(Duration::ZERO) {
                return Ok(false);
            }
            if *lock.0 {
                lock.0 = match remaining {
                    Some(time) => self.inner.taken.wait_timeout(lock.0, time).unwrap_or_else(PoisonError::into_inner).0,
                    None => self.inner.taken.wait(lock.0).unwrap_or_else(PoisonError::into_inner),
                };
                continue;
            }
            *lock.0 = true;
            drop(lock);
            let result = wait_readable(self.fd(), remaining, WHAT);
            lock = self.lock();
            *lock.0 = false;
            let result =
                result.and_then(|readable| if readable { self.take_until(&lock, is_there).map(drop) } else { Ok(()) });
            self.inner.taken.notify_all();
            result?;
        }
    }

    /// Takes the events that are there, without sleeping. Whether there is one of the queue whose events these are.
    pub(crate) fn take_event_of(&self, events: &Events) -> Result<bool> {
        self.inner.watch.check()?;
        let (lock, _) = self.take_available(|| events.pending.load(Ordering::Relaxed) > 0)?;
        let is_there = events.pending.swap(0, Ordering::Relaxed) > 0;
        drop(lock);
        Ok(is_there)
    }

    /// `ibv_get_cq_event` without sleeping, and `ibv_ack_cq_events`: takes the events that are there, of whichever queues. How many it took.
    ///
    /// It is for event loops, when the channel has become readable; each queue of the channel is then to be asked by
    /// [`CompletionQueue::poll_or_arm`](crate::CompletionQueue::poll_or_arm).
    ///
    /// # Errors
    ///
    /// The provider's error: the device is gone.
    ///
    /// # References
    ///
    /// [ibv_get_cq_event(3)](https://man7.org/linux/man-pages/man3/ibv_get_cq_event.3.html)
    #[doc(alias = "ibv_get_cq_event")]
    #[doc(alias = "ibv_ack_cq_events")]
    pub fn take_events(&self) -> Result<usize> {
        self.inner.watch.check()?;
        Ok(self.take_available(|| false)?.1)
    }

    /// Takes the events that are there until it is `enough`. How many were taken here.
    fn take_available(&self, enough: impl Fn() -> bool) -> Result<(Lock<'_>, usize)> {
        let mut lock = self.lock();
        // A thread that waits for the descriptor takes what is there: it is about to wake up. If its own event were taken from under
        // it, it would sleep on.
        while *lock.0 && wait_readable(self.fd(), Some(Duration::ZERO), WHAT)? {
            let waited = self.inner.taken.wait_timeout(lock.0, Duration::from_millis(1));
            lock.0 = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if *lock.0 {
            return Ok((lock, 0));
        }
        let taken = self.take_until(&lock, enough);
        self.inner.taken.notify_all();
        Ok((lock, taken?))
    }

    /// Takes events, for whichever queues they are, until it is `enough`, or there are no more. How many.
    fn take_until(&self, _lock: &Lock<'_>, enough: impl Fn() -> bool) -> Result<usize> {
        let mut taken = 0;
        while !enough() {
            let (mut cq, mut cq_context) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the channel is alive. Its descriptor is not blocking, so the call does not wait under the lock.
            let code = unsafe { ffi::ibv_get_cq_event(self.as_raw(), &mut cq, &mut cq_context) };
            match minus_one_and_errno(code) {
                Ok(()) => {}
                Err(Errno(libc::EAGAIN)) => break,
                Err(Errno(libc::EINTR)) => continue,
                Err(errno) => return Err(errno.of("ibv_get_cq_event", self.context().device().name())),
            }
            // SAFETY: the queue is alive as long as the lock is held, and its context pointer is its `Events`.
            let events = unsafe { &*cq_context.cast::<Events>() };
            taken += 1;
            events.pending.fetch_add(1, Ordering::Relaxed);
            if events.unacked.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_UNACKED {
                // SAFETY: the queue is alive.
                unsafe { events.ack(cq) };
            }
        }
        Ok(taken)
    }

    /// The channel's own descriptor, from which libibverbs reads events.
    fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel, which `self` holds.
        unsafe { BorrowedFd::borrow_raw(self.inner.channel.as_ref().fd) }
    }

    /// The channel in libibverbs' terms; valid as long as `self`, and not to be destroyed. Its descriptor is not blocking, and is to be
    /// read by libibverbs only: an event that is not acked keeps its queue from being destroyed.
    pub fn as_raw(&self) -> *mut ffi::ibv_comp_channel {
        self.inner.channel.as_ptr()
    }
}

impl Events {
    /// Acks what was taken.
    ///
    /// # Safety
    ///
    /// `cq` is the queue whose events these are, and is alive.
    pub(crate) unsafe fn ack(&self, cq: *mut ffi::ibv_cq) {
        let unacked = self.unacked.swap(0, Ordering::Relaxed);
        if unacked > 0 {
            // SAFETY: the caller says that the queue is alive; this many of its events were taken.
            unsafe { ffi::ibv_ack_cq_events(cq, unacked) };
        }
    }
}

impl AsFd for CompletionChannel {
    /// A file descriptor that is readable as long as there is an event. It is for `select`, `poll`, `epoll` (by level or by edge) and what
    /// is built on them; then [`take_events`](Self::take_events) takes what there is, or
    /// [`CompletionQueue::take_event`](crate::CompletionQueue::take_event) that of one queue.
    ///
    /// It is an epoll descriptor that watches the channel's own: nothing can be read from it, and its flags are its own. It is made by the
    /// first call, and closed with the channel. If it cannot be made (`EMFILE`), another descriptor is returned that is always readable,
    /// and [`take_event`](crate::CompletionQueue::take_event) tells the error.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.watch.of(self.fd())
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionChannel").field("device", &self.context().device().name()).finish()
    }
}
