//! Processes that fork.
//!
//! # Safety
//!
//! Neither call has preconditions that concern memory.
#![allow(unsafe_code)]

use crate::error::Result;
use crate::ffi;
use crate::open_enum::open_enum;
use crate::returns::{Errno, zero_or_errno};

open_enum! {
    /// `enum ibv_fork_status`: whether this process may fork while it has registered memory.
    #[doc(alias = "ibv_fork_status")]
    ForkStatus(u32) {
        /// It may not: after a fork either process may be left with pages that the device does not know.
        DISABLED = ffi::ibv_fork_status::IBV_FORK_DISABLED.0, "disabled";
        /// It may: [`prepare_for_fork`] was called in time.
        ENABLED = ffi::ibv_fork_status::IBV_FORK_ENABLED.0, "enabled";
        /// It may: the kernel copies registered pages when a process forks.
        UNNEEDED = ffi::ibv_fork_status::IBV_FORK_UNNEEDED.0, "unneeded";
    }
}

/// `ibv_fork_init`: prepares this process to fork, by `fork` or by what calls it, such as [`std::process::Command`].
///
/// Registered memory then stays that of the parent. The child must not use any object of this crate. Where the kernel copies
/// registered pages at a fork, from Linux 5.12 on, the call does nothing and succeeds at any time.
///
/// # Errors
///
/// * `EINVAL`: memory is registered already; call it before.
/// * `ENOMEM`: there is no memory for it.
///
/// # References
///
/// [ibv_fork_init(3)](https://man7.org/linux/man-pages/man3/ibv_fork_init.3.html)
///
/// # Examples
///
/// ```no_run
/// # fn main() -> verbs::Result<()> {
/// verbs::prepare_for_fork()?;
/// assert_ne!(verbs::fork_status(), verbs::ForkStatus::DISABLED);
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_fork_init")]
pub fn prepare_for_fork() -> Result<()> {
    // SAFETY: the call has no preconditions.
    match zero_or_errno(unsafe { ffi::ibv_fork_init() }) {
        Ok(()) => Ok(()),
        // libibverbs looks for registered memory first, and only then whether that matters.
        Err(Errno(libc::EINVAL)) if fork_status() == ForkStatus::UNNEEDED => Ok(()),
        Err(errno) => {
            let remedy = if errno.0 == libc::EINVAL { "call it before memory is registered" } else { "" };
            Err(errno.with_remedy("ibv_fork_init", "", remedy))
        }
    }
}

/// `ibv_is_fork_initialized`: whether this process may fork while it has registered memory.
///
/// # References
///
/// [ibv_is_fork_initialized(3)](https://man7.org/linux/man-pages/man3/ibv_is_fork_initialized.3.html)
#[doc(alias = "ibv_is_fork_initialized")]
pub fn fork_status() -> ForkStatus {
    // SAFETY: the call has no preconditions.
    ForkStatus::from_raw(unsafe { ffi::ibv_is_fork_initialized() }.0)
}
