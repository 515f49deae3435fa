//! The return conventions of librdmacm, one converter each.

use std::ffi::c_int;
use std::fmt::Display;
use std::io;
use std::ptr::NonNull;

use crate::error::Error;

/// A system error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl Errno {
    /// What the last call that failed has set.
    pub(crate) fn last() -> Self {
        /// What the kernel has for itself, and its connection manager lets out.
        const ENOTSUPP: c_int = 524;
        match io::Error::last_os_error().raw_os_error() {
            Some(ENOTSUPP) => Self(libc::EOPNOTSUPP),
            errno => Self(errno.unwrap_or(0)),
        }
    }

    /// What an event's status says: a negative error number, or that the library failed without one.
    pub(crate) fn of_status(status: c_int) -> Self {
        Self(status.checked_neg().filter(|errno| *errno > 1).unwrap_or(libc::EIO))
    }

    /// The error of a call; `arguments` says what was asked of it.
    pub(crate) fn of(self, call: &'static str, arguments: impl Display) -> Error {
        self.with_remedy(call, arguments, "")
    }

    /// The error of a call, with advice on what to do about it.
    pub(crate) fn with_remedy(self, call: &'static str, arguments: impl Display, remedy: impl Into<String>) -> Error {
        let arguments = arguments.to_string();
        match self.0 {
            errno @ (libc::EOPNOTSUPP | libc::ENOSYS) => Error::Unsupported { call, arguments, errno },
            errno => Error::Call { call, arguments, errno, remedy: remedy.into() },
        }
    }
}

/// For calls that return an object, or NULL and set `errno`.
pub(crate) fn null_and_errno<T>(pointer: *mut T) -> Result<NonNull<T>, Errno> {
    NonNull::new(pointer).ok_or_else(Errno::last)
}

/// For calls that return 0, or -1 and set `errno`.
pub(crate) fn minus_one_and_errno(code: c_int) -> Result<(), Errno> {
    if code == 0 { Ok(()) } else { Err(Errno::last()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_negative_errno() {
        assert_eq!(Errno::of_status(-libc::ETIMEDOUT), Errno(libc::ETIMEDOUT));
        assert_eq!(Errno::of_status(-1), Errno(libc::EIO), "librdmacm's own failures have no number");
        assert_eq!(Errno::of_status(8), Errno(libc::EIO));
        assert_eq!(Errno::of_status(c_int::MIN), Errno(libc::EIO));
    }

    #[test]
    fn each_convention_is_read_by_its_own_rule() {
        assert_eq!(minus_one_and_errno(0), Ok(()));
        assert!(minus_one_and_errno(-1).is_err());
        assert!(null_and_errno(std::ptr::null_mut::<u8>()).is_err());
    }
}
