//! [`Event`]: what librdmacm tells, copied.
//!
//! # Safety
//!
//! An event that was taken and not yet acked keeps its ids and its private data alive. Which member of its union is meant is told by
//! the event's type and by the id's port space; every member is made of integers and pointers, and librdmacm has zeroed all of it.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr::NonNull;

use verbs::AddressHandleAttributes;

use crate::connection_request::ConnectionRequest;
use crate::event_channel::EventChannel;
use crate::ffi;
use crate::ffi::rdma_cm_event_type as E;
use crate::parameters::{PeerParameters, private_data};
use crate::port_space::PortSpace;
use crate::raw_id::{IdKey, RawId};
use crate::rejection::{DatagramStatus, RejectReason, Rejection};
use crate::returns::Errno;

/// How to reach a datagram service, or a multicast group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DatagramPeer {
    /// The path; [`create_address_handle`](verbs::ProtectionDomain::create_address_handle) takes it.
    pub address: AddressHandleAttributes,
    /// The number of the queue pair to send to.
    pub qp_num: u32,
    /// The Q_Key to send with.
    pub qkey: u32,
    /// The peer's bytes, and zeroes behind them. Empty for a multicast group.
    pub private_data: Vec<u8>,
}

impl DatagramPeer {
    /// # Safety
    ///
    /// The private data is null or has as many bytes as its length says.
    unsafe fn copy(raw: &ffi::rdma_ud_param) -> Self {
        Self {
            address: AddressHandleAttributes::from_raw(&raw.ah_attr),
            qp_num: raw.qp_num,
            qkey: raw.qkey,
            // SAFETY: as the caller says.
            private_data: unsafe { private_data(raw.private_data.cast(), raw.private_data_len) },
        }
    }
}

/// What happened. An `errno` is the system's error number.
#[derive(Debug)]
#[non_exhaustive]
pub enum EventKind {
    /// `RDMA_CM_EVENT_ADDR_RESOLVED`: the device that leads to the address is known.
    #[doc(alias = "RDMA_CM_EVENT_ADDR_RESOLVED")]
    AddressResolved,
    /// `RDMA_CM_EVENT_ADDR_ERROR`: no device leads to the address, or nobody answers there (`ETIMEDOUT`).
    #[doc(alias = "RDMA_CM_EVENT_ADDR_ERROR")]
    AddressError {
        /// Why.
        errno: c_int,
    },
    /// `RDMA_CM_EVENT_ROUTE_RESOLVED`: the path is known, and the id can connect.
    #[doc(alias = "RDMA_CM_EVENT_ROUTE_RESOLVED")]
    RouteResolved,
    /// `RDMA_CM_EVENT_ROUTE_ERROR`: there is no path.
    #[doc(alias = "RDMA_CM_EVENT_ROUTE_ERROR")]
    RouteError {
        /// Why.
        errno: c_int,
    },
    /// `RDMA_CM_EVENT_CONNECT_REQUEST`: a peer wants to connect to an id that listens.
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_REQUEST")]
    ConnectRequest(ConnectionRequest),
    /// `RDMA_CM_EVENT_CONNECT_RESPONSE`: the peer has accepted. Make the queue pair ready, then call [`Id::establish`](crate::Id::establish).
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_RESPONSE")]
    ConnectResponse(PeerParameters),
    /// `RDMA_CM_EVENT_CONNECT_ERROR`: the connection could not be made.
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_ERROR")]
    ConnectError {
        /// Why.
        errno: c_int,
    },
    /// `RDMA_CM_EVENT_UNREACHABLE`: the peer does not answer.
    #[doc(alias = "RDMA_CM_EVENT_UNREACHABLE")]
    Unreachable {
        /// Why.
        errno: c_int,
    },
    /// `RDMA_CM_EVENT_UNREACHABLE` with a status: the peer did not tell the queue pair of a datagram service.
    DatagramRejected {
        /// Why.
        status: DatagramStatus,
        /// What the peer's program had to say, and zeroes behind it.
        private_data: Vec<u8>,
    },
    /// `RDMA_CM_EVENT_REJECTED`: the peer, or its host, refused.
    #[doc(alias = "RDMA_CM_EVENT_REJECTED")]
    Rejected(Rejection),
    /// `RDMA_CM_EVENT_ESTABLISHED`: the connection stands.
    #[doc(alias = "RDMA_CM_EVENT_ESTABLISHED")]
    Established(PeerParameters),
    /// `RDMA_CM_EVENT_ESTABLISHED` of a datagram port space: how to reach the service.
    DatagramEstablished(DatagramPeer),
    /// `RDMA_CM_EVENT_DISCONNECTED`: the peer has ended the connection, or has answered that this end did.
    #[doc(alias = "RDMA_CM_EVENT_DISCONNECTED")]
    Disconnected,
    /// `RDMA_CM_EVENT_DEVICE_REMOVAL`: the device is gone. Drop all that was made on it.
    #[doc(alias = "RDMA_CM_EVENT_DEVICE_REMOVAL")]
    DeviceRemoval,
    /// `RDMA_CM_EVENT_MULTICAST_JOIN`: the id is in the group, and datagrams for it go to this address.
    #[doc(alias = "RDMA_CM_EVENT_MULTICAST_JOIN")]
    MulticastJoin {
        /// The key of the [`MulticastMembership`](crate::MulticastMembership).
        membership: IdKey,
        /// How to reach the group.
        group: DatagramPeer,
    },
    /// `RDMA_CM_EVENT_MULTICAST_ERROR`: the group could not be joined, or is no longer joined.
    #[doc(alias = "RDMA_CM_EVENT_MULTICAST_ERROR")]
    MulticastError {
        /// The key of the [`MulticastMembership`](crate::MulticastMembership).
        membership: IdKey,
        /// Why.
        errno: c_int,
    },
    /// `RDMA_CM_EVENT_ADDR_CHANGE`: the network has moved the id's address to another device.
    #[doc(alias = "RDMA_CM_EVENT_ADDR_CHANGE")]
    AddressChange,
    /// `RDMA_CM_EVENT_TIMEWAIT_EXIT`: no packet of the ended connection can be under way any more.
    #[doc(alias = "RDMA_CM_EVENT_TIMEWAIT_EXIT")]
    TimewaitExit,
    /// An event that this crate does not know.
    Other {
        /// Its number.
        event: u32,
        /// Its status.
        status: c_int,
    },
}

/// `struct rdma_cm_event`: what happened to an id. It is a copy: librdmacm's own is acknowledged already.
#[doc(alias = "rdma_cm_event")]
#[derive(Debug)]
pub struct Event {
    id: IdKey,
    kind: EventKind,
}

impl Event {
    /// Which [`Id`](crate::Id) it is of: the listening one for a connection request.
    pub fn id(&self) -> IdKey {
        self.id
    }

    /// What happened.
    pub fn kind(&self) -> &EventKind {
        &self.kind
    }

    /// What happened, to keep: a connection request that is dropped is rejected.
    pub fn into_kind(self) -> EventKind {
        self.kind
    }

    /// # Safety
    ///
    /// The event was taken from `channel`, whose lock is held, and is not acked yet. It is copied once.
    pub(crate) unsafe fn copy(raw: &ffi::rdma_cm_event, channel: &EventChannel) -> Self {
        let is_request = raw.event == E::RDMA_CM_EVENT_CONNECT_REQUEST;
        let id = if is_request { raw.listen_id } else { raw.id };
        let (key, is_datagram) = match NonNull::new(id) {
            // SAFETY: the id is alive as long as the event is not acked, and the lock is held.
            Some(id) => unsafe {
                let id = id.as_ref();
                (IdKey::from_context(id.context), PortSpace::from_raw(id.ps.0).is_datagram())
            },
            None => (IdKey::from_context(std::ptr::null()), false),
        };
        // SAFETY: the event is not acked yet, and the port space is the id's.
        let (mut kind, parameters) = unsafe { (EventKind::copy(raw, is_datagram), request(raw, is_datagram)) };
        if let (true, Some(id)) = (is_request, NonNull::new(raw.id)) {
            // SAFETY: the id of a request belongs to whoever takes the event.
            let id = unsafe { RawId::of_request(id, channel) };
            kind = EventKind::ConnectRequest(ConnectionRequest::new(id, parameters));
        }
        Self { id: key, kind }
    }
}

/// What a connection request tells.
///
/// # Safety
///
/// As of [`EventKind::copy`].
unsafe fn request(raw: &ffi::rdma_cm_event, is_datagram: bool) -> PeerParameters {
    // SAFETY: as the caller says.
    unsafe {
        match is_datagram {
            true => {
                PeerParameters { private_data: DatagramPeer::copy(&raw.param.ud).private_data, ..Default::default() }
            }
            false => PeerParameters::copy(&raw.param.conn),
        }
    }
}

impl EventKind {
    /// What the event says, but for connection requests, whose id somebody has to take.
    ///
    /// # Safety
    ///
    /// The event's private data is alive, and is of the kind that the port space has: datagrams or connections.
    unsafe fn copy(raw: &ffi::rdma_cm_event, is_datagram: bool) -> Self {
        let errno = Errno::of_status(raw.status).0;
        // SAFETY: the members are all made of integers and pointers, over which librdmacm wrote or left zeroes.
        let (connected, datagram) = unsafe { (&raw.param.conn, &raw.param.ud) };
        // SAFETY: as the caller says.
        let peer = || unsafe { PeerParameters::copy(connected) };
        // SAFETY: as above.
        let datagram_peer = || unsafe { DatagramPeer::copy(datagram) };
        match raw.event {
            E::RDMA_CM_EVENT_ADDR_RESOLVED => Self::AddressResolved,
            E::RDMA_CM_EVENT_ADDR_ERROR => Self::AddressError { errno },
            E::RDMA_CM_EVENT_ROUTE_RESOLVED => Self::RouteResolved,
            E::RDMA_CM_EVENT_ROUTE_ERROR => Self::RouteError { errno },
            E::RDMA_CM_EVENT_CONNECT_RESPONSE => Self::ConnectResponse(peer()),
            E::RDMA_CM_EVENT_CONNECT_ERROR => Self::ConnectError { errno },
            E::RDMA_CM_EVENT_UNREACHABLE => match u32::try_from(raw.status) {
                Ok(status) if status > 0 && is_datagram => Self::DatagramRejected {
                    status: DatagramStatus::from_raw(status),
                    private_data: datagram_peer().private_data,
                },
                _ => Self::Unreachable { errno },
            },
            E::RDMA_CM_EVENT_REJECTED => Self::Rejected(Rejection {
                reason: RejectReason::from_raw(raw.status.unsigned_abs()),
                private_data: if is_datagram { datagram_peer().private_data } else { peer().private_data },
            }),
            E::RDMA_CM_EVENT_ESTABLISHED if is_datagram => Self::DatagramEstablished(datagram_peer()),
            E::RDMA_CM_EVENT_ESTABLISHED => Self::Established(peer()),
            E::RDMA_CM_EVENT_DISCONNECTED => Self::Disconnected,
            E::RDMA_CM_EVENT_DEVICE_REMOVAL => Self::DeviceRemoval,
            E::RDMA_CM_EVENT_MULTICAST_JOIN => {
                // Its private data is the number that we gave when joining, and no address.
                let group = DatagramPeer {
                    address: AddressHandleAttributes::from_raw(&datagram.ah_attr),
                    qp_num: datagram.qp_num,
                    qkey: datagram.qkey,
                    private_data: Vec::new(),
                };
                Self::MulticastJoin { membership: membership(datagram.private_data), group }
            }
            E::RDMA_CM_EVENT_MULTICAST_ERROR => {
                Self::MulticastError { membership: membership(datagram.private_data), errno }
            }
            E::RDMA_CM_EVENT_ADDR_CHANGE => Self::AddressChange,
            E::RDMA_CM_EVENT_TIMEWAIT_EXIT => Self::TimewaitExit,
            E(event) => Self::Other { event, status: raw.status },
        }
    }
}

fn membership(context: *const c_void) -> IdKey {
    IdKey::from_context(context)
}

impl EventKind {
    /// `rdma_event_str`: the event's name, such as `RDMA_CM_EVENT_ESTABLISHED`.
    ///
    /// # References
    ///
    /// [rdma_event_str(3)](https://man7.org/linux/man-pages/man3/rdma_event_str.3.html)
    #[doc(alias = "rdma_event_str")]
    pub fn name(&self) -> &'static str {
        let event = match self {
            Self::AddressResolved => E::RDMA_CM_EVENT_ADDR_RESOLVED,
            Self::AddressError { .. } => E::RDMA_CM_EVENT_ADDR_ERROR,
            Self::RouteResolved => E::RDMA_CM_EVENT_ROUTE_RESOLVED,
            Self::RouteError { .. } => E::RDMA_CM_EVENT_ROUTE_ERROR,
            Self::ConnectRequest(_) => E::RDMA_CM_EVENT_CONNECT_REQUEST,
            Self::ConnectResponse(_) => E::RDMA_CM_EVENT_CONNECT_RESPONSE,
            Self::ConnectError { .. } => E::RDMA_CM_EVENT_CONNECT_ERROR,
            Self::Unreachable { .. } | Self::DatagramRejected { .. } => E::RDMA_CM_EVENT_UNREACHABLE,
            Self::Rejected(_) => E::RDMA_CM_EVENT_REJECTED,
            Self::Established(_) | Self::DatagramEstablished(_) => E::RDMA_CM_EVENT_ESTABLISHED,
            Self::Disconnected => E::RDMA_CM_EVENT_DISCONNECTED,
            Self::DeviceRemoval => E::RDMA_CM_EVENT_DEVICE_REMOVAL,
            Self::MulticastJoin { .. } => E::RDMA_CM_EVENT_MULTICAST_JOIN,
            Self::MulticastError { .. } => E::RDMA_CM_EVENT_MULTICAST_ERROR,
            Self::AddressChange => E::RDMA_CM_EVENT_ADDR_CHANGE,
            Self::TimewaitExit => E::RDMA_CM_EVENT_TIMEWAIT_EXIT,
            Self::Other { event, .. } => E(*event),
        };
        // SAFETY: the names are constants of the library, and every number has one.
        let name = unsafe { std::ffi::CStr::from_ptr(ffi::rdma_event_str(event)) };
        name.to_str().unwrap_or("UNKNOWN EVENT")
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::AddressError { errno }
            | Self::RouteError { errno }
            | Self::ConnectError { errno }
            | Self::Unreachable { errno }
            | Self::MulticastError { errno, .. } => write!(f, ": {}", crate::error::describe(*errno)),
            Self::Rejected(rejection) => write!(f, ": {}", rejection.reason),
            Self::DatagramRejected { status, .. } => write!(f, ": {status}"),
            Self::Other { event, status } => write!(f, " {event}, status {status}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_options::unexpected;
    use crate::error::Error;

    #[test]
    fn events_have_the_names_of_the_library() {
        assert_eq!(EventKind::AddressResolved.name(), "RDMA_CM_EVENT_ADDR_RESOLVED");
        assert_eq!(EventKind::TimewaitExit.name(), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
        assert_eq!(EventKind::Other { event: 99, status: 3 }.to_string(), "UNKNOWN EVENT 99, status 3");
        let error = EventKind::AddressError { errno: libc::ETIMEDOUT };
        assert_eq!(error.to_string(), "RDMA_CM_EVENT_ADDR_ERROR: Connection timed out (os error 110)");
    }
    /// The error of an event of librdmacm's, where another one was waited for.
    fn error_of(event: E, status: c_int, is_datagram: bool, private_data: &[u8]) -> Error {
        // SAFETY: all zeroes are a valid structure.
        let mut raw: ffi::rdma_cm_event = unsafe { std::mem::zeroed() };
        (raw.event, raw.status) = (event, status);
        let length = private_data.len() as u8;
        if is_datagram {
            (raw.param.ud.private_data, raw.param.ud.private_data_len) = (private_data.as_ptr().cast(), length);
        } else {
            (raw.param.conn.private_data, raw.param.conn.private_data_len) = (private_data.as_ptr().cast(), length);
        }
        // SAFETY: the private data is alive, and of the kind that is said.
        let kind = unsafe { EventKind::copy(&raw, is_datagram) };
        unexpected(kind, "192.0.2.1:7".parse().unwrap())
    }

    #[test]
    fn what_fails_at_each_step_is_an_error_of_its_own() {
        use Error as R;
        for is_datagram in [false, true] {
            let of = |event, status| error_of(event, status, is_datagram, b"");
            let timeout = -libc::ETIMEDOUT;
            assert!(matches!(of(E::RDMA_CM_EVENT_ADDR_ERROR, timeout), R::AddressUnresolved { errno: 110, .. }));
            assert!(matches!(of(E::RDMA_CM_EVENT_ROUTE_ERROR, timeout), R::RouteUnresolved { errno: 110, .. }));
            assert!(matches!(of(E::RDMA_CM_EVENT_UNREACHABLE, timeout), R::Unreachable { errno: 110, .. }));
            assert!(matches!(of(E::RDMA_CM_EVENT_CONNECT_ERROR, -libc::EINVAL), R::Connect { errno: 22, .. }));
            assert!(matches!(of(E::RDMA_CM_EVENT_DISCONNECTED, 0), R::Disconnected));
            assert!(matches!(of(E::RDMA_CM_EVENT_DEVICE_REMOVAL, 0), R::DeviceRemoved));
            assert!(matches!(of(E::RDMA_CM_EVENT_ADDR_RESOLVED, 0), R::Connect { errno: libc::EPROTO, .. }));
            match error_of(E::RDMA_CM_EVENT_REJECTED, 28, is_datagram, b"no") {
                R::Rejected { rejection, .. } => {
                    assert_eq!(rejection.reason, RejectReason::CONSUMER_DEFINED);
                    assert_eq!(rejection.private_data, b"no");
                }
                other => panic!("{other}"),
            }
        }
        // A status of the peer's means something for datagrams only.
        match error_of(E::RDMA_CM_EVENT_UNREACHABLE, 2, true, b"no") {
            R::DatagramRejected { status, private_data, .. } => {
                assert_eq!(status, DatagramStatus::REJECTED);
                assert_eq!(private_data, b"no");
            }
            other => panic!("{other}"),
        }
        assert!(matches!(
            error_of(E::RDMA_CM_EVENT_UNREACHABLE, 2, false, b""),
            R::Unreachable { errno: libc::EIO, .. }
        ));
    }
}
