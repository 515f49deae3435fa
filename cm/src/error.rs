//! [`Error`]: what can go wrong between two hosts, and what to do about it.

use std::ffi::c_int;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::rejection::{DatagramStatus, Rejection};

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong: the call, what was asked of it, the system's error number and the remedy where one is known.
///
/// ```no_run
/// # fn main() -> cm::Result<()> {
/// use cm::{Error, RejectReason};
///
/// let connection = match cm::connect("192.0.2.1:7471") {
///     Ok(connection) => connection,
///     Err(Error::Rejected { address, rejection }) => {
///         match rejection.reason {
///             RejectReason::INVALID_SERVICE_ID => println!("nobody listens at {address}"),
///             // What the peer's program gave to `reject`, and zeroes behind it.
///             RejectReason::CONSUMER_DEFINED => println!("{address} says {:?}", &rejection.private_data[..16]),
///             other => println!("{address} refuses: {other}"),
///         }
///         return Ok(());
///     }
///     Err(error) => return Err(error),
/// };
/// # Ok(()) }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no RDMA device, or the kernel's connection manager is not there.
    #[error("{}", no_device(call, *errno))]
    NoDevice {
        /// The call of librdmacm.
        call: &'static str,
        /// The system's error number: `ENODEV`, or `ENOENT`.
        errno: c_int,
    },

    /// An argument that no device would take; nothing was called.
    #[error("{call}: {argument} is {value}, but {rule}")]
    InvalidArgument {
        /// The call of librdmacm that would have been made.
        call: &'static str,
        /// The argument.
        argument: &'static str,
        /// Its value.
        value: String,
        /// The rule that it breaks.
        rule: String,
    },

    /// A call that has to come after another one; nothing was called.
    #[error("{call}: {rule}")]
    WrongState {
        /// The call of librdmacm that would have been made, or the method where it would have been none.
        call: &'static str,
        /// What has to be done first.
        rule: &'static str,
    },

    /// The device, its network or the kernel does not have what was asked for.
    #[error("{call}({arguments}): not supported by this device or this kernel ({})", describe(*errno))]
    Unsupported {
        /// The call of librdmacm.
        call: &'static str,
        /// What was asked of it.
        arguments: String,
        /// `EOPNOTSUPP` or `ENOSYS`.
        errno: c_int,
    },

    /// A call failed.
    #[error("{call}({arguments}): {}{}{remedy}", describe(*errno), if remedy.is_empty() { "" } else { "; " })]
    Call {
        /// The call of librdmacm.
        call: &'static str,
        /// What was asked of it.
        arguments: String,
        /// The system's error number.
        errno: c_int,
        /// What to do about it; empty where nothing is known.
        remedy: String,
    },

    /// A host's name, or a service's, has no address.
    #[error("no address for {name:?}: {reason}")]
    Lookup {
        /// What was looked up.
        name: String,
        /// What the resolver said.
        reason: String,
    },

    /// Another listener has the address, or another id that connects from it.
    #[error("{call}({address}): the address is already in use (os error {})", libc::EADDRINUSE)]
    AddressInUse {
        /// The call of librdmacm.
        call: &'static str,
        /// The address.
        address: SocketAddr,
    },

    /// No RDMA device leads to an address (`RDMA_CM_EVENT_ADDR_ERROR`, or an error of `rdma_resolve_addr`).
    #[error("rdma_resolve_addr({address}): {}; {}", describe(*errno), unresolved(*errno))]
    AddressUnresolved {
        /// The address.
        address: SocketAddr,
        /// The system's error number: `ETIMEDOUT` if nobody answers at the address.
        errno: c_int,
    },

    /// There is no route to an address (`RDMA_CM_EVENT_ROUTE_ERROR`, or an error of `rdma_resolve_route`).
    #[error("rdma_resolve_route({address}): {}{}", describe(*errno), loopback(*address))]
    RouteUnresolved {
        /// The address.
        address: SocketAddr,
        /// The system's error number.
        errno: c_int,
    },

    /// The peer did not answer the connection request (`RDMA_CM_EVENT_UNREACHABLE`). The kernel asks again for more than a minute before it says so:
    /// with a shorter timeout, as by default, [`TimedOut`](Self::TimedOut) comes before.
    #[error("rdma_connect({address}): the peer cannot be reached: {}", describe(*errno))]
    Unreachable {
        /// The address.
        address: SocketAddr,
        /// The system's error number.
        errno: c_int,
    },

    /// The peer refused the connection (`RDMA_CM_EVENT_REJECTED`).
    #[error("rdma_connect({address}): the peer rejected the connection: {}", rejection.reason)]
    Rejected {
        /// The address.
        address: SocketAddr,
        /// Why, and what the peer had to say.
        rejection: Rejection,
    },

    /// The peer refused to tell its queue pair (`RDMA_CM_EVENT_UNREACHABLE` of a datagram port space, with a status).
    #[error("rdma_connect({address}): the peer told no queue pair: {status}")]
    DatagramRejected {
        /// The address.
        address: SocketAddr,
        /// Why.
        status: DatagramStatus,
        /// What the peer had to say, and zeroes behind it.
        private_data: Vec<u8>,
    },

    /// A connection could not be made (`RDMA_CM_EVENT_CONNECT_ERROR`).
    #[error("the connection to {address} could not be made: {}", describe(*errno))]
    Connect {
        /// The address.
        address: SocketAddr,
        /// The system's error number.
        errno: c_int,
    },

    /// A multicast group could not be joined (`RDMA_CM_EVENT_MULTICAST_ERROR`).
    #[error("rdma_join_multicast({group}): {}", describe(*errno))]
    Multicast {
        /// The group.
        group: SocketAddr,
        /// The system's error number.
        errno: c_int,
    },

    /// The time is over. Of a peer that is asked for a connection: it neither accepts nor refuses, or its host has died.
    #[error("{step}: not done after {timeout:?}")]
    TimedOut {
        /// What was waited for.
        step: &'static str,
        /// How long.
        timeout: Duration,
    },

    /// The peer has ended the connection (`RDMA_CM_EVENT_DISCONNECTED`).
    #[error("the peer has ended the connection")]
    Disconnected,

    /// The device was removed from the machine (`RDMA_CM_EVENT_DEVICE_REMOVAL`).
    #[error("the RDMA device was removed; drop what was made on it")]
    DeviceRemoved,

    /// A verb failed.
    #[error(transparent)]
    Verbs(#[from] verbs::Error),
}

impl Error {
    /// The system's error number, where there is one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::NoDevice { errno, .. }
            | Self::Unsupported { errno, .. }
            | Self::Call { errno, .. }
            | Self::AddressUnresolved { errno, .. }
            | Self::RouteUnresolved { errno, .. }
            | Self::Unreachable { errno, .. }
            | Self::Connect { errno, .. }
            | Self::Multicast { errno, .. } => Some(*errno),
            Self::AddressInUse { .. } => Some(libc::EADDRINUSE),
            Self::TimedOut { .. } => Some(libc::ETIMEDOUT),
            Self::Verbs(error) => error.raw_os_error(),
            _ => None,
        }
    }

    pub(crate) fn invalid(
        call: &'static str,
        argument: &'static str,
        value: impl ToString,
        rule: impl Into<String>,
    ) -> Self {
        Self::InvalidArgument { call, argument, value: value.to_string(), rule: rule.into() }
    }
}

impl From<verbs::PostError> for Error {
    fn from(error: verbs::PostError) -> Self {
        Self::Verbs(error.into())
    }
}

impl From<verbs::PollError> for Error {
    fn from(error: verbs::PollError) -> Self {
        Self::Verbs(error.into())
    }
}

impl From<verbs::CompletionError> for Error {
    fn from(error: verbs::CompletionError) -> Self {
        Self::Verbs(error.into())
    }
}

impl<B> From<verbs::RegisterError<B>> for Error {
    /// The buffer that could not be registered is dropped.
    fn from(error: verbs::RegisterError<B>) -> Self {
        Self::Verbs(error.into())
    }
}

/// The system's text for an error number.
pub(crate) fn describe(errno: c_int) -> String {
    match errno {
        0 => "failed without an error number".to_owned(),
        errno => io::Error::from_raw_os_error(errno).to_string(),
    }
}

fn no_device(call: &str, errno: c_int) -> String {
    format!(
        "no RDMA device, or no RDMA connection manager in the kernel ({call}: {}); load the module rdma_ucm and see that \
         /dev/infiniband/rdma_cm is there; for a device in software, as root: modprobe rdma_rxe, then rdma link add rxe0 type \
         rxe netdev NETDEV (NETDEV: a network interface, see ip link)",
        describe(errno)
    )
}

fn unresolved(errno: c_int) -> &'static str {
    match errno {
        libc::ETIMEDOUT => "nobody answers at this address",
        libc::ENODEV => "the network interface that leads there has no RDMA device",
        libc::ENETUNREACH | libc::EHOSTUNREACH => "there is no route to this network",
        libc::EADDRNOTAVAIL | libc::EINVAL => "the source address has to be of the same family, and of this host",
        _ => "see `rdma link` and `ip route get`",
    }
}

fn loopback(address: SocketAddr) -> &'static str {
    match address.ip().is_loopback() {
        true => "; the loopback interface has no RDMA device: use the address of the interface that has",
        false => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rejection::RejectReason;

    #[test]
    fn a_message_names_the_call_the_arguments_the_errno_and_the_remedy() {
        let address: SocketAddr = "192.0.2.1:7471".parse().unwrap();
        let error = Error::AddressUnresolved { address, errno: libc::ETIMEDOUT };
        assert_eq!(
            error.to_string(),
            "rdma_resolve_addr(192.0.2.1:7471): Connection timed out (os error 110); nobody answers at this address"
        );
        let error = Error::RouteUnresolved { address: "127.0.0.1:1".parse().unwrap(), errno: libc::ENODEV };
        assert!(error.to_string().ends_with("use the address of the interface that has"), "{error}");
        let rejection = Rejection { reason: RejectReason::INVALID_SERVICE_ID, private_data: Vec::new() };
        let error = Error::Rejected { address, rejection };
        assert!(error.to_string().contains("nobody listens at the port"), "{error}");
        assert_eq!(error.raw_os_error(), None);
        assert!(
            Error::NoDevice { call: "rdma_create_event_channel", errno: libc::ENODEV }
                .to_string()
                .starts_with("no RDMA device")
        );
    }
}
