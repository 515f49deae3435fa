//! Ping-pong between two UD queue pairs, as `ibv_ud_pingpong` has it: each end also works with the C program as its peer.
//!
//! What is special about datagrams:
//!
//! * The queue pair is connected with nobody. Each send names its destination: an address handle (the path to the port), a queue
//!   pair number, and a Q_Key, which has to be the one of the queue pair there.
//! * A message is one packet, so it cannot be longer than the MTU.
//! * Each receive has 40 bytes more than the message: there the device puts the global route header that the packet came with.
//! * Anybody may send; who did is in the completion. What gets lost stays lost, and so does what finds no receive posted.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use examples::exchange::Role;
use examples::pingpong::{Buffer, Common, Completions, Receives, SEND};
use examples::report::{self, Measurement, print_device, print_endpoint};
use verbs::{AccessFlags, AddressHandleAttributes, Grh, LocalEndpoint, QueuePair, SendRequest, Ud};

/// The Q_Key of the C program.
const QKEY: u32 = 0x1111_1111;

/// What can be wrong when nothing comes.
const CAUSES: &str = "a datagram got lost, which UD does not repair (start both ends again), or the peer is gone or runs with \
                      other options (--size, --iters)";

/// Ping-pong between two unreliable datagram queue pairs.
///
/// Without HOST, waits for a client; with HOST, connects to the server there. Size and iterations have to be the same at both
/// ends. The peer may be the C program `ibv_ud_pingpong`.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    common: Common,

    /// Bytes in a message, up to the MTU
    #[arg(short, long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=4096))]
    size: u32,
}

fn main() -> ExitCode {
    let options = Options::parse();
    report::run(|out| run(&options, out))
}

fn run(Options { common, size }: &Options, out: &mut dyn Write) -> Result<()> {
    let context = verbs::devices()?.find(common.ib_dev.as_deref())?.open()?;
    let pd = context.create_protection_domain()?;

    // Where a datagram arrives there is room for its header, too.
    let mut buffer = Buffer::new(&pd, *size, Grh::LEN, AccessFlags::empty(), common)?;

    let cq = common.create_completion_queue(&context, common.rx_depth.saturating_add(1))?;
    let qp = QueuePair::<Ud>::builder(&pd, &cq, &cq).max_send_wr(1).max_recv_wr(common.rx_depth).build()?;
    let local = common.local_endpoint(&qp)?;
    print_device(out, &context, &local)?;
    check_size(*size, &local)?;
    print_endpoint(out, "local", &local.endpoint)?;

    // Ready before the peer hears of the queue pair: it may send from then on.
    qp.init(&local, QKEY)?;
    let mut receives = Receives::post(&qp, &buffer, common.rx_depth)?;
    qp.activate(&local, QKEY)?;

    let mut exchange = common.find_peer(out)?;
    let remote = exchange.swap_endpoint(local.endpoint, |_| Ok(()))?;
    print_endpoint(out, "remote", &remote)?;
    let mut path = AddressHandleAttributes::between(&local, &remote)?;
    path.service_level = common.sl;
    let ah = pd.create_address_handle(&path).with_context(|| format!("cannot reach the peer {remote}"))?;
    exchange.finish()?;
    out.flush()?;

    let ping = |buffer: &Buffer| -> Result<()> {
        Ok(qp.post_send(&SendRequest::send_to(SEND, &buffer.outgoing()?, &ah, remote.qp_num, QKEY).signaled())?)
    };
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
            let Some(datagram) = done.datagram() else {
                completed += 1;
                continue;
            };
            // It may be anybody's.
            if datagram.source_qp_num() == remote.qp_num {
                if datagram.payload_len() != *size as usize {
                    let bytes = datagram.payload_len();
                    bail!("a datagram of {bytes} bytes arrived; both ends have to use the same --size");
                }
                buffer.check(done.wr_id(), false)?;
                received += 1;
            }
            receives.used(done.wr_id());
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

/// A datagram that is longer than the MTU would not be sent.
fn check_size(size: u32, local: &LocalEndpoint) -> Result<()> {
    match local.port_attributes.active_mtu().bytes() {
        Some(mtu) if size > mtu => bail!("--size is {size}, but the active MTU of port {} is {mtu}", local.port),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_are_those_of_the_c_program() {
        Options::command().debug_assert();
        let arguments = "ud_pingpong -p 1 -d rxe0 -i 2 -s 64 -r 9 -n 7 -l 3 -e -g 5 host";
        let Options { common, size } = Options::parse_from(arguments.split(' '));
        assert_eq!((common.port, common.ib_dev.as_deref(), common.ib_port), (1, Some("rxe0"), 2));
        assert_eq!((size, common.rx_depth, common.iters), (64, 9, 7));
        assert_eq!((common.sl, common.events, common.gid_idx), (3, true, Some(5)));
        assert_eq!(common.host.as_deref(), Some("host"));
    }
}
