//! Links of a test's own, and disturbances of those that are there. To make them takes root's rights, as they are in the virtual
//! machine.

use std::process::Command;
use std::time::Instant;

use verbs::*;

use super::{LIMIT, setting};

/// Runs a command, which has to succeed.
pub(crate) fn run(command: &str) {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Runs a command, whether or not it succeeds.
fn try_to(command: &str) {
    let mut words = command.split(' ');
    let _ = Command::new(words.next().unwrap()).args(words).output();
}

/// Opens a device whose node may come a moment after it.
fn open(name: &str) -> Context {
    let deadline = Instant::now() + LIMIT;
    loop {
        match devices().unwrap().find(Some(name)).and_then(|device| device.open()) {
            Ok(context) => return context,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    }
}

/// An rxe device of its own on a virtual link; gone when it is dropped.
pub(crate) struct Link {
    name: &'static str,
}

impl Link {
    /// The names of device and interfaces begin with `name`.
    pub(crate) fn new(name: &'static str) -> Self {
        let (near, far) = (format!("{name}a"), format!("{name}b"));
        run(&format!("ip link add {near} type veth peer name {far}"));
        let link = Self { name };
        run(&format!("ip link set {near} up"));
        run(&format!("ip link set {far} up"));
        run(&format!("rdma link add {name} type rxe netdev {near}"));
        link
    }

    pub(crate) fn open(&self) -> Context {
        open(self.name)
    }

    /// Does something to the interface.
    pub(crate) fn interface(&self, what: &str) {
        run(&what.replace("DEV", &format!("{}a", self.name)));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        try_to(&format!("rdma link delete {}", self.name));
        try_to(&format!("ip link delete {}a", self.name));
    }
}

/// Two rxe devices of its own at the ends of a wire; gone when it is dropped. What one sends to the other crosses the wire, as it does
/// between the machine's own two devices.
pub(crate) struct Wire {
    name: &'static str,
}

impl Wire {
    const ENDS: [(char, &str, u8); 2] = [('a', "192.0.2.101", 111), ('b', "192.0.2.102", 112)];

    /// The names of devices and interfaces begin with `name`.
    pub(crate) fn new(name: &'static str, mtu: u32) -> Self {
        let link_address = |end| format!("52:54:00:12:35:0{end}");
        let (near, far) = (link_address('a'), link_address('b'));
        run(&format!(
            "ip link add {name}a mtu {mtu} address {near} type veth peer name {name}b mtu {mtu} address {far}"
        ));
        let wire = Self { name };
        for (index, (end, own, table)) in Self::ENDS.into_iter().enumerate() {
            let peer = Self::ENDS[1 - index].1;
            run(&format!("ip address add {own}/32 dev {name}{end}"));
            run(&format!("ip link set {name}{end} up"));
            run(&format!("ip rule add pref {} iif {name}{end} lookup local", 5 + index));
            run(&format!("ip rule add pref {} from {own} to {peer} lookup {table}", 7 + index));
        }
        wire.lay();
        for (end, ..) in Self::ENDS {
            run(&format!("rdma link add {name}{end} type rxe netdev {name}{end}"));
        }
        wire
    }

    /// Tells each end the way to the other.
    fn lay(&self) {
        for (index, (end, own, table)) in Self::ENDS.into_iter().enumerate() {
            let (other, peer, _) = Self::ENDS[1 - index];
            let dev = format!("{}{end}", self.name);
            run(&format!("ip route replace {peer} dev {dev} src {own} table {table}"));
            run(&format!("ip neighbour replace {peer} lladdr 52:54:00:12:35:0{other} dev {dev} nud permanent"));
        }
    }

    pub(crate) fn open(&self) -> [Context; 2] {
        Self::ENDS.map(|(end, ..)| open(&format!("{}{end}", self.name)))
    }

    pub(crate) fn netdevs(&self) -> [String; 2] {
        Self::ENDS.map(|(end, ..)| format!("{}{end}", self.name))
    }

    /// Takes the link of the far end down; the near end loses its carrier.
    pub(crate) fn down(&self) {
        run(&format!("ip link set {}b down", self.name));
    }

    pub(crate) fn up(&self) {
        run(&format!("ip link set {}b up", self.name));
        self.lay();
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let name = self.name;
        for (index, (end, ..)) in Self::ENDS.into_iter().enumerate() {
            try_to(&format!("rdma link delete {name}{end}"));
            try_to(&format!("ip rule del pref {}", 5 + index));
            try_to(&format!("ip rule del pref {}", 7 + index));
        }
        try_to(&format!("ip link delete {name}a"));
    }
}

/// What `tc netem` does to all that some interfaces send, as long as this lives.
pub(crate) struct Disturbance {
    netdevs: Vec<String>,
}

impl Disturbance {
    pub(crate) fn of(netdevs: impl IntoIterator<Item = String>, how: &str) -> Self {
        let mut disturbance = Self { netdevs: Vec::new() };
        for netdev in netdevs {
            run(&format!("tc qdisc add dev {netdev} root netem limit 100000 {how}"));
            disturbance.netdevs.push(netdev);
        }
        disturbance
    }

    /// At both ends of the wire between the first device and its peer.
    pub(crate) fn of_both_ends(how: &str) -> Self {
        Self::of(["RDMA_TEST_NETDEV", "RDMA_TEST_PEER_NETDEV"].map(setting), how)
    }
}

impl Drop for Disturbance {
    fn drop(&mut self) {
        for netdev in &self.netdevs {
            try_to(&format!("tc qdisc del dev {netdev} root"));
        }
    }
}
