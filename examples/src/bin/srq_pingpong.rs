//! Ping-pong between several pairs of RC queue pairs, as `ibv_srq_pingpong` has it: each end also works with the C program as its
//! peer.
//!
//! What is special about a shared receive queue:
//!
//! * The queue pairs of an end have no receives of their own: each message takes the next one of the shared queue, whichever queue
//!   pair it is for. So memory is needed for the messages that are under way, not for those that each peer could send.
//! * The `wr_id` of a receive does not tell the queue pair; the completion has its number.
//! * Each queue pair plays its own ping-pong. `--iters` counts the messages of all of them together.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use examples::exchange::Role;
use examples::pingpong::{Buffer, Common, Completions, Receives, SEND, check_mtu};
use examples::report::{self, Measurement, print_device, print_endpoint};
use verbs::{AccessFlags, ConnectOptions, Mtu, QueuePair, Rc, SendRequest};

/// How many endpoints the C program sends, however many queue pairs it has.
const C_MAX_QP: usize = 256;

/// What can be wrong when nothing comes.
const CAUSES: &str = "it is gone, or runs with other options (--num-qp, --size, --iters)";

/// Ping-pong between pairs of reliable connected queue pairs that share a receive queue.
///
/// Without HOST, waits for a client; with HOST, connects to the server there. Size, iterations and the number of queue pairs have
/// to be the same at both ends. The peer may be the C program `ibv_srq_pingpong`.
#[derive(Debug, Parser)]
struct Options {
    #[command(flatten)]
    common: Common,

    /// Queue pairs at each end
    #[arg(short = 'q', long, value_name = "QUEUE_PAIRS", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=255))]
    num_qp: u32,

    /// Bytes in a message
    #[arg(short, long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    size: u32,

    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096
    #[arg(short, long, default_value_t = 1024)]
    mtu: u32,
}

/// A queue pair and its own ping-pong.
struct Player {
    qp: QueuePair<Rc>,
    /// Its last send has not completed.
    sending: bool,
    /// It is the peer's turn.
    waiting: bool,
    /// How many messages of the peer's have come.
    received: u32,
}

impl Player {
    fn ping(&mut self, buffer: &Buffer) -> Result<()> {
        (self.sending, self.waiting) = (true, true);
        Ok(self.qp.post_send(&SendRequest::send(SEND, &buffer.outgoing()?).signaled())?)
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    report::run(|out| run(&options, out))
}

fn run(Options { common, num_qp, size, mtu }: &Options, out: &mut dyn Write) -> Result<()> {
    let mtu = Mtu::from_bytes(*mtu).context("--mtu")?;
    let depth = common.rx_depth;
    if depth < *num_qp {
        bail!(
            "--rx-depth is {depth}, but each of the {num_qp} queue pairs needs a receive; raise it, or lower --num-qp"
        );
    }
    let context = verbs::devices()?.find(common.ib_dev.as_deref())?.open()?;
    let pd = context.create_protection_domain()?;

    let mut buffer = Buffer::new(&pd, *size, 0, AccessFlags::empty(), common)?;
    let cq = common.create_completion_queue(&context, depth.saturating_add(*num_qp))?;
    let srq = pd.create_shared_receive_queue(depth)?;
    let mut receives = Receives::post(&srq, &buffer, depth)?;
    let (mut players, mut locals) = (Vec::new(), Vec::new());
    for _ in 0..*num_qp {
        let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).max_send_wr(1).shared_receive_queue(&srq).build()?;
        locals.push(common.local_endpoint(&qp)?);
        players.push(Player { qp, sending: false, waiting: true, received: 0 });
    }
    print_device(out, &context, &locals[0])?;
    check_mtu(mtu, &locals[0])?;
    let endpoints: Vec<_> = locals.iter().map(|local| local.endpoint).collect();
    endpoints.iter().try_for_each(|endpoint| print_endpoint(out, "local", endpoint))?;

    // The queue pairs are connected in the order in which both ends tell of them.
    let mut connect_options = ConnectOptions::default();
    connect_options.path_mtu = Some(mtu);
    connect_options.service_level = common.sl;
    let mut exchange = common.find_peer(out)?;
    let remotes = exchange.swap_endpoints(&endpoints, C_MAX_QP, |remotes| {
        if remotes.iter().any(|remote| remote.qp_num == 0) {
            bail!("the peer has fewer queue pairs; both ends have to use the same --num-qp");
        }
        for ((player, local), remote) in players.iter().zip(&locals).zip(remotes) {
            let what = || format!("cannot connect to the peer's queue pair {remote}");
            player.qp.connect(local, remote, &connect_options).with_context(what)?;
        }
        Ok(())
    })?;
    remotes.iter().try_for_each(|endpoint| print_endpoint(out, "remote", endpoint))?;
    exchange.finish()?;
    out.flush()?;

    let mut completions = Completions::new(&cq, common, CAUSES);
    let (mut sent, mut completed, mut received) = (0, 0, 0);
    // The C program's buffer is all zeroes until the first answer has come.
    let may_be_zero = |player: &Player| exchange.role() == Role::Server && player.received == 1;
    let mut last_may_be_zero = false;
    let start = Instant::now();
    if exchange.role() == Role::Client {
        for player in players.iter_mut().take(common.iters as usize) {
            player.ping(&buffer)?;
            sent += 1;
        }
    }
    while received < common.iters || completed < common.iters {
        for completion in completions.take()? {
            let done = completion.success()?;
            let Some(player) = players.iter_mut().find(|player| player.qp.qp_num() == done.qp_num()) else {
                bail!("a completion is of queue pair {:#x}, which is none of ours", done.qp_num());
            };
            if done.wr_id() == SEND {
                completed += 1;
                player.sending = false;
            } else {
                if done.byte_len() != Some(*size) {
                    let bytes = done.byte_len().unwrap_or(0);
                    bail!("a message of {bytes} bytes arrived; both ends have to use the same --size");
                }
                received += 1;
                player.received += 1;
                player.waiting = false;
                last_may_be_zero = may_be_zero(player);
                buffer.check(done.wr_id(), last_may_be_zero)?;
                receives.used(done.wr_id());
            }
            if sent < common.iters && !player.sending && !player.waiting {
                player.ping(&buffer)?;
                sent += 1;
            }
        }
        // One left for each queue pair: the peer may send to all of them at once.
        receives.keep_above(*num_qp, &srq, &buffer)?;
    }
    let measurement = Measurement::of_ping_pong(common.iters, *size, start);
    buffer.check_last(last_may_be_zero)?;
    Ok(writeln!(out, "SEND: {measurement}")?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_are_those_of_the_c_program() {
        Options::command().debug_assert();
        let arguments = "srq_pingpong -p 1 -d rxe0 -i 2 -s 64 -m 2048 -q 3 -r 9 -n 7 -l 3 -e -g 5 host";
        let Options { common, num_qp, size, mtu } = Options::parse_from(arguments.split(' '));
        assert_eq!((common.port, common.ib_dev.as_deref(), common.ib_port), (1, Some("rxe0"), 2));
        assert_eq!((size, mtu, num_qp, common.rx_depth, common.iters), (64, 2048, 3, 9, 7));
        assert_eq!((common.sl, common.events, common.gid_idx), (3, true, Some(5)));
        assert_eq!(common.host.as_deref(), Some("host"));
    }
}
