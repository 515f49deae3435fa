//! A table of keys and values that is served by memory alone.
//!
//! The server registers the table, tells clients where it is, and sleeps. The clients do the work, through the server's device:
//!
//! ```text
//!   get       RDMA READ of the slot                                        (again, if a writer was at it meanwhile)
//!   put       RDMA READ of the slot
//!             compare-and-swap of its word: locked, if it is as it was     (again from the READ on, if it is not)
//!             RDMA WRITE of the new body, beside the old one
//!             compare-and-swap of its word: unlocked, one version on
//! ```
//!
//! * Readers take no lock, and are never kept waiting by one: a slot has two bodies, and writers write to the one that is not valid.
//! * A READ is not atomic: it may find one half of a slot as it was before an update, and the other half as it was after. The checksum of a
//!   body covers its version, so a reader that gets such a mixture knows, and reads again. See `layout.rs`.
//! * A writer's lock succeeds only if the slot is the one that it has read: no update is lost.
//! * A client that dies leaves the old body valid, and perhaps a lock, which has its number. The one thing that the server's processor does
//!   is to take such locks back, when the connection manager tells it that the client has gone. See `server.rs`. (A client whose host
//!   vanishes without a word keeps its locks; `copy` shows how to look for a peer.)

#![forbid(unsafe_code)]

mod client;
mod layout;
mod server;
mod stress;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Parser, Subcommand};
use examples::report;

use client::Table;

/// A table of keys and values that clients read and write by RDMA, without the server's processor.
#[derive(Debug, Parser)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Keeps a table, for clients to use
    Serve {
        /// Where: the address of an interface with an RDMA device (0.0.0.0: any)
        #[arg(value_name = "ADDRESS:PORT")]
        address: String,
        /// How many keys the table can hold
        #[arg(short, long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
        slots: u32,
        /// End when so many clients have been and gone [default: never]
        #[arg(short, long, value_parser = clap::value_parser!(u64).range(1..))]
        clients: Option<u64>,
    },
    /// Prints the value of a key
    Get {
        #[command(flatten)]
        server: Server,
        /// At most 32 bytes
        key: String,
    },
    /// Gives a key a value
    Put {
        #[command(flatten)]
        server: Server,
        /// At most 32 bytes
        key: String,
        /// At most 72 bytes
        value: String,
    },
    /// Adds to a number, and prints the sum; a key that is not there counts as 0
    Add {
        #[command(flatten)]
        server: Server,
        /// At most 32 bytes
        key: String,
        /// How much to add; it may be negative
        #[arg(allow_hyphen_values = true)]
        number: i64,
    },
    /// Removes a key
    Delete {
        #[command(flatten)]
        server: Server,
        /// At most 32 bytes
        key: String,
    },
    /// Counts up keys at random, and checks all that it reads
    Stress {
        #[command(flatten)]
        server: Server,
        /// How many keys
        #[arg(short, long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
        keys: u32,
        /// How many times it counts
        #[arg(short = 'n', long, default_value_t = 1000)]
        updates: u64,
    },
}

/// Where the table is.
#[derive(Clone, Debug, Args)]
struct Server {
    /// Where the table is served
    #[arg(value_name = "ADDRESS:PORT")]
    address: String,
    /// Seconds that others may keep the key locked
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=86400))]
    patience: u64,
}

impl Server {
    fn connect(&self) -> Result<Table> {
        Table::connect(&self.address, Duration::from_secs(self.patience))
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    report::run(|out| match &options.command {
        Command::Serve { address, slots, clients } => server::run(address, *slots as usize, *clients, out),
        Command::Get { server, key } => match server.connect()?.get(key.as_bytes())? {
            Some(value) => Ok(writeln!(out, "{}", String::from_utf8_lossy(&value))?),
            None => bail!("the table has no key {key:?}"),
        },
        Command::Put { server, key, value } => {
            server.connect()?.update(key.as_bytes(), |_| Ok(Some(value.clone().into_bytes()))).map(drop)
        }
        Command::Add { server, key, number } => {
            let sum = server.connect()?.update(key.as_bytes(), |value| add(value, *number))?;
            Ok(writeln!(out, "{}", String::from_utf8_lossy(&sum.unwrap_or_default()))?)
        }
        Command::Delete { server, key } => server
            .connect()?
            .update(key.as_bytes(), |value| match value {
                Some(_) => Ok(None),
                None => bail!("the table has no key {key:?}"),
            })
            .map(drop),
        Command::Stress { server, keys, updates } => stress::run(server.connect()?, *keys, *updates, out),
    })
}

fn add(value: Option<&[u8]>, number: i64) -> Result<Option<Vec<u8>>> {
    let value = value.map_or(Ok("0"), std::str::from_utf8).ok().and_then(|text| text.parse::<i64>().ok());
    let value = value.context("the value of the key is no number")?;
    let sum = value.checked_add(number).with_context(|| format!("{value} and {number} are too much together"))?;
    Ok(Some(sum.to_string().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Options::command().debug_assert();
        let options = Options::parse_from(["one_sided", "add", "192.0.2.1:7472", "key", "-3"]);
        assert!(matches!(options.command, Command::Add { number: -3, .. }));
    }

    #[test]
    fn numbers_are_added_and_nothing_else() {
        assert_eq!(add(None, 5).unwrap().unwrap(), b"5");
        assert_eq!(add(Some(b"-7"), 5).unwrap().unwrap(), b"-2");
        for wrong in [&b"seven"[..], b"", b"\xff", b"9223372036854775807"] {
            assert!(add(Some(wrong), 1).is_err());
        }
    }
}
