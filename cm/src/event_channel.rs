//! [`EventChannel`]: where the events of ids arrive.
//!
//! # Safety
//!
//! * `Inner::channel` came from `rdma_create_event_channel` and is destroyed only when `Inner` is dropped; each id of the channel holds
//!   the `Inner`.
//! * An event is taken, copied and acked under the channel's lock, in one go.
//! * The descriptor is looked at before each event is taken, so that the call does not wait under the lock. Nobody else has it.
//! * No event is taken while one may wait of a membership that librdmacm does not know any more (`State::check_stale`).
#![allow(unsafe_code)]

use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::channel_state::State;
use crate::error::{Error, Result};
use crate::event::{Event, EventKind};
use crate::ffi;
use crate::id::Id;
use crate::port_space::PortSpace;
use crate::returns::{Errno, minus_one_and_errno, null_and_errno};
use crate::waiting::{Poller, Waiter, always_ready, set_nonblocking, wait_readable};

struct Inner {
    channel: NonNull<ffi::rdma_event_channel>,
    state: Mutex<State>,
    /// For those who watch a descriptor; made when it is first asked for, under the lock.
    poller: OnceLock<Poller>,
    /// For those for whom no poller can be made.
    always_ready: BorrowedFd<'static>,
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
///
/// # Examples
///
/// The end that connects, step by step; [`Id`] has the other one.
///
/// ```no_run
/// # fn main() -> cm::Result<()> {
/// use std::time::Duration;
///
/// use cm::{ConnectionParameters, Error, EventChannel, EventKind, PortSpace, TransitionOptions};
/// use verbs::{QueuePair, Rc};
///
/// let second = Duration::from_secs(1);
/// let channel = EventChannel::create()?;
/// let id = channel.create_id(PortSpace::TCP)?;
/// // Each step is answered by an event of the id's; here, the channel has no other.
/// let next = || match channel.next_event(Some(10 * second)) {
///     Ok(Some(event)) => Ok(event.into_kind()),
///     Ok(None) => Err(Error::TimedOut { step: "the next event", timeout: 10 * second }),
///     Err(error) => Err(error),
/// };
/// id.resolve_addr(None, "192.0.2.1:7471".parse().unwrap(), second)?;
/// let EventKind::AddressResolved = next()? else { panic!("no device leads there") };
/// id.resolve_route(second)?;
/// let EventKind::RouteResolved = next()? else { panic!("there is no route") };
///
/// let pd = id.protection_domain()?;
/// let cq = id.context()?.create_completion_queue(16)?;
/// let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).build()?;
/// // From here on, receives can be posted.
/// id.init_queue_pair(&qp)?;
/// id.connect(&ConnectionParameters::new(qp.qp_num()))?;
/// match next()? {
///     EventKind::ConnectResponse(peer) => println!("queue pair {:#x} has accepted", peer.qp_num),
///     other => panic!("no connection: {other}"),
/// }
/// id.connect_queue_pair(&qp, &TransitionOptions::default())?;
/// id.establish()?;
///
/// // Send, read and write; then end.
/// qp.move_to_error()?;
/// id.disconnect()?;
/// # Ok(()) }
/// ```
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
        let always_ready = always_ready().map_err(|errno| errno.of("pipe2", ""))?;
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
        Self::of(channel, always_ready)
    }

    /// Takes over a channel that was made by librdmacm.
    ///
    /// # Errors
    ///
    /// The descriptor could not be set not to block; the channel is destroyed.
    ///
    /// # Safety
    ///
    /// `channel` came from `rdma_create_event_channel`. No id was made on it, and from now on nobody else uses or destroys it, nor its
    /// descriptor.
    pub unsafe fn from_raw(channel: NonNull<ffi::rdma_event_channel>) -> Result<Self> {
        Self::of(channel, always_ready().map_err(|errno| errno.of("pipe2", ""))?)
    }

    fn of(channel: NonNull<ffi::rdma_event_channel>, always_ready: BorrowedFd<'static>) -> Result<Self> {
        let inner = Inner { channel, state: Mutex::new(State::default()), poller: OnceLock::new(), always_ready };
        let channel = Self { inner: Arc::new(inner) };
        set_nonblocking(channel.descriptor()).map_err(|errno| errno.of("rdma_create_event_channel", "O_NONBLOCK"))?;
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
        self.next_event_until(deadline, || false)
    }

    /// As [`next_event`](Self::next_event), until `is_over` says that there is nothing to wait for any more: whoever makes that so
    /// [wakes](Self::wake) those who wait.
    pub(crate) fn next_event_until(
        &self,
        deadline: Option<Instant>,
        is_over: impl Fn() -> bool,
    ) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.try_next_event()? {
                return Ok(Some(event));
            }
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if remaining == Some(Duration::ZERO) {
                return Ok(None);
            }
            let waiter = Waiter::new(self)?;
            if is_over() {
                return Ok(None);
            }
            // What has come between the two looks, nobody wakes for.
            if !wait_readable(self.descriptor(), Some(Duration::ZERO))? {
                waiter.sleep(remaining)?;
            }
        }
    }

    /// Has all who wait look again: the kernel wakes nobody for the events that come along with an id.
    pub(crate) fn wake(&self, state: &State) {
        state.sleepers.wake();
        if let Some(poller) = self.inner.poller.get() {
            poller.signal();
        }
    }

    /// Whether an event waits, or comes in time.
    pub(crate) fn is_readable(&self, timeout: Duration) -> bool {
        wait_readable(self.descriptor(), Some(timeout)).unwrap_or(false)
    }

    /// The kernel's own descriptor, which is for us only.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is open as long as the channel, which `self` holds.
        unsafe { BorrowedFd::borrow_raw(self.inner.channel.as_ref().fd) }
    }

    /// `rdma_get_cm_event`: takes the next event if there is one.
    ///
    /// # Errors
    ///
    /// As those of [`next_event`](Self::next_event).
    ///
    /// # References
    ///
    /// [rdma_get_cm_event(3)](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    #[doc(alias = "rdma_get_cm_event")]
    #[doc(alias = "rdma_ack_cm_event")]
    pub fn try_next_event(&self) -> Result<Option<Event>> {
        let mut state = self.lock();
        state.check_stale()?;
        while wait_readable(self.descriptor(), Some(Duration::ZERO))? {
            let mut event = ptr::null_mut();
            // SAFETY: the channel is alive, and `event` outlives the call. There is an event, and nobody else takes it.
            match minus_one_and_errno(unsafe { ffi::rdma_get_cm_event(self.as_raw(), &mut event) }) {
                Ok(()) => {}
                Err(Errno(libc::EINTR)) => continue,
                Err(Errno(libc::EAGAIN)) => break,
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
        if let Some(poller) = self.inner.poller.get() {
            poller.clear();
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
    /// A file descriptor that is readable while there are events, also those that came along with an [id](Id::migrate). It is for `poll`,
    /// `epoll` and their like; then [`try_next_event`](EventChannel::try_next_event) takes the events, until there is none left.
    ///
    /// It is not the kernel's own, and costs two descriptors, the first time that it is asked for. Where the process has none left, it
    /// is one that always tells to look.
    ///
    /// It is open as long as the channel:
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
        if let Some(poller) = self.inner.poller.get() {
            return poller.as_fd();
        }
        // Under the lock, so that no id brings events along between the making and the keeping.
        let _state = self.lock();
        if let (None, Ok(poller)) = (self.inner.poller.get(), Poller::new(self.descriptor())) {
            let _ = self.inner.poller.set(poller);
        }
        self.inner.poller.get().map_or(self.inner.always_ready, AsFd::as_fd)
    }
}

impl fmt::Debug for EventChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventChannel(fd {})", self.descriptor().as_raw_fd())
    }
}
