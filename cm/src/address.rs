//! Socket addresses as C has them.
//!
//! # Safety
//!
//! A `sockaddr_storage` is as large and as aligned as any socket address, is made of integers, and all zeroes are a valid one. Which
//! member is meant is told by its family.
#![allow(unsafe_code)]

use std::mem;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A socket address that calls of librdmacm can read.
pub(crate) struct RawAddress(libc::sockaddr_storage);

impl RawAddress {
    pub(crate) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.0).cast()
    }

    /// How many bytes of it mean something.
    pub(crate) fn len(&self) -> libc::socklen_t {
        let length = match libc::c_int::from(self.0.ss_family) {
            libc::AF_INET => size_of::<libc::sockaddr_in>(),
            _ => size_of::<libc::sockaddr_in6>(),
        };
        length as libc::socklen_t
    }
}

impl From<SocketAddr> for RawAddress {
    fn from(address: SocketAddr) -> Self {
        // SAFETY: all zeroes are a valid structure.
        let mut raw: libc::sockaddr_storage = unsafe { mem::zeroed() };
        match address {
            SocketAddr::V4(address) => {
                // SAFETY: as above.
                let mut v4: libc::sockaddr_in = unsafe { mem::zeroed() };
                v4.sin_family = libc::AF_INET as libc::sa_family_t;
                v4.sin_port = address.port().to_be();
                v4.sin_addr.s_addr = u32::from(*address.ip()).to_be();
                // SAFETY: the storage has room for every kind of address.
                unsafe { (&raw mut raw).cast::<libc::sockaddr_in>().write(v4) };
            }
            SocketAddr::V6(address) => {
                // SAFETY: as above.
                let mut v6: libc::sockaddr_in6 = unsafe { mem::zeroed() };
                v6.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                v6.sin6_port = address.port().to_be();
                v6.sin6_addr.s6_addr = address.ip().octets();
                v6.sin6_scope_id = address.scope_id();
                v6.sin6_flowinfo = address.flowinfo().to_be();
                // SAFETY: as above.
                unsafe { (&raw mut raw).cast::<libc::sockaddr_in6>().write(v6) };
            }
        }
        Self(raw)
    }
}

/// The address in a structure of librdmacm; `None`: there is none, or it is not an internet address.
///
/// # Safety
///
/// `address` is null or points to a socket address that is as long as its family says, and that nobody changes.
pub(crate) unsafe fn read(address: *const libc::sockaddr) -> Option<SocketAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: the caller says that there is one; its family comes first.
    match libc::c_int::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says so. It may be of any alignment.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(SocketAddrV4::new(u32::from_be(v4.sin_addr.s_addr).into(), u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let (flow, scope) = (u32::from_be(v6.sin6_flowinfo), v6.sin6_scope_id);
            Some(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), flow, scope).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_as_they_went() {
        for text in ["192.0.2.1:7471", "0.0.0.0:0", "[2001:db8::1]:65535", "[fe80::1%3]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            let mut raw = RawAddress::from(address);
            // SAFETY: it is one, and nobody changes it.
            assert_eq!(unsafe { read(raw.as_mut_ptr()) }, Some(address));
            assert_eq!(raw.len() as usize, if address.is_ipv4() { 16 } else { 28 });
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read(std::ptr::null()) }, None);
        let mut none = RawAddress::from(SocketAddr::from(([0, 0, 0, 0], 0)));
        none.0.ss_family = libc::AF_UNIX as libc::sa_family_t;
        // SAFETY: the family is looked at, and nothing else.
        assert_eq!(unsafe { read(none.as_mut_ptr()) }, None);
    }

    #[test]
    fn the_bytes_are_in_network_order() {
        let mut raw = RawAddress::from("192.0.2.1:258".parse::<SocketAddr>().unwrap());
        // SAFETY: the structure has that many bytes, all initialised.
        let bytes = unsafe { std::slice::from_raw_parts(raw.as_mut_ptr().cast::<u8>(), 8) };
        assert_eq!(&bytes[2..], [1, 2, 192, 0, 2, 1]);
    }
}
