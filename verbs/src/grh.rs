//! [`Grh`]: what comes before the payload of a datagram.

use std::fmt;
use std::net::Ipv4Addr;

use crate::gid::Gid;

/// `struct ibv_grh`: the 40 bytes in front of a received datagram, which tell where it came from.
///
/// On InfiniBand it is the packet's global route header. On RoCE it is the packet's IP header: an IPv6 one has the same layout;
/// an IPv4 one lies in the last 20 bytes, and the 20 bytes before it mean nothing. Whether there is either is for the
/// completion to say: [`Datagram::has_grh`](crate::Datagram::has_grh).
///
/// # Examples
///
/// ```
/// use verbs::{Grh, GrhFormat};
///
/// let mut bytes = [0; Grh::LEN];
/// bytes[20..].copy_from_slice(&[
///     0x45, 0, 0, 60, 0, 0, 0x40, 0, 64, 17, 0xb6, 0xad, 192, 0, 2, 1, 192, 0, 2, 2,
/// ]);
/// let grh = Grh::from_bytes(bytes);
/// assert_eq!(grh.format(), GrhFormat::Ipv4);
/// assert_eq!(grh.source(), Some("192.0.2.1".parse()?));
/// assert_eq!(grh.destination(), Some("192.0.2.2".parse()?));
/// # Ok::<_, verbs::Error>(())
/// ```
///
/// # References
///
/// InfiniBand Architecture Specification, volume 1, chapter 8.3, and annex A17 (RoCE v2), chapter A17.4.5.
#[doc(alias = "ibv_grh")]
#[doc(alias = "global route header")]
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Grh([u8; Self::LEN]);

/// Which header the 40 bytes of a [`Grh`] hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrhFormat {
    /// A global route header (InfiniBand, RoCE v1), or the IPv6 header of RoCE v2, which has the same layout.
    Ipv6,
    /// The IPv4 header of RoCE v2, in the last 20 bytes.
    Ipv4,
    /// Neither.
    Unknown,
}

/// Where an IPv4 header begins.
const IPV4: usize = 20;

impl Grh {
    /// How many bytes it takes in front of the payload.
    pub const LEN: usize = 40;

    /// The header in these bytes.
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn to_bytes(self) -> [u8; Self::LEN] {
        self.0
    }

    /// Which header it is.
    ///
    /// The bytes before an IPv4 header are undefined, and may look like the beginning of an IPv6 one; then the IPv4 header's
    /// checksum decides, as in libibverbs.
    pub fn format(&self) -> GrhFormat {
        let (first, at_ipv4) = (self.0[0] >> 4, self.0[IPV4]);
        match first {
            6 if at_ipv4 == 0x45 && self.ipv4_checksum_holds() => GrhFormat::Ipv4,
            6 => GrhFormat::Ipv6,
            _ if at_ipv4 >> 4 == 4 => GrhFormat::Ipv4,
            _ => GrhFormat::Unknown,
        }
    }

    fn ipv4_checksum_holds(&self) -> bool {
        let words = self.0[IPV4..].chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let sum: u32 = words.sum();
        // The sum of ten words carries once, and with that once more.
        let sum = (sum & 0xffff) + (sum >> 16);
        (sum & 0xffff) + (sum >> 16) == 0xffff
    }

    fn gid(&self, ipv6: usize, ipv4: usize) -> Option<Gid> {
        let bytes = |offset: usize| self.0[offset..].iter().copied();
        match self.format() {
            GrhFormat::Ipv6 => {
                let mut gid = [0; 16];
                gid.iter_mut().zip(bytes(ipv6)).for_each(|(to, from)| *to = from);
                Some(Gid::from_bytes(gid))
            }
            GrhFormat::Ipv4 => {
                let mut address = [0; 4];
                address.iter_mut().zip(bytes(ipv4)).for_each(|(to, from)| *to = from);
                Some(Ipv4Addr::from(address).into())
            }
            GrhFormat::Unknown => None,
        }
    }

    /// The sender's GID; for IPv4, its address in the mapped form. `None`: the format is unknown.
    pub fn source(&self) -> Option<Gid> {
        self.gid(8, IPV4 + 12)
    }

    /// The GID that the datagram was sent to: the receiver's, or that of a multicast group.
    pub fn destination(&self) -> Option<Gid> {
        self.gid(24, IPV4 + 16)
    }

    fn field<T>(&self, ipv6: impl FnOnce(&[u8]) -> T, ipv4: impl FnOnce(&[u8]) -> T) -> Option<T> {
        match self.format() {
            GrhFormat::Ipv6 => Some(ipv6(&self.0)),
            GrhFormat::Ipv4 => Some(ipv4(&self.0[IPV4..])),
            GrhFormat::Unknown => None,
        }
    }

    /// The traffic class; on RoCE v2 the DSCP and ECN bits.
    pub fn traffic_class(&self) -> Option<u8> {
        self.field(|ipv6| ipv6[0] << 4 | ipv6[1] >> 4, |ipv4| ipv4[1])
    }

    /// The flow label, 20 bits; IPv4 has none.
    pub fn flow_label(&self) -> Option<u32> {
        (self.format() == GrhFormat::Ipv6).then(|| u32::from_be_bytes([0, self.0[1] & 0xf, self.0[2], self.0[3]]))
    }

    /// How many routers the packet could still have crossed.
    pub fn hop_limit(&self) -> Option<u8> {
        self.field(|ipv6| ipv6[7], |ipv4| ipv4[8])
    }

    /// The protocol of what follows the header in the packet: 17, UDP, on RoCE v2; 27 on InfiniBand and RoCE v1.
    pub fn next_header(&self) -> Option<u8> {
        self.field(|ipv6| ipv6[6], |ipv4| ipv4[9])
    }
}

impl fmt::Display for GrhFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ipv6 => "IPv6",
            Self::Ipv4 => "IPv4",
            Self::Unknown => "unknown",
        })
    }
}

impl fmt::Display for Grh {
    /// Such as `IPv6, from fe80::1 to ff0e::2, hop limit 1, traffic class 0xab, flow label 0x12345`; of an IPv4 header only what it has, and
    /// of no header that is known `unknown`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.format())?;
        if let (Some(source), Some(destination)) = (self.source(), self.destination()) {
            write!(f, ", from {source} to {destination}")?;
        }
        if let (Some(hop_limit), Some(traffic_class)) = (self.hop_limit(), self.traffic_class()) {
            write!(f, ", hop limit {hop_limit}, traffic class {traffic_class:#x}")?;
        }
        match self.flow_label() {
            Some(flow_label) => write!(f, ", flow label {flow_label:#x}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Grh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grh")
            .field("format", &self.format())
            .field("source", &self.source())
            .field("destination", &self.destination())
            .field("traffic_class", &self.traffic_class())
            .field("hop_limit", &self.hop_limit())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv4 header from 192.0.2.1 to 192.0.2.9, behind what `before` is.
    fn ipv4(before: [u8; 20]) -> Grh {
        let mut bytes = [0; Grh::LEN];
        bytes[..20].copy_from_slice(&before);
        let header = [0x45, 0x20, 0, 60, 0, 0, 0x40, 0, 63, 17, 0xb7, 0x86, 192, 0, 2, 1, 192, 0, 2, 9];
        bytes[20..].copy_from_slice(&header);
        Grh::from_bytes(bytes)
    }

    fn ipv6() -> Grh {
        let mut bytes = [0; Grh::LEN];
        bytes[..8].copy_from_slice(&[0x6a, 0xb1, 0x23, 0x45, 0, 60, 0x1b, 1]);
        bytes[8..24].copy_from_slice(&"fe80::1".parse::<Gid>().unwrap().to_bytes());
        bytes[24..].copy_from_slice(&"ff0e::2".parse::<Gid>().unwrap().to_bytes());
        Grh::from_bytes(bytes)
    }

    #[test]
    fn an_ipv4_header_lies_in_the_last_20_bytes_whatever_is_before_it() {
        for before in [[0; 20], [0xff; 20], [0x60; 20]] {
            let grh = ipv4(before);
            assert_eq!(grh.format(), GrhFormat::Ipv4, "{before:x?}");
            assert_eq!(grh.source(), Some("192.0.2.1".parse().unwrap()));
            assert_eq!(grh.destination(), Some("192.0.2.9".parse().unwrap()));
            assert_eq!((grh.traffic_class(), grh.hop_limit(), grh.next_header()), (Some(0x20), Some(63), Some(17)));
            assert_eq!(grh.flow_label(), None);
        }
    }

    #[test]
    fn an_ipv6_header_takes_all_40_bytes() {
        let grh = ipv6();
        assert_eq!(grh.format(), GrhFormat::Ipv6);
        assert_eq!(grh.source(), Some("fe80::1".parse().unwrap()));
        assert_eq!(grh.destination(), Some("ff0e::2".parse().unwrap()));
        assert_eq!((grh.traffic_class(), grh.flow_label()), (Some(0xab), Some(0x1_2345)));
        assert_eq!((grh.hop_limit(), grh.next_header()), (Some(1), Some(27)));
        // An interface identifier that looks like an IPv4 header, whose checksum is wrong.
        let mut bytes = grh.to_bytes();
        bytes[20] = 0x45;
        assert_eq!(Grh::from_bytes(bytes).format(), GrhFormat::Ipv6);
    }

    #[test]
    fn a_header_prints_what_it_has() {
        let text = "IPv6, from fe80::1 to ff0e::2, hop limit 1, traffic class 0xab, flow label 0x12345";
        assert_eq!(ipv6().to_string(), text);
        let text = "IPv4, from ::ffff:192.0.2.1 to ::ffff:192.0.2.9, hop limit 63, traffic class 0x20";
        assert_eq!(ipv4([0; 20]).to_string(), text);
    }

    #[test]
    fn what_is_no_header_has_no_fields() {
        let grh = Grh::from_bytes([0; Grh::LEN]);
        assert_eq!(grh.format(), GrhFormat::Unknown);
        assert_eq!(grh.to_string(), "unknown");
        assert_eq!((grh.source(), grh.destination(), grh.flow_label()), (None, None, None));
        assert_eq!((grh.traffic_class(), grh.hop_limit(), grh.next_header()), (None, None, None));
    }
}
