//! How long each step of connecting takes, for many connections at once, as `cmtime` has it: each end also works with the C program of
//! rdma-core 44 as its peer.
//!
//! [`cm::connect`] takes one step after the other, and waits for each. Here the steps are taken by hand, so that many connections take
//! each of them together. All ids have one event channel, and an event says by its key which id it is of.

#![forbid(unsafe_code)]

mod client;
mod server;

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser;
use cm::{EventChannel, EventKind, Id, IdKey};
use examples::connection::parse_address;
use examples::report;
use verbs::{CompletionQueue, QueuePair, Rc};

/// Make many connections at once, and tell how long each step takes.
///
/// Without --server this is the server, which ends when --connections clients have come and gone. The peer may be the C program
/// `cmtime` of rdma-core 44; later ones speak another protocol.
#[derive(Debug, Parser)]
struct Options {
    /// The server's address; without it this is the server
    #[arg(short, long, value_name = "ADDRESS", value_parser = parse_address)]
    server: Option<SocketAddr>,

    /// The local address [default: all of a server's, that of the route of a client's]
    #[arg(short, long, value_name = "ADDRESS", value_parser = parse_address)]
    bind: Option<SocketAddr>,

    /// The server's port, in the port space TCP of the connection manager
    #[arg(short, long, default_value_t = 7471)]
    port: u16,

    /// Connections
    #[arg(short, long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,

    /// Milliseconds that resolving may take
    #[arg(short, long, value_name = "MILLISECONDS", default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,

    /// Seconds without an event after which to give up
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=86400))]
    patience: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    report::run(|out| run(&options, out))
}

fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    match options.server {
        None => server::run(options, out),
        Some(address) => client::run(address, options, out),
    }
}

/// The next event of a channel.
fn next(channel: &EventChannel, options: &Options) -> Result<(IdKey, EventKind)> {
    let patience = Duration::from_secs(options.patience);
    let event = channel.next_event(Some(patience))?;
    let event = event.with_context(|| format!("nothing happened for {patience:?}; see what the peer printed"))?;
    Ok((event.id(), event.into_kind()))
}

/// A queue pair on the id's device. No data goes through it, so one completion queue will do for all.
fn queue_pair(id: &Id, cq: &mut Option<CompletionQueue>) -> Result<QueuePair<Rc>> {
    let cq = match cq {
        Some(cq) => cq,
        None => cq.insert(id.context()?.create_completion_queue(1)?),
    };
    let qp = QueuePair::builder(&id.protection_domain()?, cq, cq).max_send_wr(1).max_recv_wr(1).build()?;
    id.init_queue_pair(&qp)?;
    Ok(qp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_are_those_of_the_c_program() {
        Options::command().debug_assert();
        let options = Options::parse_from("cmtime -s 192.0.2.1 -b 192.0.2.2 -c 7 -p 1 -t 500".split(' '));
        let text = |address: Option<SocketAddr>| address.unwrap().to_string();
        assert_eq!((text(options.server), text(options.bind)), ("192.0.2.1:0".to_owned(), "192.0.2.2:0".to_owned()));
        assert_eq!((options.connections, options.port, options.timeout), (7, 1, 500));
    }
}
