//! [`FlowRule`]: which packets a flow leads, and what is done with them.
//!
//! # Safety
//!
//! All zeroes are a valid value of each structure here, which are plain integers and arrays of them.
#![allow(unsafe_code)]

use std::net::{Ipv4Addr, Ipv6Addr};

use super::specification::RawRule;
use crate::context::Context;
use crate::counters::Counters;
use crate::error::Result;
use crate::esp_action::EspAction;
use crate::ffi;
use crate::ffi::{ibv_flow_attr_type as Type, ibv_flow_spec_type as Spec};

/// What a packet's Ethernet header has to have; `None`: anything.
#[doc(alias = "ibv_flow_spec_eth")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EthernetMatch {
    /// The destination.
    pub destination: Option<[u8; 6]>,
    /// The source.
    pub source: Option<[u8; 6]>,
    /// The type of what follows, in the host's byte order.
    pub ether_type: Option<u16>,
    /// The VLAN tag, in the host's byte order.
    pub vlan_tag: Option<u16>,
}

/// What a packet's IPv4 header has to have; `None`: anything.
#[doc(alias = "ibv_flow_spec_ipv4")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ipv4Match {
    /// The source.
    pub source: Option<Ipv4Addr>,
    /// The destination.
    pub destination: Option<Ipv4Addr>,
}

/// What a packet's IPv6 header has to have; `None`: anything.
#[doc(alias = "ibv_flow_spec_ipv6")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ipv6Match {
    /// The source.
    pub source: Option<Ipv6Addr>,
    /// The destination.
    pub destination: Option<Ipv6Addr>,
}

/// What a packet's TCP or UDP header has to have; `None`: anything.
#[doc(alias = "ibv_flow_spec_tcp_udp")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortMatch {
    /// The source port.
    pub source: Option<u16>,
    /// The destination port.
    pub destination: Option<u16>,
}

#[derive(Clone, Copy, Debug)]
enum Ip {
    V4(Ipv4Match),
    V6(Ipv6Match),
}

/// `struct ibv_flow_attr`: which packets a [`Flow`](crate::Flow) leads, and what is done with them.
///
/// # Examples
///
/// ```
/// use verbs::{EthernetMatch, FlowRule, Ipv4Match, PortMatch};
///
/// // What is sent to UDP port 4791 of this host.
/// let ip = Ipv4Match { destination: Some([192, 0, 2, 1].into()), ..Ipv4Match::default() };
/// let udp = PortMatch { destination: Some(4791), ..PortMatch::default() };
/// let rule = FlowRule::new(1).ethernet(EthernetMatch::default()).ipv4(ip).udp(udp);
/// ```
#[doc(alias = "ibv_flow_attr")]
#[derive(Clone, Debug)]
#[must_use = "a rule does nothing before a flow is made of it"]
pub struct FlowRule {
    kind: Type,
    port: u8,
    priority: u16,
    ethernet: Option<EthernetMatch>,
    ip: Option<Ip>,
    /// Whether it is TCP or UDP, and its ports.
    transport: Option<(Spec, PortMatch)>,
    tag: Option<u32>,
    drop: bool,
    counters: Option<Counters>,
    esp: Option<EspAction>,
}

impl FlowRule {
    /// The packets that come in by `port` (from 1) and have all the headers that are then asked for.
    pub fn new(port: u8) -> Self {
        Self::of(Type::IBV_FLOW_ATTR_NORMAL, port)
    }

    /// `IBV_FLOW_ATTR_ALL_DEFAULT`: the packets that come in by `port` (from 1) and that no other rule tells.
    #[doc(alias = "IBV_FLOW_ATTR_ALL_DEFAULT")]
    pub fn all_others(port: u8) -> Self {
        Self::of(Type::IBV_FLOW_ATTR_ALL_DEFAULT, port)
    }

    /// `IBV_FLOW_ATTR_MC_DEFAULT`: the multicast packets that come in by `port` (from 1) and that no other rule tells.
    #[doc(alias = "IBV_FLOW_ATTR_MC_DEFAULT")]
    pub fn all_other_multicast(port: u8) -> Self {
        Self::of(Type::IBV_FLOW_ATTR_MC_DEFAULT, port)
    }

    /// `IBV_FLOW_ATTR_SNIFFER`: a copy of all packets of `port` (from 1).
    #[doc(alias = "IBV_FLOW_ATTR_SNIFFER")]
    pub fn sniffer(port: u8) -> Self {
        Self::of(Type::IBV_FLOW_ATTR_SNIFFER, port)
    }

    fn of(kind: Type, port: u8) -> Self {
        Self {
            kind,
            port,
            priority: 0,
            ethernet: None,
            ip: None,
            transport: None,
            tag: None,
            drop: false,
            counters: None,
            esp: None,
        }
    }

    /// The rule of the lowest priority value that tells a packet gets it. Default: 0.
    pub fn priority(mut self, priority: u16) -> Self {
        self.priority = priority;
        self
    }

    /// What the Ethernet header has to have.
    pub fn ethernet(mut self, header: EthernetMatch) -> Self {
        self.ethernet = Some(header);
        self
    }

    /// The packets are of IPv4.
    pub fn ipv4(mut self, header: Ipv4Match) -> Self {
        self.ip = Some(Ip::V4(header));
        self
    }

    /// The packets are of IPv6.
    pub fn ipv6(mut self, header: Ipv6Match) -> Self {
        self.ip = Some(Ip::V6(header));
        self
    }

    /// The packets are of TCP.
    pub fn tcp(mut self, header: PortMatch) -> Self {
        self.transport = Some((Spec::IBV_FLOW_SPEC_TCP, header));
        self
    }

    /// The packets are of UDP.
    pub fn udp(mut self, header: PortMatch) -> Self {
        self.transport = Some((Spec::IBV_FLOW_SPEC_UDP, header));
        self
    }

    /// Completions of the packets have this tag.
    #[doc(alias = "IBV_FLOW_SPEC_ACTION_TAG")]
    pub fn tag(mut self, tag: u32) -> Self {
        self.tag = Some(tag);
        self
    }

    /// The packets are thrown away.
    #[doc(alias = "IBV_FLOW_SPEC_ACTION_DROP")]
    pub fn discard(mut self) -> Self {
        self.drop = true;
        self
    }

    /// The packets are counted, as was told by [`attach`](Counters::attach). The flow holds the counters.
    #[doc(alias = "IBV_FLOW_SPEC_ACTION_COUNT")]
    pub fn count(mut self, counters: &Counters) -> Self {
        self.counters = Some(counters.clone());
        self
    }

    /// The packets are decrypted. The flow holds the action.
    #[doc(alias = "IBV_FLOW_SPEC_ACTION_HANDLE")]
    pub fn esp(mut self, action: &EspAction) -> Self {
        self.esp = Some(action.clone());
        self
    }

    pub(super) fn must_be_of(&self, context: &Context, verb: &'static str) -> Result<()> {
        if let Some(counters) = &self.counters {
            context.must_be(counters.context(), verb, "counters")?;
        }
        match &self.esp {
            Some(action) => context.must_be(action.context(), verb, "action"),
            None => Ok(()),
        }
    }

    /// The rule as C has it. What it points to is held by `self`.
    pub(super) fn to_raw(&self) -> RawRule {
        let mut raw = RawRule::new(ffi::ibv_flow_attr {
            comp_mask: 0,
            type_: self.kind,
            size: 0,
            priority: self.priority,
            num_of_specs: 0,
            port: self.port,
            flags: 0,
        });
        if let Some(header) = &self.ethernet {
            let (val, mask) = header.to_raw();
            raw.push(|size| ffi::ibv_flow_spec_eth { type_: Spec::IBV_FLOW_SPEC_ETH, size, val, mask });
        }
        match &self.ip {
            Some(Ip::V4(header)) => {
                let (val, mask) = header.to_raw();
                raw.push(|size| ffi::ibv_flow_spec_ipv4 { type_: Spec::IBV_FLOW_SPEC_IPV4, size, val, mask });
            }
            Some(Ip::V6(header)) => {
                let (val, mask) = header.to_raw();
                raw.push(|size| ffi::ibv_flow_spec_ipv6 { type_: Spec::IBV_FLOW_SPEC_IPV6, size, val, mask });
            }
            None => {}
        }
        if let Some((type_, header)) = &self.transport {
            let (val, mask) = header.to_raw();
            raw.push(|size| ffi::ibv_flow_spec_tcp_udp { type_: *type_, size, val, mask });
        }
        if let Some(action) = &self.esp {
            raw.push(|size| ffi::ibv_flow_spec_action_handle {
                type_: Spec::IBV_FLOW_SPEC_ACTION_HANDLE,
                size,
                action: action.as_raw(),
            });
        }
        if let Some(counters) = &self.counters {
            raw.push(|size| ffi::ibv_flow_spec_counter_action {
                type_: Spec::IBV_FLOW_SPEC_ACTION_COUNT,
                size,
                counters: counters.as_raw(),
            });
        }
        if let Some(tag_id) = self.tag {
            raw.push(|size| ffi::ibv_flow_spec_action_tag { type_: Spec::IBV_FLOW_SPEC_ACTION_TAG, size, tag_id });
        }
        if self.drop {
            raw.push(|size| ffi::ibv_flow_spec_action_drop { type_: Spec::IBV_FLOW_SPEC_ACTION_DROP, size });
        }
        raw
    }
}

/// A value and its mask: the whole of it, or nothing.
fn masked<T: Default>(value: Option<T>, whole: T) -> (T, T) {
    value.map_or_else(Default::default, |value| (value, whole))
}

impl EthernetMatch {
    fn to_raw(self) -> (ffi::ibv_flow_eth_filter, ffi::ibv_flow_eth_filter) {
        let (dst_mac, dst_mask) = masked(self.destination, [0xff; 6]);
        let (src_mac, src_mask) = masked(self.source, [0xff; 6]);
        let (ether_type, type_mask) = masked(self.ether_type.map(u16::to_be), u16::MAX);
        let (vlan_tag, vlan_mask) = masked(self.vlan_tag.map(u16::to_be), u16::MAX);
        let value = ffi::ibv_flow_eth_filter { dst_mac, src_mac, ether_type, vlan_tag };
        let mask = ffi::ibv_flow_eth_filter {
            dst_mac: dst_mask,
            src_mac: src_mask,
            ether_type: type_mask,
            vlan_tag: vlan_mask,
        };
        (value, mask)
    }
}

impl Ipv4Match {
    fn to_raw(self) -> (ffi::ibv_flow_ipv4_filter, ffi::ibv_flow_ipv4_filter) {
        let be = |address: Ipv4Addr| u32::from_ne_bytes(address.octets());
        let (src_ip, src_mask) = masked(self.source.map(be), u32::MAX);
        let (dst_ip, dst_mask) = masked(self.destination.map(be), u32::MAX);
        let mask = ffi::ibv_flow_ipv4_filter { src_ip: src_mask, dst_ip: dst_mask };
        (ffi::ibv_flow_ipv4_filter { src_ip, dst_ip }, mask)
    }
}

impl Ipv6Match {
    fn to_raw(self) -> (ffi::ibv_flow_ipv6_filter, ffi::ibv_flow_ipv6_filter) {
        // SAFETY: all zeroes are a valid structure.
        let (mut value, mut mask): (ffi::ibv_flow_ipv6_filter, ffi::ibv_flow_ipv6_filter) =
            unsafe { std::mem::zeroed() };
        (value.src_ip, mask.src_ip) = masked(self.source.map(|address| address.octets()), [0xff; 16]);
        (value.dst_ip, mask.dst_ip) = masked(self.destination.map(|address| address.octets()), [0xff; 16]);
        (value, mask)
    }
}

impl PortMatch {
    fn to_raw(self) -> (ffi::ibv_flow_tcp_udp_filter, ffi::ibv_flow_tcp_udp_filter) {
        let (dst_port, dst_mask) = masked(self.destination.map(u16::to_be), u16::MAX);
        let (src_port, src_mask) = masked(self.source.map(u16::to_be), u16::MAX);
        let mask = ffi::ibv_flow_tcp_udp_filter { dst_port: dst_mask, src_port: src_mask };
        (ffi::ibv_flow_tcp_udp_filter { dst_port, src_port }, mask)
    }
}
