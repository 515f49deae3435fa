//! The descriptor of a channel: what wakes those who watch it, and what safe code can do to it.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use cm::*;

use crate::harness::*;

/// An `epoll` that watches a channel, as a program's event loop does.
struct Watch(OwnedFd);

impl Watch {
    fn new(channel: &EventChannel, flags: i32) -> Self {
        // SAFETY: the call has no pointers, and the descriptor is new.
        let epoll = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
        let mut event = libc::epoll_event { events: (libc::EPOLLIN | flags) as u32, u64: 7 };
        let (epoll_fd, fd) = (epoll.as_raw_fd(), channel.as_fd().as_raw_fd());
        // SAFETY: both descriptors are open, and the structure outlives the call.
        assert_eq!(unsafe { libc::epoll_ctl(epoll_fd, libc::EPOLL_CTL_ADD, fd, &mut event) }, 0);
        Self(epoll)
    }

    /// Whether it tells of the channel in time.
    fn tells(&self, time: Duration) -> bool {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: there is room for one structure.
        match unsafe { libc::epoll_wait(self.0.as_raw_fd(), &mut event, 1, time.as_millis() as i32) } {
            1 => event.u64 == 7,
            _ => false,
        }
    }
}

/// An id with an event that nobody has taken.
fn with_event(channel: &EventChannel) -> Id {
    let id = channel.create_id(PortSpace::TCP).unwrap();
    id.resolve_addr(None, (ip(), 1).into(), LIMIT).unwrap();
    assert!(becomes_readable(channel, LIMIT));
    id
}

#[test]
fn who_watches_a_channel_is_told_of_events_that_come_and_of_those_that_ids_bring_along() {
    for flags in [0, libc::EPOLLET] {
        let (here, there) = (EventChannel::create().unwrap(), EventChannel::create().unwrap());
        let watch = Watch::new(&there, flags);
        assert!(!watch.tells(Duration::ZERO));
        for _ in 0..3 {
            // One that comes, and is taken: the next one must be told again.
            let id = there.create_id(PortSpace::TCP).unwrap();
            id.resolve_addr(None, (ip(), 1).into(), LIMIT).unwrap();
            assert!(watch.tells(LIMIT));
            assert_eq!(there.try_next_event().unwrap().unwrap().id(), id.key());
            assert!(there.try_next_event().unwrap().is_none());
            assert!(!watch.tells(Duration::ZERO) && !is_readable(&there));
            // Two that are brought along.
            let brought = [(); 2].map(|()| {
                let id = with_event(&here);
                id.migrate(&there).unwrap();
                id
            });
            assert!(!is_readable(&here));
            assert!(watch.tells(LIMIT));
            for _ in 0..2 {
                assert!(is_readable(&there), "it is readable until all are taken");
                let event = there.try_next_event().unwrap().unwrap();
                assert!(brought.iter().any(|id| id.key() == event.id()));
            }
            assert!(there.try_next_event().unwrap().is_none());
            assert!(!watch.tells(Duration::ZERO) && !is_readable(&there));
        }
    }
}

#[test]
fn events_that_were_brought_along_before_anybody_watched_are_told() {
    let (here, there) = (EventChannel::create().unwrap(), EventChannel::create().unwrap());
    let id = with_event(&here);
    id.migrate(&there).unwrap();
    assert!(Watch::new(&there, libc::EPOLLET).tells(LIMIT));
    assert!(matches!(event(&id), EventKind::AddressResolved));
}

#[test]
fn whatever_safe_code_does_with_the_descriptor_no_call_waits_under_the_lock() {
    within(LIMIT, || {
        let channel = EventChannel::create().unwrap();
        let mut file = File::from(channel.as_fd().try_clone_to_owned().unwrap());
        // A command to the kernel it would be, on the channel's own descriptor; and a thread would wait for it, made to block.
        assert!(file.write(&[0; 64]).is_err());
        assert!(file.read(&mut [0; 64]).is_err());
        // SAFETY: the descriptor is open.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, 0) }, 0);
        assert!(channel.next_event(Some(Duration::from_millis(20))).unwrap().is_none());
        assert!(channel.try_next_event().unwrap().is_none());
        let id = channel.create_id(PortSpace::TCP).unwrap();
        id.resolve_addr(None, (ip(), 1).into(), LIMIT).unwrap();
        assert!(matches!(event(&id), EventKind::AddressResolved));
    });
}

/// Calls `function` while the process can open nothing.
fn without_descriptors<R>(function: impl FnOnce() -> R) -> R {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the structure outlives the calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit), 0);
        // The standard streams have these.
        let none = libc::rlimit { rlim_cur: 3, ..limit };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &none), 0);
        let result = function();
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &limit), 0);
        result
    }
}

#[test]
fn without_a_descriptor_left_who_watches_is_told_to_look_and_misses_nothing() {
    let channel = EventChannel::create().unwrap();
    let id = channel.create_id(PortSpace::TCP).unwrap();
    let (always, again) = without_descriptors(|| [(); 2].map(|()| channel.as_fd().as_raw_fd())).into();
    assert_eq!(always, again);
    let mut poll = libc::pollfd { fd: always, events: libc::POLLIN, revents: 0 };
    // SAFETY: `poll` is one structure and outlives the call.
    assert_eq!(unsafe { libc::poll(&mut poll, 1, 0) }, 1);
    assert!(channel.try_next_event().unwrap().is_none());
    // As soon as there are descriptors again, there is one that tells when.
    assert_ne!(channel.as_fd().as_raw_fd(), always);
    assert!(!is_readable(&channel));
    id.resolve_addr(None, (ip(), 1).into(), LIMIT).unwrap();
    assert!(becomes_readable(&channel, LIMIT));
    assert!(matches!(event(&id), EventKind::AddressResolved));
}
