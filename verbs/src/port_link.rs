//! The link of a port: its width, speed and state, and what the port can do.

use crate::ffi::ibv_port_cap_flags as C;
use crate::open_enum::open_enum;

open_enum! {
    /// How many lanes a link has. (libibverbs has no names for the codes; they are the specification's.)
    ///
    /// # References
    ///
    /// InfiniBand Architecture Specification, volume 1, chapter 14.2.5.6, `LinkWidthActive`.
    #[doc(alias = "active_width")]
    LinkWidth(u8) {
        /// 1 lane.
        X1 = 1, "1x";
        /// 4 lanes.
        X4 = 2, "4x";
        /// 8 lanes.
        X8 = 4, "8x";
        /// 12 lanes.
        X12 = 8, "12x";
        /// 2 lanes.
        X2 = 16, "2x";
    }
}

impl LinkWidth {
    /// The number of lanes; `None` for a value that this crate does not know.
    pub const fn lanes(self) -> Option<u32> {
        match self {
            Self::X1 => Some(1),
            Self::X2 => Some(2),
            Self::X4 => Some(4),
            Self::X8 => Some(8),
            Self::X12 => Some(12),
            _ => None,
        }
    }
}

open_enum! {
    /// How fast each lane of a link is. (libibverbs has no names for the codes; they are the specification's. One of more than 8 bits,
    /// as XDR has, is told from release 49 of rdma-core on.)
    ///
    /// # References
    ///
    /// InfiniBand Architecture Specification, volume 1, chapter 14.2.5.6, `LinkSpeedActive`.
    #[doc(alias = "active_speed")]
    LinkSpeed(u32) {
        /// 2.5 Gbit/s.
        SDR = 1, "2.5 Gbit/s (SDR)";
        /// 5 Gbit/s.
        DDR = 2, "5 Gbit/s (DDR)";
        /// 10 Gbit/s.
        QDR = 4, "10 Gbit/s (QDR)";
        /// 10.3125 Gbit/s, told as 10.
        FDR10 = 8, "10 Gbit/s (FDR10)";
        /// 14.0625 Gbit/s, told as 14.
        FDR = 16, "14 Gbit/s (FDR)";
        /// 25 Gbit/s.
        EDR = 32, "25 Gbit/s (EDR)";
        /// 50 Gbit/s.
        HDR = 64, "50 Gbit/s (HDR)";
        /// 100 Gbit/s.
        NDR = 128, "100 Gbit/s (NDR)";
        /// 200 Gbit/s.
        XDR = 256, "200 Gbit/s (XDR)";
    }
}

impl LinkSpeed {
    /// The speed of a lane in Mbit/s, as libibverbs' programs tell it; `None` for a value that this crate does not know.
    pub const fn lane_mbps(self) -> Option<u32> {
        match self {
            Self::SDR => Some(2_500),
            Self::DDR => Some(5_000),
            Self::QDR | Self::FDR10 => Some(10_000),
            Self::FDR => Some(14_000),
            Self::EDR => Some(25_000),
            Self::HDR => Some(50_000),
            Self::NDR => Some(100_000),
            Self::XDR => Some(200_000),
            _ => None,
        }
    }
}

open_enum! {
    /// The state of a port's link. (libibverbs has no names for the codes; they are the specification's.)
    ///
    /// # References
    ///
    /// InfiniBand Architecture Specification, volume 1, chapter 14.2.5.6, `PortPhysicalState`.
    #[doc(alias = "phys_state")]
    PhysicalState(u8) {
        /// Not told.
        NO_CHANGE = 0, "no state change";
        /// Asleep.
        SLEEP = 1, "sleep";
        /// Looking for a peer.
        POLLING = 2, "polling";
        /// Switched off.
        DISABLED = 3, "disabled";
        /// The lanes are being set up.
        TRAINING = 4, "port configuration training";
        /// Up.
        LINK_UP = 5, "link up";
        /// Up, and recovering from errors.
        ERROR_RECOVERY = 6, "link error recovery";
        /// In a test.
        PHY_TEST = 7, "PHY test";
    }
}

bitflags::bitflags! {
    /// `enum ibv_port_cap_flags`: what a port can do.
    #[doc(alias = "ibv_port_cap_flags")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct PortCapabilities: u32 {
        /// A subnet manager runs on it.
        const SUBNET_MANAGER = C::IBV_PORT_SM.0;
        /// Notices.
        const NOTICE = C::IBV_PORT_NOTICE_SUP.0;
        /// Traps.
        const TRAP = C::IBV_PORT_TRAP_SUP.0;
        /// Optional inter-packet delays.
        const OPTIONAL_INTER_PACKET_DELAY = C::IBV_PORT_OPT_IPD_SUP.0;
        /// Automatic path migration.
        const AUTOMATIC_MIGRATION = C::IBV_PORT_AUTO_MIGR_SUP.0;
        /// Service levels are mapped to virtual lanes.
        const SERVICE_LEVEL_MAPPING = C::IBV_PORT_SL_MAP_SUP.0;
        /// The M_Key is kept when the power is off.
        const MKEY_NVRAM = C::IBV_PORT_MKEY_NVRAM.0;
        /// The P_Keys are kept when the power is off.
        const PKEY_NVRAM = C::IBV_PORT_PKEY_NVRAM.0;
        /// It tells of its lamp.
        const LED_INFO = C::IBV_PORT_LED_INFO_SUP.0;
        /// It knows the GUID of its system.
        const SYSTEM_IMAGE_GUID = C::IBV_PORT_SYS_IMAGE_GUID_SUP.0;
        /// Traps of a switch's external ports for P_Keys.
        const PKEY_SWITCH_EXTERNAL_PORT_TRAP = C::IBV_PORT_PKEY_SW_EXT_PORT_TRAP_SUP.0;
        /// Speeds above QDR.
        const EXTENDED_SPEEDS = C::IBV_PORT_EXTENDED_SPEEDS_SUP.0;
        /// There is a second word of capabilities, `port_cap_flags2`.
        const CAPABILITY_MASK_2 = C::IBV_PORT_CAP_MASK2_SUP.0;
        /// Connection management.
        const CONNECTION_MANAGEMENT = C::IBV_PORT_CM_SUP.0;
        /// SNMP tunneling.
        const SNMP_TUNNEL = C::IBV_PORT_SNMP_TUNNEL_SUP.0;
        /// Reinitialisation.
        const REINIT = C::IBV_PORT_REINIT_SUP.0;
        /// Device management.
        const DEVICE_MANAGEMENT = C::IBV_PORT_DEVICE_MGMT_SUP.0;
        /// Management classes of vendors.
        const VENDOR_CLASS = C::IBV_PORT_VENDOR_CLASS_SUP.0;
        /// Directed-route notices.
        const DIRECTED_ROUTE_NOTICE = C::IBV_PORT_DR_NOTICE_SUP.0;
        /// Notices when its capabilities change.
        const CAPABILITY_MASK_NOTICE = C::IBV_PORT_CAP_MASK_NOTICE_SUP.0;
        /// Boot management.
        const BOOT_MANAGEMENT = C::IBV_PORT_BOOT_MGMT_SUP.0;
        /// It measures the latency of its link.
        const LINK_LATENCY = C::IBV_PORT_LINK_LATENCY_SUP.0;
        /// It can ask clients to register again.
        const CLIENT_REREGISTRATION = C::IBV_PORT_CLIENT_REG_SUP.0;
        /// Its GIDs are IP addresses.
        const IP_BASED_GIDS = C::IBV_PORT_IP_BASED_GIDS.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_that_has_a_name_has_its_lanes_or_speed() {
        let lanes = |codes: [u8; 6]| codes.map(|code| LinkWidth::from_raw(code).lanes());
        assert_eq!(lanes([1, 16, 2, 4, 8, 3]), [Some(1), Some(2), Some(4), Some(8), Some(12), None]);
        let speeds: Vec<_> = (0..9).map(|bit| LinkSpeed::from_raw(1 << bit).lane_mbps().unwrap()).collect();
        assert_eq!(speeds, [2_500, 5_000, 10_000, 10_000, 14_000, 25_000, 50_000, 100_000, 200_000]);
        assert_eq!(LinkSpeed::from_raw(3).lane_mbps(), None);
        assert_eq!(LinkSpeed::from_raw(3).to_string(), "unknown (3)");
    }
}
