//! Datagrams to a service that is found by its IP address, as `udaddy` has it: each end also works with the C program as its peer.
//!
//! The connection manager tells the client what a datagram needs: the path to the server's device, the number of the queue pair there,
//! and its Q_Key. That is all: no connection comes of it, and the server learns of the client's queue pair only from what it receives.
//! The completion has the sender's number, and the header before the payload the way back. (The immediate data has the number too.)

#![forbid(unsafe_code)]

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use cm::{ConnectionOptions, DatagramListener, Id};
use examples::connection::{ANY, parse_address, with_port};
use examples::messages::{Messages, SEND, is_ours, next};
use examples::report;
use verbs::{AddressHandle, Grh, QueuePair, SendRequest, Ud};

/// Send datagrams to a service, and have them answered.
///
/// Without --server this is the service, which answers --connections clients. Count and size have to be the same at both ends. The
/// peer may be the C program `udaddy`, which always uses port 7174.
#[derive(Debug, Parser)]
struct Options {
    /// The server's address or host name; without it this is the server
    #[arg(short, long, value_name = "HOST")]
    server: Option<String>,

    /// The local address [default: all of a server's, that of the route of a client's]
    #[arg(short, long, value_name = "ADDRESS", value_parser = parse_address)]
    bind: Option<SocketAddr>,

    /// The server's port, in the port space UDP of the connection manager
    #[arg(long, default_value_t = 7174)]
    port: u16,

    /// Queue pairs of the client, each of which gets one of the server's
    #[arg(short, long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    connections: u32,

    /// Messages each way
    #[arg(short = 'C', long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,

    /// Bytes in a message, up to the MTU
    #[arg(short = 'S', long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4096))]
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

fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    match &options.server {
        None => serve(options, out),
        Some(host) => ask(host, options, out),
    }
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

    /// The messages of a queue pair, with their receives posted: a datagram that finds none is lost.
    fn messages(&self, qp: &QueuePair<Ud>) -> Result<Messages> {
        let messages = Messages::new(qp.protection_domain(), self.count, self.size, Grh::LEN)?;
        messages.post_receives(qp)?;
        Ok(messages)
    }

    /// A datagram that is longer than the MTU would not be sent.
    fn check_size(&self, id: &Id) -> Result<()> {
        let mtu = id.context()?.port(id.port())?.active_mtu();
        match mtu.bytes() {
            Some(bytes) if self.size > bytes => bail!("--size is {}, but the active MTU is {bytes}", self.size),
            _ => Ok(()),
        }
    }
}

fn serve(options: &Options, out: &mut dyn Write) -> Result<()> {
    let listener =
        DatagramListener::bind(with_port(options.bind.unwrap_or(ANY), options.port)).context("cannot listen")?;
    let mut ends = Vec::new();
    for _ in 0..options.connections {
        let request = listener.next_request(None)?.context("nobody came")?;
        options.check_size(request.id())?;
        let port = request.id().port();
        let qp = request.create_queue_pair(&options.connection())?;
        let messages = options.messages(&qp)?;
        // The client may send as soon as it has the answer.
        request.accept(&qp, &[])?;
        ends.push((qp, messages, port));
    }
    for (qp, messages, port) in &ends {
        let (qp_num, ah) = receive(qp, messages, *port, None, options)?;
        // All queue pairs of the connection manager have the same Q_Key.
        let qkey = qp.query()?.qkey().context("a queue pair for datagrams has a Q_Key")?;
        send(qp, messages, &ah, qp_num, qkey)?;
        // The queue pair has to stay until the answers are on their way.
        for _ in 0..options.count {
            next(qp.send_cq(), Some(options.timeout()))?.context("the device did not send")?;
        }
    }
    let Options { connections, count, size, .. } = options;
    Ok(writeln!(out, "received and answered {count} datagrams of {size} bytes from each of {connections} queue pairs")?)
}

fn ask(host: &str, options: &Options, out: &mut dyn Write) -> Result<()> {
    let mut ends = Vec::new();
    for _ in 0..options.connections {
        let service = options.connection().connect_datagram((host, options.port))?;
        options.check_size(service.id())?;
        let messages = options.messages(service.queue_pair())?;
        ends.push((service, messages));
    }
    for (service, messages) in &ends {
        let peer = service.peer();
        send(service.queue_pair(), messages, service.address_handle(), peer.qp_num, peer.qkey)?;
    }
    for (service, messages) in &ends {
        receive(service.queue_pair(), messages, service.id().port(), Some(service.peer().qp_num), options)?;
    }
    let Options { connections, count, size, .. } = options;
    Ok(writeln!(
        out,
        "sent {count} datagrams of {size} bytes from each of {connections} queue pairs; all were answered"
    )?)
}

/// Sends all messages, each with the number of the queue pair that they come from.
fn send(qp: &QueuePair<Ud>, messages: &Messages, ah: &AddressHandle, qp_num: u32, qkey: u32) -> Result<()> {
    for slices in &messages.to_send()? {
        let request = SendRequest::send_to_with_imm(SEND, slices, ah, qp_num, qkey, qp.qp_num());
        qp.post_send(&request.signaled())?;
    }
    Ok(())
}

/// Waits until all messages of the peer have come, and this end's to it, if it is known who that is, have gone. Else it is who sends the
/// first one. Tells who it is, and the way back there. What others send is left alone.
fn receive(
    qp: &QueuePair<Ud>,
    messages: &Messages,
    port: u8,
    peer: Option<u32>,
    options: &Options,
) -> Result<(u32, AddressHandle)> {
    let sent = if peer.is_some() { options.count } else { 0 };
    let (mut received, mut completed, mut sender) = (0, 0, None);
    while received < options.count || completed < sent {
        let Some(completion) = next(qp.recv_cq(), Some(options.timeout()))? else {
            let count = options.count;
            bail!(
                "{received} of {count} datagrams came in {:?}; the others got lost, which UD does not repair (start both ends \
                 again), or the peer is gone or runs with another --count",
                options.timeout()
            );
        };
        let done = completion.success()?;
        let Some(datagram) = done.datagram() else {
            completed += 1;
            continue;
        };
        if !is_ours(&done, peer.or(sender.as_ref().map(|(qp_num, _)| *qp_num))) {
            messages.post_again(qp, done.wr_id())?;
            continue;
        }
        messages.check(&done, received.into(), options.validate)?;
        received += 1;
        if sender.is_none() {
            let grh = datagram.grh(messages.incoming(), messages.place(done.wr_id()))?;
            let ah = qp.protection_domain().create_address_handle_from_completion(port, &datagram, grh.as_ref())?;
            sender = Some((datagram.source_qp_num(), ah));
        }
    }
    sender.context("no datagram came")
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_are_those_of_the_c_program() {
        Options::command().debug_assert();
        let options = Options::parse_from("udaddy -s host -b 192.0.2.1 -c 2 -C 3 -S 64".split(' '));
        assert_eq!(
            (options.server.as_deref(), options.bind.unwrap().to_string()),
            (Some("host"), "192.0.2.1:0".to_owned())
        );
        assert_eq!((options.connections, options.count, options.size, options.port), (2, 3, 64, 7174));
    }
}
