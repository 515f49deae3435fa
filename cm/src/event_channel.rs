//! [`EventChannel`]: where the events of ids arrive.
//!
//! # Safety
//!
//! * `Inner::channel` came from `rdma_create_event_channel` and is destroyed only when `Inner` is dropped; each id of the channel holds
//!   the `Inner`.
//! * An event is taken, copied and acked under the channel's lock, in one go.
//! * The descriptor is looked at before each event is taken, so that the call does not wait under the lock.
//! * No event is taken while one may wait of a membership that librdmacm does not know any more (`State::stale_ids`).
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::event::{Event, EventKind};
use crate::ffi;
use crate::id::Id;
use crate::port_space::PortSpace;
use crate::raw_id::IdKey;
use crate::returns::{Errno, minus_one_and_errno, null_and_errno};

struct Inner {
    channel: NonNull<ffi::rdma_event_channel>,
    state: Mutex<State>,
}

/// What the channel's lock guards, besides the ids.
#[derive(Default)]
pub(crate) struct State {
    /// The ids that were told of their first message, and whose `Established` was not taken yet.
    pub(crate) notified: Vec<IdKey>,
    /// What wakes the threads that are about to sleep until there is an event, or do.
    sleepers: Vec<Arc<OwnedFd>>,
    /// How many ids have left a multicast group of which events may still wait.
    pub(crate) stale_ids: usize,
}

// SAFETY: the channel is a file descriptor that does not change.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the channel is alive, and each of its ids held us and is gone.
        unsafe { ffi::rdma_destroy_event_channel(self.channel.as_ptr()) };
    }
}

/// `struct rdma_event_channel`: where the events of [ids](Id) arrive.
///
/// Several ids may share a channel, and several threads may wait on it: each event goes to one of them. An event is copied and
/// acknowledged as it is taken, so none is ever left for which dropping its id would wait. A clone is another handle to the same
/// channel, which lives as long as its last handle and its last id.
#[doc(alias = "rdma_event_channel")]
#[derive(Clone)]
pub struct EventChannel {
    inner: Arc<Inner>,
}

impl EventChannel {
    /// `rdma_create_event_channel`: makes a channel. Its descriptor does not block.
    ///
    /// # Errors
    ///
    /// * [`Error::NoDevice`]: the machine has no RDMA device, or its kernel no RDMA connection manager.
    /// * `EMFILE`: the process has too many open files. `EACCES`: it may not open `/dev/infiniband/rdma_cm`.
    ///
    /// # References
    ///
    /// [rdma_create_event_channel(3)](https://man7.org/linux/man-pages/man3/rdma_create_event_channel.3.html)
    #[doc(alias = "rdma_create_event_channel")]
    pub fn create() -> Result<Self> {
        const CALL: &str = "rdma_create_event_channel";
        // SAFETY: the call has no arguments.
        let channel = null_and_errno(unsafe { ffi::rdma_create_event_channel() }).map_err(|errno| match errno.0 {
            libc::ENODEV | libc::ENOENT | libc::ENXIO | libc::ENOSYS => Error::NoDevice { call: CALL, errno: errno.0 },
            libc::EACCES | libc::EPERM => errno.with_remedy(
                CALL,
                "",
                "the user needs the right to open /dev/infiniband/rdma_cm, see its group and mode",
            ),
            _ => errno.of(CALL, ""),
        })?;
        let channel = Self { inner: Arc::new(Inner { channel, state: Mutex::new(State::default()) }) };
        set_nonblocking(channel.as_fd()).map_err(|errno| errno.of(CALL, "O_NONBLOCK"))?;
        Ok(channel)
    }

    /// `rdma_create_id`: makes an id whose events arrive here. [`PortSpace::TCP`] is for reliable connections, [`PortSpace::UDP`] for
    /// datagrams.
    ///
    /// # Errors
    ///
    /// The kernel's, such as `ENOMEM`; `EPROTONOSUPPORT` or `EINVAL`: there is no such port space.
    ///
    /// # References
    ///
    /// [rdma_create_id(3)](https://man7.org/linux/man-pages/man3/rdma_create_id.3.html)
    #[doc(alias = "rdma_create_id")]
    pub fn create_id(&self, space: PortSpace) -> Result<Id> {
        Id::create(self, space)
    }

    /// `rdma_get_cm_event`: takes the next event, and sleeps until there is one. `Ok(None)`: there was none when `timeout` was over;
    /// `None` waits for ever.
    ///
    /// # Errors
    ///
    /// `ENODEV`: the device is gone. Others are the kernel's.
    ///
    /// # References
    ///
    /// [rdma_get_cm_event(3)](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    #[doc(alias = "rdma_get_cm_event")]
    pub fn next_event(&self, timeout: Option<Duration>) -> Result<Option<Event>> {
        // A time beyond the clock's end is for ever.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        self.next_event_until(deadline)
    }

    pub(crate) fn next_event_until(&self, deadline: Option<Instant>) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.try_next_event()? {
                return Ok(Some(event));
            }
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if remaining == Some(Duration::ZERO) {
                return Ok(None);
            }
            let waiter = Waiter::new(self)?;
            // What has come between the two looks, nobody wakes for.
            if !wait_readable(self.as_fd(), Some(Duration::ZERO))? {
                waiter.sleep(remaining)?;
            }
        }
    }

    /// Whether an event waits, or comes in time.
    pub(crate) fn is_readable(&self, timeout: Duration) -> bool {
        wait_readable(self.as_fd(), Some(timeout)).unwrap_or(false)
    }

    /// `rdma_get_cm_event`: takes the next event if there is one.
    ///
    /// # Errors
    ///
    /// As those of [`next_event`](Self::next_event).
    #[doc(alias = "rdma_get_cm_event")]
    #[doc(alias = "rdma_ack_cm_event")]
    pub fn try_next_event(&self) -> Result<Option<Event>> {
        let mut state = self.lock();
        if state.stale_ids > 0 {
            let remedy = "drop the ids of the device that was removed";
            return Err(Errno(libc::ENODEV).with_remedy("rdma_get_cm_event", "", remedy));
        }
        while wait_readable(self.as_fd(), Some(Duration::ZERO))? {
            let mut event = ptr::null_mut();
            // SAFETY: the channel is alive, and `event` outlives the call. There is an event, and nobody else takes it.
            match minus_one_and_errno(unsafe { ffi::rdma_get_cm_event(self.as_raw(), &mut event) }) {
                Ok(()) => {}
                Err(Errno(libc::EINTR)) => continue,
                Err(Errno(libc::EAGAIN)) => return Ok(None),
                Err(errno) => return Err(errno.of("rdma_get_cm_event", "")),
            }
            // SAFETY: the event was taken just now, and is acked behind.
            let copy = unsafe { Event::copy(&*event, self) };
            // SAFETY: the event is acked once.
            let _ = unsafe { ffi::rdma_ack_cm_event(event) };
            if matches!(copy.kind(), EventKind::Established(_)) {
                state.notified.retain(|key| *key != copy.id());
            }
            return Ok(Some(copy));
        }
        Ok(None)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// The channel in librdmacm's terms; valid as long as `self`, and not to be destroyed. Its descriptor does not block.
    pub fn as_raw(&self) -> *mut ffi::rdma_event_channel {
        self.inner.channel.as_ptr()
    }
}

impl AsFd for EventChannel {
    /// The file descriptor that becomes readable when an event has arrived. It is for `poll` and its like; then
    /// [`try_next_event`](EventChannel::try_next_event) takes it. It is open as long as the channel:
    ///
    /// ```compile_fail,E0505
    /// use std::os::fd::AsFd;
    ///
    /// let channel = cm::EventChannel::create()?;
    /// let fd = channel.as_fd();
    /// drop(channel);
    /// println!("{fd:?}");
    /// # Ok::<(), cm::Error>(())
    /// ```
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel, which `self` holds.
        unsafe { BorrowedFd::borrow_raw(self.inner.channel.as_ref().fd) }
    }
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventChannel(fd {})", self.as_fd().as_raw_fd())
    }
}

impl State {
    /// Has all who sleep look again: the kernel wakes nobody for the events that come along with an id.
    pub(crate) fn wake(&self) {
        for sleeper in &self.sleepers {
            let one = 1u64;
            // SAFETY: the descriptor is open, and the count outlives the call. If it is full, the thread is awake already.
            unsafe { libc::write(sleeper.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
        }
    }
}

/// A thread that is about to sleep until there is an event.
struct Waiter<'a> {
    channel: &'a EventChannel,
    wake: Arc<OwnedFd>,
}

impl<'a> Waiter<'a> {
    fn new(channel: &'a EventChannel) -> Result<Self> {
        thread_local! {
            /// What wakes this thread: an `eventfd`.
            static WAKE: RefCell<Option<Arc<OwnedFd>>> = const { RefCell::new(None) };
        }
        // A thread that is ending has none any more, and makes one for the moment.
        let known = WAKE.try_with(|wake| wake.borrow().clone()).ok().flatten();
        let wake = match known {
            Some(wake) => wake,
            None => Arc::new(eventfd().map_err(|errno| errno.of("eventfd", ""))?),
        };
        let _ = WAKE.try_with(|known| *known.borrow_mut() = Some(Arc::clone(&wake)));
        channel.lock().sleepers.push(Arc::clone(&wake));
        Ok(Self { channel, wake })
    }

    /// Sleeps until there is an event, or somebody says to look again.
    fn sleep(&self, timeout: Option<Duration>) -> Result<()> {
        poll(&mut [self.channel.as_fd(), self.wake.as_fd()].map(readable), timeout)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut state = self.channel.lock();
        state.sleepers.retain(|sleeper| !Arc::ptr_eq(sleeper, &self.wake));
        let mut count = 0u64;
        // SAFETY: the descriptor is open, does not block, and the count outlives the call.
        unsafe { libc::read(self.wake.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
    }
}

fn eventfd() -> Result<OwnedFd, Errno> {
    // SAFETY: the call has no pointers.
    match unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) } {
        -1 => Err(Errno::last()),
        // SAFETY: the descriptor was made just now, and nobody else has it.
        fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
    }
}

fn readable(fd: BorrowedFd<'_>) -> libc::pollfd {
    libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }
}

/// Waits until one of the descriptors is readable, `timeout` is over, or a signal comes.
fn poll(polls: &mut [libc::pollfd], timeout: Option<Duration>) -> Result<()> {
    // Rounded up: a wait that ends early would only be begun again.
    let timeout = timeout.map_or(-1, |time| time.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(i32::MAX));
    // SAFETY: there are as many structures as is said, and they outlive the call.
    if unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, timeout) } == -1 {
        return match Errno::last() {
            Errno(libc::EINTR) => Ok(()),
            errno => Err(errno.of("poll", "the event channel")),
        };
    }
    match polls[0].revents & (libc::POLLERR | libc::POLLHUP | libc::POLLNVAL) {
        0 => Ok(()),
        _ => Err(Errno(libc::EIO).with_remedy("poll", "the event channel", "the connection manager is gone")),
    }
}

/// Waits until `fd` is readable. `false`: it was not until `timeout` was over, or a signal came.
fn wait_readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<bool> {
    let mut polls = [readable(fd)];
    poll(&mut polls, timeout)?;
    Ok(polls[0].revents & libc::POLLIN != 0)
}

fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the descriptor is open.
    let code = unsafe {
        match libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) {
            -1 => -1,
            flags => libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK),
        }
    };
    minus_one_and_errno(code)
}
