//! [`Watch`]: what shows whether a descriptor is readable, and can do nothing else to it.
//!
//! # Safety
//!
//! Calls are given descriptors that are open, and structures that outlive them. What they return is nobody else's.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::error::Result;
use crate::returns::{Errno, minus_one_and_errno};

/// What errors call it.
const VERB: &str = "epoll_create1";

/// An epoll descriptor that watches another descriptor, made when it is first asked for.
///
/// Whoever has a descriptor can duplicate it, and then read from it and change its flags, which are those of all duplicates. An event that
/// is read so is never acked, and libibverbs waits for the acks when it destroys an object. Through the epoll descriptor nobody gets at the
/// one that it watches.
pub(crate) struct Watch {
    fd: OnceLock<OwnedFd>,
    /// Why it could not be made; 0: it was not tried, or has since been made.
    errno: AtomicI32,
    always_readable: BorrowedFd<'static>,
}

impl Watch {
    pub(crate) fn new() -> Result<Self> {
        let always_readable = always_readable()
            .map_err(|errno| errno.with_remedy("pipe2", "", "too many open files: see `ulimit -n`"))?;
        Ok(Self { fd: OnceLock::new(), errno: AtomicI32::new(0), always_readable })
    }

    /// One that is to watch another descriptor.
    pub(crate) fn another(&self) -> Self {
        Self { fd: OnceLock::new(), errno: AtomicI32::new(0), always_readable: self.always_readable }
    }

    /// The descriptor, which is readable as long as `watched` is; that has to be the same one each time, and stay open as long as we do.
    ///
    /// If it cannot be made, another one that is always readable: whoever waits for it looks for what is not there, and
    /// [is told](Self::check).
    pub(crate) fn of(&self, watched: BorrowedFd<'_>) -> BorrowedFd<'_> {
        if let Some(fd) = self.fd.get() {
            return fd.as_fd();
        }
        match watching(watched) {
            // Another thread may have been faster; ours is then closed.
            Ok(fd) => self.fd.get_or_init(|| fd).as_fd(),
            Err(errno) => {
                self.errno.store(errno.0, Ordering::Relaxed);
                self.fd.get().map_or(self.always_readable, AsFd::as_fd)
            }
        }
    }

    /// Whether a descriptor was handed out that does not tell what it should.
    pub(crate) fn check(&self) -> Result<()> {
        match self.errno.load(Ordering::Relaxed) {
            0 => Ok(()),
            _ if self.fd.get().is_some() => Ok(()),
            errno => {
                let remedy = "the descriptor to wait for could not be made: see `ulimit -n`, and ask for it once more";
                Err(Errno(errno).with_remedy(VERB, "", remedy))
            }
        }
    }
}

/// Makes an epoll descriptor that watches another one: it is readable as long as that one is.
fn watching(watched: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    // SAFETY: the call has no preconditions.
    let epoll = unsafe { owned(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }?;
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: both descriptors are open, and the structure outlives the call.
    let code = unsafe { libc::epoll_ctl(epoll.as_raw_fd(), libc::EPOLL_CTL_ADD, watched.as_raw_fd(), &mut event) };
    minus_one_and_errno(code)?;
    Ok(epoll)
}

/// The one descriptor of the process that is always readable: the end of a pipe that nobody writes to any more. Reading from it says so.
fn always_readable() -> Result<BorrowedFd<'static>, Errno> {
    static PIPE: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(fd) = PIPE.get() {
        return Ok(fd.as_fd());
    }
    let mut ends = [-1; 2];
    // SAFETY: there is room for two descriptors, which the call fills in if it succeeds, and which nobody else has.
    let end = unsafe {
        minus_one_and_errno(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        drop(owned(ends[1])?);
        owned(ends[0])?
    };
    Ok(PIPE.get_or_init(|| end).as_fd())
}

/// # Safety
///
/// It is a descriptor that is nobody else's, or -1, and `errno` is set.
unsafe fn owned(fd: c_int) -> Result<OwnedFd, Errno> {
    // SAFETY: as the caller says.
    if fd < 0 { Err(Errno::last()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) }
}
