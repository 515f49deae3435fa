//! Ping-pong between two UC queue pairs, as `ibv_uc_pingpong` has it: each end also works with the C program as its peer.
//!
//! What is special about unreliable connections:
//!
//! * Queue pairs are connected as those of RC are, and a message can have many packets; but there are no acknowledgements.
//! * A send is complete once the packets have left. That says nothing of whether they arrived.
//! * A message of which a packet gets lost, or that finds no receive posted, is lost as a whole, and neither end is told. So the
//!   receives are posted before the peer can send, and each end gives up when nothing has come for a while.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use examples::exchange::Role;
use examples::pingpong::{Buffer, Common, Completions, Receives, SEND, check_mtu};
use examples::report::{self, Measurement, print_device, print_endpoint};
use verbs::{AccessFlags, ConnectOptions, Mtu, QueuePair, SendRequest, Uc};

/// What can be wrong when nothing comes.
const CAUSES: &str = "a message got lost, which UC does not repair (start both ends again), or the peer is gone or runs with \
                      other options (--size, --iters)";

/// Ping-pong between two unreliable connected queue pairs.
///
/// Without HOST, waits for a client; with HOST, connects to the server there. Size and iterations have to be the same at both
/// ends. The peer may be the C program `ibv_uc_pingpong`.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    common: Common,

    /// Bytes in a message
    #[arg(short, long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    size: u32,

    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096
    #[arg(short, long, default_value_t = 1024)]
    mtu: u32,
}

fn main() -> ExitCode {
    let options = Options::parse();
    report::run(|out| run(&options, out))
}

fn run(Options { common, size, mtu }: &Options, out: &mut dyn Write) -> Result<()> {
    let mtu = Mtu::from_bytes(*mtu).context("--mtu")?;
    let context = verbs::devices()?.find(common.ib_dev.as_deref())?.open()?;
    let pd = context.create_protection_domain()?;

    let mut buffer = Buffer::new(&pd, *size, 0, AccessFlags::empty(), common)?;
    let cq = common.create_completion_queue(&context, common.rx_depth.saturating_add(1))?;
    let qp = QueuePair::<Uc>::builder(&pd, &cq, &cq).max_send_wr(1).max_recv_wr(common.rx_depth).build()?;
    let local = common.local_endpoint(&qp)?;
    print_device(out, &context, &local)?;
    check_mtu(mtu, &local)?;
    print_endpoint(out, "local", &local.endpoint)?;

    let mut connect_options = ConnectOptions::default();
    connect_options.path_mtu = Some(mtu);
    connect_options.service_level = common.sl;
    // SEND is all that the peer may do.
    connect_options.access = AccessFlags::empty();
    qp.init(&local, &connect_options)?;
    let mut receives = Receives::post(&qp, &buffer, common.rx_depth)?;

    let mut exchange = common.find_peer(out)?;
    let remote = exchange.swap_endpoint(local.endpoint, |remote| {
        let what = || format!("cannot connect to the peer's queue pair {remote}");
        qp.connect(&local, remote, &connect_options).with_context(what)
    })?;
    print_endpoint(out, "remote", &remote)?;
    exchange.finish()?;
    out.flush()?;

    let ping =
        |buffer: &Buffer| -> Result<()> { Ok(qp.post_send(&SendRequest::send(SEND, &buffer.outgoing()?).signaled())?) };
    let mut completions = Completions::new(&cq, common, CAUSES);
    let (mut sent, mut completed, mut received) = (0, 0, 0);
    let start = Instant::now();
    if exchange.role() == Role::Client {
        ping(&buffer)?;
        sent = 1;
    }
    while received < common.iters || completed < common.iters {
        for completion in completions.take()? {
            let done = completion.success()?;
            if done.wr_id() == SEND {
                completed += 1;
                continue;
            }
            if done.byte_len() != Some(*size) {
                let bytes = done.byte_len().unwrap_or(0);
                bail!("a message of {bytes} bytes arrived; both ends have to use the same --size");
            }
            buffer.check(done.wr_id(), false)?;
            receives.used(done.wr_id());
            received += 1;
        }
        if received < common.iters {
            receives.keep_above(1, &qp, &buffer)?;
        }
        // The client is a message ahead of the server.
        let turns = received + u32::from(exchange.role() == Role::Client);
        if sent < common.iters.min(turns) && sent == completed {
            ping(&buffer)?;
            sent += 1;
        }
    }
    let measurement = Measurement::of_ping_pong(common.iters, *size, start);
    buffer.check_last(false)?;
    Ok(writeln!(out, "SEND: {measurement}")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_are_those_of_the_c_program() {
        Options::command().debug_assert();
        let arguments = "uc_pingpong -p 1 -d rxe0 -i 2 -s 64 -m 2048 -r 9 -n 7 -l 3 -e -g 5 host";
        let Options { common, size, mtu } = Options::parse_from(arguments.split(' '));
        assert_eq!((common.port, common.ib_dev.as_deref(), common.ib_port), (1, Some("rxe0"), 2));
        assert_eq!((size, mtu, common.rx_depth, common.iters), (64, 2048, 9, 7));
        assert_eq!((common.sl, common.events, common.gid_idx), (3, true, Some(5)));
        assert_eq!(common.host.as_deref(), Some("host"));
    }
}
