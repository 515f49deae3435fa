//! The least that a client does: it connects to an address, sends a message and takes the answer. The server may be `cm_server` or
//! the C program `rdma_server`.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser;
use cm::ConnectionOptions;
use examples::{greeting, report};
use verbs::{AccessFlags, CompletionQueue, InlineSlice, ReceiveRequest, SendRequest, WorkCompletion};

const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// Sends a message of 16 bytes, and receives one.
///
/// The server may be `cm_server` or the C program `rdma_server`.
#[derive(Debug, Parser)]
struct Options {
    /// The server's address or host name
    #[arg(short = 's', long)]
    server: String,

    /// The server's port, in the port space TCP of the connection manager
    #[arg(short, long, default_value_t = 7471)]
    port: u16,

    /// Seconds that the server has for each step
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    report::run(|out| run(&options, out))
}

fn run(Options { server, port, timeout }: &Options, out: &mut dyn Write) -> Result<()> {
    let timeout = Duration::from_secs(*timeout);
    let mut options = ConnectionOptions::default();
    options.timeout = timeout;
    // A short message need not lie in registered memory, if the queue pair has room for it in the request itself.
    options.capabilities.max_inline_data = greeting::LEN as u32;

    // The receive for the answer is posted before anybody can answer.
    let outgoing = options.prepare((server.as_str(), *port))?;
    let region = outgoing.protection_domain().register(vec![0; greeting::LEN], AccessFlags::LOCAL_WRITE)?;
    outgoing.queue_pair().post_receive(&ReceiveRequest::new(RECEIVE, &[region.slice(..)?]))?;

    let connection = outgoing.connect()?;
    if let Some(local) = connection.local_addr() {
        writeln!(out, "connected from {local}")?;
    }
    let message = greeting::message("hello, server");
    let message = [InlineSlice::new(&message)];
    connection.queue_pair().post_send(&SendRequest::send_inline(SEND, &message).signaled())?;

    // The answer and the word that the message has arrived come in either order.
    for _ in [SEND, RECEIVE] {
        let completion = next(connection.completion_queue(), timeout)?;
        let done = completion.success()?;
        if done.wr_id() == RECEIVE {
            let length = done.byte_len().unwrap_or(0) as usize;
            writeln!(out, "received {}", greeting::text(&region.to_vec(..length)?))?;
        }
    }
    Ok(connection.disconnect()?)
}

/// The next completion of the queue.
fn next(cq: &CompletionQueue, timeout: Duration) -> Result<WorkCompletion> {
    let mut completions = [WorkCompletion::default()];
    match cq.wait(&mut completions, Some(timeout))? {
        [completion] => Ok(*completion),
        _ => bail!("the server said nothing for {timeout:?}; see what it printed"),
    }
}
