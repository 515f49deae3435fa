//! Choosing the device to run on: a real one of this host, one made on one of its interfaces, or one in a virtual machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};

use crate::place::Place;
use crate::say;
use crate::setup;
use crate::step;
use crate::vm::{self, Vm, network};

/// `--on`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// An active port of this host.
    Host,
    /// A device that is made on this interface, and removed afterwards.
    Rxe(String),
    /// The virtual machine.
    Vm,
}

impl FromStr for On {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "host" => Ok(Self::Host),
            None if text == "vm" => Ok(Self::Vm),
            Some(("rxe", interface)) if !interface.is_empty() && !interface.contains('/') => {
                Ok(Self::Rxe(interface.to_owned()))
            }
            _ => Err("expected host, vm or rxe:NETDEV (a network interface, as in rxe:eth0)".to_owned()),
        }
    }
}

/// A device and where it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub(crate) name: String,
    /// The network interface below it; none for InfiniBand without IP.
    pub(crate) interface: Option<String>,
    pub(crate) address: Option<String>,
}

/// The devices that programs are told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Devices {
    pub(crate) first: Device,
    /// The other end of the wire.
    pub(crate) peer: Option<Device>,
}

impl Device {
    fn of(end: network::End) -> Self {
        Self { name: end.device.into(), interface: Some(end.interface.into()), address: Some(end.address.into()) }
    }
}

impl Devices {
    /// Those of the virtual machine.
    pub(crate) fn in_guest() -> Self {
        Self { first: Device::of(network::FIRST), peer: Some(Device::of(network::SECOND)) }
    }

    /// Those of two virtual machines.
    pub(crate) fn in_two_guests() -> Self {
        Self { first: Device::of(network::FIRST), peer: Some(Device::of(network::REMOTE)) }
    }

    /// What tests find in their environment.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![("RDMA_TEST_DEVICE", self.first.name.clone())];
        let mut add = |name, value: &Option<String>| variables.extend(value.clone().map(|value| (name, value)));
        add("RDMA_TEST_NETDEV", &self.first.interface);
        add("RDMA_TEST_ADDRESS", &self.first.address);
        if let Some(peer) = &self.peer {
            add("RDMA_TEST_PEER_DEVICE", &Some(peer.name.clone()));
            add("RDMA_TEST_PEER_NETDEV", &peer.interface);
            add("RDMA_TEST_PEER_ADDRESS", &peer.address);
        }
        variables
    }
}

/// Where to run: decided, and nothing started yet.
#[derive(Debug)]
pub(crate) enum Choice {
    Host {
        devices: Devices,
        /// Removed when the choice is dropped.
        _made: Option<RxeLink>,
    },
    Guest(vm::Options),
}

impl Choice {
    /// Decides, and says what for and why.
    ///
    /// # Errors
    ///
    /// What was asked for is not to be had.
    pub(crate) fn make(on: Option<&On>, options: vm::Options) -> Result<Self> {
        let sys = Path::new("/sys/class");
        match on {
            Some(On::Vm) => say!("device: rxe0 and rxe1 in a virtual machine, since --on vm asks for it"),
            Some(On::Rxe(interface)) => {
                let link = RxeLink::add(interface)?;
                let device = Device {
                    name: link.name.clone(),
                    interface: Some(interface.clone()),
                    address: address_of(interface),
                };
                say!("device: {} on {interface} of this host, since --on rxe:{interface} asks for it", link.name);
                return Ok(Self::Host { devices: Devices { first: device, peer: None }, _made: Some(link) });
            }
            Some(On::Host) | None => match active_device(sys) {
                Some(mut device) => {
                    let why = if on.is_some() {
                        "--on host asks for it"
                    } else {
                        "its port is active; --on vm takes a virtual machine"
                    };
                    say!("device: {} of this host: {why}", device.name);
                    device.address = device.interface.as_deref().and_then(address_of);
                    return Ok(Self::Host { devices: Devices { first: device, peer: None }, _made: None });
                }
                None if on.is_some() => bail!(
                    "--on host: no device under {}/infiniband has an active port; `rdma link` shows those there are, \
                     --on rxe:NETDEV makes one, --on vm takes a virtual machine",
                    sys.display()
                ),
                None => say!("device: rxe0 and rxe1 in a virtual machine, since this host has no active RDMA port"),
            },
        }
        Ok(Self::Guest(options))
    }

    /// Starts the place.
    ///
    /// # Errors
    ///
    /// The machine does not boot.
    pub(crate) fn open(&self) -> Result<Place> {
        match self {
            Self::Host { .. } => Place::host(),
            Self::Guest(options) => Ok(Place::Guest(Box::new(Vm::boot(options)?))),
        }
    }

    /// Whether nobody else uses the devices.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self, Self::Guest(_) | Self::Host { _made: Some(_), .. })
    }

    /// The devices that are there then.
    pub(crate) fn devices(&self) -> Devices {
        match self {
            Self::Host { devices, .. } => devices.clone(),
            Self::Guest(_) => Devices::in_guest(),
        }
    }
}

/// The first device with an active port below `sys` (`/sys/class`).
fn active_device(sys: &Path) -> Option<Device> {
    let mut folders: Vec<PathBuf> =
        fs::read_dir(sys.join("infiniband")).ok()?.flatten().map(|entry| entry.path()).collect();
    folders.sort();
    folders.into_iter().find_map(|folder| {
        let ports = fs::read_dir(folder.join("ports")).ok()?.flatten();
        let active = ports.map(|port| port.path()).find(|port| {
            let state = fs::read_to_string(port.join("state")).unwrap_or_default();
            state.trim().ends_with("ACTIVE") && !state.contains("ACTIVE_DEFER")
        })?;
        let interface = fs::read_to_string(active.join("gid_attrs/ndevs/0")).ok().map(|name| name.trim().to_owned());
        let name = folder.file_name()?.to_str()?.to_owned();
        Some(Device { name, interface: interface.filter(|name| !name.is_empty()), address: None })
    })
}

/// The first IPv4 address of an interface.
fn address_of(interface: &str) -> Option<String> {
    let ip = setup::find_program("ip")?;
    let output = Command::new(ip).args(["-4", "-oneline", "address", "show", "dev", interface]).output().ok()?;
    parse_address(&String::from_utf8_lossy(&output.stdout))
}

fn parse_address(text: &str) -> Option<String> {
    let mut words = text.split_whitespace().skip_while(|word| *word != "inet");
    words.nth(1).and_then(|word| word.split('/').next()).map(str::to_owned)
}

/// An rxe device that we made. Dropping it removes it.
#[derive(Debug)]
pub(crate) struct RxeLink {
    name: String,
}

impl RxeLink {
    fn add(interface: &str) -> Result<Self> {
        if !Path::new("/sys/class/net").join(interface).exists() {
            bail!("--on rxe:{interface}: there is no such network interface; `ip link` shows those there are");
        }
        let advice = "this kernel has no rdma_rxe; --on vm takes a virtual machine, which has it";
        // The checksum's table: no dependency of rdma_rxe names it, and newer kernels have no such module.
        let _ = setup::as_root(&["modprobe", "--quiet", "crc32_generic"])?.status();
        step::run(&mut setup::as_root(&["modprobe", "rdma_rxe"])?).context(advice)?;
        let name = "rxe_xtask".to_owned();
        step::run(&mut setup::as_root(&["rdma", "link", "add", &name, "type", "rxe", "netdev", interface])?)?;
        Ok(Self { name })
    }
}

impl Drop for RxeLink {
    fn drop(&mut self) {
        let removed =
            setup::as_root(&["rdma", "link", "delete", &self.name]).and_then(|mut command| step::run(&mut command));
        if let Err(error) = removed {
            say!("the device {} is still there: {error:#}", self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake_port(sys: &Path, device: &str, state: &str) {
        let port = sys.join("infiniband").join(device).join("ports/1");
        fs::create_dir_all(port.join("gid_attrs/ndevs")).unwrap();
        fs::write(port.join("state"), state).unwrap();
        fs::write(port.join("gid_attrs/ndevs/0"), format!("net-of-{device}\n")).unwrap();
    }

    #[test]
    fn only_a_device_with_an_active_port_is_taken() {
        let sys = tempfile::tempdir().unwrap();
        assert_eq!(active_device(sys.path()), None);
        fake_port(sys.path(), "mlx5_0", "1: DOWN\n");
        assert_eq!(active_device(sys.path()), None);
        fake_port(sys.path(), "mlx5_1", "4: ACTIVE\n");
        let device = active_device(sys.path()).unwrap();
        assert_eq!((device.name.as_str(), device.interface.as_deref()), ("mlx5_1", Some("net-of-mlx5_1")));
    }

    #[test]
    fn the_flag_takes_host_vm_and_rxe_on_an_interface() {
        assert_eq!("host".parse(), Ok(On::Host));
        assert_eq!("vm".parse(), Ok(On::Vm));
        assert_eq!("rxe:eth0".parse(), Ok(On::Rxe("eth0".into())));
        for wrong in ["rxe:", "rxe", "eth0", "rxe:a/b"] {
            assert!(wrong.parse::<On>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn tests_are_told_of_both_ends_of_the_wire() {
        let variables = Devices::in_guest().variables();
        assert!(variables.contains(&("RDMA_TEST_ADDRESS", "192.0.2.1".into())), "{variables:?}");
        assert!(variables.contains(&("RDMA_TEST_PEER_NETDEV", "v1".into())), "{variables:?}");
        let alone = Devices { peer: None, ..Devices::in_guest() };
        assert_eq!(alone.variables().len(), 3);
    }

    #[test]
    fn an_interfaces_address_is_read_from_what_ip_prints() {
        let text = "2: eth0    inet 10.0.0.5/24 brd 10.0.0.255 scope global eth0\\       valid_lft forever\n";
        assert_eq!(parse_address(text).as_deref(), Some("10.0.0.5"));
        assert_eq!(parse_address(""), None);
    }
}
