//! The end that reads and writes the other one's memory.

use std::io::Write;
use std::thread;

use anyhow::{Context, Result};
use cm::{ConnectionRequest, Listener};
use examples::report;
use verbs::AccessFlags;

use crate::link::{Link, Mailbox};
use crate::message::{self, GO_AHEAD};
use crate::{MAX_SIZE, Options, text};

pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let host = options.address.as_deref().unwrap_or("0.0.0.0");
    let listener = Listener::bind((host, options.port)).context("cannot listen")?;
    if !options.persistent {
        let request = listener.next_request(None)?.context("nobody came")?;
        return serve(request, options, out);
    }
    // Each client has a thread of its own, and what becomes of it is its own affair.
    thread::scope(|scope| {
        loop {
            if let Some(request) = listener.next_request(None)? {
                scope.spawn(|| {
                    if let Err(error) = serve(request, options, &mut report::output()) {
                        report::note(&format!("error: {error:#}"));
                    }
                });
            }
        }
    })
}

/// Answers pings until the client has had enough.
fn serve(request: ConnectionRequest, options: &Options, out: &mut dyn Write) -> Result<()> {
    let incoming = request.prepare(&options.connection())?;
    let pd = incoming.protection_domain();
    let mailbox = Mailbox::new(pd)?;
    mailbox.post(incoming.queue_pair())?;
    // Only this end works on this memory: the client needs no right to it.
    let data = pd.register(vec![0; MAX_SIZE], AccessFlags::LOCAL_WRITE)?;

    let connection = incoming.accept().context("cannot accept the client")?;
    let mut link = Link::new(&connection, mailbox, options.timeout());
    let mut pings = 0;
    while let Some(message) = link.receive()? {
        let source = message::parse(&message, MAX_SIZE)?;
        let size = source.len() as usize;
        link.read(source, data.slice(..size)?)?;
        let ping = data.to_vec(..size)?;
        if options.verbose {
            writeln!(out, "server ping data: {}", text(&ping))?;
        }
        link.send(&GO_AHEAD)?;

        let sink = message::parse(&link.expect()?, MAX_SIZE)?;
        // A text, up to its end.
        let length = ping.iter().position(|byte| *byte == 0).map_or(size, |end| end + 1);
        let sink = sink.slice(..length).context("the client has less room than it sent")?;
        link.write(data.slice(..length)?, sink)?;
        link.send(&GO_AHEAD)?;
        pings += 1;
    }
    Ok(writeln!(out, "the client has ended the connection after {pings} pings")?)
}
