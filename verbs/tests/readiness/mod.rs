//! What event loops see of a descriptor, and what else a program can do to it without a word of `unsafe`.
#![allow(dead_code, reason = "each binary uses its part")]

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// An epoll descriptor of a program's, which watches another one.
pub(crate) struct Loop(OwnedFd);

impl Loop {
    /// Tells as long as the other one is readable.
    pub(crate) fn by_level(fd: impl AsFd) -> Self {
        Self::new(fd.as_fd(), libc::EPOLLIN)
    }

    /// Tells when the other one has become readable, once.
    pub(crate) fn by_edge(fd: impl AsFd) -> Self {
        Self::new(fd.as_fd(), libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLET)
    }

    fn new(fd: BorrowedFd<'_>, events: i32) -> Self {
        // SAFETY: the calls are given descriptors that are open, and a structure that outlives the second one.
        unsafe {
            let epoll = OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC));
            let mut event = libc::epoll_event { events: events as u32, u64: 7 };
            assert_eq!(libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &mut event), 0);
            Self(epoll)
        }
    }

    /// Whether it tells something until so many milliseconds are over.
    pub(crate) fn tells(&self, milliseconds: i32) -> bool {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: there is room for one structure.
        match unsafe { libc::epoll_wait(self.0.as_raw_fd(), &mut event, 1, milliseconds) } {
            0 => false,
            1 => {
                assert_eq!({ event.u64 }, 7);
                assert_eq!({ event.events }, libc::EPOLLIN as u32);
                true
            }
            _ => panic!("{}", std::io::Error::last_os_error()),
        }
    }
}

/// Whether a descriptor is readable, as `poll`, `select` and `epoll` say.
#[track_caller]
pub(crate) fn is_readable(fd: impl AsFd) -> bool {
    let number = fd.as_fd().as_raw_fd();
    let mut poll = libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
    // SAFETY: the calls are given structures that outlive them; the number is below the size of a set.
    let (polled, selected) = unsafe {
        let mut set: libc::fd_set = std::mem::zeroed();
        libc::FD_SET(number, &mut set);
        let (none, mut at_once) = (std::ptr::null_mut(), libc::timeval { tv_sec: 0, tv_usec: 0 });
        (libc::poll(&mut poll, 1, 0), libc::select(number + 1, &mut set, none, none, &mut at_once))
    };
    assert_eq!(selected, polled);
    assert_eq!(poll.revents, if polled == 1 { libc::POLLIN } else { 0 });
    assert_eq!(Loop::by_level(&fd).tells(0), polled == 1);
    polled == 1
}

/// Waits until a descriptor is readable.
pub(crate) fn becomes_readable(fd: impl AsFd) {
    assert!(Loop::by_level(&fd).tells(60_000));
    assert!(is_readable(fd));
}

/// Does to a descriptor what libraries do to theirs: duplicates it, sets the flags, reads from it and writes to it.
#[track_caller]
pub(crate) fn misuse(fd: impl AsFd) {
    let duplicate = fd.as_fd().try_clone_to_owned().unwrap();
    for flags in [libc::O_NONBLOCK, 0] {
        // SAFETY: the descriptor is open.
        assert_eq!(unsafe { libc::fcntl(duplicate.as_raw_fd(), libc::F_SETFL, flags) }, 0);
        let read = File::from(duplicate.try_clone().unwrap()).read(&mut [0; 256]);
        assert_eq!(read.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        let written = std::io::Write::write(&mut File::from(duplicate.try_clone().unwrap()), &[0; 8]);
        assert_eq!(written.unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}

/// The flags of a descriptor by its number.
pub(crate) fn flags(fd: i32) -> i32 {
    // SAFETY: the call has no preconditions.
    unsafe { libc::fcntl(fd, libc::F_GETFL) }
}
