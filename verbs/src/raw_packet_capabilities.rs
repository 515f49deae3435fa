//! What a device can do with raw packets, and with tagged messages.

use std::fmt;

use crate::ffi;
use crate::ffi::{ibv_qp_type as Q, ibv_raw_packet_caps as R, ibv_rx_hash_fields as H, ibv_tm_cap_flags as M};
use crate::transport::Transport;

bitflags::bitflags! {
    /// Types of queue pairs: a bit for each `enum ibv_qp_type`.
    #[doc(alias = "supported_qpts")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct QueuePairTypes: u32 {
        /// Reliable connection.
        const RC = 1 << Q::IBV_QPT_RC.0;
        /// Unreliable connection.
        const UC = 1 << Q::IBV_QPT_UC.0;
        /// Unreliable datagram.
        const UD = 1 << Q::IBV_QPT_UD.0;
        /// Raw packets.
        const RAW_PACKET = 1 << Q::IBV_QPT_RAW_PACKET.0;
        /// The sending end of an extended reliable connection.
        const XRC_SEND = 1 << Q::IBV_QPT_XRC_SEND.0;
        /// The receiving end of an extended reliable connection.
        const XRC_RECEIVE = 1 << Q::IBV_QPT_XRC_RECV.0;
    }
}

impl QueuePairTypes {
    /// `ibv_is_qpt_supported`: whether queue pairs of transport `T` are among them.
    ///
    /// # References
    ///
    /// [ibv_query_device_ex(3)](https://man7.org/linux/man-pages/man3/ibv_query_device_ex.3.html)
    #[doc(alias = "ibv_is_qpt_supported")]
    pub fn supports<T: Transport>(self) -> bool {
        self.bits() & 1 << T::TYPE.0 != 0
    }
}

bitflags::bitflags! {
    /// `enum ibv_raw_packet_caps`: what can be done with raw packets.
    #[doc(alias = "ibv_raw_packet_caps")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RawPacketCapabilities: u32 {
        /// The customer's VLAN tag can be taken off what is received.
        const CVLAN_STRIPPING = R::IBV_RAW_PACKET_CAP_CVLAN_STRIPPING.0;
        /// Packets can be received with their frame check sequence.
        const SCATTER_FCS = R::IBV_RAW_PACKET_CAP_SCATTER_FCS.0;
        /// IP checksums are made and checked.
        const IP_CHECKSUM = R::IBV_RAW_PACKET_CAP_IP_CSUM.0;
        /// A packet without a receive can wait for one.
        const DELAY_DROP = R::IBV_RAW_PACKET_CAP_DELAY_DROP.0;
    }
}

bitflags::bitflags! {
    /// `enum ibv_rx_hash_fields`: what of a packet chooses its queue.
    #[doc(alias = "ibv_rx_hash_fields")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ReceiveHashFields: u64 {
        /// The source address of IPv4.
        const SOURCE_IPV4 = H::IBV_RX_HASH_SRC_IPV4.0 as u64;
        /// The destination address of IPv4.
        const DESTINATION_IPV4 = H::IBV_RX_HASH_DST_IPV4.0 as u64;
        /// The source address of IPv6.
        const SOURCE_IPV6 = H::IBV_RX_HASH_SRC_IPV6.0 as u64;
        /// The destination address of IPv6.
        const DESTINATION_IPV6 = H::IBV_RX_HASH_DST_IPV6.0 as u64;
        /// The source port of TCP.
        const SOURCE_TCP_PORT = H::IBV_RX_HASH_SRC_PORT_TCP.0 as u64;
        /// The destination port of TCP.
        const DESTINATION_TCP_PORT = H::IBV_RX_HASH_DST_PORT_TCP.0 as u64;
        /// The source port of UDP.
        const SOURCE_UDP_PORT = H::IBV_RX_HASH_SRC_PORT_UDP.0 as u64;
        /// The destination port of UDP.
        const DESTINATION_UDP_PORT = H::IBV_RX_HASH_DST_PORT_UDP.0 as u64;
        /// The security parameters index of IPsec.
        const IPSEC_SPI = H::IBV_RX_HASH_IPSEC_SPI.0 as u64;
        /// The fields of the packet within a tunnel, not those of the tunnel.
        const INNER = H::IBV_RX_HASH_INNER.0 as u64;
    }
}

bitflags::bitflags! {
    /// `enum ibv_rx_hash_function_flags`: how the queue is computed.
    #[doc(alias = "ibv_rx_hash_function_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ReceiveHashFunctions: u8 {
        /// Toeplitz' function.
        const TOEPLITZ = ffi::ibv_rx_hash_function_flags::IBV_RX_HASH_FUNC_TOEPLITZ.0 as u8;
    }
}

bitflags::bitflags! {
    /// `enum ibv_tm_cap_flags`: where tags can be matched.
    #[doc(alias = "ibv_tm_cap_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct TagMatchingCapabilities: u32 {
        /// On reliable connections.
        const RC = M::IBV_TM_CAP_RC.0;
    }
}

/// `struct ibv_tso_caps`: how much a device cuts into packets by itself; `max_size` 0: it does not.
#[doc(alias = "ibv_tso_caps")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SegmentationOffload {
    /// How many bytes.
    pub max_size: u32,
    /// The types of queue pairs that can have it.
    pub queue_pair_types: QueuePairTypes,
}

/// `struct ibv_rss_caps`: how a device spreads packets over queues; all 0: it does not.
#[doc(alias = "ibv_rss_caps")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveSideScaling {
    /// The types of queue pairs that can have it.
    pub queue_pair_types: QueuePairTypes,
    /// How many [indirection tables](crate::IndirectionTable).
    pub max_indirection_tables: u32,
    /// How many queues in an indirection table.
    pub max_indirection_table_size: u32,
    /// What of a packet can choose its queue.
    pub fields: ReceiveHashFields,
    /// How the queue can be computed.
    pub functions: ReceiveHashFunctions,
}

/// `struct ibv_tm_caps`: how a device matches tagged messages with receives; `max_tags` 0: it does not.
#[doc(alias = "ibv_tm_caps")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TagMatching {
    /// How many bytes a rendezvous request's header has at most.
    pub max_rendezvous_header: u32,
    /// How many tags a list has.
    pub max_tags: u32,
    /// Where tags can be matched.
    pub capabilities: TagMatchingCapabilities,
    /// How many operations on a list can be under way.
    pub max_operations: u32,
    /// How many scatter/gather entries a tagged receive has.
    pub max_sge: u32,
}

impl From<ffi::ibv_tso_caps> for SegmentationOffload {
    fn from(caps: ffi::ibv_tso_caps) -> Self {
        let queue_pair_types = QueuePairTypes::from_bits_retain(caps.supported_qpts);
        Self { max_size: caps.max_tso, queue_pair_types }
    }
}

impl From<ffi::ibv_rss_caps> for ReceiveSideScaling {
    fn from(caps: ffi::ibv_rss_caps) -> Self {
        Self {
            queue_pair_types: QueuePairTypes::from_bits_retain(caps.supported_qpts),
            max_indirection_tables: caps.max_rwq_indirection_tables,
            max_indirection_table_size: caps.max_rwq_indirection_table_size,
            fields: ReceiveHashFields::from_bits_retain(caps.rx_hash_fields_mask),
            functions: ReceiveHashFunctions::from_bits_retain(caps.rx_hash_function),
        }
    }
}

impl From<ffi::ibv_tm_caps> for TagMatching {
    fn from(caps: ffi::ibv_tm_caps) -> Self {
        Self {
            max_rendezvous_header: caps.max_rndv_hdr_size,
            max_tags: caps.max_num_tags,
            capabilities: TagMatchingCapabilities::from_bits_retain(caps.flags),
            max_operations: caps.max_ops,
            max_sge: caps.max_sge,
        }
    }
}

impl fmt::Display for SegmentationOffload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max_size {
            0 => f.write_str("none"),
            size => write!(f, "up to {size} bytes on {}", self.queue_pair_types),
        }
    }
}

impl fmt::Display for ReceiveSideScaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.queue_pair_types.is_empty() {
            return f.write_str("none");
        }
        let Self { max_indirection_tables: tables, max_indirection_table_size: size, .. } = self;
        let Self { queue_pair_types, functions, fields, .. } = self;
        write!(f, "{queue_pair_types}, {tables} tables of up to {size} queues, by {functions} of {fields}")
    }
}

impl fmt::Display for TagMatching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { max_rendezvous_header, max_tags, capabilities, max_operations, max_sge } = self;
        if *max_tags == 0 {
            return f.write_str("none");
        }
        write!(
            f,
            "{capabilities}, up to {max_tags} tags, {max_operations} operations, {max_sge} scatter/gather entries, "
        )?;
        write!(f, "a header of {max_rendezvous_header} bytes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_device_does_not_have_prints_as_none() {
        assert_eq!(SegmentationOffload::default().to_string(), "none");
        assert_eq!(ReceiveSideScaling::default().to_string(), "none");
        assert_eq!(TagMatching::default().to_string(), "none");
        let tso = ffi::ibv_tso_caps { max_tso: 65536, supported_qpts: 1 << 8 };
        assert_eq!(SegmentationOffload::from(tso).to_string(), "up to 65536 bytes on RAW_PACKET");
    }
}
