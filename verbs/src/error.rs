//! [`Error`]: what can go wrong, and what to do about it.

use std::ffi::c_int;
use std::io;
use std::path::PathBuf;

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
    #[error("{}", no_device(wanted.as_deref(), available, kernel_devices, missing_nodes))]
    NoDevice {
        /// The name that was asked for; `None`: any would have done.
        wanted: Option<String>,
        /// The names of the devices that there are.
        available: Box<[String]>,
        /// The names of the devices that the kernel has. Those that are not available have no provider library, or no node.
        kernel_devices: Box<[String]>,
        /// Nodes of those devices that are not there, such as `/dev/infiniband/uverbs0`: libibverbs does not list their devices.
        missing_nodes: Box<[PathBuf]>,
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

fn no_device(wanted: Option<&str>, available: &[String], kernel: &[String], missing_nodes: &[PathBuf]) -> String {
    let mut text = match wanted {
        Some(name) => format!("no RDMA device named {name:?}"),
        None => "no RDMA device".to_owned(),
    };
    if !available.is_empty() {
        text += &format!("; there is {}", available.join(", "));
    }
    let is_asked_for = |name: &str| available.is_empty() || wanted == Some(name);
    let hidden = kernel.iter().filter(|name| !available.contains(name) && is_asked_for(name));
    let hidden: Vec<&str> = hidden.map(String::as_str).collect();
    if !hidden.is_empty() {
        let sign = if available.is_empty() { ':' } else { ';' };
        let reason = if missing_nodes.is_empty() {
            "no provider library took it; \
             install ibverbs-providers (Debian, Ubuntu) or libibverbs (Fedora, SUSE) or rdma-core (Arch)"
                .to_owned()
        } else {
            let nodes: Vec<String> = missing_nodes.iter().map(|node| node.display().to_string()).collect();
            format!("{} is not there: load ib_uverbs, or pass /dev/infiniband into the container", nodes.join(", "))
        };
        text += &format!("{sign} the kernel has {}, but {reason}", hidden.join(", "));
    } else if available.is_empty() {
        text += "; for one in software, as root: modprobe rdma_rxe, \
                 then rdma link add rxe0 type rxe netdev NETDEV (NETDEV: a network interface, see ip link)";
    }
    text
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
        let strings = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let message = |wanted: &str, available: &[&str], kernel_devices: &[&str], missing_nodes: &[&str]| {
            Error::NoDevice {
                wanted: Some(wanted.into()),
                available: strings(available).into(),
                kernel_devices: strings(kernel_devices).into(),
                missing_nodes: missing_nodes.iter().map(PathBuf::from).collect(),
            }
            .to_string()
        };
        let text = message("mlx5_0", &["rxe0", "rxe1"], &["rxe0", "rxe1"], &[]);
        assert_eq!(text, "no RDMA device named \"mlx5_0\"; there is rxe0, rxe1");
        let text = message("mlx5_0", &[], &["rxe0"], &[]);
        assert!(
            text.starts_with("no RDMA device named \"mlx5_0\": the kernel has rxe0, but no provider library"),
            "{text}"
        );
        assert!(text.contains("ibverbs-providers"), "{text}");
        assert!(message("mlx5_0", &[], &[], &[]).contains("; for one in software, as root: "));
        // A container that was given no nodes, or not all of them.
        let node = "/dev/infiniband/uverbs1";
        let text = message("rxe1", &["rxe0"], &["rxe0", "rxe1"], &[node]);
        let advice = "load ib_uverbs, or pass /dev/infiniband into the container";
        let start = "no RDMA device named \"rxe1\"; there is rxe0; the kernel has rxe1, but";
        assert_eq!(text, format!("{start} {node} is not there: {advice}"));
        let text = message("rxe1", &[], &["rxe1"], &[node]);
        assert_eq!(
            text,
            format!("no RDMA device named \"rxe1\": the kernel has rxe1, but {node} is not there: {advice}")
        );
    }
}
