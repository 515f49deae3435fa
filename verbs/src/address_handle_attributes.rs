//! [`AddressHandleAttributes`]: a path to another port.
//!
//! # Safety
//!
//! Each member of libibverbs' unions that is read is made of integers and initialised. `ibv_init_ah_from_wc` is given an open context
//! and copies of its own of the structures that it reads.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::MaybeUninit;

use crate::context::Context;
use crate::datagram::Datagram;
use crate::endpoint::{Endpoint, LocalEndpoint};
use crate::error::{Error, Result};
use crate::ffi;
use crate::gid::Gid;
use crate::grh::Grh;
use crate::returns::minus_one_and_errno;

/// `struct ibv_ah_attr`: the path of packets from a local port to another one. What an
/// [`AddressHandle`](crate::AddressHandle) is made of, and what a connected queue pair holds of its peer.
///
/// # References
///
/// [ibv_create_ah(3)](https://man7.org/linux/man-pages/man3/ibv_create_ah.3.html); InfiniBand Architecture Specification,
/// volume 1, chapter 11.2.2.1.
#[doc(alias = "ibv_ah_attr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AddressHandleAttributes {
    /// The local port, from 1.
    pub port: u8,
    /// The LID of the other port, or of a multicast group; 0 on RoCE.
    pub lid: u16,
    /// The service level, 0 to 15.
    pub service_level: u8,
    /// The lower bits of the local LID (LMC).
    pub source_path_bits: u8,
    /// The highest rate to send at, `enum ibv_rate`; 0: as fast as the port.
    pub static_rate: u8,
    /// What goes into the global route header. RoCE needs it; InfiniBand only between subnets and for multicast.
    pub global_route: Option<GlobalRoute>,
}

/// `struct ibv_global_route`: what goes into a global route header, or into the IP header of RoCE.
#[doc(alias = "ibv_global_route")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GlobalRoute {
    /// The GID of the other port, or of a multicast group.
    pub destination: Gid,
    /// The index of the local GID in the port's table, from 0; libibverbs has 8 bits for it.
    pub source_gid_index: u8,
    /// How many routers a packet may cross; on RoCE the kernel may set another number.
    pub hop_limit: u8,
    /// The traffic class (on RoCE v2 the DSCP and ECN bits).
    pub traffic_class: u8,
    /// The flow label, 20 bits.
    pub flow_label: u32,
}

impl GlobalRoute {
    /// The route to `destination` from the local GID at `source_gid_index`, across at most 64 routers.
    pub const fn new(destination: Gid, source_gid_index: u8) -> Self {
        Self { destination, source_gid_index, hop_limit: 64, traffic_class: 0, flow_label: 0 }
    }
}

impl AddressHandleAttributes {
    /// The path through a local `port` to the LID of a port of the same InfiniBand subnet.
    pub const fn to_lid(port: u8, lid: u16) -> Self {
        Self { port, lid, service_level: 0, source_path_bits: 0, static_rate: 0, global_route: None }
    }

    /// The path from a local end to a remote one.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: the link layer needs GIDs and one end has none, or the index of the local one has more than 8
    /// bits.
    pub fn between(local: &LocalEndpoint, remote: &Endpoint) -> Result<Self> {
        let mut attributes = Self::to_lid(local.port, remote.lid);
        match (local.gid, remote.gid) {
            (Some(_), Some(gid)) => attributes.global_route = Some(local.route_to(gid)?),
            (source, _) if local.port_attributes.requires_grh() => {
                let whose = if source.is_none() { "local" } else { "remote" };
                let rule = format!("{}, which needs the {whose} GID", local.port_attributes.why_grh());
                return Err(invalid("the GID", "missing", rule));
            }
            _ => {}
        }
        Ok(attributes)
    }

    /// The path from a local end to a multicast group, whose LID is 0 on RoCE.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: `group` is not the GID of one, or the local end has no GID, or the index of it has more than 8
    /// bits.
    pub fn to_multicast(local: &LocalEndpoint, group: Gid, lid: u16) -> Result<Self> {
        if !group.is_multicast() {
            return Err(invalid("the multicast group", group, MULTICAST_RULE));
        }
        Ok(Self { global_route: Some(local.route_to(group)?), ..Self::to_lid(local.port, lid) })
    }

    /// `ibv_init_ah_from_wc`: the path back to the sender of a datagram that arrived at `port`. `grh` is what
    /// [`Datagram::grh`] found.
    ///
    /// # Errors
    ///
    /// * `EINVAL`: the datagram was sent to a multicast group, so that its header does not tell which local GID to answer with. Make
    ///   the path with [`between`](Self::between), and the sender's [`Grh::source`].
    /// * `EPROTONOSUPPORT`: the header is none that libibverbs knows.
    /// * Others: the GID table does not have the GID that the datagram was sent to.
    ///
    /// # References
    ///
    /// [ibv_init_ah_from_wc(3)](https://man7.org/linux/man-pages/man3/ibv_init_ah_from_wc.3.html)
    #[doc(alias = "ibv_init_ah_from_wc")]
    pub fn from_completion(context: &Context, port: u8, datagram: &Datagram, grh: Option<&Grh>) -> Result<Self> {
        let (mut wc, mut grh) = raw_source(datagram, grh);
        let mut attributes = MaybeUninit::<ffi::ibv_ah_attr>::zeroed();
        // SAFETY: the context is open, and the structures outlive the call.
        let code =
            unsafe { ffi::ibv_init_ah_from_wc(context.as_raw(), port, &mut wc, &mut grh, attributes.as_mut_ptr()) };
        minus_one_and_errno(code).map_err(|errno| {
            errno.with_remedy("ibv_init_ah_from_wc", format_args!("port {port}, {datagram:?}"), from_multicast(&grh))
        })?;
        // SAFETY: all zeroes are a valid structure, and libibverbs wrote valid fields over them.
        Ok(Self::from_raw(&unsafe { attributes.assume_init() }))
    }

    /// The attributes that libibverbs or librdmacm has filled in.
    pub fn from_raw(raw: &ffi::ibv_ah_attr) -> Self {
        let route = GlobalRoute {
            // SAFETY: each member of the union is 16 bytes of integers.
            destination: Gid::from_bytes(unsafe { raw.grh.dgid.raw }),
            source_gid_index: raw.grh.sgid_index,
            hop_limit: raw.grh.hop_limit,
            traffic_class: raw.grh.traffic_class,
            flow_label: raw.grh.flow_label,
        };
        Self {
            port: raw.port_num,
            lid: raw.dlid,
            service_level: raw.sl,
            source_path_bits: raw.src_path_bits,
            static_rate: raw.static_rate,
            global_route: (raw.is_global != 0).then_some(route),
        }
    }

    /// The attributes in libibverbs' terms.
    pub fn to_raw(&self) -> ffi::ibv_ah_attr {
        // SAFETY: all zeroes are a valid structure.
        let mut raw: ffi::ibv_ah_attr = unsafe { std::mem::zeroed() };
        raw.port_num = self.port;
        raw.dlid = self.lid;
        raw.sl = self.service_level;
        raw.src_path_bits = self.source_path_bits;
        raw.static_rate = self.static_rate;
        if let Some(route) = &self.global_route {
            raw.is_global = 1;
            raw.grh.dgid.raw = route.destination.to_bytes();
            raw.grh.sgid_index = route.source_gid_index;
            raw.grh.hop_limit = route.hop_limit;
            raw.grh.traffic_class = route.traffic_class;
            raw.grh.flow_label = route.flow_label;
        }
        raw
    }

    /// Values that do not fit the fields of the wire. The device would cut them off.
    pub(crate) fn check(&self, verb: &'static str) -> Result<()> {
        let flow_label = self.global_route.map_or(0, |route| route.flow_label);
        for (argument, value, limit) in
            [("service_level", u32::from(self.service_level), 15), ("flow_label", flow_label, 0xf_ffff)]
        {
            if value > limit {
                return Err(Error::invalid(verb, argument, value, format!("it is 0 to {limit}")));
            }
        }
        Ok(())
    }

    /// What `context` has against these attributes.
    pub(crate) fn find_faults(&self, context: &Context) -> Vec<String> {
        let mut found = Vec::new();
        let port = match context.port(self.port) {
            Ok(port) => port,
            Err(error) => return vec![format!("port_num is {}: {error}", self.port)],
        };
        let Some(route) = &self.global_route else {
            if port.requires_grh() {
                found.push(format!("{}, which needs GIDs", port.why_grh()));
            }
            return found;
        };
        let index = u32::from(route.source_gid_index);
        match context.gid(self.port, index) {
            Ok(None) => {
                let filled = context.gid_table(self.port).map_or(0, |table| table.len());
                found.push(format!("GID index {index} is empty; the table has {filled} entries that are not"));
            }
            Err(error) => found.push(error.to_string()),
            Ok(Some(_)) => {}
        }
        if route.destination.is_unspecified() {
            found.push("the remote GID is all zeroes".to_owned());
        }
        found
    }

    /// Why the path leads nowhere.
    pub(crate) fn unreachable(&self, context: &Context) -> String {
        let Some(route) = &self.global_route else { return String::new() };
        let (remote, index) = (route.destination, route.source_gid_index);
        let text = format!("nobody answers at the remote GID {remote} on the network of local GID index {index}");
        match context.gid(self.port, index.into()) {
            Ok(Some(entry)) => format!("{text} ({})", entry.gid),
            _ => text,
        }
    }
}

impl fmt::Display for GlobalRoute {
    /// Such as `to fe80::1 from GID index 3, hop limit 64`, with the traffic class and the flow label where they are not 0.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { destination, source_gid_index, hop_limit, traffic_class, flow_label } = self;
        write!(f, "to {destination} from GID index {source_gid_index}, hop limit {hop_limit}")?;
        if *traffic_class != 0 {
            write!(f, ", traffic class {traffic_class:#x}")?;
        }
        if *flow_label != 0 {
            write!(f, ", flow label {flow_label:#x}")?;
        }
        Ok(())
    }
}

impl fmt::Display for AddressHandleAttributes {
    /// Such as `port 1, LID 0x17, to fe80::1 from GID index 3, hop limit 64`; what is 0 is left out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { port, lid, service_level, source_path_bits, static_rate, global_route } = self;
        write!(f, "port {port}")?;
        if *lid != 0 || global_route.is_none() {
            write!(f, ", LID {lid:#x}")?;
        }
        if let Some(route) = global_route {
            write!(f, ", {route}")?;
        }
        let fields = [("service level", service_level), ("path bits", source_path_bits), ("static rate", static_rate)];
        fields.into_iter().filter(|(_, value)| **value != 0).try_for_each(|(name, value)| write!(f, ", {name} {value}"))
    }
}

pub(crate) const MULTICAST_RULE: &str =
    "a multicast group has an IPv4 address of 224.0.0.0/4, or an IPv6 one of ff00::/8";

fn invalid(argument: &'static str, value: impl ToString, rule: impl Into<String>) -> Error {
    Error::invalid("ibv_create_ah", argument, value, rule)
}

impl LocalEndpoint {
    /// The route from here to a GID.
    fn route_to(&self, gid: Gid) -> Result<GlobalRoute> {
        let Some(source) = self.gid else {
            return Err(invalid("the GID", "missing", "the local end needs one"));
        };
        match u8::try_from(source.index) {
            Ok(index) => Ok(GlobalRoute::new(gid, index)),
            Err(_) => Err(invalid("sgid_index", source.index, "libibverbs has 8 bits for it")),
        }
    }
}

/// What `ibv_init_ah_from_wc` and `ibv_create_ah_from_wc` read, without the pointers to mutable memory that they want. They read the
/// header whether or not there is one.
pub(crate) fn raw_source(datagram: &Datagram, grh: Option<&Grh>) -> (ffi::ibv_wc, ffi::ibv_grh) {
    let bytes = grh.map_or([0; Grh::LEN], |grh| grh.to_bytes());
    // SAFETY: the structure is 40 bytes of integers.
    let grh = unsafe { bytes.as_ptr().cast::<ffi::ibv_grh>().read_unaligned() };
    (datagram.to_raw(), grh)
}

const _: () = assert!(size_of::<ffi::ibv_grh>() == Grh::LEN);

/// Advice for a datagram that was sent to a group.
pub(crate) fn from_multicast(grh: &ffi::ibv_grh) -> String {
    // SAFETY: the structure is 40 bytes of integers.
    let bytes = unsafe { (&raw const *grh).cast::<[u8; Grh::LEN]>().read() };
    let grh = Grh::from_bytes(bytes);
    match (grh.source(), grh.destination()) {
        (Some(source), Some(group)) if group.is_multicast() => format!(
            "the datagram was sent to the multicast group {group}, so its header does not tell the local GID to answer with: make \
             the address handle from a local endpoint and the sender's GID, {source}",
        ),
        (_, Some(gid)) => format!("the datagram was sent to the GID {gid}, which the port has to have"),
        (_, None) => "there is no header that tells where the datagram came from".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_go_to_libibverbs_and_back() {
        let mut attributes = AddressHandleAttributes::to_lid(2, 0x17);
        attributes.service_level = 3;
        attributes.source_path_bits = 4;
        attributes.static_rate = 5;
        assert_eq!(attributes.to_string(), "port 2, LID 0x17, service level 3, path bits 4, static rate 5");
        assert_eq!(AddressHandleAttributes::to_lid(1, 0).to_string(), "port 1, LID 0x0");
        assert_eq!(attributes.to_raw().is_global, 0);
        assert_eq!(AddressHandleAttributes::from_raw(&attributes.to_raw()), attributes);
        let mut route = GlobalRoute::new("192.0.2.1".parse().unwrap(), 7);
        (route.hop_limit, route.traffic_class, route.flow_label) = (9, 10, 0xf_ffff);
        attributes.global_route = Some(route);
        assert_eq!(AddressHandleAttributes::from_raw(&attributes.to_raw()), attributes);
        attributes.check("ibv_create_ah").unwrap();
        let text = "to ::ffff:192.0.2.1 from GID index 7, hop limit 9, traffic class 0xa, flow label 0xfffff";
        assert_eq!(route.to_string(), text);
        let mut attributes = AddressHandleAttributes::to_lid(1, 0);
        attributes.global_route = Some(GlobalRoute::new("fe80::1".parse().unwrap(), 3));
        assert_eq!(attributes.to_string(), "port 1, to fe80::1 from GID index 3, hop limit 64");
    }

    #[test]
    fn values_that_the_wire_has_no_room_for_are_refused() {
        let mut attributes = AddressHandleAttributes::to_lid(1, 1);
        attributes.service_level = 16;
        let error = attributes.check("ibv_create_ah").unwrap_err().to_string();
        assert_eq!(error, "ibv_create_ah: service_level is 16, but it is 0 to 15");
        let mut attributes = AddressHandleAttributes::to_lid(1, 1);
        let mut route = GlobalRoute::new(Gid::default(), 0);
        route.flow_label = 1 << 20;
        attributes.global_route = Some(route);
        let error = attributes.check("ibv_create_ah").unwrap_err().to_string();
        assert_eq!(error, "ibv_create_ah: flow_label is 1048576, but it is 0 to 1048575");
    }
}
