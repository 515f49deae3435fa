//! What the ends tell each other: lines of JSON over TCP, in which an end that failed says so.

use std::fmt::Display;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use examples::exchange::Exchange;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::options::{Goal, Operation, Options, Test};
use crate::service::Connection;

/// How long an end that failed waits for what the other one has to say about it.
const LAST_WORDS: Duration = Duration::from_millis(300);

/// What both ends have to be given alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plan {
    version: String,
    op: Operation,
    test: Test,
    connection: Connection,
    sizes: Vec<usize>,
    goal: Goal,
    warm_up: u64,
    qps: u32,
    bidirectional: bool,
    mtu: Option<u32>,
}

impl Plan {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            op: options.op,
            test: options.test,
            connection: options.connection,
            sizes: options.sizes(),
            goal: options.goal(),
            warm_up: options.warm_up,
            qps: options.qps,
            bidirectional: options.bidirectional,
            mtu: options.mtu,
        }
    }

    /// Compares with the peer's, and names all that differs.
    pub(crate) fn must_equal(&self, peer: &Self) -> Result<()> {
        let mut differences = Vec::new();
        let mut compare = |what: &str, here: String, there: String| {
            if here != there {
                differences.push(format!("{what} is {here} here and {there} there"));
            }
        };
        let optional = |value: Option<u32>| value.map_or("left to the ports".to_owned(), |value| value.to_string());
        let list = |sizes: &[usize]| sizes.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        compare("the program's version", self.version.clone(), peer.version.clone());
        compare("the operation", self.op.to_string(), peer.op.to_string());
        compare("what is measured", self.test.to_string(), peer.test.to_string());
        compare("--connection", self.connection.to_string(), peer.connection.to_string());
        compare("--size", list(&self.sizes), list(&peer.sizes));
        compare("the end of the test", self.goal.to_string(), peer.goal.to_string());
        compare("--warm-up", self.warm_up.to_string(), peer.warm_up.to_string());
        compare("--qp", self.qps.to_string(), peer.qps.to_string());
        compare("--bidirectional", self.bidirectional.to_string(), peer.bidirectional.to_string());
        compare("--mtu", optional(self.mtu), optional(peer.mtu));
        ensure!(
            differences.is_empty(),
            "the ends were given different tests ({}); start both with the same",
            differences.join("; ")
        );
        Ok(())
    }
}

impl Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Iterations(count) => write!(f, "--iters {count}"),
            Self::Seconds(count) => write!(f, "--duration {count}"),
        }
    }
}

/// Tells the peer how something went here, and hears how it went there. It is an error if either end failed, and both ends
/// then know of it.
pub(crate) fn swap<T: Serialize + DeserializeOwned>(
    exchange: &mut Exchange,
    here: Result<T>,
    patience: Option<Duration>,
) -> Result<(T, T)> {
    let words = here.as_ref().map_err(|error| format!("{error:#}"));
    let line = serde_json::to_string(&words).context("cannot tell the peer")?;
    match here {
        Ok(here) => {
            let there = exchange.swap_line(&line, patience)?;
            match understand(&there)? {
                Ok(there) => Ok((here, there)),
                Err(reason) => bail!("the peer failed: {reason}"),
            }
        }
        Err(error) => match exchange.swap_line(&line, Some(LAST_WORDS)).ok().map(|there| understand::<T>(&there)) {
            Some(Ok(Err(reason))) => Err(error.context(format!("both ends failed; the peer: {reason}; this end"))),
            _ => Err(error),
        },
    }
}

fn understand<T: DeserializeOwned>(line: &str) -> Result<Result<T, String>> {
    serde_json::from_str(line).map_err(|_| {
        anyhow!("the peer does not speak the protocol of this program; is another service at this TCP port?")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn plan(line: &str) -> Plan {
        Plan::new(&Options::try_parse_from(format!("perf {line}").split(' ')).unwrap())
    }

    #[test]
    fn the_same_test_is_agreed_upon_whatever_else_differs() {
        plan("send bw -t 8 -e -I 64 --json --use-srq -c RC host").must_equal(&plan("send bw -d rxe0 -l 4")).unwrap();
        let told: Plan = serde_json::from_str(&serde_json::to_string(&plan("read lat -D 2 -a")).unwrap()).unwrap();
        assert_eq!(told, plan("read lat -D 2 -a"));
    }

    #[test]
    fn all_that_differs_is_named() {
        let error = plan("send bw -n 5 -s 64,1k -q 2 -m 1024 -c ud").must_equal(&plan("read lat -D 3 --warm-up 9"));
        let error = error.unwrap_err().to_string();
        for part in [
            "the operation is SEND here and RDMA READ there",
            "what is measured is bandwidth here and latency there",
            "--connection is UD here and RC there",
            "--size is 64,1024 here and 2 there",
            "the end of the test is --iters 5 here and --duration 3 there",
            "--warm-up is 0 here and 9 there",
            "--qp is 2 here and 1 there",
            "--mtu is 1024 here and left to the ports there",
        ] {
            assert!(error.contains(part), "{error}");
        }
        assert!(!error.contains("--bidirectional"), "{error}");
    }
}
