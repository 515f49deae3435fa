//! [`Error`]: what can go wrong, and what to do about it.

use std::ffi::c_int;
use std::io;

use crate::completion_error::CompletionError;
use crate::poll_error::PollError;
use crate::post_error::PostError;

/// The result of a verb.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong: the verb, what was asked of it, the system's error number and the remedy where one is known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The running kernel has no RDMA subsystem.
    #[error(
        "no RDMA device: this kernel has no RDMA support (ibv_get_device_list: {}); \
         load the modules ib_uverbs and rdma_rxe, or pass the host's /dev/infiniband into the container",
        describe(*errno)
    )]
    NoKernelSupport {
        /// What `ibv_get_device_list` left in `errno`.
        errno: c_int,
    },

    /// No device, or none of the name asked for.
    #[error("{}", no_device(wanted.as_deref(), available, kernel_devices))]
    NoDevice {
        /// The name that was asked for; `None`: any would have done.
        wanted: Option<String>,
        /// The names of the devices that there are.
        available: Vec<String>,
        /// Devices that the kernel has and for which libibverbs found no provider library.
        kernel_devices: Vec<String>,
    },

    /// The device or its provider does not have what was asked for.
    #[error("{verb}({arguments}): not supported by this device or its provider ({})", describe(*errno))]
    Unsupported {
        /// The verb of libibverbs.
        verb: &'static str,
        /// What was asked of it.
        arguments: String,
        /// `EOPNOTSUPP` or `ENOSYS`.
        errno: c_int,
    },

    /// An argument that no device would take; nothing was called.
    #[error("{verb}: {argument} is {value}, but {rule}")]
    InvalidArgument {
        /// The verb of libibverbs that would have been called.
        verb: &'static str,
        /// The argument.
        argument: &'static str,
        /// Its value.
        value: String,
        /// The rule that it breaks.
        rule: String,
    },

    /// A verb failed.
    #[error("{verb}({arguments}): {}{}{remedy}", describe(*errno), if remedy.is_empty() { "" } else { "; " })]
    Verb {
        /// The verb of libibverbs.
        verb: &'static str,
        /// What was asked of it.
        arguments: String,
        /// The system's error number.
        errno: c_int,
        /// What to do about it; empty where nothing is known.
        remedy: String,
    },

    /// A range that does not lie in its region, view or slice.
    #[error("the range {start}..{end} does not lie in the {length} bytes of the {object}")]
    OutOfRange {
        /// What the range was taken of.
        object: &'static str,
        /// The first byte.
        start: usize,
        /// The byte after the last one.
        end: usize,
        /// How many bytes there are.
        length: usize,
    },

    /// An object is still used by others.
    #[error("{verb}: the {object} is still in use by {users}")]
    Busy {
        /// The verb of libibverbs that would have been called.
        verb: &'static str,
        /// The object.
        object: &'static str,
        /// Who uses it.
        users: &'static str,
    },

    /// Text or bytes from a peer or a file that could not be read.
    #[error("{text:?} is not {expected}")]
    Parse {
        /// What was expected, with its form.
        expected: &'static str,
        /// What was there.
        text: String,
    },

    /// A queue did not take some of the requests.
    #[error(transparent)]
    Post(#[from] PostError),

    /// A completion queue is broken.
    #[error(transparent)]
    Poll(#[from] PollError),

    /// A work request failed.
    #[error(transparent)]
    Completion(#[from] CompletionError),
}

impl Error {
    /// The system's error number, where there is one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::NoKernelSupport { errno } | Self::Unsupported { errno, .. } | Self::Verb { errno, .. } => {
                Some(*errno)
            }
            Self::Post(error) => Some(error.raw_os_error()),
            Self::Poll(error) => Some(error.raw_os_error()),
            _ => None,
        }
    }

    pub(crate) fn invalid(
        verb: &'static str,
        argument: &'static str,
        value: impl ToString,
        rule: impl Into<String>,
    ) -> Self {
        Self::InvalidArgument { verb, argument, value: value.to_string(), rule: rule.into() }
    }
}

/// The system's text for an error number.
pub(crate) fn describe(errno: c_int) -> String {
    match errno {
        0 => "failed without an error number".to_owned(),
        errno => io::Error::from_raw_os_error(errno).to_string(),
    }
}

fn no_device(wanted: Option<&str>, available: &[String], kernel_devices: &[String]) -> String {
    let what = match wanted {
        Some(name) => format!("no RDMA device named {name:?}"),
        None => "no RDMA device".to_owned(),
    };
    if !available.is_empty() {
        format!("{what}; there is {}", available.join(", "))
    } else if !kernel_devices.is_empty() {
        format!(
            "{what}: the kernel has {}, but no provider library took it; \
             install ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, SUSE) or rdma-core (Arch)",
            kernel_devices.join(", ")
        )
    } else {
        format!(
            "{what}; for one in software, as root: modprobe rdma_rxe, \
             then rdma link add rxe0 type rxe netdev NETDEV (NETDEV: a network interface, see ip link)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_verb_the_arguments_the_errno_and_the_remedy() {
        let error = Error::Verb {
            verb: "ibv_reg_mr",
            arguments: "1 MiB".into(),
            errno: libc::ENOMEM,
            remedy: "raise `ulimit -l`".into(),
        };
        assert_eq!(error.to_string(), "ibv_reg_mr(1 MiB): Cannot allocate memory (os error 12); raise `ulimit -l`");
        assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
    }

    #[test]
    fn the_advice_for_a_missing_device_fits_the_cause() {
        let message = |available: &[&str], kernel_devices: &[&str]| {
            Error::NoDevice {
                wanted: Some("mlx5_0".into()),
                available: available.iter().map(|name| name.to_string()).collect(),
                kernel_devices: kernel_devices.iter().map(|name| name.to_string()).collect(),
            }
            .to_string()
        };
        assert_eq!(message(&["rxe0", "rxe1"], &[]), "no RDMA device named \"mlx5_0\"; there is rxe0, rxe1");
        assert!(message(&[], &["rxe0"]).contains("ibverbs-providers"));
        assert!(message(&[], &[]).contains("rdma link add"));
    }
}
