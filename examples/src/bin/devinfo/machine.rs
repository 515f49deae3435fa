//! What of the machine the doctor looks at, apart from the devices.

use std::fs;
use std::path::Path;

/// The machine, as far as RDMA needs it.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// Whether there is no device, or not the one that was asked for.
    pub(crate) no_device: Option<NoDevice>,
    /// Why devices could not be opened.
    pub(crate) unopened: Vec<String>,
    /// Why devices that could be opened do not tell all of themselves.
    pub(crate) silent: Vec<String>,
    /// The devices of the kernel for which libibverbs has no provider library.
    pub(crate) without_provider: Vec<String>,
    /// Whether there is a directory of device nodes.
    pub(crate) has_nodes: bool,
    /// Whether the node of the connection manager may be opened; why not.
    pub(crate) connection_manager: Result<(), String>,
    /// How much memory may be locked. `None`: any amount.
    pub(crate) locked_memory: Option<u64>,
}

/// Why there is no device.
#[derive(Clone, Debug)]
pub(crate) enum NoDevice {
    /// The kernel has none, or does not show it here.
    AtAll,
    /// The kernel has some, but libibverbs has no provider library for any.
    WithoutProvider,
    /// The kernel has some, but their nodes are not here.
    WithoutNode { missing: Vec<String> },
    /// There are others than the one that was asked for.
    OfThatName { wanted: String, available: Vec<String> },
    /// They cannot even be listed.
    Unlisted { error: String },
}

impl From<verbs::Error> for NoDevice {
    fn from(error: verbs::Error) -> Self {
        match error {
            verbs::Error::NoDevice { wanted: Some(wanted), available, .. } if !available.is_empty() => {
                Self::OfThatName { wanted, available: available.into() }
            }
            verbs::Error::NoDevice { missing_nodes, .. } if !missing_nodes.is_empty() => {
                Self::WithoutNode { missing: missing_nodes.iter().map(|path| path.display().to_string()).collect() }
            }
            verbs::Error::NoDevice { kernel_devices, .. } if !kernel_devices.is_empty() => Self::WithoutProvider,
            verbs::Error::NoDevice { .. } | verbs::Error::NoKernelSupport { .. } => Self::AtAll,
            error => Self::Unlisted { error: error.to_string() },
        }
    }
}

impl Machine {
    pub(crate) fn look(no_device: Option<NoDevice>, unopened: Vec<String>, silent: Vec<String>) -> Self {
        let known: Vec<String> = verbs::devices().iter().flat_map(names).collect();
        let kernel = fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten();
        let kernel = kernel.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let node = fs::OpenOptions::new().read(true).write(true).open("/dev/infiniband/rdma_cm");
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self {
            no_device,
            unopened,
            silent,
            without_provider: kernel.filter(|name| !known.contains(name)).collect(),
            has_nodes: Path::new("/dev/infiniband").is_dir(),
            connection_manager: node.map(drop).map_err(|error| error.to_string()),
            locked_memory: match may_lock(&read("/proc/self/status")) {
                true => None,
                false => locked_memory(&read("/proc/self/limits")),
            },
        }
    }
}

fn names(list: &verbs::DeviceList) -> Vec<String> {
    list.iter().map(|device| device.name().to_owned()).collect()
}

/// Whether the process has the capability to lock as much memory as it likes, by its `/proc/PID/status`.
fn may_lock(status: &str) -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = capabilities.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    capabilities.is_some_and(|bits| bits >> CAP_IPC_LOCK & 1 == 1)
}

/// The soft limit on locked memory in bytes, by `/proc/PID/limits`. `None`: there is none.
fn locked_memory(limits: &str) -> Option<u64> {
    limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_and_capabilities_are_read() {
        let limits = "Max open files            1024      4096      files\n\
                      Max locked memory         8388608   8388608   bytes\n";
        assert_eq!(locked_memory(limits), Some(8_388_608));
        assert_eq!(locked_memory("Max locked memory         unlimited  unlimited  bytes\n"), None);
        assert!(may_lock("CapPrm:\t0000000000000000\nCapEff:\t000001ffffffffff\n"));
        assert!(!may_lock("CapEff:\t0000000000000000\n") && !may_lock(""));
    }
}
