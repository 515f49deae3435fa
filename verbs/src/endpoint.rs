//! [`Endpoint`]: what one end of a connection has to know of the other.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::gid::Gid;
use crate::gid_table::GidEntry;
use crate::port::{Mtu, PortAttributes};

/// The largest queue pair number and packet sequence number: 24 bits.
pub(crate) const MAX_24_BITS: u32 = 0xff_ffff;

/// What a queue pair's peer has to know of it, to be sent to the peer by other means.
///
/// As text it is what the programs of libibverbs exchange, `lid:qp_num:psn:gid` in 4, 6, 6 and 32 hexadecimal digits,
/// followed by `:mtu` in bytes where the MTU is known.
///
/// # Examples
///
/// ```
/// use verbs::Endpoint;
///
/// let endpoint: Endpoint = "0000:000011:5a7f01:00000000000000000000ffffc0000201".parse()?;
/// assert_eq!(endpoint.qp_num, 0x11);
/// assert_eq!(endpoint.gid, Some("192.0.2.1".parse()?));
/// # Ok::<_, verbs::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Endpoint {
    /// The number of the queue pair, 24 bits.
    pub qp_num: u32,
    /// The first packet sequence number that it sends, 24 bits.
    pub psn: u32,
    /// The local identifier of its port; 0 on RoCE.
    pub lid: u16,
    /// The address of its port. RoCE needs it; InfiniBand only between subnets.
    pub gid: Option<Gid>,
    /// The active MTU of its port. The path MTU of a connection is the smaller one of both ends'.
    pub mtu: Option<Mtu>,
}

impl Endpoint {
    /// An endpoint of which neither address nor MTU is known.
    pub const fn new(qp_num: u32, psn: u32) -> Self {
        Self { qp_num, psn, lid: 0, gid: None, mtu: None }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gid = u128::from_be_bytes(self.gid.unwrap_or_default().to_bytes());
        write!(f, "{:04x}:{:06x}:{:06x}:{gid:032x}", self.lid, self.qp_num, self.psn)?;
        match self.mtu.and_then(Mtu::bytes) {
            Some(bytes) => write!(f, ":{bytes}"),
            None => Ok(()),
        }
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text).ok_or_else(|| Error::Parse {
            expected: "an endpoint, `lid:qp_num:psn:gid` in 4, 6, 6 and 32 hexadecimal digits",
            text: text.to_owned(),
        })
    }
}

fn parse(text: &str) -> Option<Endpoint> {
    let mut fields = text.split(':');
    let mut number = |digits: usize| {
        let field = fields.next().filter(|field| field.len() == digits)?;
        // `from_str_radix` alone would take a sign.
        field.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u128::from_str_radix(field, 16).ok())?
    };
    let (lid, qp_num, psn, gid) = (number(4)?, number(6)?, number(6)?, number(32)?);
    let gid = Gid::from_bytes(gid.to_be_bytes());
    let mtu = match fields.next() {
        // As it is written, without a sign or zeroes before it.
        Some(text) => {
            Some(Mtu::from_bytes(text.parse().ok()?).ok()?).filter(|mtu| mtu.to_string() == text).map(Some)?
        }
        None => None,
    };
    let gid = (!gid.is_unspecified()).then_some(gid);
    // The widths of the fields keep the numbers within their types.
    let endpoint = Endpoint { lid: lid as u16, qp_num: qp_num as u32, psn: psn as u32, gid, mtu };
    fields.next().is_none().then_some(endpoint)
}

/// The local end of a connection: what the peer has to know, and through which port and GID the connection goes. Made by
/// [`QueuePair::local_endpoint`](crate::QueuePair::local_endpoint).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LocalEndpoint {
    /// What the peer has to know. A program may change the first PSN, which is random.
    pub endpoint: Endpoint,
    /// The local port, from 1.
    pub port: u8,
    /// The attributes of the port.
    pub port_attributes: PortAttributes,
    /// The entry of the GID table that was chosen.
    pub gid: Option<GidEntry>,
}

impl fmt::Display for LocalEndpoint {
    /// The endpoint as its peer has to be told it, then the port and the entry of the GID table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, port {}", self.endpoint, self.port)?;
        match self.gid {
            Some(entry) => write!(f, ", GID {entry}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let mut endpoint = Endpoint::new(0x11, 0xab_cdef);
        assert_eq!(endpoint.to_string(), "0000:000011:abcdef:00000000000000000000000000000000");
        assert_eq!(endpoint.to_string().len() + 1, 52, "with its NUL, the message of the C programs");
        assert_eq!(endpoint.to_string().parse::<Endpoint>().unwrap(), endpoint);
        endpoint.lid = 0x1a;
        endpoint.gid = Some("192.0.2.1".parse().unwrap());
        endpoint.mtu = Some(Mtu::MTU_4096);
        assert_eq!(endpoint.to_string(), "001a:000011:abcdef:00000000000000000000ffffc0000201:4096");
        assert_eq!(endpoint.to_string().parse::<Endpoint>().unwrap(), endpoint);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "hello",
            "0000:000011:abcdef",
            "0000:000011:abcdef:0000000000000000000000000000000",
            "0000:000011:abcdef:000000000000000000000000000000000",
            "0000:+00011:abcdef:00000000000000000000000000000000",
            "0000:00001g:abcdef:00000000000000000000000000000000",
            "0000:000011:abcdef:00000000000000000000000000000000:1500",
            "0000:000011:abcdef:00000000000000000000000000000000:1024:0",
            "0000:0000é1:abcdef:00000000000000000000000000000000",
        ] {
            let error = text.parse::<Endpoint>().unwrap_err();
            assert!(error.to_string().contains("is not an endpoint"), "{text}: {error}");
        }
    }
}
