//! Ping-pong between two RC queue pairs, as `ibv_rc_pingpong` has it: each end also works with the C program as its peer.

#![forbid(unsafe_code)]

mod options;
mod traffic;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use examples::exchange::{Exchange, Role};
use examples::report;
use verbs::{
    CompletionQueueBuilder, ConnectOptions, Context, Endpoint, GidFilter, LocalEndpoint, Mapping, MemoryRegion, Mtu,
    QueuePair, Rc,
};

use options::{Operation, Options};

fn main() -> ExitCode {
    let options = Options::parse();
    report::run(|out| run(&options, out))
}

fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let mtu = Mtu::from_bytes(options.mtu).context("--mtu")?;
    let context = verbs::devices()?.find(options.ib_dev.as_deref())?.open()?;
    let pd = context.create_protection_domain()?;

    // The first half is what this end sends, or what the peer reads; the second half is where data arrives.
    let size = options.size as usize;
    let memory = Mapping::new(2 * size).context("cannot get memory for the buffer")?;
    let mut region = pd.register(memory, options.op.access())?;
    region.as_local_mut().split_at_mut(size)?.0.fill(traffic::FILLING);

    let channel = options.events.then(|| context.create_completion_channel()).transpose()?;
    let mut cq = CompletionQueueBuilder::new(&context, options.rx_depth.saturating_add(1));
    if let Some(channel) = &channel {
        cq = cq.channel(channel);
    }
    let cq = cq.build()?;
    let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).max_send_wr(1).max_recv_wr(options.rx_depth).build()?;

    let local = match options.gid_idx {
        Some(index) => qp.local_endpoint_with_gid_index(options.ib_port, index)?,
        None => qp.local_endpoint(options.ib_port, &GidFilter::default())?,
    };
    print_device(out, &context, &local)?;
    if mtu > local.port_attributes.active_mtu() {
        let active = local.port_attributes.active_mtu();
        bail!("--mtu is {mtu}, but the active MTU of port {} is {active}", local.port);
    }
    print_endpoint(out, "local", &local.endpoint)?;

    let mut connect_options = ConnectOptions::default();
    connect_options.path_mtu = Some(mtu);
    connect_options.service_level = options.sl;
    qp.init(&local, &connect_options)?;
    // Posted before the peer can send: a message that finds no receive has to be sent again.
    let mut receives = traffic::Receives::post_first(&qp, &region, size, options.rx_depth)?;

    let timeout = options.timeout();
    let mut exchange = match &options.host {
        None => {
            writeln!(out, "waiting for a client at TCP port {}", options.port)?;
            out.flush()?;
            Exchange::accept(options.port, timeout)?
        }
        Some(host) => Exchange::connect(host, options.port, timeout)?,
    };
    let remote = connect(&mut exchange, &qp, &local, &connect_options)?;
    print_endpoint(out, "remote", &remote)?;
    print_buffer(out, mtu, &region)?;
    // The C program knows of SEND only, and says nothing here.
    let remote_memory = match options.op.name() {
        Some(name) => Some(exchange.swap_remote_slice(name, region.remote_slice(..)?)?),
        None => None,
    };
    exchange.finish()?;
    if exchange.role() == Role::Client {
        ready(&qp, &local, &remote, &connect_options)?;
    }
    out.flush()?;

    let operations = options.op.steps();
    for (index, operation) in operations.iter().enumerate() {
        let end = traffic::End { qp: &qp, cq: &cq, region: &region, size, role: exchange.role(), options };
        let measurement = match (operation, remote_memory) {
            (Operation::Write, Some(memory)) => end.ping_pong(&mut receives, Some(memory.slice(size..)?))?,
            (Operation::Read, Some(memory)) => end.read_all(memory.slice(..size)?)?,
            _ => end.ping_pong(&mut receives, None)?,
        };
        traffic::validate(&region, size)?;
        writeln!(out, "{operation}: {measurement}")?;
        out.flush()?;
        region.as_local_mut().split_at_mut(size)?.1.fill(0);
        // A peer that still reads needs this end's memory, and the next operation needs both ends to be done with this one.
        if *operation == Operation::Read || index + 1 < operations.len() {
            exchange.barrier()?;
        }
    }
    Ok(())
}

/// Swaps endpoints. The server is connected before it answers, so that the client may send as soon as it is.
fn connect(
    exchange: &mut Exchange,
    qp: &QueuePair<Rc>,
    local: &LocalEndpoint,
    options: &ConnectOptions,
) -> Result<Endpoint> {
    match exchange.role() {
        Role::Client => {
            exchange.send_endpoint(local.endpoint)?;
            exchange.receive_endpoint()
        }
        Role::Server => {
            let remote = exchange.receive_endpoint()?;
            ready(qp, local, &remote, options)?;
            exchange.send_endpoint(local.endpoint)?;
            Ok(remote)
        }
    }
}

fn ready(qp: &QueuePair<Rc>, local: &LocalEndpoint, remote: &Endpoint, options: &ConnectOptions) -> Result<()> {
    qp.connect(local, remote, options).with_context(|| format!("cannot connect to the peer's queue pair {remote}"))
}

fn print_device(out: &mut dyn Write, context: &Context, local: &LocalEndpoint) -> Result<()> {
    let port = &local.port_attributes;
    writeln!(
        out,
        "device {}, port {} ({}, {}), active MTU {}",
        context.device().name(),
        local.port,
        port.link_layer(),
        port.state(),
        port.active_mtu()
    )?;
    match local.gid {
        Some(entry) => {
            let interface = entry.interface_name().map(|name| format!(", interface {name}")).unwrap_or_default();
            writeln!(out, "GID index {}: {} ({}{interface})", entry.index, entry.gid, entry.gid_type)?;
        }
        None => writeln!(out, "no GID: the path stays in the subnet")?,
    }
    Ok(())
}

fn print_endpoint(out: &mut dyn Write, name: &str, endpoint: &Endpoint) -> Result<()> {
    let gid = endpoint.gid.unwrap_or_default();
    let Endpoint { lid, qp_num, psn, .. } = endpoint;
    Ok(writeln!(out, "{name:6} LID {lid:#06x}, QPN {qp_num:#08x}, PSN {psn:#08x}, GID {gid}")?)
}

fn print_buffer(out: &mut dyn Write, mtu: Mtu, region: &MemoryRegion<Mapping>) -> Result<()> {
    let rkey = region.rkey().map_or("none (no remote access)".to_owned(), |rkey| format!("{rkey:#x}"));
    Ok(writeln!(out, "path MTU {mtu}, buffer {} bytes, lkey {:#x}, rkey {rkey}", region.len(), region.lkey())?)
}
