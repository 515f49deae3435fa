//! Datagrams to a multicast group, as `mckey` has it: each end also works with the C program as its peer.
//!
//! Joining a group tells the address that reaches all of its members: a path, the queue pair number that means "all of them", and a
//! Q_Key. To receive, a queue pair is attached to the group at its device as well. Who sends need not be a member; one that joins to
//! send only is told the address without getting the group's datagrams.
//!
//! Nobody knows how many receive, and nobody is told if a datagram is lost.

#![forbid(unsafe_code)]

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use cm::{ConnectionOptions, MulticastGroup, MulticastRole};
use examples::connection::parse_address;
use examples::messages::{Messages, SEND, is_ours, next};
use examples::report;
use verbs::{Grh, SendRequest};

/// Receive the datagrams of a multicast group, or send some.
///
/// Start the receivers first. A receiver takes the datagrams of the first sender from which one comes. The peers may be the C program
/// `mckey`.
#[derive(Debug, Parser)]
struct Options {
    /// The group: an address of 224.0.0.0/4 or `ff00::/8`
    #[arg(short = 'm', long, value_name = "ADDRESS")]
    group: IpAddr,

    /// Send
    #[arg(short, long)]
    sender: bool,

    /// The local address, which chooses the device [default: that of the route to the group]
    #[arg(short, long, value_name = "ADDRESS", value_parser = parse_address)]
    bind: Option<SocketAddr>,

    /// Join as one that only sends
    #[arg(short = 'o', long, requires = "sender")]
    send_only: bool,

    /// Messages to send, or to receive
    #[arg(short = 'C', long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    count: u32,

    /// Bytes in a message, up to the MTU
    #[arg(short = 'S', long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=4096))]
    size: u32,

    /// Look at the bytes that arrive; the sender has to be this program
    #[arg(short = 'V', long)]
    validate: bool,

    /// Seconds that a sender leaves the switches to learn of the group
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    settle: u64,

    /// Seconds after which to give up: joining, or receiving once the first datagram has come
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    report::run(|out| run(&options, out))
}

fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let mut connection = ConnectionOptions::default();
    connection.timeout = Duration::from_secs(options.timeout);
    connection.source = options.bind;
    connection.capabilities.max_send_wr = options.count;
    connection.capabilities.max_recv_wr = options.count;
    let role = if options.send_only { MulticastRole::SendOnly } else { MulticastRole::Full };
    let group = connection.join_multicast(options.group, role)?;

    let mtu = group.id().context()?.port(group.id().port())?.active_mtu();
    if mtu.bytes().is_some_and(|bytes| options.size > bytes) {
        bail!("--size is {}, but the active MTU is {mtu}", options.size);
    }
    let messages = Messages::new(group.queue_pair().protection_domain(), options.count, options.size, Grh::LEN)?;
    // Before anybody is told that this end is there: a datagram that finds no receive is lost.
    if !options.sender {
        messages.post_receives(group.queue_pair())?;
    }
    let address = group.address();
    let gid = address.address.global_route.as_ref().map(|route| route.destination).unwrap_or_default();
    writeln!(out, "joined {gid}: queue pair {:#x}, Q_Key {:#x}", address.qp_num, address.qkey)?;
    out.flush()?;
    match options.sender {
        true => send(&group, &messages, options)?,
        false => receive(&group, &messages, options)?,
    }
    let (done, Options { count, size, .. }) = (if options.sender { "sent" } else { "received" }, options);
    Ok(writeln!(out, "{done} {count} datagrams of {size} bytes")?)
}

fn send(group: &MulticastGroup, messages: &Messages, options: &Options) -> Result<()> {
    thread::sleep(Duration::from_secs(options.settle));
    let (to, qp) = (group.address(), group.queue_pair());
    for slices in &messages.to_send()? {
        let ah = group.address_handle();
        let request = SendRequest::send_to_with_imm(SEND, slices, ah, to.qp_num, to.qkey, qp.qp_num());
        qp.post_send(&request.signaled())?;
    }
    // The queue pair has to stay until all are on their way.
    for _ in 0..options.count {
        next(qp.send_cq(), Some(Duration::from_secs(options.timeout)))?.context("the device did not send")?;
    }
    Ok(())
}

fn receive(group: &MulticastGroup, messages: &Messages, options: &Options) -> Result<()> {
    let qp = group.queue_pair();
    // The first one may take its time.
    let mut patience = None;
    let (mut received, mut sender) = (0, None);
    while received < options.count {
        let Some(completion) = next(qp.recv_cq(), patience)? else {
            let (count, timeout) = (options.count, options.timeout);
            bail!(
                "{received} of {count} datagrams came; the next one did not in {timeout} s: it got lost, or the sender is gone"
            );
        };
        let done = completion.success()?;
        // Many may send to a group; this end listens to the first one that is such a program.
        if !is_ours(&done, sender) {
            messages.post_again(qp, done.wr_id())?;
            continue;
        }
        messages.check(&done, received.into(), options.validate)?;
        sender = done.imm_data();
        received += 1;
        patience = Some(Duration::from_secs(options.timeout));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_are_those_of_the_c_program() {
        Options::command().debug_assert();
        let options = Options::parse_from("mckey -m 239.1.2.3 -s -o -b 192.0.2.1 -C 3 -S 64".split(' '));
        assert_eq!(
            (options.group, options.bind.unwrap().to_string()),
            ([239, 1, 2, 3].into(), "192.0.2.1:0".to_owned())
        );
        assert_eq!((options.sender, options.send_only, options.count, options.size), (true, true, 3, 64));
        assert!(Options::try_parse_from("mckey -s".split(' ')).is_err());
    }
}
