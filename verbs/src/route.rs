//! [`Source`]: where this host's route to a peer starts.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use crate::error::Result;
use crate::gid::Gid;
use crate::returns::Errno;

/// The address from which this host's packets to a peer come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Address(IpAddr),
    /// The peer's address is a link-local one, so ours is too.
    LinkLocal,
}

impl Source {
    /// Asks the kernel's table of routes; no packet is sent.
    pub(crate) fn of_route_to(peer: IpAddr) -> Result<Self> {
        let peer = peer.to_canonical();
        if matches!(peer, IpAddr::V6(address) if address.is_unicast_link_local()) {
            return Ok(Self::LinkLocal);
        }
        // A datagram socket that is connected has the address that its packets will come from. The port means nothing.
        const PORT: u16 = 4791;
        let any: IpAddr = if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let source = || -> io::Result<IpAddr> {
            let socket = UdpSocket::bind((any, 0))?;
            socket.connect((peer, PORT))?;
            Ok(socket.local_addr()?.ip())
        };
        source().map(Self::Address).map_err(|error| {
            let errno = Errno(error.raw_os_error().unwrap_or(libc::EIO));
            errno.with_remedy("connect", format_args!("a datagram socket, {peer}"), "see `ip route get`")
        })
    }

    pub(crate) fn matches(self, gid: Gid) -> bool {
        match self {
            Self::Address(address) => Gid::from(address) == gid,
            Self::LinkLocal => gid.is_link_local(),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::LinkLocal => f.write_str("a link-local address"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_to_this_host_starts_at_the_address_it_leads_to() {
        for address in ["127.0.0.1", "127.0.0.7", "::ffff:127.0.0.1"] {
            let source = Source::of_route_to(address.parse().unwrap()).unwrap();
            assert!(matches!(source, Source::Address(IpAddr::V4(source)) if source.is_loopback()), "{source:?}");
        }
    }

    #[test]
    fn a_link_local_peer_is_reached_from_a_link_local_address() {
        let source = Source::of_route_to("fe80::7".parse().unwrap()).unwrap();
        assert_eq!(source, Source::LinkLocal);
        assert!(source.matches("fe80::1".parse().unwrap()));
        assert!(!source.matches("192.0.2.1".parse().unwrap()) && !source.matches("2001:db8::1".parse().unwrap()));
    }

    #[test]
    fn an_address_that_no_route_leads_to_is_an_error() {
        // The kernel lets no datagram socket connect to it without leave to broadcast.
        let error = Source::of_route_to("255.255.255.255".parse().unwrap()).unwrap_err();
        assert!(error.raw_os_error().is_some());
        assert!(error.to_string().contains("connect(a datagram socket, 255.255.255.255)"), "{error}");
    }
}
