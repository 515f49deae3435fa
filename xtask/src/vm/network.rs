//! The guest's network: two interfaces on a wire, and an rxe device on each.

/// One end of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) interface: &'static str,
    pub(crate) device: &'static str,
    pub(crate) address: &'static str,
    link_address: &'static str,
}

/// The first device.
pub(crate) const FIRST: End = End {
    interface: "v0",
    device: "rxe0",
    address: "192.0.2.1",
    link_address: "52:54:00:12:34:01",
};
/// The second.
pub(crate) const SECOND: End = End {
    interface: "v1",
    device: "rxe1",
    address: "192.0.2.2",
    link_address: "52:54:00:12:34:02",
};

/// RoCE's largest MTU is 4096 bytes; its headers come on top.
const MTU: u32 = 4500;

/// One machine's part.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) hostname: &'static str,
    ends: Vec<End>,
}

impl Network {
    /// Both ends in one kernel, on a veth pair.
    pub(crate) fn pair() -> Self {
        Self {
            hostname: "rxe",
            ends: vec![FIRST, SECOND],
        }
    }

    /// What `ip -batch` reads.
    pub(crate) fn ip_batch(&self) -> String {
        let mut lines = vec!["link set lo up".to_owned()];
        let mut line = |text: String| lines.push(text);
        if let [one, other] = self.ends[..] {
            line(format!(
                "link add {} mtu {MTU} address {} type veth peer name {} mtu {MTU} address {}",
                one.interface, one.link_address, other.interface, other.link_address
            ));
            // The kernel would deliver to an address of its own through lo. So the table of its own addresses is asked only for
            // what came in by the wire, and what goes from one end to the other takes the wire, before anything else.
            line("rule add pref 10 lookup local".into());
            line("rule del pref 0".into());
            for (index, (own, peer)) in [(one, other), (other, one)].into_iter().enumerate() {
                let table = 101 + index;
                line(format!(
                    "address add {}/24 dev {}",
                    own.address, own.interface
                ));
                line(format!("link set {} up", own.interface));
                line(format!(
                    "rule add pref {} iif {} lookup local",
                    1 + index,
                    own.interface
                ));
                line(format!(
                    "rule add pref {} from {} to {} lookup {table}",
                    3 + index,
                    own.address,
                    peer.address
                ));
            }
            for (index, (own, peer)) in [(one, other), (other, one)].into_iter().enumerate() {
                let table = 101 + index;
                line(format!(
                    "route add {} dev {} src {} table {table}",
                    peer.address, own.interface, own.address
                ));
                line(format!(
                    "neighbour add {} lladdr {} dev {} nud permanent",
                    peer.address, peer.link_address, own.interface
                ));
            }
        }
        lines.push(String::new());
        lines.join("\n")
    }

    /// What `rdma -batch` reads.
    pub(crate) fn rdma_batch(&self) -> String {
        self.ends
            .iter()
            .map(|end| {
                format!(
                    "link add {} type rxe netdev {}\n",
                    end.device, end.interface
                )
            })
            .collect()
    }
}
