//! [`Rejection`]: why there is no connection.

use crate::open_enum::open_enum;

open_enum! {
    /// Why a connection was refused.
    ///
    /// # References
    ///
    /// InfiniBand Architecture Specification, volume 1, chapter 12.6.7.2.
    RejectReason(u32) {
        /// The peer has no queue pair left.
        NO_QUEUE_PAIR = 1, "no queue pair available";
        /// The peer has no end-to-end context left.
        NO_EEC = 2, "no end-to-end context available";
        /// The peer has no resources left.
        NO_RESOURCES = 3, "no resources available";
        /// The peer did not hear again from this end in time.
        TIMEOUT = 4, "timeout";
        /// The peer does not support the request.
        UNSUPPORTED = 5, "unsupported request";
        /// The peer does not know the connection.
        INVALID_COMMUNICATION_ID = 6, "invalid communication id";
        /// The peer does not know this instance of the connection.
        INVALID_COMMUNICATION_INSTANCE = 7, "invalid communication instance";
        /// Nobody listens at the port.
        INVALID_SERVICE_ID = 8, "invalid service id: nobody listens at the port";
        /// The peer does not have the transport.
        INVALID_TRANSPORT_TYPE = 9, "invalid transport service type";
        /// An older connection of the same queue pair is not gone yet.
        STALE_CONNECTION = 10, "stale connection";
        /// There is no such reliable datagram channel.
        NO_RELIABLE_DATAGRAM_CHANNEL = 11, "the reliable datagram channel does not exist";
        /// The primary path's GID.
        INVALID_GID = 12, "invalid GID";
        /// The primary path's LID.
        INVALID_LID = 13, "invalid LID";
        /// The primary path's service level.
        INVALID_SERVICE_LEVEL = 14, "invalid service level";
        /// The primary path's traffic class.
        INVALID_TRAFFIC_CLASS = 15, "invalid traffic class";
        /// The primary path's hop limit.
        INVALID_HOP_LIMIT = 16, "invalid hop limit";
        /// The primary path's packet rate.
        INVALID_PACKET_RATE = 17, "invalid packet rate";
        /// The path's MTU.
        INVALID_MTU = 26, "invalid path MTU";
        /// The peer answers fewer RDMA READs and atomics than were asked for.
        INSUFFICIENT_RESPONDER_RESOURCES = 27, "insufficient responder resources";
        /// The peer's program refused; the private data may say why.
        CONSUMER_DEFINED = 28, "by the peer's program";
        /// The count of retries.
        INVALID_RNR_RETRY = 29, "invalid RNR retry count";
        /// This end's communication id is already in use.
        DUPLICATE_LOCAL_COMMUNICATION_ID = 30, "duplicate local communication id";
        /// The version of the protocol.
        INVALID_CLASS_VERSION = 31, "invalid class version";
        /// The primary path's flow label.
        INVALID_FLOW_LABEL = 32, "invalid flow label";
        /// The peer does not take the vendor's options (ECE).
        VENDOR_OPTION_NOT_SUPPORTED = 35, "vendor option not supported";
    }
}

open_enum! {
    /// Why the queue pair of a datagram service was not told.
    ///
    /// # References
    ///
    /// InfiniBand Architecture Specification, volume 1, chapter 12.11.2.
    DatagramStatus(u32) {
        /// The service does not exist.
        UNSUPPORTED = 1, "nobody listens at the port";
        /// The peer's program refused.
        REJECTED = 2, "refused by the peer's program";
        /// The peer has no queue pair for it.
        NO_QUEUE_PAIR = 3, "no queue pair available";
        /// The service is elsewhere.
        REDIRECT = 4, "redirected";
        /// The version of the protocol.
        UNSUPPORTED_VERSION = 5, "unsupported version";
    }
}

/// A connection request's refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rejection {
    /// Why.
    pub reason: RejectReason,
    /// What the peer's program had to say, and zeroes behind it up to the size of the message, 148 bytes.
    pub private_data: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_no_list_has_are_kept() {
        assert_eq!(RejectReason::from_raw(99).to_string(), "unknown (99)");
        assert_eq!(RejectReason::CONSUMER_DEFINED.as_raw(), 28);
        assert_eq!(DatagramStatus::from_raw(2), DatagramStatus::REJECTED);
    }
}
