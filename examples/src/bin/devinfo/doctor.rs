//! The doctor: what keeps RDMA from working, or from working well, and what to do about it.

use std::fmt;

use serde::Serialize;
use verbs::PortState;

use crate::inventory::PortFacts;
use crate::machine::{Machine, NoDevice};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// As it should be.
    Ok,
    /// Works, and could be better.
    Hint,
    /// Keeps RDMA from working.
    Problem,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Hint => "hint",
            Self::Problem => "PROBLEM",
        })
    }
}

/// What the doctor found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// What was looked at.
    pub(crate) check: &'static str,
    pub(crate) level: Level,
    pub(crate) finding: String,
    pub(crate) remedy: Option<String>,
}

/// With less locked memory than this, programs that register buffers of the usual sizes fail.
const ENOUGH_LOCKED_MEMORY: u64 = 64 << 20;

const INSTALL: &str = "install ibverbs-providers (Debian, Ubuntu), libibverbs (Fedora, SUSE) or rdma-core (Arch)";
const MAKE_ONE: &str = "for a device in software, as root: modprobe rdma_rxe, then rdma link add rxe0 type rxe netdev NETDEV \
                        (NETDEV: a network interface, see ip link)";
const VIRTUAL: &str =
    "where the kernel has no rdma_rxe, cargo xtask run PROGRAM runs the programs in a virtual machine";

fn ok(check: &'static str, finding: impl Into<String>) -> Finding {
    Finding { check, level: Level::Ok, finding: finding.into(), remedy: None }
}

fn bad(check: &'static str, level: Level, finding: impl Into<String>, remedy: impl Into<String>) -> Finding {
    Finding { check, level, finding: finding.into(), remedy: Some(remedy.into()) }
}

/// All findings, good and bad.
pub(crate) fn examine(machine: &Machine, ports: &[PortFacts]) -> Vec<Finding> {
    let mut findings = vec![device(machine), provider(machine), nodes(machine)];
    if machine.no_device.is_none() {
        findings.extend([attributes(machine), usable_port(ports)]);
        for port in ports.iter().filter(|port| port.state == PortState::ACTIVE) {
            findings.extend([gid(port), mtu(port)]);
        }
        findings.push(connection_manager(machine));
    }
    findings.push(locked_memory(machine));
    findings
}

fn device(machine: &Machine) -> Finding {
    const CHECK: &str = "device";
    match &machine.no_device {
        None => ok(CHECK, "there is one"),
        Some(NoDevice::AtAll) => {
            let remedy = format!("{MAKE_ONE}; {VIRTUAL}; in a container, pass /dev/infiniband in");
            bad(CHECK, Level::Problem, "the kernel has no RDMA device, or does not show it here", remedy)
        }
        Some(NoDevice::WithoutProvider) => bad(CHECK, Level::Problem, "programs cannot use any device", INSTALL),
        Some(NoDevice::WithoutNode { missing }) => {
            let remedy = "as root: modprobe ib_uverbs; in a container, pass /dev/infiniband in";
            bad(
                CHECK,
                Level::Problem,
                format!("the kernel has devices, but {} is not there", missing.join(", ")),
                remedy,
            )
        }
        Some(NoDevice::Unlisted { error }) => {
            let remedy =
                "see the error, and whether libibverbs and its providers are whole (ibv_devices tells the same)";
            bad(CHECK, Level::Problem, format!("the devices cannot be listed: {error}"), remedy)
        }
        Some(NoDevice::OfThatName { wanted, available }) => {
            let remedy = format!("choose one of {}", available.join(", "));
            bad(CHECK, Level::Problem, format!("no device is named {wanted}"), remedy)
        }
    }
}

fn provider(machine: &Machine) -> Finding {
    match machine.without_provider.as_slice() {
        [] => ok("provider", "no device of the kernel lacks its provider library"),
        lacking => {
            let finding =
                format!("the kernel has {}, but libibverbs has no provider library for it", lacking.join(", "));
            bad("provider", Level::Problem, finding, INSTALL)
        }
    }
}

fn nodes(machine: &Machine) -> Finding {
    const CHECK: &str = "device nodes";
    if !machine.unopened.is_empty() {
        let remedy = "let this user open the nodes: chmod 0666 /dev/infiniband/uverbs*, or a udev rule or group for them; in a \
                      container, pass /dev/infiniband in";
        return bad(CHECK, Level::Problem, machine.unopened.join("; "), remedy);
    }
    match (machine.has_nodes, &machine.no_device) {
        (true, None) => ok(CHECK, "each device can be opened"),
        (true, Some(_)) => ok(CHECK, "/dev/infiniband is there"),
        (false, _) => {
            let remedy = "as root: modprobe ib_uverbs; in a container, pass /dev/infiniband in";
            bad(CHECK, Level::Problem, "/dev/infiniband is not there", remedy)
        }
    }
}

fn attributes(machine: &Machine) -> Finding {
    const CHECK: &str = "attributes";
    match machine.silent.as_slice() {
        [] => ok(CHECK, "each device tells them"),
        errors => {
            let remedy = "see the number that was given with --ib-port, what the kernel says (dmesg), and that its driver fits its firmware";
            bad(CHECK, Level::Problem, errors.join("; "), remedy)
        }
    }
}

fn usable_port(ports: &[PortFacts]) -> Finding {
    const CHECK: &str = "port";
    let active: Vec<_> = ports.iter().filter(|port| port.state == PortState::ACTIVE).collect();
    if !active.is_empty() {
        let names: Vec<_> = active.iter().map(|port| port.name.as_str()).collect();
        return ok(CHECK, format!("active: {}", names.join("; ")));
    }
    if ports.is_empty() {
        let remedy = "see the errors of the devices above, and the number that was given with --ib-port";
        return bad(CHECK, Level::Problem, "no port can be looked at", remedy);
    }
    let states: Vec<_> = ports.iter().map(|port| format!("{} is {}", port.name, port.state)).collect();
    let remedy = match ports.iter().find(|port| port.ethernet) {
        Some(port) => {
            let interface = port.interface.as_deref().unwrap_or("NETDEV");
            format!("as root: ip link set {interface} up; see also the cable and the switch")
        }
        None if ports.iter().any(|port| [PortState::INIT, PortState::ARMED].contains(&port.state)) => {
            "the link is up, but no subnet manager has configured it: start opensm on one host of the subnet".to_owned()
        }
        None => "see the cable and the switch, and that a subnet manager (opensm) runs".to_owned(),
    };
    bad(CHECK, Level::Problem, states.join("; "), remedy)
}

fn gid(port: &PortFacts) -> Finding {
    const CHECK: &str = "GID";
    let interface = port.interface.as_deref().unwrap_or("NETDEV");
    let remedy = format!("give the network interface an address, as root: ip addr add ADDRESS/PREFIX dev {interface}");
    match &port.gid {
        Some((gid, link_local)) if *link_local && port.ethernet => {
            let finding = format!("{}: {gid}, a link-local address, which does not cross a router", port.name);
            bad(CHECK, Level::Hint, finding, remedy)
        }
        Some((gid, _)) => ok(CHECK, format!("{}: programs take {gid}", port.name)),
        None if port.ethernet => bad(CHECK, Level::Problem, format!("{}: there is none to take", port.name), remedy),
        None => ok(CHECK, format!("{}: there is none; within an InfiniBand subnet none is needed", port.name)),
    }
}

fn mtu(port: &PortFacts) -> Finding {
    const CHECK: &str = "MTU";
    let finding = format!("{}: active {}, at most {}", port.name, port.active_mtu, port.max_mtu);
    if port.active_mtu >= port.max_mtu {
        return ok(CHECK, finding);
    }
    let remedy = match (port.ethernet, port.max_mtu.bytes()) {
        (true, Some(bytes)) => {
            // Headers of RoCE v2 are below 128 bytes.
            let interface = port.interface.as_deref().unwrap_or("NETDEV");
            format!(
                "for longer packets, here, at the peers and at the switch: ip link set {interface} mtu {}",
                bytes + 128
            )
        }
        _ => "for longer packets, see the MTU of the partition in the subnet manager's configuration".to_owned(),
    };
    bad(CHECK, Level::Hint, finding, remedy)
}

fn connection_manager(machine: &Machine) -> Finding {
    const CHECK: &str = "connection manager";
    match &machine.connection_manager {
        Ok(()) => ok(CHECK, "/dev/infiniband/rdma_cm can be opened"),
        Err(error) => {
            let remedy =
                "as root: modprobe rdma_ucm, and let this user open the node; only programs of librdmacm need it";
            bad(CHECK, Level::Hint, format!("/dev/infiniband/rdma_cm: {error}"), remedy)
        }
    }
}

fn locked_memory(machine: &Machine) -> Finding {
    const CHECK: &str = "locked memory";
    match machine.locked_memory {
        None => ok(CHECK, "no limit"),
        Some(bytes) if bytes >= ENOUGH_LOCKED_MEMORY => ok(CHECK, format!("up to {bytes} bytes")),
        Some(bytes) => {
            let remedy = "raise it: ulimit -l unlimited, memlock in /etc/security/limits.conf, LimitMEMLOCK=infinity of a systemd \
                          unit, or --ulimit memlock=-1 of a container";
            bad(CHECK, Level::Hint, format!("only {bytes} bytes can be registered"), remedy)
        }
    }
}

#[cfg(test)]
mod tests;
