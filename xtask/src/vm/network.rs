//! The guest's network: two interfaces on a wire inside one machine, or one at each end of a wire between two.

use std::path::{Path, PathBuf};

/// One end of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) interface: &'static str,
    pub(crate) device: &'static str,
    pub(crate) address: &'static str,
    link_address: &'static str,
}

/// The first device.
pub(crate) const FIRST: End =
    End { interface: "v0", device: "rxe0", address: "192.0.2.1", link_address: "52:54:00:12:34:01" };
/// The second, in the same machine.
pub(crate) const SECOND: End =
    End { interface: "v1", device: "rxe1", address: "192.0.2.2", link_address: "52:54:00:12:34:02" };
/// The second machine's, which is the first one there.
pub(crate) const REMOTE: End = End { interface: "v0", device: "rxe0", ..SECOND };

/// RoCE's largest MTU is 4096 bytes; its headers come on top.
const MTU: u32 = 4500;

/// One machine's part.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub(crate) hostname: &'static str,
    /// The wire that leads out of the machine.
    pub(crate) wire: Option<Wire>,
    ends: Vec<End>,
}

/// A wire between two QEMUs: a socket on which the first listens.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    pub(crate) path: PathBuf,
    pub(crate) listens: bool,
}

impl Network {
    /// Both ends in one kernel, on a veth pair.
    pub(crate) fn pair() -> Self {
        Self { hostname: "rxe", wire: None, ends: vec![FIRST, SECOND] }
    }

    /// Two machines, whose wire is the socket `path`.
    pub(crate) fn two_hosts(path: &Path) -> [Self; 2] {
        let host = |hostname, listens, end| Self {
            hostname,
            wire: Some(Wire { path: path.to_owned(), listens }),
            ends: vec![end],
        };
        [host("server", true, FIRST), host("client", false, REMOTE)]
    }

    /// What `ip -batch` reads.
    pub(crate) fn ip_batch(&self) -> String {
        let mut lines = vec!["link set lo up".to_owned()];
        let mut line = |text: String| lines.push(text);
        match self.ends[..] {
            [one, other] => {
                line(format!(
                    "link add {} mtu {MTU} address {} type veth peer name {} mtu {MTU} address {}",
                    one.interface, one.link_address, other.interface, other.link_address
                ));
                // The kernel would deliver to an address of its own through lo. So the table of its own addresses is asked first
                // only for what came in by the wire; then what goes from one end to the other is sent by the wire; the rest comes
                // after that.
                line("rule add pref 10 lookup local".into());
                line("rule del pref 0".into());
                let pairs = [(one, other), (other, one)];
                for (index, (own, peer)) in pairs.into_iter().enumerate() {
                    line(format!("address add {}/24 dev {}", own.address, own.interface));
                    line(format!("link set {} up", own.interface));
                    line(format!("rule add pref {} iif {} lookup local", 1 + index, own.interface));
                    line(format!(
                        "rule add pref {} from {} to {} lookup {}",
                        3 + index,
                        own.address,
                        peer.address,
                        101 + index
                    ));
                }
                for (index, (own, peer)) in pairs.into_iter().enumerate() {
                    let table = 101 + index;
                    line(format!("route add {} dev {} src {} table {table}", peer.address, own.interface, own.address));
                    line(format!(
                        "neighbour add {} lladdr {} dev {} nud permanent",
                        peer.address, peer.link_address, own.interface
                    ));
                }
            }
            [end] => {
                line(format!("link set eth0 name {} mtu {MTU} address {}", end.interface, end.link_address));
                line(format!("address add {}/24 dev {}", end.address, end.interface));
                line(format!("link set {} up", end.interface));
            }
            _ => {}
        }
        lines.push(String::new());
        lines.join("\n")
    }

    /// What `rdma -batch` reads.
    pub(crate) fn rdma_batch(&self) -> String {
        self.ends.iter().map(|end| format!("link add {} type rxe netdev {}\n", end.device, end.interface)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_reaches_the_other_by_the_wire() {
        let batch = Network::pair().ip_batch();
        assert!(batch.contains("rule add pref 3 from 192.0.2.1 to 192.0.2.2 lookup 101\n"), "{batch}");
        assert!(batch.contains("route add 192.0.2.2 dev v0 src 192.0.2.1 table 101\n"), "{batch}");
        assert!(batch.contains("route add 192.0.2.1 dev v1 src 192.0.2.2 table 102\n"), "{batch}");
        assert_eq!(
            Network::pair().rdma_batch(),
            "link add rxe0 type rxe netdev v0\nlink add rxe1 type rxe netdev v1\n"
        );
    }

    #[test]
    fn of_two_hosts_one_listens_and_each_has_one_device() {
        let [server, client] = Network::two_hosts(Path::new("/wire"));
        assert!(server.wire.as_ref().unwrap().listens && !client.wire.as_ref().unwrap().listens);
        assert_eq!(client.rdma_batch(), "link add rxe0 type rxe netdev v0\n");
        assert!(client.ip_batch().contains("192.0.2.2/24"));
    }
}
