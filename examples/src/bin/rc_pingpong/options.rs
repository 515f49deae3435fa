//! The command line, in the habit of `ibv_rc_pingpong`.

use std::fmt;

use clap::{Parser, ValueEnum};
use examples::pingpong::Common;
use verbs::AccessFlags;

/// Ping-pong between two reliable connected queue pairs.
///
/// Without HOST, waits for a client; with HOST, connects to the server there. Size, iterations and operation have to be the
/// same at both ends. With --op send the peer may be the C program `ibv_rc_pingpong`.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) common: Common,

    /// Bytes in a message
    #[arg(short, long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub(crate) size: u32,

    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096
    #[arg(short, long, default_value_t = 1024)]
    pub(crate) mtu: u32,

    /// What moves the data; given twice, the last one counts
    #[arg(long, value_enum, default_value_t = Operation::Send, overrides_with = "op")]
    pub(crate) op: Operation,
}

/// What moves the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Operation {
    /// SEND into the receives that the peer has posted
    Send,
    /// RDMA WRITE with immediate into the peer's memory
    Write,
    /// RDMA READ of the peer's memory, by both ends at the same time
    Read,
    /// The three of them, one after the other
    All,
}

impl Operation {
    /// What the buffer has to allow.
    pub(crate) fn access(self) -> AccessFlags {
        match self {
            Self::Send => AccessFlags::LOCAL_WRITE,
            Self::Write => AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE,
            Self::Read => AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ,
            Self::All => Self::Write.access() | Self::Read.access(),
        }
    }

    /// The single operations.
    pub(crate) fn steps(&self) -> &[Self] {
        match self {
            Self::All => &[Self::Send, Self::Write, Self::Read],
            one => std::slice::from_ref(one),
        }
    }

    /// What the ends call it among themselves. `None`: they say nothing, as the C program does.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::Send => None,
            Self::Write => Some("write"),
            Self::Read => Some("read"),
            Self::All => Some("all"),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "SEND",
            Self::Write => "RDMA WRITE",
            Self::Read => "RDMA READ",
            Self::All => "SEND, RDMA WRITE and RDMA READ",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_are_those_of_the_c_program() {
        Options::command().debug_assert();
        let arguments = "rc_pingpong -p 1 -d rxe0 -i 2 -s 64 -m 2048 -r 9 -n 7 -l 3 -e -g 5 host";
        let options = Options::parse_from(arguments.split(' '));
        let common = &options.common;
        assert_eq!((common.port, common.ib_dev.as_deref(), common.ib_port), (1, Some("rxe0"), 2));
        assert_eq!((options.size, options.mtu, common.rx_depth, common.iters), (64, 2048, 9, 7));
        assert_eq!((common.sl, common.events, common.gid_idx), (3, true, Some(5)));
        assert_eq!((common.host.as_deref(), options.op), (Some("host"), Operation::Send));
    }
}
