//! [`DeviceCapabilities`] and [`AtomicCapability`]: what a device can do at all.

use crate::ffi;
use crate::ffi::ibv_device_cap_flags as C;
use crate::open_enum::open_enum;

bitflags::bitflags! {
    /// `enum ibv_device_cap_flags`: what a device can do. Those above 32 bits are told by
    /// [`extended_device_attributes`](crate::Context::extended_device_attributes) only.
    #[doc(alias = "ibv_device_cap_flags")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct DeviceCapabilities: u64 {
        /// The size of a queue pair's queues can be changed.
        const RESIZE_QUEUE_PAIR = C::IBV_DEVICE_RESIZE_MAX_WR.0 as u64;
        /// Packets with a bad P_Key are counted.
        const BAD_PKEY_COUNTER = C::IBV_DEVICE_BAD_PKEY_CNTR.0 as u64;
        /// Packets with a bad Q_Key are counted.
        const BAD_QKEY_COUNTER = C::IBV_DEVICE_BAD_QKEY_CNTR.0 as u64;
        /// Raw packets can be multicast.
        const RAW_MULTICAST = C::IBV_DEVICE_RAW_MULTI.0 as u64;
        /// Queue pairs can change to an alternate path by themselves.
        const AUTOMATIC_PATH_MIGRATION = C::IBV_DEVICE_AUTO_PATH_MIG.0 as u64;
        /// A queue pair can be moved to another port.
        const CHANGE_PHYSICAL_PORT = C::IBV_DEVICE_CHANGE_PHY_PORT.0 as u64;
        /// A UD queue pair takes only address handles of its own port.
        const UD_ADDRESS_PORT_ENFORCED = C::IBV_DEVICE_UD_AV_PORT_ENFORCE.0 as u64;
        /// `ibv_modify_qp` takes the current state.
        const CURRENT_STATE_MODIFIER = C::IBV_DEVICE_CURR_QP_STATE_MOD.0 as u64;
        /// A port can be shut down.
        const SHUTDOWN_PORT = C::IBV_DEVICE_SHUTDOWN_PORT.0 as u64;
        /// Ports have an init type.
        const INIT_TYPE = C::IBV_DEVICE_INIT_TYPE.0 as u64;
        /// An event tells when a port becomes active.
        const PORT_ACTIVE_EVENT = C::IBV_DEVICE_PORT_ACTIVE_EVENT.0 as u64;
        /// The device knows the GUID of its system.
        const SYSTEM_IMAGE_GUID = C::IBV_DEVICE_SYS_IMAGE_GUID.0 as u64;
        /// RC queue pairs tell their peers when they have no receive.
        const RNR_NAK_GENERATION = C::IBV_DEVICE_RC_RNR_NAK_GEN.0 as u64;
        /// Shared receive queues can be resized.
        const RESIZE_SHARED_RECEIVE_QUEUE = C::IBV_DEVICE_SRQ_RESIZE.0 as u64;
        /// A completion queue can tell after n completions.
        const NOTIFY_AFTER_N = C::IBV_DEVICE_N_NOTIFY_CQ.0 as u64;
        /// Memory windows.
        const MEMORY_WINDOW = C::IBV_DEVICE_MEM_WINDOW.0 as u64;
        /// IP checksums of UD messages.
        const UD_IP_CHECKSUM = C::IBV_DEVICE_UD_IP_CSUM.0 as u64;
        /// Extended reliable connections.
        const XRC = C::IBV_DEVICE_XRC.0 as u64;
        /// Memory management extensions: local invalidate, send with invalidate.
        const MEMORY_MANAGEMENT_EXTENSIONS = C::IBV_DEVICE_MEM_MGT_EXTENSIONS.0 as u64;
        /// Memory windows of type 2A.
        const MEMORY_WINDOW_TYPE_2A = C::IBV_DEVICE_MEM_WINDOW_TYPE_2A.0 as u64;
        /// Memory windows of type 2B.
        const MEMORY_WINDOW_TYPE_2B = C::IBV_DEVICE_MEM_WINDOW_TYPE_2B.0 as u64;
        /// IP checksums of RC messages.
        const RC_IP_CHECKSUM = C::IBV_DEVICE_RC_IP_CSUM.0 as u64;
        /// IP checksums of raw packets.
        const RAW_IP_CHECKSUM = C::IBV_DEVICE_RAW_IP_CSUM.0 as u64;
        /// Flow steering.
        const MANAGED_FLOW_STEERING = C::IBV_DEVICE_MANAGED_FLOW_STEERING.0 as u64;
        /// Raw packets are received with their frame check sequence.
        const RAW_SCATTER_FCS = ffi::IBV_DEVICE_RAW_SCATTER_FCS;
        /// Writes over PCI are padded to whole cache lines.
        const PCI_WRITE_END_PADDING = ffi::IBV_DEVICE_PCI_WRITE_END_PADDING;
        /// Flush to where every processor sees it. (The kernel's bit; `verbs.h` has no name for it.)
        const FLUSH_GLOBAL = 1 << 38;
        /// Flush to where it survives a loss of power. (The kernel's bit; `verbs.h` has no name for it.)
        const FLUSH_PERSISTENT = 1 << 39;
        /// Atomic write. (The kernel's bit; `verbs.h` has no name for it.)
        const ATOMIC_WRITE = 1 << 40;
    }
}

open_enum! {
    /// `enum ibv_atomic_cap`: towards whom atomic operations are atomic.
    #[doc(alias = "ibv_atomic_cap")]
    AtomicCapability(u32) {
        /// There are none.
        NONE = ffi::ibv_atomic_cap::IBV_ATOMIC_NONE.0, "none";
        /// Towards other atomic operations of the same device only.
        DEVICE = ffi::ibv_atomic_cap::IBV_ATOMIC_HCA.0, "within the device";
        /// Towards the processors and other devices too.
        GLOBAL = ffi::ibv_atomic_cap::IBV_ATOMIC_GLOB.0, "global";
    }
}
