//! [`DeviceList`] and [`Device`]: the RDMA devices of this machine.
//!
//! # Safety
//!
//! * `List::list` came from `ibv_get_device_list` and is freed only when the `List` is dropped; each `Device` holds the
//!   `List`, so its `ibv_device` is alive.
//! * Nothing writes to an `ibv_device` after the list was made, so its strings may be read from any thread.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

use crate::context::Context;
use crate::dispatch;
use crate::error::{Error, Result};
use crate::ffi;
use crate::gid::Guid;
use crate::open_enum::open_enum;
use crate::opened::Opened;
use crate::returns::{Errno, null_and_errno};

open_enum! {
    /// `enum ibv_node_type`: what kind of node a device is.
    #[doc(alias = "ibv_node_type")]
    NodeType(i32) {
        /// An InfiniBand channel adapter, or a RoCE device.
        CHANNEL_ADAPTER = ffi::ibv_node_type::IBV_NODE_CA.0, "channel adapter";
        /// An InfiniBand switch.
        SWITCH = ffi::ibv_node_type::IBV_NODE_SWITCH.0, "switch";
        /// An InfiniBand router.
        ROUTER = ffi::ibv_node_type::IBV_NODE_ROUTER.0, "router";
        /// An iWARP device.
        RNIC = ffi::ibv_node_type::IBV_NODE_RNIC.0, "RNIC";
        /// A Cisco usNIC device.
        USNIC = ffi::ibv_node_type::IBV_NODE_USNIC.0, "usNIC";
        /// A Cisco usNIC device over UDP.
        USNIC_UDP = ffi::ibv_node_type::IBV_NODE_USNIC_UDP.0, "usNIC UDP";
        /// A device of another kind.
        UNSPECIFIED = ffi::ibv_node_type::IBV_NODE_UNSPECIFIED.0, "unspecified";
    }
}

open_enum! {
    /// `enum ibv_transport_type`: the protocol that a device speaks.
    #[doc(alias = "ibv_transport_type")]
    TransportType(i32) {
        /// InfiniBand, or InfiniBand's transport over Ethernet (RoCE).
        INFINIBAND = ffi::ibv_transport_type::IBV_TRANSPORT_IB.0, "InfiniBand";
        /// iWARP.
        IWARP = ffi::ibv_transport_type::IBV_TRANSPORT_IWARP.0, "iWARP";
        /// Cisco usNIC.
        USNIC = ffi::ibv_transport_type::IBV_TRANSPORT_USNIC.0, "usNIC";
        /// Cisco usNIC over UDP.
        USNIC_UDP = ffi::ibv_transport_type::IBV_TRANSPORT_USNIC_UDP.0, "usNIC UDP";
        /// Another protocol.
        UNSPECIFIED = ffi::ibv_transport_type::IBV_TRANSPORT_UNSPECIFIED.0, "unspecified";
    }
}

/// `ibv_get_device_list`: the RDMA devices that this machine has and for which a provider library is installed.
///
/// The list is empty where the kernel supports RDMA and has no device.
///
/// # Errors
///
/// * [`Error::NoKernelSupport`]: the kernel has no RDMA subsystem, or its device nodes are not visible here.
/// * `ENOMEM`, `EMFILE`: there is no memory, or the process has too many open files.
///
/// # References
///
/// [ibv_get_device_list(3)](https://man7.org/linux/man-pages/man3/ibv_get_device_list.3.html)
#[doc(alias = "ibv_get_device_list")]
pub fn devices() -> Result<DeviceList> {
    let mut count: c_int = 0;
    // SAFETY: `count` outlives the call.
    let list = null_and_errno(unsafe { ffi::ibv_get_device_list(&mut count) });
    let list = list.map_err(|errno| match errno.0 {
        // That says nothing of the kernel.
        libc::ENOMEM => errno.of("ibv_get_device_list", ""),
        libc::EMFILE | libc::ENFILE => {
            errno.with_remedy("ibv_get_device_list", "", "too many open files: see `ulimit -n`")
        }
        errno => Error::NoKernelSupport { errno },
    })?;
    Ok(DeviceList { list: Arc::new(List { list, count: usize::try_from(count).unwrap_or(0) }) })
}

struct List {
    list: NonNull<*mut ffi::ibv_device>,
    count: usize,
}

// SAFETY: the list and its devices are not written to, as the file's second invariant says.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: `list` came from ibv_get_device_list and no `Device` is left, since each holds us.
        unsafe { ffi::ibv_free_device_list(self.list.as_ptr()) };
    }
}

/// The devices of this machine, as [`devices`] found them.
#[derive(Clone)]
pub struct DeviceList {
    list: Arc<List>,
}

impl DeviceList {
    /// How many devices there are.
    pub fn len(&self) -> usize {
        self.list.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The device at `index`, from 0.
    pub fn get(&self, index: usize) -> Option<Device> {
        if index >= self.len() {
            return None;
        }
        // SAFETY: libibverbs made an array of `count` pointers, and `index` is below `count`.
        let device = unsafe { *self.list.list.as_ptr().add(index) };
        NonNull::new(device).map(|device| Device { device, _list: self.list.clone() })
    }

    /// The devices, in libibverbs' order.
    pub fn iter(&self) -> impl Iterator<Item = Device> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    /// The device of this name, such as `mlx5_0` or `rxe0`; without a name the first one.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`], which says what there is instead and how to get a device.
    pub fn find(&self, name: Option<&str>) -> Result<Device> {
        self.iter().find(|device| name.is_none_or(|name| device.name() == name)).ok_or_else(|| self.lacks(name))
    }

    #[cold]
    fn lacks(&self, name: Option<&str>) -> Error {
        let kernel_devices = kernel_devices();
        let there_is = name.filter(|name| kernel_devices.iter().any(|device| device == name));
        Error::NoDevice {
            wanted: name.map(str::to_owned),
            available: self.iter().map(|device| device.name().to_owned()).collect(),
            missing_nodes: missing_nodes(there_is).into(),
            kernel_devices: kernel_devices.into(),
        }
    }
}

impl fmt::Debug for DeviceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The devices that the kernel has, whether or not a provider library took them.
fn kernel_devices() -> Vec<String> {
    let entries = std::fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The nodes that are not there of the kernel's devices, or of the one of this name.
fn missing_nodes(name: Option<&str>) -> Vec<PathBuf> {
    let entries = std::fs::read_dir("/sys/class/infiniband_verbs").into_iter().flatten().flatten();
    // Beside the devices lies the version of the interface, which has no name.
    let is_wanted = |device: &Path| {
        std::fs::read_to_string(device.join("ibdev")).is_ok_and(|found| name.is_none_or(|name| found.trim() == name))
    };
    let devices = entries.filter(|entry| is_wanted(&entry.path()));
    let mut nodes: Vec<PathBuf> = devices.map(|entry| Path::new(NODES).join(entry.file_name())).collect();
    nodes.retain(|node| !node.exists());
    nodes.sort();
    nodes
}

/// Where the nodes are.
const NODES: &str = "/dev/infiniband";

/// `struct ibv_device`: a device that can be opened. It stays valid without its list.
#[derive(Clone)]
pub struct Device {
    device: NonNull<ffi::ibv_device>,
    // Keeps the device alive.
    _list: Arc<List>,
}

// SAFETY: an `ibv_device` is not written to, as the file's second invariant says, and `list` keeps it alive.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    fn raw(&self) -> &ffi::ibv_device {
        // SAFETY: `list` keeps the device alive, and nothing writes to it.
        unsafe { self.device.as_ref() }
    }

    /// `ibv_get_device_name`: the kernel's name for the device, such as `mlx5_0` or `rxe0`.
    ///
    /// # References
    ///
    /// [ibv_get_device_name(3)](https://man7.org/linux/man-pages/man3/ibv_get_device_name.3.html)
    #[doc(alias = "ibv_get_device_name")]
    pub fn name(&self) -> &str {
        text(&self.raw().name)
    }

    /// The character device that [`open`](Self::open) uses, such as `/dev/infiniband/uverbs0`.
    pub fn node(&self) -> PathBuf {
        Path::new(NODES).join(text(&self.raw().dev_name))
    }

    /// What kind of node the device is.
    pub fn node_type(&self) -> NodeType {
        NodeType::from_raw(self.raw().node_type.0)
    }

    /// The protocol that the device speaks.
    pub fn transport_type(&self) -> TransportType {
        TransportType::from_raw(self.raw().transport_type.0)
    }

    /// `ibv_get_device_guid`: the device's node GUID.
    ///
    /// # References
    ///
    /// [ibv_get_device_guid(3)](https://man7.org/linux/man-pages/man3/ibv_get_device_guid.3.html)
    #[doc(alias = "ibv_get_device_guid")]
    pub fn guid(&self) -> Guid {
        // SAFETY: the device is alive.
        Guid::from_be(unsafe { ffi::ibv_get_device_guid(self.device.as_ptr()) })
    }

    /// `ibv_get_device_index`: the kernel's index of the device. `None` where the kernel does not tell.
    ///
    /// # References
    ///
    /// [ibv_get_device_index(3)](https://man7.org/linux/man-pages/man3/ibv_get_device_index.3.html)
    #[doc(alias = "ibv_get_device_index")]
    pub fn index(&self) -> Option<u32> {
        // SAFETY: the device is alive.
        u32::try_from(unsafe { ffi::ibv_get_device_index(self.device.as_ptr()) }).ok()
    }

    /// `ibv_open_device`: opens the device.
    ///
    /// # Errors
    ///
    /// * `EACCES`, `EPERM`: the device's [`node`](Self::node) may not be opened by this user.
    /// * `ENOENT`: the node is not there; in a container, pass `/dev/infiniband` in.
    /// * `EMFILE`: the process has too many open files.
    /// * [`Error::Unsupported`]: the provider lacks the verbs to post and to poll.
    ///
    /// # References
    ///
    /// [ibv_open_device(3)](https://man7.org/linux/man-pages/man3/ibv_open_device.3.html)
    #[doc(alias = "ibv_open_device")]
    pub fn open(&self) -> Result<Context> {
        let opened = Opened::new(self.clone())?;
        // SAFETY: the device is alive.
        let context = null_and_errno(unsafe { ffi::ibv_open_device(self.device.as_ptr()) }).map_err(|errno| {
            let node = self.node();
            let errno = reason_of_node(&node).unwrap_or(errno);
            let remedy = match errno.0 {
                libc::EACCES | libc::EPERM => "this user may not open the node: see its permissions",
                libc::ENOENT | libc::ENXIO | libc::ENODEV => {
                    "the node is not there: load ib_uverbs, or pass /dev/infiniband into the container"
                }
                libc::EMFILE | libc::ENFILE => "too many open files: see `ulimit -n`",
                _ => "",
            };
            errno.with_remedy("ibv_open_device", format_args!("{}, {}", self.name(), node.display()), remedy)
        })?;
        // SAFETY: the context is open.
        if !dispatch::is_complete(unsafe { &context.as_ref().ops }) {
            // SAFETY: the context is open, and nobody else has it.
            let _ = unsafe { ffi::ibv_close_device(context.as_ptr()) };
            let arguments = format!("{}: its provider lacks the verbs to post and to poll", self.name());
            return Err(Errno(libc::EOPNOTSUPP).of("ibv_open_device", arguments));
        }
        // SAFETY: the context came from ibv_open_device just now, and nobody else has it.
        Ok(unsafe { Context::new(context, opened, None) })
    }

    /// The device in libibverbs' terms; valid as long as `self`.
    pub fn as_raw(&self) -> *mut ffi::ibv_device {
        self.device.as_ptr()
    }
}

impl fmt::Display for Device {
    /// Its name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("name", &self.name())
            .field("node", &self.node())
            .field("node_type", &self.node_type())
            .field("transport_type", &self.transport_type())
            .field("guid", &self.guid())
            .finish()
    }
}

/// Why this user cannot open a node. Libibverbs looks for the device elsewhere then, and tells what it did not find there.
#[cold]
fn reason_of_node(node: &Path) -> Option<Errno> {
    let error = File::options().read(true).write(true).open(node).err()?;
    matches!(error.kind(), io::ErrorKind::PermissionDenied).then(|| error.raw_os_error().map(Errno)).flatten()
}

/// The text in an array of C, up to its NUL. Names of devices are ASCII; another byte ends the text.
fn text(array: &[c_char]) -> &str {
    // SAFETY: `c_char` and `u8` have the same layout, and the slice is borrowed as long as the result.
    let bytes = unsafe { std::slice::from_raw_parts(array.as_ptr().cast::<u8>(), array.len()) };
    let Ok(text) = CStr::from_bytes_until_nul(bytes) else { return "" };
    match text.to_str() {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&text.to_bytes()[..error.valid_up_to()]).unwrap_or(""),
    }
}
