//! [`PortSpace`].

use crate::error::{Error, Result};
use crate::ffi::rdma_port_space as S;
use crate::open_enum::open_enum;

open_enum! {
    /// `enum rdma_port_space`: which service an id is for, and whose ports its addresses have.
    ///
    /// # References
    ///
    /// [rdma_create_id(3)](https://man7.org/linux/man-pages/man3/rdma_create_id.3.html)
    #[doc(alias = "rdma_port_space")]
    PortSpace(u32) {
        /// Reliable connections ([`verbs::Rc`]).
        TCP = S::RDMA_PS_TCP.0, "TCP";
        /// Datagrams ([`verbs::Ud`]), and multicast.
        UDP = S::RDMA_PS_UDP.0, "UDP";
        /// Datagrams and multicast in the groups of IP over InfiniBand.
        IPOIB = S::RDMA_PS_IPOIB.0, "IPoIB";
        /// Any service of InfiniBand, for addresses of the family `AF_IB`.
        IB = S::RDMA_PS_IB.0, "IB";
    }
}

/// A message that carries private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    Request,
    Accept,
    Reject,
}

impl PortSpace {
    /// Whether queue pairs are of [`verbs::Ud`].
    pub fn is_datagram(self) -> bool {
        matches!(self, Self::UDP | Self::IPOIB)
    }

    /// How many bytes of private data a connection request can carry. (The message has 36 more, which librdmacm's addresses take.)
    pub fn max_request_private_data(self) -> usize {
        self.max_private_data(Carrier::Request)
    }

    /// How many bytes of private data [`Id::accept`](crate::Id::accept) can send.
    pub fn max_accept_private_data(self) -> usize {
        self.max_private_data(Carrier::Accept)
    }

    /// How many bytes of private data [`Id::reject`](crate::Id::reject) can send.
    pub fn max_reject_private_data(self) -> usize {
        self.max_private_data(Carrier::Reject)
    }

    /// InfiniBand Architecture Specification, volume 1, chapters 12.6 and 12.11.
    pub(crate) fn max_private_data(self, carrier: Carrier) -> usize {
        match (self.is_datagram(), carrier) {
            (false, Carrier::Request) => 92 - 36,
            (false, Carrier::Accept) => 196,
            (false, Carrier::Reject) => 148,
            (true, Carrier::Request) => 216 - 36,
            (true, Carrier::Accept | Carrier::Reject) => 136,
        }
    }

    /// Refuses private data that the message has no room for.
    pub(crate) fn check(self, carrier: Carrier, call: &'static str, private_data: &[u8]) -> Result<u8> {
        let limit = self.max_private_data(carrier);
        match u8::try_from(private_data.len()) {
            Ok(length) if usize::from(length) <= limit => Ok(length),
            _ => {
                let value = format!("{} bytes", private_data.len());
                let rule = format!("the port space {self} has room for {limit}");
                Err(Error::invalid(call, "private_data", value, rule))
            }
        }
    }
}

impl Default for PortSpace {
    /// [`TCP`](Self::TCP).
    fn default() -> Self {
        Self::TCP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_is_refused_beyond_the_limit_of_its_message() {
        for (space, carrier, limit) in [
            (PortSpace::TCP, Carrier::Request, 56),
            (PortSpace::TCP, Carrier::Accept, 196),
            (PortSpace::TCP, Carrier::Reject, 148),
            (PortSpace::UDP, Carrier::Request, 180),
            (PortSpace::UDP, Carrier::Accept, 136),
            (PortSpace::UDP, Carrier::Reject, 136),
        ] {
            assert_eq!(space.check(carrier, "rdma_connect", &vec![0; limit]).unwrap() as usize, limit);
            let error = space.check(carrier, "rdma_connect", &vec![0; limit + 1]).unwrap_err().to_string();
            assert!(
                error.contains(&format!("is {} bytes", limit + 1)) && error.ends_with(&format!("room for {limit}")),
                "{error}"
            );
            assert!(space.check(carrier, "rdma_connect", &[0; 256]).is_err(), "a length of 8 bits must not wrap");
        }
    }

    #[test]
    fn unknown_port_spaces_are_kept() {
        assert_eq!(PortSpace::from_raw(7).to_string(), "unknown (7)");
        assert_eq!(PortSpace::default(), PortSpace::TCP);
    }
}
