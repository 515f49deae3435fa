//! Copies a file or a folder to another host.
//!
//! ```text
//!   sender                                              receiver
//!
//!   file ──read──▸ [ring of chunks] ──RDMA WRITE──▸ [ring of chunks] ──write──▸ .NAME.partial ──rename──▸ NAME
//!                                   with immediate
//! ```
//!
//! * Both rings are registered once. The file is read straight into the sender's, and written straight from the receiver's: the program
//!   moves no byte by itself. (It looks at each, for the checksum.)
//! * As many chunks are under way as a ring has: while one is on the wire, the next is read and the last is written. See `link.rs`.
//! * A file has its name only when it is whole, its checksum is right, and it is on the disk. One that was not finished is continued by the
//!   next run, if what is there is the beginning of what comes. See `destination.rs`.
//! * An end whose peer dies, or whose peer's host does, hears of it. See `link.rs`.

#![forbid(unsafe_code)]

mod destination;
mod digest;
mod link;
mod message;
mod offer;
mod path;
mod receiver;
mod sender;
mod source;
mod summary;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Parser;
use examples::report;

use offer::Shape;

/// Copies a file or a folder to another host, over RDMA.
///
/// The receiver: copy --listen ADDRESS:PORT FOLDER
/// The sender: copy SOURCE ADDRESS:PORT
///
/// The receiver takes one copy, puts it into FOLDER, and ends. To continue a copy that was interrupted, start both again.
#[derive(Debug, Parser)]
#[command(verbatim_doc_comment)]
struct Options {
    /// Receive, at this address of an interface with an RDMA device (0.0.0.0: at any)
    #[arg(short, long, value_name = "ADDRESS:PORT", conflicts_with_all = ["to", "chunk", "in_flight"])]
    listen: Option<String>,

    /// What to send; with --listen: the folder to put it into
    #[arg(value_name = "PATH")]
    path: PathBuf,

    /// Where the receiver listens
    #[arg(value_name = "ADDRESS:PORT", required_unless_present = "listen")]
    to: Option<String>,

    /// Bytes in an RDMA WRITE, a multiple of 4096
    #[arg(short, long, value_name = "BYTES", default_value_t = 1 << 20)]
    chunk: usize,

    /// Chunks under way at once
    #[arg(short = 'n', long, value_name = "CHUNKS", default_value_t = 16)]
    in_flight: usize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    report::run(|out| match &options {
        Options { listen: Some(address), path, .. } => receiver::run(address, path, out),
        Options { to: Some(address), path, chunk, in_flight, .. } => {
            let shape = Shape { chunk: *chunk, slots: *in_flight };
            shape.check().context("--chunk and --in-flight")?;
            sender::run(path, address, shape, out)
        }
        _ => bail!("say where to: copy SOURCE ADDRESS:PORT"),
    })
}

/// An error as the other end is told it.
fn to_peer(error: &anyhow::Error) -> String {
    let mut text = format!("{error:#}");
    // It has to fit into a slot of the replies.
    let end = (0..=text.len().min(1000)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(end);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_tells_the_ends_apart() {
        Options::command().debug_assert();
        let receiver = Options::parse_from(["copy", "--listen", "192.0.2.1:7471", "there"]);
        assert_eq!((receiver.listen.as_deref(), receiver.to), (Some("192.0.2.1:7471"), None));
        let sender = Options::parse_from(["copy", "here", "192.0.2.1:7471", "-n", "4", "-c", "65536"]);
        assert_eq!((sender.to.as_deref(), sender.chunk, sender.in_flight), (Some("192.0.2.1:7471"), 65536, 4));
        for words in [&["copy"][..], &["copy", "here"], &["copy", "-l", "a:1", "there", "b:1"]] {
            assert!(Options::try_parse_from(words).is_err(), "{words:?}");
        }
    }
}
