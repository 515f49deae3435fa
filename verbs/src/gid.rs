//! [`Gid`] and [`Guid`]: the addresses of ports and devices.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use crate::error::Error;

/// `union ibv_gid`: the global identifier of a port, 16 bytes in network byte order. On RoCE it is the IP address of the
/// interface, an IPv4 address in its mapped form (`::ffff:192.0.2.1`).
///
/// # References
///
/// InfiniBand Architecture Specification, volume 1, chapter 4.1.1; annex A17 (RoCE v2).
#[doc(alias = "ibv_gid")]
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct Gid([u8; 16]);

impl Gid {
    /// The GID of these bytes, the most significant one first.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes, the most significant one first.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// The upper 8 bytes as a number.
    pub const fn subnet_prefix(self) -> u64 {
        (u128::from_be_bytes(self.0) >> 64) as u64
    }

    /// The lower 8 bytes as a number.
    pub const fn interface_id(self) -> u64 {
        u128::from_be_bytes(self.0) as u64
    }

    /// Whether all bytes are zero: an entry of the table that holds no address.
    pub const fn is_unspecified(self) -> bool {
        u128::from_be_bytes(self.0) == 0
    }

    /// Whether the address is a link-local one (`fe80::/10`).
    pub const fn is_link_local(self) -> bool {
        self.0[0] == 0xfe && self.0[1] & 0xc0 == 0x80
    }

    /// Whether it is the GID of a multicast group: an IPv6 address of `ff00::/8`, or a mapped IPv4 one of 224.0.0.0/4.
    pub fn is_multicast(self) -> bool {
        self.to_ip().is_multicast()
    }

    /// The IP address of a RoCE GID; IPv4 if the GID is a mapped one.
    pub fn to_ip(self) -> IpAddr {
        Ipv6Addr::from(self.0).to_canonical()
    }
}

impl From<IpAddr> for Gid {
    fn from(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => address.into(),
            IpAddr::V6(address) => address.into(),
        }
    }
}

impl From<Ipv4Addr> for Gid {
    fn from(address: Ipv4Addr) -> Self {
        address.to_ipv6_mapped().into()
    }
}

impl From<Ipv6Addr> for Gid {
    fn from(address: Ipv6Addr) -> Self {
        Self(address.octets())
    }
}

impl FromStr for Gid {
    type Err = Error;

    /// Reads an IPv6 address, or an IPv4 one, which becomes a mapped GID.
    fn from_str(text: &str) -> Result<Self, Error> {
        IpAddr::from_str(text)
            .map(Self::from)
            .map_err(|_| Error::Parse { expected: "a GID (an IPv6 or IPv4 address)", text: text.to_owned() })
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ipv6Addr::from(self.0).fmt(f)
    }
}

impl fmt::Debug for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Gid({self})")
    }
}

/// The globally unique identifier of a device, an EUI-64.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Guid(u64);

impl Guid {
    /// The GUID as libibverbs has it: a number in network byte order.
    pub(crate) const fn from_be(raw: u64) -> Self {
        Self(u64::from_be(raw))
    }

    /// The GUID as a number in host byte order.
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// The bytes, the most significant one first.
    pub const fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for Guid {
    /// As `ibv_devinfo` prints it: `5054:00ff:fe12:3456`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let guid = self.0;
        let text =
            format!("{:04x}:{:04x}:{:04x}:{:04x}", guid >> 48, guid >> 32 & 0xffff, guid >> 16 & 0xffff, guid & 0xffff);
        f.pad(&text)
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Guid({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gid_reads_and_prints_as_an_address() {
        let gid: Gid = "192.0.2.1".parse().unwrap();
        assert_eq!(gid.to_string(), "::ffff:192.0.2.1");
        assert_eq!(gid.to_ip(), IpAddr::from([192, 0, 2, 1]));
        assert_eq!(gid, "::ffff:192.0.2.1".parse().unwrap());
        assert_eq!(gid.to_bytes()[10..], [0xff, 0xff, 192, 0, 2, 1]);
        let local: Gid = "fe80::1".parse().unwrap();
        assert!(local.is_link_local() && !gid.is_link_local());
        assert_eq!((local.subnet_prefix(), local.interface_id()), (0xfe80 << 48, 1));
        let multicast = |text: &str| text.parse::<Gid>().unwrap().is_multicast();
        assert!(multicast("ff12::1") && multicast("224.0.0.1") && multicast("::ffff:239.255.255.255"));
        assert!(!multicast("fe80::1") && !multicast("192.0.2.1") && !multicast("240.0.0.1"));
        assert!(Gid::default().is_unspecified() && !gid.is_unspecified());
        assert_eq!("rxe0".parse::<Gid>().unwrap_err().to_string(), "\"rxe0\" is not a GID (an IPv6 or IPv4 address)");
    }

    #[test]
    fn gids_and_guids_are_read_from_any_place_of_a_packet_in_the_order_of_the_wire() {
        let gid: Gid = "fe80::5054:ff:fe12:3456".parse().unwrap();
        for offset in 0..16 {
            let mut packet = [0xee; 48];
            packet[offset..offset + 16].copy_from_slice(&gid.to_bytes());
            let found = Gid::from_bytes(packet[offset..offset + 16].try_into().unwrap());
            assert_eq!((found, found.interface_id()), (gid, 0x5054_00ff_fe12_3456));
            let guid = Guid::from_be(u64::from_ne_bytes(packet[offset + 8..offset + 16].try_into().unwrap()));
            assert_eq!((guid.to_u64(), guid.to_string()), (gid.interface_id(), "5054:00ff:fe12:3456".to_owned()));
        }
        // Values and not references: there is nothing to align.
        assert_eq!((align_of::<Gid>(), size_of::<Gid>(), size_of::<Guid>()), (1, 16, 8));
    }

    #[test]
    fn a_guid_prints_as_ibv_devinfo_prints_it() {
        let guid = Guid::from_be(0x5054_00ff_fe12_3456_u64.to_be());
        assert_eq!(guid.to_string(), "5054:00ff:fe12:3456");
        assert_eq!(guid.to_bytes()[..2], [0x50, 0x54]);
    }
}
