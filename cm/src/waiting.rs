//! Waiting for the events of a channel: on a thread ([`Waiter`]), or with a descriptor ([`Poller`]).
//!
//! The kernel wakes nobody for the events that come along with an id that migrates. So each of the two has an `eventfd` too.
//!
//! # Safety
//!
//! Descriptors that are waited for, written or read are open during the call, and what is read or written is as long as is said.
#![allow(unsafe_code)]

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::error::Result;
use crate::event_channel::EventChannel;
use crate::returns::{Errno, minus_one_and_errno};

/// What wakes the threads that are about to sleep until there is an event, or do.
#[derive(Default)]
pub(crate) struct Sleepers(Vec<Arc<OwnedFd>>);

impl Sleepers {
    /// Has all who sleep look again.
    pub(crate) fn wake(&self) {
        self.0.iter().for_each(|sleeper| signal(sleeper));
    }
}

/// A thread that is about to sleep until there is an event.
pub(crate) struct Waiter<'a> {
    channel: &'a EventChannel,
    wake: Arc<OwnedFd>,
}

impl<'a> Waiter<'a> {
    pub(crate) fn new(channel: &'a EventChannel) -> Result<Self> {
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
        channel.lock().sleepers.0.push(Arc::clone(&wake));
        Ok(Self { channel, wake })
    }

    /// Sleeps until there is an event, or somebody says to look again.
    pub(crate) fn sleep(&self, timeout: Option<Duration>) -> Result<()> {
        poll(&mut [self.channel.descriptor(), self.wake.as_fd()].map(readable), timeout)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let mut state = self.channel.lock();
        state.sleepers.0.retain(|sleeper| !Arc::ptr_eq(sleeper, &self.wake));
        clear(&self.wake);
    }
}

/// A descriptor that is readable when there may be events, for `poll` and its like.
///
/// It is an `epoll` over the channel's own, which nobody else may have: the kernel takes commands there, and whoever made it block would
/// make us wait under the channel's lock.
pub(crate) struct Poller {
    epoll: OwnedFd,
    /// Readable after an id has brought events along, until all are taken.
    brought: OwnedFd,
}

impl Poller {
    pub(crate) fn new(channel: BorrowedFd<'_>) -> Result<Self, Errno> {
        // SAFETY: the call has no pointers.
        let epoll = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let brought = eventfd()?;
        for fd in [channel, brought.as_fd()] {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            // SAFETY: both descriptors are open, and the structure outlives the call.
            let code = unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event) };
            minus_one_and_errno(code)?;
        }
        Ok(Self { epoll, brought })
    }

    /// Says that there may be events for which the kernel wakes nobody.
    pub(crate) fn signal(&self) {
        signal(&self.brought);
    }

    /// Says that all events are taken.
    pub(crate) fn clear(&self) {
        clear(&self.brought);
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// For who cannot have a [`Poller`], since the process has no descriptor left: one that always tells to look. It is the end of a pipe that
/// nobody writes to any more.
pub(crate) fn always_ready() -> Result<BorrowedFd<'static>, Errno> {
    static END: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(end) = END.get() {
        return Ok(end.as_fd());
    }
    let mut ends = [0; 2];
    // SAFETY: there is room for both descriptors.
    minus_one_and_errno(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
    let [end, writer] = ends.map(owned);
    drop(writer?);
    // Another thread may have been quicker.
    let _ = END.set(end?);
    END.get().map(AsFd::as_fd).ok_or(Errno(libc::EIO))
}

fn signal(eventfd: &OwnedFd) {
    let one = 1u64;
    // SAFETY: the descriptor is open, and the count outlives the call. If it is full, it is readable already.
    unsafe { libc::write(eventfd.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
}

fn clear(eventfd: &OwnedFd) {
    let mut count = 0u64;
    // SAFETY: the descriptor is open, does not block, and the count outlives the call.
    unsafe { libc::read(eventfd.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>()) };
}

fn eventfd() -> Result<OwnedFd, Errno> {
    // SAFETY: the call has no pointers.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })
}

/// For calls that return a new descriptor, or -1 and set `errno`.
fn owned(fd: libc::c_int) -> Result<OwnedFd, Errno> {
    match fd {
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
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, timeout: Option<Duration>) -> Result<bool> {
    let mut polls = [readable(fd)];
    poll(&mut polls, timeout)?;
    Ok(polls[0].revents & libc::POLLIN != 0)
}

pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the descriptor is open.
    let code = unsafe {
        match libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) {
            -1 => -1,
            flags => libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK),
        }
    };
    minus_one_and_errno(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ready(fd: BorrowedFd<'_>) -> bool {
        wait_readable(fd, Some(Duration::ZERO)).unwrap()
    }

    #[test]
    fn a_poller_is_readable_while_its_channel_is_and_from_the_signal_to_the_clearing() {
        // A descriptor that behaves as a channel's does.
        let channel = eventfd().unwrap();
        let poller = Poller::new(channel.as_fd()).unwrap();
        assert!(!is_ready(poller.as_fd()));
        signal(&channel);
        assert!(is_ready(poller.as_fd()) && is_ready(poller.as_fd()));
        clear(&channel);
        assert!(!is_ready(poller.as_fd()));
        poller.signal();
        poller.signal();
        assert!(is_ready(poller.as_fd()));
        poller.clear();
        assert!(!is_ready(poller.as_fd()));
    }

    #[test]
    fn what_is_watched_in_place_of_a_poller_is_always_ready_and_can_be_watched_by_epoll() {
        let end = always_ready().unwrap();
        assert_eq!(end.as_raw_fd(), always_ready().unwrap().as_raw_fd(), "there is one for all");
        let mut polls = [readable(end)];
        // SAFETY: it is one structure, and outlives the call.
        assert_eq!(unsafe { libc::poll(polls.as_mut_ptr(), 1, 0) }, 1);
        assert_eq!(polls[0].revents & libc::POLLHUP, libc::POLLHUP);
        Poller::new(end).unwrap();
    }
}
