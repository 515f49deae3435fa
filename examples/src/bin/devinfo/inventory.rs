//! The devices with their ports and GIDs.

use std::io::{self, Write};

use serde::Serialize;
use verbs::{Context, GidEntry, GidFilter, LinkLayer, Mtu, PortAttributes, PortState};

use crate::details;
use crate::fields::{Fields, Value};

/// A device.
#[derive(Serialize)]
pub(crate) struct Device {
    #[serde(flatten)]
    summary: Fields,
    #[serde(flatten)]
    details: Fields,
    /// Why nothing more is known.
    error: Option<String>,
    /// Whether it could be opened.
    #[serde(skip)]
    opened: bool,
    ports: Vec<Port>,
    #[serde(skip)]
    pub(crate) facts: Vec<PortFacts>,
}

/// A port of a device.
#[derive(Serialize)]
struct Port {
    #[serde(flatten)]
    summary: Fields,
    #[serde(flatten)]
    details: Fields,
    gids: Vec<GidLine>,
}

/// An entry of a GID table.
#[derive(Serialize)]
struct GidLine {
    gid_index: u32,
    gid: String,
    gid_type: String,
    interface: Option<String>,
}

/// What the doctor has to know of a port.
#[derive(Clone, Debug)]
pub(crate) struct PortFacts {
    /// The device and the port, in words.
    pub(crate) name: String,
    pub(crate) state: PortState,
    pub(crate) ethernet: bool,
    /// The network interface, where there is one.
    pub(crate) interface: Option<String>,
    /// The GID that programs would take, and whether it is good for the local link only.
    pub(crate) gid: Option<(String, bool)>,
    pub(crate) active_mtu: Mtu,
    pub(crate) max_mtu: Mtu,
}

impl Device {
    /// What there is to know of a device, with all its ports or `only` one.
    pub(crate) fn of(device: &verbs::Device, only: Option<u8>) -> Self {
        let summary = Fields::default()
            .with("hca_id", device.name().to_owned())
            .with("transport", device.transport_type().to_string())
            .with("node_type", device.node_type().to_string())
            .with("node", device.node().display().to_string())
            .with("node_guid", device.guid().to_string());
        let mut report = Self {
            summary,
            details: Fields::default(),
            error: None,
            opened: false,
            ports: Vec::new(),
            facts: Vec::new(),
        };
        let context = device.open();
        report.opened = context.is_ok();
        report.error = context.and_then(|context| report.add(&context, only)).err().map(|error| error.to_string());
        report
    }

    /// Why it could not be opened.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.error.clone().filter(|_| !self.opened)
    }

    /// Why it does not tell all of itself, though it could be opened. (A port that it does not have is another finding.)
    pub(crate) fn silence(&self) -> Option<String> {
        self.error.clone().filter(|_| self.opened)
    }

    fn add(&mut self, context: &Context, only: Option<u8>) -> verbs::Result<()> {
        let attributes = context.extended_device_attributes()?;
        self.summary = std::mem::take(&mut self.summary)
            .with("fw_ver", attributes.device().firmware_version())
            .with("sys_image_guid", attributes.device().system_image_guid().to_string())
            .with("vendor_id", Value::Bits(attributes.device().vendor_id().into()))
            .with("vendor_part_id", attributes.device().vendor_part_id())
            .with("hw_ver", Value::Bits(attributes.device().hardware_version().into()))
            .with_known("board_id", details::board_id(context.device().name()))
            .with("phys_port_cnt", attributes.port_count());
        self.details = details::of(context, &attributes);
        let last = attributes.device().port_count();
        for number in only.map_or(1..=last, |port| port..=port) {
            let attributes = context.port(number)?;
            let gids = context.gid_table(number)?;
            self.facts.push(facts(context, number, &attributes, &gids));
            self.ports.push(Port::of(number, &attributes, &gids));
        }
        Ok(())
    }

    pub(crate) fn print(&self, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
        self.summary.print("", out)?;
        if verbose {
            self.details.print("  ", out)?;
        }
        for port in &self.ports {
            port.summary.print("    ", out)?;
            if verbose {
                port.details.print("      ", out)?;
            }
            for GidLine { gid_index, gid, gid_type, interface } in &port.gids {
                let interface = interface.as_deref().map(|name| format!(", interface {name}")).unwrap_or_default();
                writeln!(out, "      {:30} {gid} ({gid_type}{interface})", format!("GID[{gid_index}]:"))?;
            }
        }
        if let Some(error) = &self.error {
            writeln!(out, "  error: {error}")?;
        }
        writeln!(out)
    }
}

impl Port {
    fn of(number: u8, port: &PortAttributes, gids: &[GidEntry]) -> Self {
        let summary = Fields::default()
            .with("port", number)
            .with("state", port.state().to_string())
            .with("max_mtu", port.max_mtu().bytes())
            .with("active_mtu", port.active_mtu().bytes())
            .with("sm_lid", port.subnet_manager_lid())
            .with("port_lid", port.lid())
            .with("port_lmc", port.lid_mask_count())
            .with("link_layer", port.link_layer().to_string());
        let capabilities = port.capabilities();
        let names = capabilities.iter_names().map(|(name, _)| name.to_owned()).collect();
        let details = Fields::default()
            .with("max_msg_sz", Value::Bits(port.max_message_size().into()))
            .with("port_cap_flags", Value::Bits(capabilities.bits().into()))
            .with("port_capabilities", Value::List(names))
            .with("port_cap_flags2", Value::Bits(port.as_raw().port_cap_flags2.into()))
            .with("max_vl_num", port.max_virtual_lanes_code())
            .with("bad_pkey_cntr", Value::Bits(port.bad_pkey_counter().into()))
            .with("qkey_viol_cntr", Value::Bits(port.bad_qkey_counter().into()))
            .with("sm_sl", port.subnet_manager_service_level())
            .with("pkey_tbl_len", port.pkey_table_len())
            .with("gid_tbl_len", port.gid_table_len())
            .with("subnet_timeout", port.subnet_timeout_code())
            .with("init_type_reply", port.as_raw().init_type_reply)
            .with("active_width", port.active_width().to_string())
            .with("active_speed", port.active_speed().to_string())
            .with("link_rate_mbps", port.link_rate_mbps())
            .with("phys_state", port.physical_state().to_string());
        let gid = |entry: &GidEntry| GidLine {
            gid_index: entry.index,
            gid: entry.gid.to_string(),
            gid_type: entry.gid_type.to_string(),
            interface: entry.interface_name(),
        };
        Self { summary, details, gids: gids.iter().map(gid).collect() }
    }
}

fn facts(context: &Context, number: u8, port: &PortAttributes, gids: &[GidEntry]) -> PortFacts {
    let gid = context.choose_gid(number, &GidFilter::default()).ok();
    PortFacts {
        name: format!("{}, port {number}", context.device().name()),
        state: port.state(),
        ethernet: port.link_layer() == LinkLayer::ETHERNET,
        interface: gids.iter().find_map(GidEntry::interface_name),
        gid: gid.map(|entry| {
            let text = format!("GID index {}: {} ({})", entry.index, entry.gid, entry.gid_type);
            (text, entry.gid.is_link_local())
        }),
        active_mtu: port.active_mtu(),
        max_mtu: port.max_mtu(),
    }
}
