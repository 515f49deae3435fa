//! [`DeviceAttributes`]: what a device can do and how much of it.

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::time::Duration;

use crate::device_capabilities::{AtomicCapability, DeviceCapabilities};
use crate::ffi;
use crate::gid::Guid;

/// `struct ibv_device_attr`: the limits of a device, as [`Context::device_attributes`](crate::Context::device_attributes)
/// found them. They are upper bounds: the device may refuse less when it is busy.
#[doc(alias = "ibv_device_attr")]
#[derive(Clone, Copy)]
pub struct DeviceAttributes {
    pub(crate) attributes: ffi::ibv_device_attr,
}

/// A limit of C, which has no use for negative values.
fn limit(value: c_int) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

macro_rules! limits {
    ($($(#[$meta:meta])* $name:ident = $field:ident;)*) => {
        $($(#[$meta])*
        pub fn $name(&self) -> u32 {
            limit(self.attributes.$field)
        })*
    };
}

impl DeviceAttributes {
    limits! {
        /// How many queue pairs.
        max_queue_pairs = max_qp;
        /// How many requests in either queue of a queue pair.
        max_queue_pair_work_requests = max_qp_wr;
        /// How many scatter/gather entries in a request.
        max_sge = max_sge;
        /// How many scatter/gather entries in an RDMA READ (iWARP).
        max_sge_rd = max_sge_rd;
        /// How many completion queues.
        max_completion_queues = max_cq;
        /// How many completions in a completion queue.
        max_cqe = max_cqe;
        /// How many memory regions.
        max_memory_regions = max_mr;
        /// How many protection domains.
        max_protection_domains = max_pd;
        /// How many RDMA READs and atomics of the peer a queue pair can have under way.
        max_qp_rd_atom = max_qp_rd_atom;
        /// How many RDMA READs and atomics of its own a queue pair can have under way.
        max_qp_init_rd_atom = max_qp_init_rd_atom;
        /// How many RDMA READs and atomics of peers the device can have under way in all.
        max_res_rd_atom = max_res_rd_atom;
        /// How many memory windows.
        max_memory_windows = max_mw;
        /// How many address handles.
        max_address_handles = max_ah;
        /// How many shared receive queues.
        max_shared_receive_queues = max_srq;
        /// How many requests in a shared receive queue.
        max_srq_work_requests = max_srq_wr;
        /// How many scatter/gather entries in a request of a shared receive queue.
        max_srq_sge = max_srq_sge;
        /// How many multicast groups.
        max_multicast_groups = max_mcast_grp;
        /// How many queue pairs in a multicast group.
        max_multicast_group_queue_pairs = max_mcast_qp_attach;
        /// How many queue pairs in multicast groups, in all.
        max_multicast_queue_pairs = max_total_mcast_qp_attach;
    }

    /// The version of the firmware; empty where there is none.
    pub fn firmware_version(&self) -> String {
        let bytes = self.attributes.fw_ver.map(|byte: c_char| byte as u8);
        CStr::from_bytes_until_nul(&bytes).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
    }

    /// The GUID of the node.
    pub fn node_guid(&self) -> Guid {
        Guid::from_be(self.attributes.node_guid)
    }

    /// The GUID of the system that the device is part of.
    pub fn system_image_guid(&self) -> Guid {
        Guid::from_be(self.attributes.sys_image_guid)
    }

    /// The largest memory region, in bytes.
    pub fn max_memory_region_size(&self) -> u64 {
        self.attributes.max_mr_size
    }

    /// The page sizes that regions can have, a bit each.
    pub fn page_sizes(&self) -> u64 {
        self.attributes.page_size_cap
    }

    /// What the device can do, as far as 32 bits tell.
    pub fn capabilities(&self) -> DeviceCapabilities {
        DeviceCapabilities::from_bits_retain(self.attributes.device_cap_flags.into())
    }

    /// Towards whom atomic operations are atomic.
    pub fn atomic_capability(&self) -> AtomicCapability {
        AtomicCapability::from_raw(self.attributes.atomic_cap.0)
    }

    /// How long the device takes to acknowledge a message at most. `None`: the wire's code for it is beyond the scale.
    pub fn local_ack_delay(&self) -> Option<Duration> {
        // The scale of the acknowledgement timeout, but 0 is 4.096 us.
        let code = u32::from(self.attributes.local_ca_ack_delay);
        (code < 32).then(|| Duration::from_nanos(4096 << code))
    }

    /// The version of the hardware.
    pub fn hardware_version(&self) -> u32 {
        self.attributes.hw_ver
    }

    /// The vendor's IEEE identifier, 24 bits.
    pub fn vendor_id(&self) -> u32 {
        self.attributes.vendor_id
    }

    /// Whether it is rxe, the kernel's RoCE in software.
    pub(crate) fn is_rxe(&self) -> bool {
        const RXE_VENDOR_ID: u32 = 0xff_ffff;
        self.vendor_id() == RXE_VENDOR_ID
    }

    /// The vendor's number for the part.
    pub fn vendor_part_id(&self) -> u32 {
        self.attributes.vendor_part_id
    }

    /// How many ports the device has; ports count from 1.
    pub fn port_count(&self) -> u8 {
        self.attributes.phys_port_cnt
    }

    /// How many P_Keys.
    pub fn max_pkeys(&self) -> u16 {
        self.attributes.max_pkeys
    }

    /// The attributes in libibverbs' terms.
    pub fn as_raw(&self) -> &ffi::ibv_device_attr {
        &self.attributes
    }
}

impl fmt::Display for DeviceAttributes {
    /// Such as `node 5054:00ff:fe12:3456, vendor 0x0002c9 part 4123, firmware 16.35.1012, 1 port`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}, vendor {:#08x} part {}", self.node_guid(), self.vendor_id(), self.vendor_part_id())?;
        let firmware = self.firmware_version();
        if !firmware.is_empty() {
            write!(f, ", firmware {firmware}")?;
        }
        match self.port_count() {
            1 => f.write_str(", 1 port"),
            count => write!(f, ", {count} ports"),
        }
    }
}

impl fmt::Debug for DeviceAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceAttributes")
            .field("firmware_version", &self.firmware_version())
            .field("node_guid", &self.node_guid())
            .field("port_count", &self.port_count())
            .field("max_queue_pairs", &self.max_queue_pairs())
            .field("max_queue_pair_work_requests", &self.max_queue_pair_work_requests())
            .field("max_sge", &self.max_sge())
            .field("max_cqe", &self.max_cqe())
            .field("capabilities", &self.capabilities())
            .field("atomic_capability", &self.atomic_capability())
            .finish_non_exhaustive()
    }
}
