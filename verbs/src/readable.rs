//! Waiting until a file descriptor has something to read.
//!
//! # Safety
//!
//! `poll` is given one structure, which outlives the call; `fcntl` is given a descriptor that is open.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::error::Result;
use crate::returns::{Errno, minus_one_and_errno};

/// Waits until `fd`, which errors call `what`, is readable. `false`: it was not until `timeout` was over, or a signal came.
pub(crate) fn wait_readable(fd: BorrowedFd<'_>, timeout: Option<Duration>, what: &str) -> Result<bool> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // Rounded up: a wait that ends early would only be begun again.
    let timeout = timeout.map_or(-1, |time| time.as_nanos().div_ceil(1_000_000).try_into().unwrap_or(i32::MAX));
    // SAFETY: `poll` is one structure and outlives the call.
    match unsafe { libc::poll(&mut poll, 1, timeout) } {
        0 => Ok(false),
        1 if poll.revents & libc::POLLIN != 0 => Ok(true),
        1 => Err(Errno(libc::EIO).with_remedy("poll", what, "the device is gone")),
        _ => match io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO) {
            libc::EINTR => Ok(false),
            errno => Err(Errno(errno).of("poll", what)),
        },
    }
}

/// Has reads of `fd` fail with `EAGAIN` where they would wait.
pub(crate) fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: the descriptor is open.
    let code = unsafe {
        match libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) {
            -1 => -1,
            flags if flags & libc::O_NONBLOCK != 0 => 0,
            flags => libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags | libc::O_NONBLOCK),
        }
    };
    minus_one_and_errno(code)
}
