//! The GID table of a port, and the choice of an entry.
//!
//! # Safety
//!
//! Each call is given an open context, and buffers as large as it is told.
#![allow(unsafe_code)]

use std::cmp::Reverse;
use std::ffi::CStr;
use std::fmt;
use std::mem::MaybeUninit;
use std::net::IpAddr;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::ffi;
use crate::gid::Gid;
use crate::open_enum::open_enum;
use crate::port::LinkLayer;
use crate::returns::{Errno, count_or_negative, zero_or_errno};
use crate::route::Source;

open_enum! {
    /// `enum ibv_gid_type`: the protocol that a GID belongs to.
    #[doc(alias = "ibv_gid_type")]
    GidType(u32) {
        /// InfiniBand.
        INFINIBAND = ffi::ibv_gid_type::IBV_GID_TYPE_IB.0, "InfiniBand";
        /// RoCE v1: Ethernet frames, one link only.
        ROCE_V1 = ffi::ibv_gid_type::IBV_GID_TYPE_ROCE_V1.0, "RoCE v1";
        /// RoCE v2: UDP packets, routable.
        ROCE_V2 = ffi::ibv_gid_type::IBV_GID_TYPE_ROCE_V2.0, "RoCE v2";
    }
}

/// How many entries of a port there is room for, whatever the device says. (Real ones have up to some thousand.)
const MAX_ENTRIES: u32 = 1 << 16;

/// `struct ibv_gid_entry`: an entry of a GID table that holds an address.
#[doc(alias = "ibv_gid_entry")]
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct GidEntry {
    /// The address.
    pub gid: Gid,
    /// Its index in the table, from 0.
    pub index: u32,
    /// The port, from 1.
    pub port: u32,
    /// The protocol that it belongs to.
    pub gid_type: GidType,
    /// The kernel's index of the network interface; 0 on InfiniBand.
    pub interface_index: u32,
}

impl GidEntry {
    fn from_raw(raw: &ffi::ibv_gid_entry) -> Self {
        Self {
            // SAFETY: each member of the union is 16 bytes of integers.
            gid: Gid::from_bytes(unsafe { raw.gid.raw }),
            index: raw.gid_index,
            port: raw.port_num,
            gid_type: GidType::from_raw(raw.gid_type),
            interface_index: raw.ndev_ifindex,
        }
    }

    /// The name of the network interface, such as `eth0`. `None` on InfiniBand, and where the interface is not in this
    /// network namespace.
    pub fn interface_name(&self) -> Option<String> {
        let mut name = [0; libc::IF_NAMESIZE];
        // SAFETY: `name` has room for IF_NAMESIZE bytes, as the call asks for.
        let named = unsafe { libc::if_indextoname(self.interface_index, name.as_mut_ptr()) };
        if named.is_null() {
            return None;
        }
        // SAFETY: the call succeeded, so `name` holds a text that ends with NUL.
        Some(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
    }
}

impl fmt::Display for GidEntry {
    /// Such as `3: ::ffff:192.0.2.1 (RoCE v2, eth0)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({}", self.index, self.gid, self.gid_type)?;
        match self.interface_name() {
            Some(name) => write!(f, ", {name})"),
            None => f.write_str(")"),
        }
    }
}

impl fmt::Debug for GidEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GidEntry")
            .field("index", &self.index)
            .field("gid", &self.gid)
            .field("type", &self.gid_type)
            .field("port", &self.port)
            .field("interface", &self.interface_name())
            .finish()
    }
}

/// What a GID has to match, for [`Context::choose_gid`]. The default matches every entry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GidFilter {
    /// The address of a network interface.
    pub address: Option<IpAddr>,
    /// The address of a peer: the GID is then that of the address from which this host's route to the peer starts. For a link-local
    /// address of IPv6, which lies behind every interface, it is a link-local one; [`interface`](Self::interface) tells of which.
    pub peer: Option<IpAddr>,
    /// The name of a network interface, such as `eth0`.
    pub interface: Option<String>,
    /// The protocol.
    pub gid_type: Option<GidType>,
}

impl GidFilter {
    /// The GID of this host's address.
    pub fn for_local(address: IpAddr) -> Self {
        Self { address: Some(address), ..Self::default() }
    }

    /// The GID by which this host reaches a peer of this address.
    pub fn for_peer(address: IpAddr) -> Self {
        Self { peer: Some(address), ..Self::default() }
    }

    /// Whether an entry matches; `source` is where the route to the peer starts.
    fn matches(&self, entry: &GidEntry, source: Option<Source>) -> bool {
        self.address.is_none_or(|address| Gid::from(address) == entry.gid)
            && source.is_none_or(|source| source.matches(entry.gid))
            && self.gid_type.is_none_or(|gid_type| gid_type == entry.gid_type)
            && self.interface.as_ref().is_none_or(|name| entry.interface_name().as_ref() == Some(name))
    }
}

impl fmt::Display for GidFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.address.map(|address| format!("the address {address}")));
        parts.extend(self.peer.map(|peer| format!("a route to {peer}")));
        parts.extend(self.interface.as_ref().map(|name| format!("the interface {name}")));
        parts.extend(self.gid_type.map(|gid_type| format!("the type {gid_type}")));
        f.write_str(&if parts.is_empty() { "any address".to_owned() } else { parts.join(" and ") })
    }
}

/// Which entry to prefer: RoCE v2 before v1 (v1 does not cross a router), an IPv4 address before a global IPv6 one before
/// a link-local one (which is gone when the interface loses it), the lower index last of all. A type that is not known comes after those
/// that are.
fn preference(entry: &GidEntry) -> impl Ord + use<> {
    let reach = match entry.gid.to_ip() {
        IpAddr::V4(address) if !address.is_link_local() => 3,
        IpAddr::V6(_) if !entry.gid.is_link_local() => 2,
        IpAddr::V4(_) => 1,
        IpAddr::V6(_) => 0,
    };
    let gid_type = match entry.gid_type {
        GidType::ROCE_V2 => 2,
        GidType::ROCE_V1 => 1,
        _ => 0,
    };
    (gid_type, reach, Reverse(entry.index))
}

impl Context {
    /// `ibv_query_gid_table`: the entries of a port's GID table that hold an address. Ports count from 1.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the device has no such port.
    ///
    /// # References
    ///
    /// [ibv_query_gid_table(3)](https://man7.org/linux/man-pages/man3/ibv_query_gid_table.3.html)
    #[doc(alias = "ibv_query_gid_table")]
    pub fn gid_table(&self, port: u8) -> Result<Vec<GidEntry>> {
        const VERB: &str = "ibv_query_gid_table";
        // The call wants room for the entries of all ports, and fails with EINVAL if there is too little.
        let mut room = 0;
        for number in 1..=self.device_attributes()?.port_count() {
            room += self.port(number)?.gid_table_len().min(MAX_ENTRIES) as usize;
        }
        self.port(port)?;
        let arguments = || format!("{}, room for {room} entries", self.device().name());
        // SAFETY: all zeroes are a valid, empty entry. (So each entry is valid, whether or not the call writes to it.)
        let mut entries: Vec<ffi::ibv_gid_entry> = vec![unsafe { std::mem::zeroed() }; room];
        // SAFETY: the context is open, and `entries` has room for `room` entries.
        let count = unsafe { ffi::ibv_query_gid_table(self.as_raw(), entries.as_mut_ptr(), room, 0) };
        let count = count_or_negative(count).map_err(|errno| errno.of(VERB, arguments()))?;
        if count > room {
            return Err(Errno(libc::EIO).with_remedy(VERB, arguments(), format!("the provider told of {count}")));
        }
        entries.truncate(count);
        Ok(entries.iter().map(GidEntry::from_raw).filter(|entry| entry.port == u32::from(port)).collect())
    }

    /// `ibv_query_gid_ex`: the entry of a port's GID table at `index`. `None`: the entry is empty. Ports count from 1,
    /// indices from 0.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the device has no such port, or its table is shorter.
    ///
    /// # References
    ///
    /// [ibv_query_gid_ex(3)](https://man7.org/linux/man-pages/man3/ibv_query_gid_ex.3.html)
    #[doc(alias = "ibv_query_gid_ex")]
    #[doc(alias = "ibv_query_gid")]
    pub fn gid(&self, port: u8, index: u32) -> Result<Option<GidEntry>> {
        let mut entry = MaybeUninit::zeroed();
        // SAFETY: the context is open and `entry` has room for the structure.
        let code = unsafe { ffi::ibv_query_gid_ex(self.as_raw(), port.into(), index, entry.as_mut_ptr(), 0) };
        match zero_or_errno(code) {
            // SAFETY: all zeroes are a valid structure, and libibverbs wrote valid fields over them.
            Ok(()) => Ok(Some(GidEntry::from_raw(&unsafe { entry.assume_init() })).filter(|e| !e.gid.is_unspecified())),
            Err(Errno(libc::ENODATA)) => Ok(None),
            Err(errno) => {
                let length = self.port(port)?.gid_table_len();
                let remedy = match index {
                    index if index >= length => format!("the table of port {port} has {length} entries, from 0"),
                    _ => String::new(),
                };
                let arguments = format!("{}, port {port}, GID index {index}", self.device().name());
                Err(errno.with_remedy("ibv_query_gid_ex", arguments, remedy))
            }
        }
    }

    /// Chooses an entry of a port's GID table among those that match `filter`.
    ///
    /// The order on RoCE: v2 before v1; an IPv4 address, then a global IPv6 one, then a link-local one; then the lowest
    /// index. Index 0, which many programs take, is usually a link-local address.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: no entry matches; the message lists those that there are.
    /// * `ENETUNREACH`: this host has no route to the filter's [`peer`](GidFilter::peer).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # fn main() -> verbs::Result<()> {
    /// let context = verbs::devices()?.find(None)?.open()?;
    /// let entry = context.choose_gid(1, &verbs::GidFilter::default())?;
    /// println!("GID index {}: {} ({})", entry.index, entry.gid, entry.gid_type);
    /// # Ok(()) }
    /// ```
    pub fn choose_gid(&self, port: u8, filter: &GidFilter) -> Result<GidEntry> {
        let table = self.gid_table(port)?;
        let source = filter.peer.map(Source::of_route_to).transpose()?;
        let matching = table.iter().filter(|entry| filter.matches(entry, source));
        let chosen = if self.port(port)?.link_layer() == LinkLayer::ETHERNET {
            matching.max_by_key(|entry| preference(entry))
        } else {
            matching.min_by_key(|entry| entry.index)
        };
        chosen.copied().ok_or_else(|| {
            let there_are: Vec<String> =
                table.iter().map(|entry| format!("{} {} ({})", entry.index, entry.gid, entry.gid_type)).collect();
            let there_are = if there_are.is_empty() { "no GID at all".to_owned() } else { there_are.join(", ") };
            let route = source.map(|source| format!("that route starts at {source}, and ")).unwrap_or_default();
            let rule = format!("{route}port {port} of {} has {there_are}", self.device().name());
            Error::invalid("ibv_query_gid_table", "the GID to choose", filter, rule)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u32, gid: &str, gid_type: GidType) -> GidEntry {
        GidEntry { gid: gid.parse().unwrap(), index, port: 1, gid_type, interface_index: 0 }
    }

    #[test]
    fn a_routable_ipv4_address_of_roce_v2_is_preferred() {
        let mut table = [
            entry(0, "fe80::1", GidType::ROCE_V1),
            entry(1, "fe80::1", GidType::ROCE_V2),
            entry(2, "192.0.2.1", GidType::ROCE_V1),
            entry(3, "169.254.0.1", GidType::ROCE_V2),
            entry(4, "2001:db8::1", GidType::ROCE_V2),
            entry(5, "192.0.2.1", GidType::ROCE_V2),
            entry(6, "192.0.2.2", GidType::ROCE_V2),
            entry(7, "192.0.2.3", GidType::from_raw(77)),
        ];
        table.sort_by_key(|entry| Reverse(preference(entry)));
        assert_eq!(table.map(|entry| entry.index), [5, 6, 4, 3, 1, 2, 0, 7]);
    }

    #[test]
    fn a_filter_matches_what_it_names() {
        let entry = entry(5, "192.0.2.1", GidType::ROCE_V2);
        assert!(GidFilter::default().matches(&entry, None));
        let address = |text: &str| GidFilter { address: Some(text.parse().unwrap()), ..GidFilter::default() };
        assert!(address("192.0.2.1").matches(&entry, None) && address("::ffff:192.0.2.1").matches(&entry, None));
        assert!(!address("192.0.2.2").matches(&entry, None));
        assert!(!GidFilter { gid_type: Some(GidType::ROCE_V1), ..GidFilter::default() }.matches(&entry, None));
        assert!(!GidFilter { interface: Some("eth0".into()), ..GidFilter::default() }.matches(&entry, None));
        let all =
            GidFilter { interface: Some("eth0".into()), gid_type: Some(GidType::ROCE_V2), ..address("192.0.2.1") };
        assert_eq!(all.to_string(), "the address 192.0.2.1 and the interface eth0 and the type RoCE v2");
    }
}
