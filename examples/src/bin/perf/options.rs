//! The command line, in the habit of perftest: where perftest has an option, it has the same letter here.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::service::Connection;
use crate::size::{LARGEST, Size, sweep};

/// Measures bandwidth or latency between two queue pairs, as perftest does.
///
/// Without HOST, waits for a client; with HOST, connects to the server there. Both ends are given the same test: operation,
/// connection, sizes, iterations or duration, warm-up, queue pairs, direction and MTU. The rest is each end's own affair.
///
/// With bw, as many requests as --tx-depth are under way, and the time from the first post to the last completion counts.
///
/// With lat, one message is under way. send and write answer each other, and half a round trip counts; of read and atomic the whole
/// one does.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// What moves the data
    #[arg(value_enum)]
    pub(crate) op: Operation,

    /// What is measured
    #[arg(value_enum)]
    pub(crate) test: Test,

    /// The server's host name or address; without it this is the server
    pub(crate) host: Option<String>,

    /// Transport service of the queue pairs
    #[arg(short, long, value_enum, ignore_case = true, default_value = "rc")]
    pub(crate) connection: Connection,

    /// TCP port by which the ends find each other
    #[arg(short, long, default_value_t = 18516, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,

    /// RDMA device [default: the first one]
    #[arg(short = 'd', long, value_name = "DEVICE")]
    pub(crate) ib_dev: Option<String>,

    /// Port of the device, from 1
    #[arg(short, long, value_name = "PORT", default_value_t = 1)]
    pub(crate) ib_port: u8,

    /// Index of the local GID [default: RoCE v2, IPv4 before IPv6, link-local ones last]
    #[arg(short = 'x', long, value_name = "INDEX")]
    pub(crate) gid_index: Option<u32>,

    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096 [default: the smaller one of both ends' active MTUs]
    #[arg(short, long)]
    pub(crate) mtu: Option<u32>,

    /// Service level
    #[arg(short = 'S', long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=15))]
    pub(crate) sl: u8,

    /// Bytes in a message, as 64, 4k or 1m; several sizes with commas [default: 64k for bw, over UD what --mtu says or 1k; 2 for lat, 8 for atomic]
    #[arg(short, long, value_delimiter = ',')]
    pub(crate) size: Vec<Size>,

    /// All powers of two from 2 bytes to 8 MiB, over UD to what --mtu says or 1k
    #[arg(short, long, conflicts_with = "size")]
    all: bool,

    /// Messages of each size, on each queue pair
    #[arg(short = 'n', long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    iters: u64,

    /// Seconds for each size, instead of --iters
    #[arg(short = 'D', long, value_name = "SECONDS", conflicts_with = "iters", value_parser = clap::value_parser!(u64).range(1..=86400))]
    duration: Option<u64>,

    /// Messages of each size, on each queue pair, that are sent first and do not count
    #[arg(long, value_name = "ITERS", default_value_t = 0)]
    pub(crate) warm_up: u64,

    /// Requests under way on each queue pair; lat has one
    #[arg(short, long, value_name = "REQUESTS", default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tx_depth: u32,

    /// Receives posted on each queue pair, with --use-srq for all of them together
    #[arg(short, long, value_name = "REQUESTS", default_value_t = 512, value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) rx_depth: u32,

    /// Signal every n-th request only, and the last one; at most half of --tx-depth [default: 100, and 1 above 8 KiB]
    #[arg(short = 'Q', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cq_mod: Option<u32>,

    /// Requests to post with one doorbell, as a chain
    #[arg(short = 'l', long, value_name = "REQUESTS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) post_list: u32,

    /// Queue pairs
    #[arg(short, long = "qp", value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) qps: u32,

    /// RDMA READs or atomics under way on each queue pair [default: what both devices take]
    #[arg(short, long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..))]
    pub(crate) outs: Option<u8>,

    /// Messages of up to so many bytes are sent inline
    #[arg(short = 'I', long, value_name = "BYTES", default_value_t = 0)]
    pub(crate) inline_size: u32,

    /// Both ends send at the same time
    #[arg(short, long)]
    pub(crate) bidirectional: bool,

    /// Sleep until a completion event instead of polling
    #[arg(short, long)]
    pub(crate) events: bool,

    /// Let all queue pairs take their receives from one shared receive queue
    #[arg(long)]
    pub(crate) use_srq: bool,

    /// Print JSON, for programs, instead of a table
    #[arg(long)]
    pub(crate) json: bool,

    /// Seconds without progress after which to give up
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,
}

/// What moves the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    /// SEND into the receives that the peer has posted
    Send,
    /// RDMA WRITE into the peer's memory
    Write,
    /// RDMA READ of the peer's memory
    Read,
    /// Fetch-and-add on 8 bytes of the peer's memory
    Atomic,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "SEND",
            Self::Write => "RDMA WRITE",
            Self::Read => "RDMA READ",
            Self::Atomic => "atomic fetch-and-add",
        })
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Test {
    /// Bandwidth and message rate
    Bw,
    /// Latency
    Lat,
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bw => "bandwidth",
            Self::Lat => "latency",
        })
    }
}

/// When a test is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Goal {
    /// After so many messages on each queue pair.
    Iterations(u64),
    /// After so many seconds.
    Seconds(u64),
}

impl Options {
    /// The sizes to measure.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        match (self.op, self.test) {
            _ if self.all => sweep(self.packet().unwrap_or(LARGEST)),
            _ if !self.size.is_empty() => self.size.iter().map(|size| size.0).collect(),
            (Operation::Atomic, _) => vec![8],
            (_, Test::Bw) => vec![self.packet().unwrap_or(64 << 10)],
            (_, Test::Lat) => vec![2],
        }
    }

    /// How large messages are that a user does not tell the size of, if they have to fit into a packet.
    fn packet(&self) -> Option<usize> {
        (self.connection == Connection::Ud).then(|| self.mtu.map_or(1 << 10, |mtu| mtu as usize))
    }

    pub(crate) fn largest(&self) -> usize {
        self.sizes().into_iter().max().unwrap_or(1)
    }

    /// Whether what is lost is counted: the messages of a test of bandwidth whose arrival is seen.
    pub(crate) fn may_lose(&self) -> bool {
        self.connection != Connection::Rc && self.op == Operation::Send && self.test == Test::Bw
    }

    /// Whether messages may get lost without either end seeing it.
    pub(crate) fn is_blind(&self) -> bool {
        self.connection == Connection::Uc && self.op == Operation::Write && self.test == Test::Bw
    }

    pub(crate) fn goal(&self) -> Goal {
        self.duration.map_or(Goal::Iterations(self.iters), Goal::Seconds)
    }

    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// How many requests are under way on each queue pair.
    pub(crate) fn depth(&self) -> u32 {
        if self.test == Test::Lat { 1 } else { self.tx_depth }
    }

    /// How many requests there are from one signaled request to the next. When all signaled ones have completed, there has to be room for
    /// another chain.
    pub(crate) fn interval(&self, size: usize) -> u32 {
        let usual = if size > 8192 { 1 } else { 100 };
        let room = (self.depth() / 2).min(self.depth() - self.post_list + 1);
        self.cq_mod.unwrap_or(usual).min(room).max(1)
    }

    /// Refuses what the test cannot be given.
    pub(crate) fn check(&self) -> Result<()> {
        let (op, lat) = (self.op, self.test == Test::Lat);
        self.connection.check(op)?;
        ensure!(
            !self.use_srq || op == Operation::Send,
            "{op} takes no receives that could be shared: leave out --use-srq"
        );
        ensure!(!lat || self.post_list == 1, "lat has one message under way: --post-list is for bw");
        ensure!(!lat || self.qps == 1, "lat has one message under way: --qp is for bw");
        ensure!(!lat || !self.bidirectional, "lat has one message under way: --bidirectional is for bw");
        ensure!(
            !(lat && op == Operation::Write && self.events),
            "write lat looks for the peer's RDMA WRITE in memory, of which no event tells: leave out --events"
        );
        let takes_data = matches!(op, Operation::Read | Operation::Atomic);
        ensure!(
            !takes_data || self.inline_size == 0,
            "{op} sends no data that could be inline: leave out --inline-size"
        );
        ensure!(takes_data || self.outs.is_none(), "--outs is for read and atomic; {op} has --tx-depth");
        ensure!(
            op != Operation::Atomic || self.sizes() == [8],
            "an atomic is of 8 bytes: leave out --size and --all, or ask for --size 8"
        );
        ensure!(
            self.post_list <= self.tx_depth,
            "a chain of {} does not fit into a queue of {}: --post-list is at most --tx-depth",
            self.post_list,
            self.tx_depth
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn options(line: &str) -> Options {
        Options::try_parse_from(format!("perf {line}").split(' ')).unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn the_letters_are_those_of_perftest() {
        Options::command().debug_assert();
        let all = options(
            "write bw -c UC -p 1 -d rxe0 -i 2 -x 5 -m 2048 -S 3 -s 64,4k -n 7 -t 9 -r 8 -Q 2 -l 4 -q 3 -I 64 -b -e host",
        );
        assert_eq!((all.op, all.test, all.host.as_deref()), (Operation::Write, Test::Bw, Some("host")));
        assert_eq!(all.connection, Connection::Uc);
        assert_eq!((all.port, all.ib_dev.as_deref(), all.ib_port, all.gid_index), (1, Some("rxe0"), 2, Some(5)));
        assert_eq!((all.mtu, all.sl, all.sizes(), all.goal()), (Some(2048), 3, vec![64, 4096], Goal::Iterations(7)));
        assert_eq!((all.tx_depth, all.rx_depth, all.cq_mod, all.post_list, all.qps), (9, 8, Some(2), 4, 3));
        assert_eq!((all.inline_size, all.bidirectional, all.events), (64, true, true));
        all.check().unwrap();
        assert_eq!(options("read lat -D 3 -o 4").goal(), Goal::Seconds(3));
        let shared = options("send lat -c UD --use-srq");
        assert_eq!((shared.connection, shared.use_srq), (Connection::Ud, true));
        shared.check().unwrap();
    }

    #[test]
    fn each_test_has_its_usual_size() {
        for (line, size) in [
            ("send bw", 65536),
            ("send bw -c ud", 1024),
            ("send bw -c ud -m 4096", 4096),
            ("read lat", 2),
            ("atomic bw", 8),
            ("atomic lat", 8),
        ] {
            assert_eq!(options(line).sizes(), [size], "{line}");
        }
        assert_eq!(options("send bw -c ud -a").largest(), 1024);
    }

    #[test]
    fn what_is_no_option_is_refused_by_clap() {
        for (line, reason) in [
            ("send", "required arguments were not provided"),
            ("send bw -s 4x", "a size is a number of bytes, as 64, 4k or 1m"),
            ("send bw -n 5 -D 1", "'--iters <ITERS>' cannot be used with '--duration <SECONDS>'"),
            ("recv bw", "[possible values: send, write, read, atomic]"),
            ("send bw -c xrc", "[possible values: rc, uc, ud]"),
        ] {
            let error = Options::try_parse_from(format!("perf {line}").split(' ')).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn signals_leave_room_for_a_chain() {
        for (line, interval) in [
            ("send bw", 64),
            ("send bw -t 512", 100),
            ("send bw -t 1", 1),
            ("send bw -Q 1", 1),
            ("send bw -l 64", 64),
            ("send bw -l 100", 29),
            ("send bw -l 128", 1),
            ("send lat", 1),
        ] {
            assert_eq!(options(line).interval(64), interval, "{line}");
        }
        assert_eq!(options("send bw").interval(8192), 64);
        assert_eq!(options("send bw").interval(8193), 1);
        assert_eq!(options("send bw -Q 9").interval(8193), 9);
    }

    #[test]
    fn what_a_test_cannot_be_given_is_refused_with_the_reason() {
        for (line, reason) in [
            ("send lat -l 2", "--post-list is for bw"),
            ("send lat -q 2", "--qp is for bw"),
            ("read lat -b", "--bidirectional is for bw"),
            ("write lat -e", "leave out --events"),
            ("read bw -I 8", "leave out --inline-size"),
            ("send bw -o 8", "--outs is for read and atomic"),
            ("atomic bw -s 64", "an atomic is of 8 bytes"),
            ("atomic lat -a", "an atomic is of 8 bytes"),
            ("read bw -c uc", "UC has no RDMA READ: ask for --connection RC"),
            ("atomic lat -c uc", "UC has no atomic fetch-and-add: ask for --connection RC"),
            ("read lat -c ud", "UD has no RDMA READ: ask for --connection RC"),
            ("atomic bw -c ud", "UD has no atomic fetch-and-add: ask for --connection RC"),
            ("write bw -c ud", "UD has no RDMA WRITE: ask for --connection RC or UC"),
            ("write bw --use-srq", "RDMA WRITE takes no receives that could be shared: leave out --use-srq"),
            ("send bw -l 9 -t 8", "a chain of 9 does not fit into a queue of 8"),
        ] {
            let error = options(line).check().unwrap_err().to_string();
            assert!(error.contains(reason), "{line}: {error}");
        }
    }
}
