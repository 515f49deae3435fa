//! [`PollError`]: a completion queue that cannot be polled.

use std::ffi::c_int;

use crate::error::describe;

/// A poll failed: the queue is broken, since it overflowed or the device is gone.
///
/// It is small and plain, so that the compiler keeps a poll's result in registers: with an [`Error`](crate::Error) in its place
/// each poll costs an instruction more on the null provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {}; the queue is broken: it overflowed, or the device is gone", self.verb(), self.explain())]
pub struct PollError {
    /// Whether the queue was polled by `ibv_start_poll`.
    pub(crate) extended: bool,
    /// What the provider returned: a negative number, or more than it was asked for.
    pub(crate) count: c_int,
}

impl PollError {
    /// The system's error number.
    pub fn raw_os_error(&self) -> i32 {
        if self.count < 0 { self.count.saturating_neg() } else { libc::EIO }
    }

    fn verb(&self) -> &'static str {
        if self.extended { "ibv_start_poll" } else { "ibv_poll_cq" }
    }

    fn explain(&self) -> String {
        match self.count {
            ..0 => describe(self.raw_os_error()),
            count => format!("{count} completions, more than there was room for"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_negative_count_is_an_error_number_and_a_large_one_is_not() {
        let broken = PollError { extended: false, count: -libc::ENODEV };
        assert_eq!(broken.raw_os_error(), libc::ENODEV);
        assert!(broken.to_string().starts_with("ibv_poll_cq: No such device (os error 19); the queue is broken"));
        assert_eq!(PollError { extended: true, count: c_int::MIN }.raw_os_error(), c_int::MAX);
        let lie = PollError { extended: false, count: 5 };
        assert_eq!(lie.raw_os_error(), libc::EIO);
        assert!(lie.to_string().contains("5 completions, more than there was room for"), "{lie}");
    }
}
