//! The end that pings, and lends its memory.

use std::io::Write;

use anyhow::{Context, Result, bail};
use verbs::AccessFlags;

use crate::link::{Link, Mailbox};
use crate::message;
use crate::{Options, text};

pub(crate) fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let host = options.address.as_deref().context("a client needs the server's address: --address")?;
    let outgoing = options.connection().prepare((host, options.port))?;
    let pd = outgoing.protection_domain();
    let mailbox = Mailbox::new(pd)?;
    mailbox.post(outgoing.queue_pair())?;
    // The server may read the one and write the other, and nothing else.
    let size = options.size as usize;
    let mut source = pd.register(vec![0; size], AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ)?;
    let mut sink = pd.register(vec![0; size], AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;

    let connection = outgoing.connect()?;
    let mut link = Link::new(&connection, mailbox, options.timeout());
    let mut pings = 0;
    while options.count == 0 || pings < options.count {
        let ping = data(pings, size);
        source.write_at(0, &ping)?;
        sink.fill(0);
        link.send(&message::offer(source.remote_slice(..)?))?;
        link.expect()?;
        // The server has read it. Now it may write it back.
        link.send(&message::offer(sink.remote_slice(..)?))?;
        link.expect()?;
        let pong = sink.to_vec(..)?;
        if options.validate {
            validate(&ping, &pong)?;
        }
        if options.verbose {
            writeln!(out, "ping data: {}", text(&pong))?;
        }
        pings += 1;
    }
    let validated = if options.validate { ", and what came back is what was sent" } else { "" };
    writeln!(out, "{pings} pings of {size} bytes{validated}")?;
    Ok(connection.disconnect()?)
}

/// A text of letters, which begins with another one each time.
fn data(ping: u64, size: usize) -> Vec<u8> {
    let letters = (b'A'..=b'z').cycle().skip((ping % u64::from(b'z' - b'A' + 1)) as usize);
    let mut data = format!("rdma-ping-{ping}: ").into_bytes();
    data.extend(letters.take(size.saturating_sub(data.len())));
    data.truncate(size - 1);
    data.push(0);
    data
}

fn validate(sent: &[u8], came_back: &[u8]) -> Result<()> {
    match sent.iter().zip(came_back).position(|(one, other)| one != other) {
        None => Ok(()),
        Some(at) => bail!("byte {at} came back as {:#04x} instead of {:#04x}", came_back[at], sent[at]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_is_that_of_the_c_program_and_a_wrong_byte_is_found() {
        assert_eq!(data(0, 26), b"rdma-ping-0: ABCDEFGHIJKL\0");
        assert_eq!(data(1, 26), b"rdma-ping-1: BCDEFGHIJKLM\0");
        assert_eq!(data(57, 26), b"rdma-ping-57: zABCDEFGHIJ\0");
        assert_eq!(data(58, 26), b"rdma-ping-58: ABCDEFGHIJK\0");
        let sent = data(0, 64);
        let mut came_back = sent.clone();
        validate(&sent, &came_back).unwrap();
        came_back[7] = 0;
        assert_eq!(validate(&sent, &came_back).unwrap_err().to_string(), "byte 7 came back as 0x00 instead of 0x6e");
    }
}
