//! [`ExtendedDeviceAttributes`]: what was added to a device's attributes in the course of time.
//!
//! # Safety
//!
//! Calls are given an open context and structures with room for what they write.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::MaybeUninit;
use std::ptr;

use crate::context::Context;
use crate::device_attributes::DeviceAttributes;
use crate::device_capabilities::DeviceCapabilities;
use crate::error::Result;
use crate::ffi;
use crate::ffi::{ibv_odp_general_caps as G, ibv_odp_transport_cap_bits as T};
use crate::raw_packet_capabilities::{
    QueuePairTypes, RawPacketCapabilities, ReceiveSideScaling, SegmentationOffload, TagMatching,
};
use crate::returns::{Errno, zero_or_errno};

/// `struct ibv_device_attr_ex`: the attributes of a device with all that was added to them, as
/// [`Context::extended_device_attributes`] found them. What the provider does not know is 0.
#[doc(alias = "ibv_device_attr_ex")]
#[derive(Clone, Copy)]
pub struct ExtendedDeviceAttributes {
    attributes: ffi::ibv_device_attr_ex,
}

bitflags::bitflags! {
    /// `enum ibv_odp_transport_cap_bits`: which operations of a transport may use memory that is paged in on demand.
    #[doc(alias = "ibv_odp_transport_cap_bits")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct OnDemandOperations: u32 {
        /// Sends.
        const SEND = T::IBV_ODP_SUPPORT_SEND.0;
        /// Receives.
        const RECEIVE = T::IBV_ODP_SUPPORT_RECV.0;
        /// RDMA WRITEs.
        const RDMA_WRITE = T::IBV_ODP_SUPPORT_WRITE.0;
        /// RDMA READs.
        const RDMA_READ = T::IBV_ODP_SUPPORT_READ.0;
        /// Atomics.
        const ATOMIC = T::IBV_ODP_SUPPORT_ATOMIC.0;
        /// Receives of a shared receive queue.
        const SHARED_RECEIVE = T::IBV_ODP_SUPPORT_SRQ_RECV.0;
        /// Flushes. (`IBV_ODP_SUPPORT_FLUSH`, from release 58 of rdma-core on.)
        const FLUSH = 1 << 6;
        /// Atomic writes. (`IBV_ODP_SUPPORT_ATOMIC_WRITE`, from release 58 of rdma-core on.)
        const ATOMIC_WRITE = 1 << 7;
    }
}

/// `struct ibv_odp_caps`: what a device can do with memory that is paged in on demand.
#[doc(alias = "ibv_odp_caps")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OnDemandPaging {
    /// Whether there is such memory at all.
    pub supported: bool,
    /// Whether a region can be the whole address space.
    pub implicit: bool,
    /// The operations of RC.
    pub rc: OnDemandOperations,
    /// The operations of UC.
    pub uc: OnDemandOperations,
    /// The operations of UD.
    pub ud: OnDemandOperations,
    /// The operations of XRC.
    pub xrc: OnDemandOperations,
}

/// `struct ibv_cq_moderation_caps`: how seldom a completion queue can be made to tell of completions.
#[doc(alias = "ibv_cq_moderation_caps")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModerationLimits {
    /// How many completions it may wait for; 0: the device cannot.
    pub max_count: u16,
    /// How many microseconds it may wait.
    pub max_period_us: u16,
}

/// `struct ibv_packet_pacing_caps`: the limits of a queue pair's rate, in kbit/s; both 0: the device cannot limit it.
#[doc(alias = "ibv_packet_pacing_caps")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacketPacing {
    /// The lowest rate.
    pub min_rate_kbps: u32,
    /// The highest rate.
    pub max_rate_kbps: u32,
    /// The types of queue pairs whose rate can be limited.
    pub queue_pair_types: QueuePairTypes,
}

/// `struct ibv_pci_atomic_caps`: the atomic operations that the device does over PCI, a bit each for 4, 8 and 16 bytes.
#[doc(alias = "ibv_pci_atomic_caps")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PciAtomics {
    /// Fetch and add.
    pub fetch_add: u16,
    /// Swap.
    pub swap: u16,
    /// Compare and swap.
    pub compare_swap: u16,
}

impl Context {
    /// `ibv_query_device_ex`: the device's limits and what was added to them.
    ///
    /// # Errors
    ///
    /// The error number of the provider.
    ///
    /// # References
    ///
    /// [ibv_query_device_ex(3)](https://man7.org/linux/man-pages/man3/ibv_query_device_ex.3.html)
    #[doc(alias = "ibv_query_device_ex")]
    pub fn extended_device_attributes(&self) -> Result<ExtendedDeviceAttributes> {
        let mut attributes = MaybeUninit::zeroed();
        // SAFETY: the context is open, the input may be null, and `attributes` has room for the structure.
        let code = unsafe { ffi::ibv_query_device_ex(self.as_raw(), ptr::null(), attributes.as_mut_ptr()) };
        zero_or_errno(code).map_err(|errno| errno.of("ibv_query_device_ex", self.device().name()))?;
        // SAFETY: all zeroes are a valid structure, and libibverbs wrote valid fields over them.
        Ok(ExtendedDeviceAttributes { attributes: unsafe { attributes.assume_init() } })
    }

    /// `ibv_query_rt_values_ex`: the device's clock, in the ticks that completion timestamps have.
    /// [`core_clock_khz`](ExtendedDeviceAttributes::core_clock_khz) tells how many of them make a millisecond.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported): the provider does not show it (rxe).
    ///
    /// # References
    ///
    /// [ibv_query_rt_values_ex(3)](https://man7.org/linux/man-pages/man3/ibv_query_rt_values_ex.3.html)
    #[doc(alias = "ibv_query_rt_values_ex")]
    pub fn raw_clock(&self) -> Result<u64> {
        const VERB: &str = "ibv_query_rt_values_ex";
        let raw_clock = ffi::ibv_values_mask::IBV_VALUES_MASK_RAW_CLOCK.0;
        let mut values = MaybeUninit::<ffi::ibv_values_ex>::zeroed();
        // SAFETY: all zeroes are a valid structure, the context is open, and `values` has room for the structure.
        let (code, values) = unsafe {
            (*values.as_mut_ptr()).comp_mask = raw_clock;
            (ffi::ibv_query_rt_values_ex(self.as_raw(), values.as_mut_ptr()), values.assume_init())
        };
        zero_or_errno(code).map_err(|errno| errno.of(VERB, self.device().name()))?;
        if values.comp_mask & raw_clock == 0 {
            return Err(Errno(libc::EOPNOTSUPP).of(VERB, format_args!("{}, the raw clock", self.device().name())));
        }
        // The fields of a time, but providers put ticks into them.
        let (seconds, ticks) = (values.raw_clock.tv_sec as u64, values.raw_clock.tv_nsec as u64);
        Ok(seconds.wrapping_mul(1_000_000_000).wrapping_add(ticks))
    }
}

impl ExtendedDeviceAttributes {
    /// The attributes that devices have always had.
    pub fn device(&self) -> DeviceAttributes {
        DeviceAttributes { attributes: self.attributes.orig_attr }
    }

    /// What the device can do.
    pub fn capabilities(&self) -> DeviceCapabilities {
        // An old provider tells the first 32 bits only, and not here.
        self.device().capabilities() | DeviceCapabilities::from_bits_retain(self.attributes.device_cap_flags_ex)
    }

    /// How many ports the device has, even where there are more than 255.
    pub fn port_count(&self) -> u32 {
        self.attributes.phys_port_cnt_ex.max(self.device().port_count().into())
    }

    /// What the device can do with memory that is paged in on demand.
    pub fn on_demand_paging(&self) -> OnDemandPaging {
        let caps = &self.attributes.odp_caps;
        let has = |bit: G| caps.general_caps & u64::from(bit.0) != 0;
        let operations = OnDemandOperations::from_bits_retain;
        OnDemandPaging {
            supported: has(G::IBV_ODP_SUPPORT),
            implicit: has(G::IBV_ODP_SUPPORT_IMPLICIT),
            rc: operations(caps.per_transport_caps.rc_odp_caps),
            uc: operations(caps.per_transport_caps.uc_odp_caps),
            ud: operations(caps.per_transport_caps.ud_odp_caps),
            xrc: operations(self.attributes.xrc_odp_caps),
        }
    }

    /// Which bits of a completion timestamp count; 0: there are no timestamps.
    pub fn completion_timestamp_mask(&self) -> u64 {
        self.attributes.completion_timestamp_mask
    }

    /// The frequency of the device's clock, in kHz; 0: it is not told.
    pub fn core_clock_khz(&self) -> u64 {
        self.attributes.hca_core_clock
    }

    /// How seldom a completion queue can be made to [tell](crate::CompletionQueue::moderate) of completions.
    pub fn completion_moderation(&self) -> ModerationLimits {
        let caps = self.attributes.cq_mod_caps;
        ModerationLimits { max_count: caps.max_cq_count, max_period_us: caps.max_cq_period }
    }

    /// The limits of a queue pair's rate.
    pub fn packet_pacing(&self) -> PacketPacing {
        let caps = self.attributes.packet_pacing_caps;
        PacketPacing {
            min_rate_kbps: caps.qp_rate_limit_min,
            max_rate_kbps: caps.qp_rate_limit_max,
            queue_pair_types: QueuePairTypes::from_bits_retain(caps.supported_qpts),
        }
    }

    /// The atomic operations that the device does over PCI.
    pub fn pci_atomics(&self) -> PciAtomics {
        let caps = self.attributes.pci_atomic_caps;
        PciAtomics { fetch_add: caps.fetch_add, swap: caps.swap, compare_swap: caps.compare_swap }
    }

    /// How much the device cuts into packets by itself.
    pub fn segmentation_offload(&self) -> SegmentationOffload {
        self.attributes.tso_caps.into()
    }

    /// How the device spreads packets over queues.
    pub fn receive_side_scaling(&self) -> ReceiveSideScaling {
        self.attributes.rss_caps.into()
    }

    /// How many [work queues](crate::WorkQueue) for receives.
    #[doc(alias = "max_wq_type_rq")]
    pub fn max_receive_work_queues(&self) -> u32 {
        self.attributes.max_wq_type_rq
    }

    /// What the device can do with raw packets.
    pub fn raw_packet_capabilities(&self) -> RawPacketCapabilities {
        RawPacketCapabilities::from_bits_retain(self.attributes.raw_packet_caps)
    }

    /// How the device matches tagged messages with receives.
    pub fn tag_matching(&self) -> TagMatching {
        self.attributes.tm_caps.into()
    }

    /// How many bytes of memory the device has for programs.
    pub fn max_device_memory(&self) -> u64 {
        self.attributes.max_dm_size
    }

    /// The attributes in libibverbs' terms.
    pub fn as_raw(&self) -> &ffi::ibv_device_attr_ex {
        &self.attributes
    }
}

impl fmt::Display for ExtendedDeviceAttributes {
    /// As the attributes that devices have always had.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.device().fmt(f)
    }
}

impl fmt::Display for OnDemandPaging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { supported, implicit, rc, uc, ud, xrc } = self;
        if !supported {
            return f.write_str("none");
        }
        let whole = if *implicit { "implicit, " } else { "" };
        write!(f, "{whole}RC: {rc}, UC: {uc}, UD: {ud}, XRC: {xrc}")
    }
}

impl fmt::Display for ModerationLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.max_count {
            0 => f.write_str("none"),
            count => write!(f, "up to {count} completions, {} us", self.max_period_us),
        }
    }
}

impl fmt::Display for PacketPacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { min_rate_kbps, max_rate_kbps, queue_pair_types } = self;
        match max_rate_kbps {
            0 => f.write_str("none"),
            _ => write!(f, "{min_rate_kbps} to {max_rate_kbps} kbit/s on {queue_pair_types}"),
        }
    }
}

impl fmt::Display for PciAtomics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fetch_add, swap, compare_swap } = self;
        write!(f, "fetch and add {fetch_add:#x}, swap {swap:#x}, compare and swap {compare_swap:#x}")
    }
}

impl fmt::Debug for ExtendedDeviceAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtendedDeviceAttributes")
            .field("device", &self.device())
            .field("capabilities", &self.capabilities())
            .field("on_demand_paging", &self.on_demand_paging())
            .field("completion_timestamp_mask", &self.completion_timestamp_mask())
            .field("core_clock_khz", &self.core_clock_khz())
            .field("completion_moderation", &self.completion_moderation())
            .field("packet_pacing", &self.packet_pacing())
            .field("pci_atomics", &self.pci_atomics())
            .field("segmentation_offload", &self.segmentation_offload())
            .field("receive_side_scaling", &self.receive_side_scaling())
            .field("max_receive_work_queues", &self.max_receive_work_queues())
            .field("raw_packet_capabilities", &self.raw_packet_capabilities())
            .field("tag_matching", &self.tag_matching())
            .field("max_device_memory", &self.max_device_memory())
            .finish_non_exhaustive()
    }
}
