//! What was measured of one size.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::options::{Options, Test};
use crate::samples::Summary;

/// What one end measured.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Share {
    /// How many messages it sent, read or wrote.
    pub(crate) messages: u64,
    /// How many of the peer's SENDs arrived.
    pub(crate) arrived: u64,
    pub(crate) elapsed: Duration,
    pub(crate) latency: Option<Summary>,
}

/// What both ends measured together.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    pub(crate) size: usize,
    /// On all queue pairs, in both directions; the rates are of those that arrived.
    pub(crate) messages: u64,
    pub(crate) seconds: f64,
    /// How many of them did not arrive, where a message may get lost and its arrival is seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lost: Option<u64>,
    /// How many requests there were from one signaled request to the next.
    pub(crate) cq_mod: u32,
    #[serde(flatten)]
    pub(crate) figures: Figures,
}

/// The figures that were asked for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum Figures {
    Bandwidth { bytes: u64, gbit_per_s: f64, mib_per_s: f64, messages_per_s: f64 },
    Latency { latency_us: Summary },
}

impl Row {
    /// Both ends' shares: where both have sent, the slower one's time counts for both.
    pub(crate) fn new(options: &Options, size: usize, client: &Share, server: &Share) -> Result<Self> {
        let messages = client.messages + server.messages;
        let arrived = if options.may_lose() { client.arrived + server.arrived } else { messages };
        ensure!(
            arrived > 0 || messages == 0,
            "none of {messages} messages of {size} bytes arrived: they got lost, which {} does not repair",
            options.connection
        );
        let seconds =
            client.elapsed.max(if server.messages > 0 { server.elapsed } else { Duration::ZERO }).as_secs_f64();
        let figures = match options.test {
            Test::Lat => {
                Figures::Latency { latency_us: client.latency.context("the client did not say what it measured")? }
            }
            Test::Bw => {
                let bytes = arrived * size as u64;
                let bytes_per_s = bytes as f64 / seconds;
                Figures::Bandwidth {
                    bytes,
                    gbit_per_s: bytes_per_s * 8.0 / 1e9,
                    mib_per_s: bytes_per_s / f64::from(1 << 20),
                    messages_per_s: arrived as f64 / seconds,
                }
            }
        };
        let lost = options.may_lose().then(|| messages.saturating_sub(arrived));
        Ok(Self { size, messages, seconds, lost, cq_mod: options.interval(size), figures })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(line: &str) -> Options {
        clap::Parser::try_parse_from(format!("perf {line}").split(' ')).unwrap()
    }

    fn share(messages: u64, milliseconds: u64) -> Share {
        Share { messages, arrived: 0, elapsed: Duration::from_millis(milliseconds), latency: None }
    }

    #[test]
    fn both_directions_add_up_and_the_slower_time_counts() {
        let row = Row::new(&options("send bw"), 1 << 20, &share(100, 500), &share(100, 1000)).unwrap();
        assert_eq!((row.messages, row.seconds), (200, 1.0));
        let Figures::Bandwidth { bytes, gbit_per_s, mib_per_s, messages_per_s } = row.figures else { panic!() };
        assert_eq!((bytes, mib_per_s, messages_per_s), (200 << 20, 200.0, 200.0));
        assert!((gbit_per_s - 1.677_721_6).abs() < 1e-9);
    }

    #[test]
    fn what_was_sent_and_did_not_arrive_is_lost() {
        let (client, server) = (Share { arrived: 7, ..share(10, 500) }, Share { arrived: 9, ..share(10, 500) });
        for (line, lost) in
            [("send bw -c ud", Some(4)), ("send bw -c uc", Some(4)), ("write bw -c uc", None), ("send bw", None)]
        {
            let row = Row::new(&options(line), 64, &client, &server).unwrap();
            assert_eq!((row.messages, row.lost), (20, lost), "{line}");
            let counted = if lost.is_some() { 16 } else { 20 };
            let Figures::Bandwidth { bytes, messages_per_s, .. } = row.figures else { panic!() };
            assert_eq!(
                (bytes, messages_per_s),
                (64 * counted, 2.0 * counted as f64),
                "the rate is of what arrived: {line}"
            );
        }
    }

    #[test]
    fn a_test_of_which_nothing_arrived_has_failed() {
        for line in ["send bw -c ud", "send bw -c uc"] {
            let error = Row::new(&options(line), 64, &share(10, 500), &share(0, 500)).unwrap_err().to_string();
            assert!(error.starts_with("none of 10 messages of 64 bytes arrived: they got lost, which U"), "{error}");
        }
        // What has been written over UC, nobody knows.
        assert_eq!(Row::new(&options("write bw -c uc"), 64, &share(10, 500), &share(0, 500)).unwrap().messages, 10);
    }

    #[test]
    fn an_end_that_only_receives_has_no_part_in_the_time() {
        let row = Row::new(&options("send bw"), 64, &share(100, 500), &share(0, 900)).unwrap();
        assert_eq!((row.messages, row.seconds), (100, 0.5));
    }
}
