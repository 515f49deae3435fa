//! Ping-pong between two RC queue pairs, as `ibv_rc_pingpong` has it: each end also works with the C program as its peer.

#![forbid(unsafe_code)]

mod options;
mod traffic;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Parser;
use examples::pingpong::{Buffer, Receives, check_mtu};
use examples::report::{self, print_device, print_endpoint};
use verbs::{ConnectOptions, Mapping, MemoryRegion, Mtu, QueuePair, Rc};

use options::{Operation, Options};

fn main() -> ExitCode {
    let options = Options::parse();
    report::run(|out| run(&options, out))
}

fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let common = &options.common;
    let mtu = Mtu::from_bytes(options.mtu).context("--mtu")?;
    let context = verbs::devices()?.find(common.ib_dev.as_deref())?.open()?;
    let pd = context.create_protection_domain()?;

    let size = options.size as usize;
    let mut buffer = Buffer::new(&pd, options.size, 0, options.op.access(), common)?;

    let cq = common.create_completion_queue(&context, common.rx_depth.saturating_add(1))?;
    let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).max_send_wr(1).max_recv_wr(common.rx_depth).build()?;

    let local = common.local_endpoint(&qp)?;
    print_device(out, &context, &local)?;
    check_mtu(mtu, &local)?;
    print_endpoint(out, "local", &local.endpoint)?;

    let mut connect_options = ConnectOptions::default();
    connect_options.path_mtu = Some(mtu);
    connect_options.service_level = common.sl;
    qp.init(&local, &connect_options)?;
    // Posted before the peer can send: a message that finds no receive has to be sent again.
    let mut receives = Receives::post(&qp, &buffer, common.rx_depth)?;

    let mut exchange = common.find_peer(out)?;
    let remote = exchange.swap_endpoint(local.endpoint, |remote| {
        let what = || format!("cannot connect to the peer's queue pair {remote}");
        qp.connect(&local, remote, &connect_options).with_context(what)
    })?;
    print_endpoint(out, "remote", &remote)?;
    print_buffer(out, mtu, buffer.region())?;
    // The C program knows of SEND only, and says nothing here.
    let remote_memory = match options.op.name() {
        Some(name) => Some(exchange.swap_remote_slice(name, buffer.region().remote_slice(..)?)?),
        None => None,
    };
    exchange.finish()?;
    out.flush()?;

    let operations = options.op.steps();
    for (index, operation) in operations.iter().enumerate() {
        let mut end = traffic::End { qp: &qp, cq: &cq, buffer: &mut buffer, role: exchange.role(), options };
        let measurement = match (operation, remote_memory) {
            (Operation::Write, Some(memory)) => end.ping_pong(&mut receives, Some(memory.slice(size..)?))?,
            (Operation::Read, Some(memory)) => end.read_all(memory.slice(..size)?)?,
            _ => end.ping_pong(&mut receives, None)?,
        };
        buffer.check_last(false)?;
        writeln!(out, "{operation}: {measurement}")?;
        out.flush()?;
        // A peer that still reads needs this end's memory, and the next operation needs both ends to be done with this one.
        if *operation == Operation::Read || index + 1 < operations.len() {
            exchange.barrier()?;
        }
    }
    Ok(())
}

fn print_buffer(out: &mut dyn Write, mtu: Mtu, region: &MemoryRegion<Mapping>) -> Result<()> {
    let rkey = region.rkey().map_or("none (no remote access)".to_owned(), |rkey| format!("{rkey:#x}"));
    Ok(writeln!(out, "path MTU {mtu}, buffer {} bytes, lkey {:#x}, rkey {rkey}", region.len(), region.lkey())?)
}
