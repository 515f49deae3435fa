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

use crate::address::{self, RawAddress};
use crate::error::{Error, Result};
use crate::ffi;
use crate::port_space::PortSpace;
use crate::returns::Errno;

/// What [`address_info`] is to look for.
#[derive(Clone, Copy, Debug, Default)]
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
    /// The port space. Default: TCP.
    pub port_space: PortSpace,
    /// The address to connect from.
    pub source: Option<SocketAddr>,
}

/// `struct rdma_addrinfo`: addresses that can be connected to, or listened at.
#[doc(alias = "rdma_addrinfo")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddressInfo {
    /// The port space.
    pub port_space: PortSpace,
    /// The local address.
    pub source: Option<SocketAddr>,
    /// The peer's address.
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

/// `rdma_getaddrinfo`: looks up a host and a service, either of which may be missing.
///
/// It asks the system's resolver, and may wait as long as that does.
///
/// # Errors
///
/// * [`Error::NoDevice`]: the machine has no RDMA device.
/// * [`Error::Lookup`]: the name has no address.
/// * [`Error::InvalidArgument`]: there is a null character in a name.
///
/// # References
///
/// [rdma_getaddrinfo(3)](https://man7.org/linux/man-pages/man3/rdma_getaddrinfo.3.html)
#[doc(alias = "rdma_getaddrinfo")]
#[doc(alias = "rdma_freeaddrinfo")]
pub fn address_info(host: Option<&str>, service: Option<&str>, hints: &AddressHints) -> Result<Vec<AddressInfo>> {
    const CALL: &str = "rdma_getaddrinfo";
    let text = |argument, text: Option<&str>| {
        let invalid = |_| Error::invalid(CALL, argument, format!("{text:?}"), "it has a null character");
        text.map(CString::new).transpose().map_err(invalid)
    };
    let (node, port) = (text("the host", host)?, text("the service", service)?);
    let pointer = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
    // SAFETY: all zeroes are a valid structure.
    let mut raw: ffi::rdma_addrinfo = unsafe { mem::zeroed() };
    let flags = [
        (hints.passive, ffi::RAI_PASSIVE),
        (hints.numeric_host, ffi::RAI_NUMERICHOST),
        (hints.no_route, ffi::RAI_NOROUTE),
    ];
    raw.ai_flags = flags.into_iter().filter(|(wanted, _)| *wanted).map(|(_, flag)| flag as c_int).sum();
    raw.ai_port_space = hints.port_space.as_raw() as c_int;
    let mut source = hints.source.map(RawAddress::from);
    if let Some(source) = &mut source {
        raw.ai_src_len = source.len();
        raw.ai_src_addr = source.as_mut_ptr();
    }
    let mut list = ptr::null_mut();
    // SAFETY: the names, the hints and the place for the list outlive the call.
    let code = unsafe { ffi::rdma_getaddrinfo(pointer(&node), pointer(&port), &raw, &mut list) };
    let name = || format!("{}:{}", host.unwrap_or("*"), service.unwrap_or("*"));
    match (code, NonNull::new(list)) {
        (0, Some(list)) => {
            // SAFETY: the list is alive, and freed once, behind.
            let copies = unsafe { copy(list) };
            // SAFETY: as above.
            unsafe { ffi::rdma_freeaddrinfo(list.as_ptr()) };
            Ok(copies)
        }
        (0, None) => Ok(Vec::new()),
        (-1, _) => Err(match Errno::last() {
            Errno(errno @ (libc::ENODEV | libc::ENOENT | libc::ENXIO | libc::ENOSYS)) => {
                Error::NoDevice { call: CALL, errno }
            }
            errno => errno.of(CALL, name()),
        }),
        (code, _) => {
            // SAFETY: the text of a number is a constant of the C library.
            let reason = unsafe { CStr::from_ptr(libc::gai_strerror(code)) };
            Err(Error::Lookup { name: name(), reason: reason.to_string_lossy().into_owned() })
        }
    }
}

/// # Safety
///
/// The list is alive.
unsafe fn copy(list: NonNull<ffi::rdma_addrinfo>) -> Vec<AddressInfo> {
    let mut all = Vec::new();
    let mut next = list.as_ptr();
    while !next.is_null() {
        // SAFETY: the entry is of the list, which is alive; its pointers are null or lead to what their lengths say.
        unsafe {
            let entry = &*next;
            all.push(AddressInfo {
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
