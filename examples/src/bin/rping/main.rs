//! A ping by RDMA READ and RDMA WRITE, as `rping` has it: each end also works with the C program as its peer.
//!
//! The client only lends memory, and the server works on it:
//!
//! ```text
//!   the client                                              the server
//!   SEND: here is my ping (address, key, length)  ────────▸
//!                                                 ◂──────── RDMA READ of the ping
//!                                                 ◂──────── SEND: go ahead
//!   SEND: write it there (address, key, length)   ────────▸
//!                                                 ◂──────── RDMA WRITE of the ping
//!                                                 ◂──────── SEND: go ahead
//!   compares the two
//! ```
//!
//! What a program has to see to:
//!
//! * A SEND needs a receive that waits for it. Each end posts its first one before the connection stands, and the next one before it
//!   says anything to which the peer answers.
//! * The server's RDMA WRITE needs no receive, and the client sees nothing of it. The SEND behind it arrives after it, and says so.

#![forbid(unsafe_code)]

mod client;
mod link;
mod message;
mod server;

use std::borrow::Cow;
use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use cm::ConnectionOptions;
use examples::connection::parse_address;
use examples::report;

/// As many as the C program takes, which has the same lower limit too.
const MAX_SIZE: usize = 65535;
const MIN_SIZE: u32 = 26;

/// Ping by RDMA READ and RDMA WRITE.
///
/// A server waits for one client, or with --persistent for any number; the client connects to the server's address, which has to be
/// that of an interface with an RDMA device. The peer may be the C program `rping`, whose server has to be told the same --size.
#[derive(Debug, Parser)]
struct Options {
    /// Be the server
    #[arg(short, long, required_unless_present = "client", conflicts_with = "client")]
    server: bool,

    /// Be the client
    #[arg(short, long)]
    client: bool,

    /// The server's address or host name; a server listens at all of its addresses by default (of IPv6: at ::)
    #[arg(short, long, value_name = "HOST", required_if_eq("client", "true"))]
    address: Option<String>,

    /// The server's port, in the port space TCP of the connection manager
    #[arg(short, long, default_value_t = 7174)]
    port: u16,

    /// The client's address to connect from [default: that of the route]
    #[arg(short = 'I', long, value_name = "ADDRESS", value_parser = parse_address)]
    source: Option<SocketAddr>,

    /// Pings, 0 for ever (client)
    #[arg(short = 'C', long, default_value_t = 0)]
    count: u64,

    /// Bytes in a ping (client)
    #[arg(short = 'S', long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(i64::from(MIN_SIZE)..=MAX_SIZE as i64))]
    size: u32,

    /// Print each ping
    #[arg(short, long)]
    verbose: bool,

    /// Compare what comes back with what was sent (client)
    #[arg(short = 'V', long)]
    validate: bool,

    /// Serve one client after another, and several at once (server)
    #[arg(short = 'P', long)]
    persistent: bool,

    /// Seconds without progress after which to give up
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,
}

impl Options {
    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    fn connection(&self) -> ConnectionOptions {
        let mut options = ConnectionOptions::default();
        options.timeout = self.timeout();
        options.source = self.source;
        options
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    report::run(|out| run(&options, out))
}

fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    match options.server {
        true => server::run(options, out),
        false => client::run(options, out),
    }
}

/// A ping, up to its end.
fn text(ping: &[u8]) -> Cow<'_, str> {
    let end = ping.iter().position(|byte| *byte == 0).unwrap_or(ping.len());
    String::from_utf8_lossy(&ping[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_are_those_of_the_c_program() {
        Options::command().debug_assert();
        let options = Options::parse_from("rping -c -v -V -C 3 -S 100 -a host -p 1 -I 192.0.2.1".split(' '));
        assert!(options.client && options.verbose && options.validate && !options.persistent);
        assert_eq!((options.count, options.size, options.port), (3, 100, 1));
        assert_eq!(options.address.as_deref(), Some("host"));
        assert_eq!(options.source.unwrap().to_string(), "192.0.2.1:0");
        assert!(Options::parse_from("rping -s -P".split(' ')).persistent);
        for wrong in ["rping", "rping -s -c -a host", "rping -c", "rping -c -a host -S 25", "rping -c -a host -S 65536"]
        {
            assert!(Options::try_parse_from(wrong.split(' ')).is_err(), "{wrong}");
        }
    }
}
