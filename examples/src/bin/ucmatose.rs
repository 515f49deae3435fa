//! Several connections, and messages both ways through each, as `ucmatose` has it: each end also works with the C program as its peer.
//!
//! Each connection is a queue pair with queues of its own. The server sends first, once all clients are there. It is also the first to
//! say goodbye: by then it has all messages, so none can be lost.

#![forbid(unsafe_code)]

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use cm::{Connection, ConnectionOptions, Listener};
use examples::connection::{ANY, Completions, parse_address, with_port};
use examples::messages::{Messages, SEND};
use examples::report;
use verbs::{QueuePair, Rc, SendRequest};

/// Make several connections, and send messages both ways through each.
///
/// Without --server this is the server. Connections, count and size have to be the same at both ends. The peer may be the C program
/// `ucmatose`.
#[derive(Debug, Parser)]
struct Options {
    /// The server's address or host name; without it this is the server
    #[arg(short, long, value_name = "HOST")]
    server: Option<String>,

    /// The local address [default: all of a server's, that of the route of a client's]
    #[arg(short, long, value_name = "ADDRESS", value_parser = parse_address)]
    bind: Option<SocketAddr>,

    /// The server's port, in the port space TCP of the connection manager
    #[arg(short, long, default_value_t = 7471)]
    port: u16,

    /// Connections
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,

    /// Messages each way through each connection
    #[arg(short = 'C', long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,

    /// Bytes in a message
    #[arg(short = 'S', long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    size: u32,

    /// Look at the bytes that arrive; the peer has to be this program
    #[arg(short = 'V', long)]
    validate: bool,

    /// Seconds without progress after which to give up
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    report::run(|out| run(&options, out))
}

impl Options {
    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    fn connection(&self) -> ConnectionOptions {
        let mut options = ConnectionOptions::default();
        options.timeout = self.timeout();
        options.source = self.bind;
        options.capabilities.max_send_wr = self.count;
        options.capabilities.max_recv_wr = self.count;
        options
    }

    /// The messages of a queue pair that is not connected yet, with their receives posted: the peer may send as soon as it is.
    fn messages(&self, qp: &QueuePair<Rc>) -> Result<Messages> {
        let messages = Messages::new(qp.protection_domain(), self.count, self.size, 0)?;
        messages.post_receives(qp)?;
        Ok(messages)
    }
}

fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let is_server = options.server.is_none();
    let connected = match &options.server {
        None => accept_all(options)?,
        Some(host) => connect_all(host, options)?,
    };
    writeln!(out, "{} connections", connected.len())?;
    out.flush()?;
    let mut ends: Vec<_> =
        connected.iter().map(|(connection, messages)| End::new(connection, messages, options)).collect();
    if is_server {
        ends.iter_mut().try_for_each(End::send_all)?;
        ends.iter_mut().try_for_each(End::receive_all)?;
    } else {
        ends.iter_mut().try_for_each(End::receive_all)?;
        ends.iter_mut().try_for_each(End::send_all)?;
    }
    let Options { count, size, .. } = options;
    writeln!(out, "{count} messages of {size} bytes each way through each")?;
    for (connection, _) in &connected {
        if is_server {
            connection.disconnect()?;
        }
        if !connection.wait_disconnected(Some(options.timeout()))? {
            bail!("the peer did not end the connection within {:?}", options.timeout());
        }
    }
    Ok(writeln!(out, "disconnected")?)
}

fn accept_all(options: &Options) -> Result<Vec<(Connection, Messages)>> {
    let listener = Listener::bind(with_port(options.bind.unwrap_or(ANY), options.port)).context("cannot listen")?;
    let accept = |_| {
        let request = listener.next_request(None)?.context("nobody came")?;
        let incoming = request.prepare(&options.connection())?;
        let messages = options.messages(incoming.queue_pair())?;
        Ok((incoming.accept()?, messages))
    };
    (0..options.connections).map(accept).collect()
}

fn connect_all(host: &str, options: &Options) -> Result<Vec<(Connection, Messages)>> {
    let connect = |_| {
        let outgoing = options.connection().prepare((host, options.port))?;
        let messages = options.messages(outgoing.queue_pair())?;
        Ok((outgoing.connect()?, messages))
    };
    (0..options.connections).map(connect).collect()
}

/// One end of a connection.
struct End<'a> {
    connection: &'a Connection,
    messages: &'a Messages,
    completions: Completions<'a>,
    options: &'a Options,
    /// How many of the peer's messages have come, and how many of ours are known to have arrived.
    received: u32,
    arrived: u32,
}

impl<'a> End<'a> {
    fn new(connection: &'a Connection, messages: &'a Messages, options: &'a Options) -> Self {
        let completions = Completions::new(connection, options.timeout());
        Self { connection, messages, completions, options, received: 0, arrived: 0 }
    }

    /// Sends all messages, and waits until they have arrived.
    fn send_all(&mut self) -> Result<()> {
        for slices in &self.messages.to_send()? {
            self.connection.queue_pair().post_send(&SendRequest::send(SEND, slices).signaled())?;
        }
        while self.arrived < self.options.count {
            self.step()?;
        }
        Ok(())
    }

    /// Waits for all messages of the peer. Some may have come while this end was sending.
    fn receive_all(&mut self) -> Result<()> {
        while self.received < self.options.count {
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<()> {
        let (received, count) = (self.received, self.options.count);
        let Some(completion) = self.completions.take()? else {
            bail!("the peer has ended the connection after {received} of {count} messages; see what it printed");
        };
        if completion.wr_id() == SEND {
            self.arrived += 1;
        } else {
            self.messages.check(&completion.success()?, completion.wr_id(), self.options.validate)?;
            self.received += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_are_those_of_the_c_program() {
        Options::command().debug_assert();
        let options = Options::parse_from("ucmatose -s host -b 192.0.2.1 -c 2 -C 3 -S 64 -p 1".split(' '));
        assert_eq!(
            (options.server.as_deref(), options.bind.unwrap().to_string()),
            (Some("host"), "192.0.2.1:0".to_owned())
        );
        assert_eq!((options.connections, options.count, options.size, options.port), (2, 3, 64, 1));
    }
}
