//! [`ToAddress`]: names to addresses, within a deadline.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;

use crate::connection_options::Deadline;
use crate::error::{Error, Result};

/// What can be connected to: a [`SocketAddr`], an address and a port, or the name of a host, as `"storage.example.net:7471"` or
/// `("storage.example.net", 7471)`; or several addresses of a host.
pub trait ToAddress {
    /// The addresses, or the name to be looked up.
    fn to_address(&self) -> Address;
}

/// Addresses, or the name of a host with a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(Kind);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    Known(Vec<SocketAddr>),
    /// A name with its port, for the system's resolver.
    Name(String),
}

impl Address {
    pub(crate) fn known(addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self(Kind::Known(addresses.into_iter().collect()))
    }

    fn name(text: &str) -> Self {
        // No look-up for what is an address already.
        Self(text.parse().map_or_else(|_| Kind::Name(text.to_owned()), |address| Kind::Known(vec![address])))
    }

    /// The addresses, of which there is at least one. The system's resolver has timeouts of its own; beyond the deadline it is left alone.
    pub(crate) fn look_up(&self, deadline: &Deadline) -> Result<Vec<SocketAddr>> {
        self.look_up_with(deadline, |name| name.to_socket_addrs().map(Iterator::collect))
    }

    fn look_up_with(
        &self,
        deadline: &Deadline,
        resolve: impl FnOnce(String) -> io::Result<Vec<SocketAddr>> + Send + 'static,
    ) -> Result<Vec<SocketAddr>> {
        let addresses = match &self.0 {
            Kind::Known(addresses) => addresses.clone(),
            Kind::Name(name) => {
                let name = name.clone();
                on_resolver(deadline, self, move || resolve(name))?
                    .map_err(|reason| Error::Lookup { name: self.to_string(), reason: reason.to_string() })?
            }
        };
        if addresses.is_empty() { Err(self.no_address()) } else { Ok(addresses) }
    }

    pub(crate) fn no_address(&self) -> Error {
        Error::Lookup { name: self.to_string(), reason: "there is none".to_owned() }
    }

    /// Tries one address after another, until one succeeds; each has an equal share of the time that is left. The last one's error is
    /// that of all.
    pub(crate) fn try_each<R>(
        &self,
        deadline: &Deadline,
        mut attempt: impl FnMut(SocketAddr, &Deadline) -> Result<R>,
    ) -> Result<R> {
        let addresses = self.look_up(deadline)?;
        let mut result = Err(self.no_address());
        for (index, address) in addresses.iter().enumerate() {
            result = attempt(*address, &deadline.share(addresses.len() - index));
            if result.is_ok() {
                break;
            }
        }
        result
    }
}

/// Calls the system's resolver on a thread of its own, which is left alone when the time is over: it has timeouts of its own.
pub(crate) fn on_resolver<R: Send + 'static>(
    deadline: &Deadline,
    name: &dyn fmt::Display,
    resolve: impl FnOnce() -> R + Send + 'static,
) -> Result<R> {
    let error = |reason: String| Error::Lookup { name: name.to_string(), reason };
    let (sender, receiver) = mpsc::channel();
    let resolver = thread::Builder::new().name("resolver".to_owned()).spawn(move || {
        // Nobody may be waiting any more.
        let _ = sender.send(resolve());
    });
    resolver.map_err(|reason| error(reason.to_string()))?;
    receiver.recv_timeout(deadline.remaining()).map_err(|_| error("the resolver did not answer in time".to_owned()))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Known(addresses) => {
                let text: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                f.write_str(&text.join(", "))
            }
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
                Address::known([(*self).into()])
            }
        })*
    };
}

known!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

impl ToAddress for [SocketAddr] {
    /// Each is tried in turn.
    fn to_address(&self) -> Address {
        Address::known(self.iter().copied())
    }
}

impl ToAddress for Vec<SocketAddr> {
    /// Each is tried in turn.
    fn to_address(&self) -> Address {
        self.as_slice().to_address()
    }
}

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
        let (sender, receiver) = mpsc::channel::<()>();
        let never = move |_| {
            let _ = receiver.recv();
            Ok(Vec::new())
        };
        let error =
            "slow:7471".to_address().look_up_with(&Deadline::after(Duration::from_millis(20)), never).unwrap_err();
        assert_eq!(error.to_string(), "no address for \"slow:7471\": the resolver did not answer in time");
        drop(sender);
    }

    #[test]
    fn what_a_resolver_says_is_what_is_tried() {
        let deadline = Deadline::after(Duration::from_secs(60));
        let addresses: Vec<SocketAddr> = ["192.0.2.1:7", "[2001:db8::1]:7"].map(|text| text.parse().unwrap()).into();
        let two = addresses.clone();
        let found = "two:7".to_address().look_up_with(&deadline, |name| {
            assert_eq!(name, "two:7");
            Ok(two)
        });
        assert_eq!(found.unwrap(), addresses);
        let error = "none:7".to_address().look_up_with(&deadline, |_| Ok(Vec::new())).unwrap_err();
        assert_eq!(error.to_string(), "no address for \"none:7\": there is none");
        let error = "odd:7".to_address().look_up_with(&deadline, |_| Err(io::Error::other("odd"))).unwrap_err();
        assert_eq!(error.to_string(), "no address for \"odd:7\": odd");
    }

    #[test]
    fn each_address_is_tried_in_turn_with_its_share_of_the_time_until_one_succeeds() {
        let addresses: Vec<SocketAddr> = (1..=4).map(|port| SocketAddr::from(([192, 0, 2, 1], port))).collect();
        let target = addresses.to_address();
        assert_eq!(target.to_string(), "192.0.2.1:1, 192.0.2.1:2, 192.0.2.1:3, 192.0.2.1:4");
        let deadline = Deadline::after(Duration::from_secs(1200));
        let mut tried = Vec::new();
        let port = target.try_each(&deadline, |address, share| {
            tried.push((address.port(), share.remaining().as_secs_f64().div_euclid(100.0)));
            if address.port() == 3 { Ok(3) } else { Err(Error::Disconnected) }
        });
        assert_eq!(port.unwrap(), 3);
        // A quarter of 20 minutes, a third, and a half, less what it took to come here.
        assert_eq!(tried, [(1, 2.0), (2, 3.0), (3, 5.0)]);
        let error = target.try_each(&deadline, |address, share| -> Result<()> {
            if address.port() == 4 {
                assert!(share.remaining() > Duration::from_secs(1100), "the last one has all that is left");
            }
            Err(Error::WrongState { call: "test", rule: if address.port() == 4 { "last" } else { "earlier" } })
        });
        assert_eq!(error.unwrap_err().to_string(), "test: last");
        let mut count = 0;
        let none = Vec::<SocketAddr>::new().to_address().try_each(&deadline, |_, _| {
            count += 1;
            Ok(())
        });
        assert!(matches!(none, Err(Error::Lookup { .. })) && count == 0);
    }
}
