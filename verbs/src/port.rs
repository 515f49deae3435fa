//! [`PortAttributes`]: what a port is and what state it is in.

use std::fmt;

use crate::error::Error;
use crate::ffi;
use crate::link_rate::LinkRate;
use crate::open_enum::open_enum;
use crate::port_link::{LinkSpeed, LinkWidth, PhysicalState, PortCapabilities};

open_enum! {
    /// `enum ibv_port_state`: the logical state of a port.
    #[doc(alias = "ibv_port_state")]
    PortState(u32) {
        /// No state change.
        NOP = ffi::ibv_port_state::IBV_PORT_NOP.0, "no state change";
        /// The link is down.
        DOWN = ffi::ibv_port_state::IBV_PORT_DOWN.0, "down";
        /// The link is up, and the subnet manager has not yet configured the port.
        INIT = ffi::ibv_port_state::IBV_PORT_INIT.0, "init";
        /// The port is configured and not yet active.
        ARMED = ffi::ibv_port_state::IBV_PORT_ARMED.0, "armed";
        /// The port carries traffic.
        ACTIVE = ffi::ibv_port_state::IBV_PORT_ACTIVE.0, "active";
        /// The port is active and its link is down for a moment.
        ACTIVE_DEFER = ffi::ibv_port_state::IBV_PORT_ACTIVE_DEFER.0, "active deferred";
    }
}

open_enum! {
    /// `IBV_LINK_LAYER_*`: what carries a port's packets.
    LinkLayer(u8) {
        /// Not told: InfiniBand, on devices that are older than the field.
        UNSPECIFIED = ffi::IBV_LINK_LAYER_UNSPECIFIED as u8, "unspecified";
        /// InfiniBand.
        INFINIBAND = ffi::IBV_LINK_LAYER_INFINIBAND as u8, "InfiniBand";
        /// Ethernet (RoCE or iWARP).
        ETHERNET = ffi::IBV_LINK_LAYER_ETHERNET as u8, "Ethernet";
    }
}

/// `enum ibv_mtu`: how many bytes of payload a packet carries at most.
#[doc(alias = "ibv_mtu")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mtu(u32);

impl Mtu {
    /// 256 bytes.
    pub const MTU_256: Self = Self(ffi::ibv_mtu::IBV_MTU_256.0);
    /// 512 bytes.
    pub const MTU_512: Self = Self(ffi::ibv_mtu::IBV_MTU_512.0);
    /// 1024 bytes.
    pub const MTU_1024: Self = Self(ffi::ibv_mtu::IBV_MTU_1024.0);
    /// 2048 bytes.
    pub const MTU_2048: Self = Self(ffi::ibv_mtu::IBV_MTU_2048.0);
    /// 4096 bytes.
    pub const MTU_4096: Self = Self(ffi::ibv_mtu::IBV_MTU_4096.0);

    /// The MTU of this many bytes.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: `bytes` is none of 256, 512, 1024, 2048 and 4096.
    pub fn from_bytes(bytes: u32) -> Result<Self, Error> {
        [Self::MTU_256, Self::MTU_512, Self::MTU_1024, Self::MTU_2048, Self::MTU_4096]
            .into_iter()
            .find(|mtu| mtu.bytes() == Some(bytes))
            .ok_or_else(|| {
                Error::invalid("ibv_modify_qp", "path_mtu", bytes, "an MTU is 256, 512, 1024, 2048 or 4096 bytes")
            })
    }

    /// How many bytes; `None` for a value that this crate does not know.
    pub const fn bytes(self) -> Option<u32> {
        match self.0 {
            code @ 1..=5 => Some(128 << code),
            _ => None,
        }
    }

    /// The MTU of libibverbs' code, known or not.
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// libibverbs' code.
    pub const fn as_raw(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes() {
            Some(bytes) => bytes.fmt(f),
            None => f.pad(&format!("unknown ({})", self.0)),
        }
    }
}

impl fmt::Debug for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mtu({self})")
    }
}

/// `struct ibv_port_attr`: the attributes of a port, as [`Context::port`](crate::Context::port) found them.
#[doc(alias = "ibv_port_attr")]
#[derive(Clone, Copy)]
pub struct PortAttributes {
    pub(crate) attributes: ffi::ibv_port_attr,
}

impl PortAttributes {
    /// The logical state.
    pub fn state(&self) -> PortState {
        PortState::from_raw(self.attributes.state.0)
    }

    /// The largest MTU that the port can have.
    pub fn max_mtu(&self) -> Mtu {
        Mtu(self.attributes.max_mtu.0)
    }

    /// The MTU that the port has. A path MTU must not be above it.
    pub fn active_mtu(&self) -> Mtu {
        Mtu(self.attributes.active_mtu.0)
    }

    /// How many entries the GID table can hold; most of them are usually empty.
    pub fn gid_table_len(&self) -> u32 {
        u32::try_from(self.attributes.gid_tbl_len).unwrap_or(0)
    }

    /// How many entries the P_Key table can hold.
    pub fn pkey_table_len(&self) -> u16 {
        self.attributes.pkey_tbl_len
    }

    /// The largest message, in bytes.
    pub fn max_message_size(&self) -> u32 {
        self.attributes.max_msg_sz
    }

    /// The local identifier that the subnet manager assigned; 0 on RoCE.
    pub fn lid(&self) -> u16 {
        self.attributes.lid
    }

    /// The LID of the subnet manager; 0 on RoCE.
    pub fn subnet_manager_lid(&self) -> u16 {
        self.attributes.sm_lid
    }

    /// How many of the low bits of a LID belong to the port (LMC).
    pub fn lid_mask_count(&self) -> u8 {
        self.attributes.lmc
    }

    /// What carries the port's packets.
    pub fn link_layer(&self) -> LinkLayer {
        LinkLayer::from_raw(self.attributes.link_layer)
    }

    /// Whether packets of this port need a global route header: always on RoCE, and on ports of InfiniBand that say so.
    #[doc(alias = "IBV_QPF_GRH_REQUIRED")]
    pub fn requires_grh(&self) -> bool {
        // `IBV_QPF_GRH_REQUIRED`, which the header has as a name of a name.
        const GRH_REQUIRED: u8 = 1;
        self.link_layer() == LinkLayer::ETHERNET || self.attributes.flags & GRH_REQUIRED != 0
    }

    /// Why packets of this port need a global route header.
    pub(crate) fn why_grh(&self) -> &'static str {
        match self.link_layer() {
            LinkLayer::ETHERNET => "the link layer is Ethernet (RoCE)",
            _ => "the port asks for global route headers (IBV_QPF_GRH_REQUIRED)",
        }
    }

    /// How many lanes the link has.
    pub fn active_width(&self) -> LinkWidth {
        LinkWidth::from_raw(self.attributes.active_width)
    }

    /// How fast each lane of the link is.
    pub fn active_speed(&self) -> LinkSpeed {
        #[cfg(rdma_core_49)]
        if self.attributes.active_speed_ex != 0 {
            return LinkSpeed::from_raw(self.attributes.active_speed_ex);
        }
        LinkSpeed::from_raw(self.attributes.active_speed.into())
    }

    /// How fast the link is: lanes times speed. A port that is several links has another [speed](crate::Context::port_speed_mbps).
    pub fn link_rate(&self) -> LinkRate {
        LinkRate::new(self.active_width(), self.active_speed())
    }

    /// How fast the link is, in Mbit/s on the wire. `None`: its width or speed is not known to this crate.
    pub fn link_rate_mbps(&self) -> Option<u32> {
        self.link_rate().mbps()
    }

    /// The state of the link itself.
    pub fn physical_state(&self) -> PhysicalState {
        PhysicalState::from_raw(self.attributes.phys_state)
    }

    /// What the port can do.
    pub fn capabilities(&self) -> PortCapabilities {
        PortCapabilities::from_bits_retain(self.attributes.port_cap_flags)
    }

    /// How many packets with a bad P_Key arrived.
    pub fn bad_pkey_counter(&self) -> u32 {
        self.attributes.bad_pkey_cntr
    }

    /// How many packets with a bad Q_Key arrived.
    pub fn bad_qkey_counter(&self) -> u32 {
        self.attributes.qkey_viol_cntr
    }

    /// The code for how many virtual lanes the port can have: 1, 2, 3, 4 and 5 are 1, 2, 4, 8 and 15.
    pub fn max_virtual_lanes_code(&self) -> u8 {
        self.attributes.max_vl_num
    }

    /// The service level of the subnet manager.
    pub fn subnet_manager_service_level(&self) -> u8 {
        self.attributes.sm_sl
    }

    /// The code for how long a packet takes through the subnet at most: 4.096 us times two to its power.
    pub fn subnet_timeout_code(&self) -> u8 {
        self.attributes.subnet_timeout
    }

    /// The attributes in libibverbs' terms.
    pub fn as_raw(&self) -> &ffi::ibv_port_attr {
        &self.attributes
    }
}

impl fmt::Display for PortAttributes {
    /// Such as `active, InfiniBand, LID 0x0011, MTU 4096, 100 Gb/s (4X EDR)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.state(), self.link_layer())?;
        if self.lid() != 0 {
            write!(f, ", LID {:#06x}", self.lid())?;
        }
        write!(f, ", MTU {}, {}", self.active_mtu(), self.link_rate())
    }
}

impl fmt::Debug for PortAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PortAttributes")
            .field("state", &self.state())
            .field("link_layer", &self.link_layer())
            .field("physical_state", &self.physical_state())
            .field("link_rate_mbps", &self.link_rate_mbps())
            .field("lid", &self.lid())
            .field("active_mtu", &self.active_mtu())
            .field("max_mtu", &self.max_mtu())
            .field("max_message_size", &self.max_message_size())
            .field("gid_table_len", &self.gid_table_len())
            .field("pkey_table_len", &self.pkey_table_len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mtu_is_one_of_five() {
        for bytes in [256, 512, 1024, 2048, 4096] {
            assert_eq!(Mtu::from_bytes(bytes).unwrap().bytes(), Some(bytes));
        }
        assert!(Mtu::from_bytes(1500).unwrap_err().to_string().contains("256, 512, 1024, 2048 or 4096"));
        assert_eq!(Mtu::from_raw(9).to_string(), "unknown (9)");
        assert!(Mtu::MTU_1024 < Mtu::MTU_4096);
    }
}
