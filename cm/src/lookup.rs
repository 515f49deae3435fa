//! [`ToAddress`]: names to addresses, within a deadline.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;

use crate::connection_options::Deadline;
use crate::error::{Error, Result};

/// What can be connected to: a [`SocketAddr`], an address and a port, or the name of a host, as `"storage.example.net:7471"` or
/// `("storage.example.net", 7471)`.
pub trait ToAddress {
    /// The address, or the name to be looked up.
    fn to_address(&self) -> Address;
}

/// An address, or the name of a host with a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Known(SocketAddr),
    /// A name with its port, for the system's resolver.
    Name(String),
}

impl Address {
    fn name(text: &str) -> Self {
        // No look-up for what is an address already.
        Self(text.parse().map_or_else(|_| Kind::Name(text.to_owned()), Kind::Known))
    }

    /// The addresses, of which there is at least one. The system's resolver has timeouts of its own; beyond the deadline it is left alone.
    pub(crate) fn look_up(&self, deadline: &Deadline) -> Result<Vec<SocketAddr>> {
        let name = match &self.0 {
            Kind::Known(address) => return Ok(vec![*address]),
            Kind::Name(name) => name.clone(),
        };
        let error = |reason: String| Error::Lookup { name: self.to_string(), reason };
        let (sender, receiver) = mpsc::channel();
        let resolver = thread::Builder::new().name("resolver".to_owned()).spawn(move || {
            // Nobody may be waiting any more.
            let _ = sender.send(name.to_socket_addrs().map(Iterator::collect::<Vec<_>>));
        });
        resolver.map_err(|reason| error(reason.to_string()))?;
        match receiver.recv_timeout(deadline.remaining()) {
            Ok(Ok(addresses)) if addresses.is_empty() => Err(self.no_address()),
            Ok(Ok(addresses)) => Ok(addresses),
            Ok(Err(reason)) => Err(error(reason.to_string())),
            Err(_) => Err(error("the resolver did not answer in time".to_owned())),
        }
    }

    pub(crate) fn no_address(&self) -> Error {
        Error::Lookup { name: self.to_string(), reason: "there is none".to_owned() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Known(address) => address.fmt(f),
            Kind::Name(name) => f.write_str(name),
        }
    }
}

impl ToAddress for Address {
    fn to_address(&self) -> Address {
        self.clone()
    }
}

impl ToAddress for str {
    fn to_address(&self) -> Address {
        Address::name(self)
    }
}

impl ToAddress for String {
    fn to_address(&self) -> Address {
        Address::name(self)
    }
}

impl ToAddress for (&str, u16) {
    fn to_address(&self) -> Address {
        match self.0.parse::<IpAddr>() {
            Ok(ip) => (ip, self.1).to_address(),
            Err(_) => Address(Kind::Name(format!("{}:{}", self.0, self.1))),
        }
    }
}

impl ToAddress for (String, u16) {
    fn to_address(&self) -> Address {
        (self.0.as_str(), self.1).to_address()
    }
}

macro_rules! known {
    ($($kind:ty),*) => {
        $(impl ToAddress for $kind {
            fn to_address(&self) -> Address {
                Address(Kind::Known((*self).into()))
            }
        })*
    };
}

known!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

impl<T: ToAddress + ?Sized> ToAddress for &T {
    fn to_address(&self) -> Address {
        (**self).to_address()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn addresses_need_no_resolver_and_names_do() {
        let known = |address: Address| matches!(address.0, Kind::Known(_));
        assert!(known("192.0.2.1:7471".to_address()));
        assert!(known("[2001:db8::1]:7471".to_address()));
        assert!(known(("192.0.2.1", 7471).to_address()));
        assert!(known(("2001:db8::1", 7471).to_address()));
        assert!(!known("localhost:7471".to_address()));
        assert_eq!(("storage", 7471).to_address().to_string(), "storage:7471");
        let deadline = Deadline::after(Duration::from_secs(30));
        let found = "localhost:7471".to_address().look_up(&deadline).unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback() && address.port() == 7471), "{found:?}");
        for wrong in ["no port", "name:99999", ":", ""] {
            let error = wrong.to_address().look_up(&deadline).unwrap_err();
            assert!(matches!(error, Error::Lookup { .. }), "{wrong:?}: {error}");
        }
    }

    #[test]
    fn a_resolver_that_is_slow_is_not_waited_for() {
        let error = "localhost:7471".to_address().look_up(&Deadline::after(Duration::ZERO));
        // It may have been quicker than the look at the clock.
        assert!(error.is_ok() || error.unwrap_err().to_string().contains("in time"));
    }
}
