//! [`AddressInfo`]: `rdma_getaddrinfo`.
//!
//! # Safety
//!
//! The list of `rdma_getaddrinfo` is alive, and nobody changes it, until it is freed; all of it is copied before. `rdma_addrinfo` is made
//! of integers and pointers, and all zeroes are a valid one.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem;
use std::net::SocketAddr;
use std::ptr::{self, NonNull};
use std::time::Duration;

use crate::address::{self, RawAddress};
use crate::connection_options::Deadline;
use crate::error::{Error, Result};
use crate::ffi;
use crate::lookup::{Address, ToAddress, on_resolver};
use crate::open_enum::open_enum;
use crate::port_space::PortSpace;
use crate::returns::Errno;

const CALL: &str = "rdma_getaddrinfo";

open_enum! {
    /// The kind of an address, as a number of the system.
    AddressFamily(u16) {
        /// IPv4.
        V4 = libc::AF_INET as u16, "IPv4";
        /// IPv6.
        V6 = libc::AF_INET6 as u16, "IPv6";
        /// InfiniBand: a GID in place of an IP address. Rust's [`SocketAddr`] has none of these.
        #[doc(alias = "AF_IB")]
        INFINIBAND = 27, "InfiniBand";
    }
}

open_enum! {
    /// `enum ibv_qp_type`: the transport that a service at an address is reached by.
    QueuePairType(u32) {
        /// Reliable connections ([`verbs::Rc`]).
        RC = verbs::ffi::ibv_qp_type::IBV_QPT_RC.0, "RC";
        /// Unreliable connections ([`verbs::Uc`]).
        UC = verbs::ffi::ibv_qp_type::IBV_QPT_UC.0, "UC";
        /// Datagrams ([`verbs::Ud`]).
        UD = verbs::ffi::ibv_qp_type::IBV_QPT_UD.0, "UD";
    }
}

/// What [`address_info`] is to look for.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AddressHints {
    /// For listening: the addresses are local ones.
    #[doc(alias = "RAI_PASSIVE")]
    pub passive: bool,
    /// The host is an address, and no name is looked up.
    #[doc(alias = "RAI_NUMERICHOST")]
    pub numeric_host: bool,
    /// No address cache is asked for routes.
    #[doc(alias = "RAI_NOROUTE")]
    pub no_route: bool,
    /// The kind of addresses. With [`numeric_host`](Self::numeric_host), what the host is taken for. Default: any.
    #[doc(alias = "RAI_FAMILY")]
    pub family: Option<AddressFamily>,
    /// The transport. Default: that of the port space.
    pub queue_pair_type: Option<QueuePairType>,
    /// The port space. Default: TCP.
    pub port_space: PortSpace,
    /// The address to connect from.
    pub source: Option<SocketAddr>,
    /// How long to wait for the system's resolver. Default: 10 s.
    pub timeout: Duration,
}

impl Default for AddressHints {
    fn default() -> Self {
        Self {
            passive: false,
            numeric_host: false,
            no_route: false,
            family: None,
            queue_pair_type: None,
            port_space: PortSpace::default(),
            source: None,
            timeout: Duration::from_secs(10),
        }
    }
}

/// `struct rdma_addrinfo`: addresses that can be connected to, or listened at.
///
/// It can be [connected to](crate::connect()), and a list of them too, whose addresses are tried in turn. Those of InfiniBand are skipped: where
/// an address cache (ibacm) runs, they come first.
#[doc(alias = "rdma_addrinfo")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddressInfo {
    /// Whether it is for listening, at the local address.
    pub passive: bool,
    /// The kind of the addresses.
    pub family: AddressFamily,
    /// The transport.
    pub queue_pair_type: QueuePairType,
    /// The port space.
    pub port_space: PortSpace,
    /// The local address, if it is an IP address.
    pub source: Option<SocketAddr>,
    /// The peer's address, if it is an IP address.
    pub destination: Option<SocketAddr>,
    /// The local host's name.
    pub source_name: Option<String>,
    /// The peer's name.
    pub destination_name: Option<String>,
    /// The route that an InfiniBand address cache knows, for [`Id::set_path`](crate::Id::set_path); empty if none does.
    pub route: Vec<u8>,
    /// Bytes to put before the private data of the connection request.
    pub connect_data: Vec<u8>,
}

impl Default for AddressFamily {
    fn default() -> Self {
        Self::V4
    }
}

impl Default for QueuePairType {
    fn default() -> Self {
        Self::RC
    }
}

impl AddressInfo {
    /// The address to connect to or to listen at; `None`: it is none of IP.
    pub fn address(&self) -> Option<SocketAddr> {
        if self.passive { self.source } else { self.destination }
    }
}

impl ToAddress for AddressInfo {
    fn to_address(&self) -> Address {
        Address::known(self.address())
    }
}

impl ToAddress for [AddressInfo] {
    fn to_address(&self) -> Address {
        Address::known(self.iter().filter_map(AddressInfo::address))
    }
}

impl ToAddress for Vec<AddressInfo> {
    fn to_address(&self) -> Address {
        self.as_slice().to_address()
    }
}

/// `rdma_getaddrinfo`: looks up a host and a service, either of which may be missing.
///
/// It asks the system's resolver, on a thread of its own.
///
/// # Errors
///
/// * [`Error::NoDevice`]: the machine has no RDMA device.
/// * [`Error::Lookup`]: the name has no address, or the resolver did not answer in time.
/// * [`Error::InvalidArgument`]: there is a null character in a name.
///
/// # Examples
///
/// ```no_run
/// # fn main() -> cm::Result<()> {
/// let mut hints = cm::AddressHints::default();
/// hints.family = Some(cm::AddressFamily::V6);
/// let found = cm::address_info(Some("storage.example.net"), Some("7471"), &hints)?;
/// let connection = cm::connect(&found)?;
/// # Ok(()) }
/// ```
///
/// # References
///
/// [rdma_getaddrinfo(3)](https://man7.org/linux/man-pages/man3/rdma_getaddrinfo.3.html)
#[doc(alias = "rdma_getaddrinfo")]
#[doc(alias = "rdma_freeaddrinfo")]
pub fn address_info(host: Option<&str>, service: Option<&str>, hints: &AddressHints) -> Result<Vec<AddressInfo>> {
    let text = |argument, text: Option<&str>| {
        let invalid = |_| Error::invalid(CALL, argument, format!("{text:?}"), "it has a null character");
        text.map(CString::new).transpose().map_err(invalid)
    };
    let (node, port) = (text("the host", host)?, text("the service", service)?);
    let name = format!("{}:{}", host.unwrap_or("*"), service.unwrap_or("*"));
    let (hints, deadline) = (*hints, Deadline::after(hints.timeout));
    on_resolver(&deadline, &name.clone(), move || look_up(node.as_deref(), port.as_deref(), &hints, name))?
}

fn look_up(
    host: Option<&CStr>,
    service: Option<&CStr>,
    hints: &AddressHints,
    name: String,
) -> Result<Vec<AddressInfo>> {
    let pointer = |text: Option<&CStr>| text.map_or(ptr::null(), CStr::as_ptr);
    // SAFETY: all zeroes are a valid structure.
    let mut raw: ffi::rdma_addrinfo = unsafe { mem::zeroed() };
    let flags = [
        (hints.passive, ffi::RAI_PASSIVE),
        (hints.numeric_host, ffi::RAI_NUMERICHOST),
        (hints.no_route, ffi::RAI_NOROUTE),
        (hints.family.is_some(), ffi::RAI_FAMILY),
    ];
    raw.ai_flags = flags.into_iter().filter(|(wanted, _)| *wanted).map(|(_, flag)| flag as c_int).sum();
    raw.ai_family = hints.family.map_or(0, |family| family.as_raw().into());
    raw.ai_qp_type = hints.queue_pair_type.map_or(0, |kind| kind.as_raw() as c_int);
    raw.ai_port_space = hints.port_space.as_raw() as c_int;
    let mut source = hints.source.map(RawAddress::from);
    if let Some(source) = &mut source {
        raw.ai_src_len = source.len();
        raw.ai_src_addr = source.as_mut_ptr();
    }
    let mut list = ptr::null_mut();
    // SAFETY: the names, the hints and the place for the list outlive the call.
    let code = unsafe { ffi::rdma_getaddrinfo(pointer(host), pointer(service), &raw, &mut list) };
    match (code, NonNull::new(list)) {
        (0, Some(list)) => {
            // SAFETY: the list is alive, and freed once, behind.
            let copies = unsafe { copy(list, hints.passive) };
            // SAFETY: as above.
            unsafe { ffi::rdma_freeaddrinfo(list.as_ptr()) };
            Ok(copies)
        }
        (0, None) => Ok(Vec::new()),
        (-1, _) => Err(match Errno::last() {
            Errno(errno @ (libc::ENODEV | libc::ENOENT | libc::ENXIO | libc::ENOSYS)) => {
                Error::NoDevice { call: CALL, errno }
            }
            errno => errno.of(CALL, name),
        }),
        (code, _) => {
            // SAFETY: the text of a number is a constant of the C library.
            let reason = unsafe { CStr::from_ptr(libc::gai_strerror(code)) };
            Err(Error::Lookup { name, reason: reason.to_string_lossy().into_owned() })
        }
    }
}

/// # Safety
///
/// The list is alive.
unsafe fn copy(list: NonNull<ffi::rdma_addrinfo>, passive: bool) -> Vec<AddressInfo> {
    let mut all = Vec::new();
    let mut next = list.as_ptr();
    while !next.is_null() {
        // SAFETY: the entry is of the list, which is alive; its pointers are null or lead to what their lengths say.
        unsafe {
            let entry = &*next;
            all.push(AddressInfo {
                passive,
                family: AddressFamily::from_raw(entry.ai_family as u16),
                queue_pair_type: QueuePairType::from_raw(entry.ai_qp_type as u32),
                port_space: PortSpace::from_raw(entry.ai_port_space as u32),
                source: address::read(entry.ai_src_addr),
                destination: address::read(entry.ai_dst_addr),
                source_name: string(entry.ai_src_canonname),
                destination_name: string(entry.ai_dst_canonname),
                route: bytes(entry.ai_route.cast(), entry.ai_route_len),
                connect_data: bytes(entry.ai_connect.cast(), entry.ai_connect_len),
            });
            next = entry.ai_next;
        }
    }
    all
}

/// # Safety
///
/// `text` is null or ends with a null character.
unsafe fn string(text: *const c_char) -> Option<String> {
    // SAFETY: as the caller says.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// # Safety
///
/// `bytes` is null or leads to that many.
unsafe fn bytes(bytes: *const u8, length: usize) -> Vec<u8> {
    match bytes.is_null() {
        true => Vec::new(),
        // SAFETY: as the caller says.
        false => unsafe { std::slice::from_raw_parts(bytes, length) }.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_without_an_ip_address_are_skipped() {
        let (peer, own): (SocketAddr, SocketAddr) = ("192.0.2.1:7".parse().unwrap(), "192.0.2.2:7".parse().unwrap());
        let infiniband = AddressInfo { family: AddressFamily::INFINIBAND, ..AddressInfo::default() };
        let active = AddressInfo { source: Some(own), destination: Some(peer), ..AddressInfo::default() };
        let passive = AddressInfo { passive: true, source: Some(own), ..AddressInfo::default() };
        assert_eq!(vec![infiniband.clone(), active].to_address(), peer.to_address());
        assert_eq!(vec![infiniband.clone(), passive].to_address(), own.to_address());
        let error = infiniband.to_address().look_up(&Deadline::after(Duration::from_secs(60)));
        assert!(matches!(error, Err(Error::Lookup { .. })), "{error:?}");
    }
}
