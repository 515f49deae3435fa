//! The four return conventions of libibverbs, one converter each.
//!
//! `errno` is stale after a successful call and is not set at all by the verbs that return it, so each verb is converted
//! by the rule that its manual page gives, and by no other.

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
        Self(io::Error::last_os_error().raw_os_error().unwrap_or(0))
    }

    /// The error of `verb`; `arguments` says what was asked of it.
    pub(crate) fn of(self, verb: &'static str, arguments: impl Display) -> Error {
        self.with_remedy(verb, arguments, "")
    }

    /// The error of `verb`, with advice on what to do about it.
    pub(crate) fn with_remedy(self, verb: &'static str, arguments: impl Display, remedy: impl Into<String>) -> Error {
        match self.0 {
            libc::EOPNOTSUPP | libc::ENOSYS => {
                Error::Unsupported { verb, arguments: arguments.to_string(), errno: self.0 }
            }
            errno => Error::Verb { verb, arguments: arguments.to_string(), errno, remedy: remedy.into() },
        }
    }
}

/// For verbs that return an object, or NULL and set `errno`.
pub(crate) fn null_and_errno<T>(pointer: *mut T) -> Result<NonNull<T>, Errno> {
    NonNull::new(pointer).ok_or_else(Errno::last)
}

/// For verbs that return 0 or a positive error number.
///
/// Some old providers return -1 and set `errno`, or a negative error number; both are understood.
pub(crate) fn zero_or_errno(code: c_int) -> Result<(), Errno> {
    match code {
        0 => Ok(()),
        -1 => Err(Errno::last()),
        code => Err(Errno(code.saturating_abs())),
    }
}

/// For verbs that return 0, or -1 and set `errno`.
pub(crate) fn minus_one_and_errno(code: c_int) -> Result<(), Errno> {
    if code == 0 { Ok(()) } else { Err(Errno::last()) }
}

/// For verbs that return a count, or a negative error number.
pub(crate) fn count_or_negative(count: isize) -> Result<usize, Errno> {
    usize::try_from(count).map_err(|_| Errno(c_int::try_from(count.saturating_neg()).unwrap_or(libc::EIO)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_convention_is_read_by_its_own_rule() {
        assert_eq!(zero_or_errno(0), Ok(()));
        assert_eq!(zero_or_errno(libc::EINVAL), Err(Errno(libc::EINVAL)));
        assert_eq!(zero_or_errno(-libc::EINVAL), Err(Errno(libc::EINVAL)));
        assert_eq!(zero_or_errno(c_int::MIN), Err(Errno(c_int::MAX)));
        assert_eq!(minus_one_and_errno(0), Ok(()));
        assert_eq!(count_or_negative(3), Ok(3));
        assert_eq!(count_or_negative(-61), Err(Errno(61)));
        assert_eq!(count_or_negative(isize::MIN), Err(Errno(libc::EIO)));
        let mut object = 7;
        assert!(null_and_errno(&raw mut object).is_ok());
        assert!(null_and_errno(std::ptr::null_mut::<u8>()).is_err());
    }

    #[test]
    fn what_a_provider_does_not_have_is_unsupported() {
        for errno in [libc::EOPNOTSUPP, libc::ENOSYS] {
            assert!(matches!(Errno(errno).of("ibv_alloc_dm", ""), Error::Unsupported { .. }));
        }
        assert_eq!(Errno(libc::EINVAL).of("ibv_alloc_dm", "").raw_os_error(), Some(libc::EINVAL));
    }
}
