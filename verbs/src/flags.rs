//! Flags as text: the names of those that are set, and the bits that have none.

use std::fmt;

use crate::access_flags::AccessFlags;
use crate::device_capabilities::DeviceCapabilities;
use crate::esp_action::EspFlags;
use crate::extended_device_attributes::OnDemandOperations;
use crate::port_link::PortCapabilities;
use crate::queue_pair::{DataOrder, QueuePairCreationFlags};
use crate::raw_packet_capabilities::{
    QueuePairTypes, RawPacketCapabilities, ReceiveHashFields, ReceiveHashFunctions, TagMatchingCapabilities,
};
use crate::work_queue::WorkQueueFlags;

macro_rules! display {
    ($($flags:ty),*) => {
        $(impl fmt::Display for $flags {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if self.is_empty() { f.write_str("none") } else { bitflags::parser::to_writer(self, f) }
            }
        })*
    };
}

display!(
    AccessFlags,
    DataOrder,
    DeviceCapabilities,
    EspFlags,
    OnDemandOperations,
    PortCapabilities,
    QueuePairCreationFlags,
    QueuePairTypes,
    RawPacketCapabilities,
    ReceiveHashFields,
    ReceiveHashFunctions,
    TagMatchingCapabilities,
    WorkQueueFlags
);

#[cfg(rdma_core_45)]
display!(crate::queue_pair::PlacementType);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_print_their_names_and_the_bits_that_have_none() {
        assert_eq!(AccessFlags::empty().to_string(), "none");
        let both = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ;
        assert_eq!(both.to_string(), "LOCAL_WRITE | REMOTE_READ");
        assert_eq!(QueuePairTypes::from_bits_retain(1 << 2 | 1 << 31).to_string(), "RC | 0x80000000");
    }
}
