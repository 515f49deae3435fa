//! The least that a server does: it takes a client, a message and its leave. The client may be `cm_client` or the C program
//! `rdma_client`.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Parser;
use cm::{ConnectionOptions, Listener};
use examples::{greeting, report};
use verbs::{AccessFlags, CompletionQueue, ReceiveRequest, SendRequest, WorkCompletion};

/// Receives a message of 16 bytes, and answers with one.
///
/// The client may be `cm_client` or the C program `rdma_client`.
#[derive(Debug, Parser)]
struct Options {
    /// The address or host name to listen at; of IPv6, :: is all of them
    #[arg(short = 's', long, default_value = "0.0.0.0")]
    address: String,

    /// The port, in the port space TCP of the connection manager
    #[arg(short, long, default_value_t = 7471)]
    port: u16,

    /// Seconds that a client has for each step
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    report::run(|out| run(&options, out))
}

fn run(Options { address, port, timeout }: &Options, out: &mut dyn Write) -> Result<()> {
    let timeout = Duration::from_secs(*timeout);
    let listener = Listener::bind((address.as_str(), *port)).context("cannot listen")?;
    let request = listener.next_request(None)?.context("nobody came")?;

    // Between the request and the answer there is a queue pair that takes receives. Those that are posted now are there
    // whenever the client sends.
    let mut options = ConnectionOptions::default();
    options.timeout = timeout;
    let incoming = request.prepare(&options)?;
    let mut region = incoming.protection_domain().register(vec![0; greeting::LEN], AccessFlags::LOCAL_WRITE)?;
    incoming.queue_pair().post_receive(&ReceiveRequest::new(1, &[region.slice(..)?]))?;

    let connection = incoming.accept().context("cannot accept the client")?;
    if let Some(client) = connection.peer_addr() {
        writeln!(out, "connected to {client}")?;
    }
    let length = next(connection.completion_queue(), timeout)?.success()?.byte_len().unwrap_or(0) as usize;
    writeln!(out, "received {}", greeting::text(&region.to_vec(..length)?))?;

    region.write_at(0, &greeting::message("hello, client"))?;
    let answer = [region.slice(..)?];
    connection.queue_pair().post_send(&SendRequest::send(2, &answer).signaled())?;
    next(connection.completion_queue(), timeout)?.success()?;

    // What the client has acknowledged has arrived, so now the connection may end.
    connection.disconnect()?;
    Ok(writeln!(out, "answered, and disconnected")?)
}

/// The next completion of the queue.
fn next(cq: &CompletionQueue, timeout: Duration) -> Result<WorkCompletion> {
    let mut completions = [WorkCompletion::default()];
    match cq.wait(&mut completions, Some(timeout))? {
        [completion] => Ok(*completion),
        _ => bail!("the client said nothing for {timeout:?}; see what it printed"),
    }
}
