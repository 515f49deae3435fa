//! What is reported: with what it was measured, and the figures, as a table or as JSON.

use std::io::Write;

use anyhow::Result;
use comfy_table::presets::ASCII_BORDERS_ONLY_CONDENSED;
use comfy_table::{CellAlignment, Table};
use examples::exchange::Role;
use serde::Serialize;
use verbs::Mtu;

use crate::end::End;
use crate::options::{Goal, Operation, Options, Test};
use crate::row::{Figures, Row};
use crate::service::{Connection, Service};

/// Of RDMA WRITE over UC.
const BLIND: &str = "UC does not tell how many RDMA WRITEs arrive: the figures are of what was sent";

/// With what was measured: what users of perftest keep with their figures.
#[derive(Debug, Serialize)]
pub(crate) struct Record {
    op: Operation,
    test: Test,
    connection: Connection,
    role: &'static str,
    device: String,
    port: u8,
    link_layer: String,
    gid_index: Option<u32>,
    gid: Option<String>,
    gid_type: Option<String>,
    interface: Option<String>,
    mtu: Option<u32>,
    qps: u32,
    bidirectional: bool,
    goal: Goal,
    warm_up: u64,
    tx_depth: u32,
    rx_depth: u32,
    use_srq: bool,
    post_list: u32,
    inline_size: u32,
    events: bool,
    /// What the figures cannot tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    results: Vec<Row>,
}

impl Record {
    pub(crate) fn new<T: Service>(options: &Options, end: &End<T>, role: Role, mtu: Mtu) -> Self {
        let local = &end.locals[0];
        Self {
            op: options.op,
            test: options.test,
            connection: options.connection,
            role: if role == Role::Client { "client" } else { "server" },
            device: end.context.device().name().to_owned(),
            port: local.port,
            link_layer: local.port_attributes.link_layer().to_string(),
            gid_index: local.gid.map(|entry| entry.index),
            gid: local.gid.map(|entry| entry.gid.to_string()),
            gid_type: local.gid.map(|entry| entry.gid_type.to_string()),
            interface: local.gid.and_then(|entry| entry.interface_name()),
            mtu: mtu.bytes(),
            qps: options.qps,
            bidirectional: options.bidirectional,
            goal: options.goal(),
            warm_up: options.warm_up,
            tx_depth: options.depth(),
            rx_depth: options.rx_depth,
            use_srq: options.use_srq,
            post_list: options.post_list,
            inline_size: options.inline_size,
            events: options.events,
            note: options.is_blind().then_some(BLIND),
            results: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, row: Row) {
        self.results.push(row);
    }

    /// The lines above the table.
    pub(crate) fn print_head(&self, out: &mut dyn Write) -> Result<()> {
        let both = if self.bidirectional { ", both ways" } else { "" };
        writeln!(out, "{} {} over {}{both}, as {}", self.op, self.test, self.connection, self.role)?;
        let mtu = self.mtu.map_or("unknown".to_owned(), |mtu| mtu.to_string());
        writeln!(out, "device {}, port {} ({}), path MTU {mtu}", self.device, self.port, self.link_layer)?;
        if let (Some(index), Some(gid), Some(gid_type)) = (self.gid_index, &self.gid, &self.gid_type) {
            let interface = self.interface.as_ref().map(|name| format!(", interface {name}")).unwrap_or_default();
            writeln!(out, "GID index {index}: {gid} ({gid_type}{interface})")?;
        }
        let how = if self.events { "events" } else { "polling" };
        let srq = if self.use_srq { ", a shared receive queue" } else { "" };
        writeln!(
            out,
            "queue pairs {}, requests under way {}, requests a doorbell {}, inline up to {} bytes, {how}{srq}",
            self.qps, self.tx_depth, self.post_list, self.inline_size
        )?;
        if let Some(note) = self.note {
            writeln!(out, "{note}")?;
        }
        Ok(out.flush()?)
    }

    pub(crate) fn print_table(&self, out: &mut dyn Write) -> Result<()> {
        let mut table = Table::new();
        table.load_preset(ASCII_BORDERS_ONLY_CONDENSED);
        let mut header = match self.test {
            Test::Bw => vec!["bytes", "messages", "Gbit/s", "MiB/s", "messages/s"],
            Test::Lat => vec!["bytes", "messages", "min µs", "median", "mean", "99 %", "99.9 %", "max"],
        };
        let lost = self.results.iter().any(|row| row.lost.is_some());
        if lost {
            header.push("lost");
        }
        table.set_header(header);
        for row in &self.results {
            let mut cells = vec![row.size.to_string(), row.messages.to_string()];
            match &row.figures {
                Figures::Bandwidth { gbit_per_s, mib_per_s, messages_per_s, .. } => cells.extend([
                    format!("{gbit_per_s:.3}"),
                    format!("{mib_per_s:.2}"),
                    format!("{messages_per_s:.0}"),
                ]),
                Figures::Latency { latency_us: l } => {
                    cells.extend([l.min, l.median, l.mean, l.p99, l.p99_9, l.max].map(|time| format!("{time:.2}")))
                }
            }
            cells.extend(row.lost.map(|lost| lost.to_string()));
            table.add_row(cells);
        }
        table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        Ok(writeln!(out, "{table}")?)
    }

    pub(crate) fn print_json(&self, out: &mut dyn Write) -> Result<()> {
        serde_json::to_writer_pretty(&mut *out, self)?;
        Ok(writeln!(out)?)
    }
}
