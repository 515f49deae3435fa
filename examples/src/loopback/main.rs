//! Runs the program of the README with what a program for daily use has besides: a command line, errors in words, and an end in any case.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser;
use examples::report;

/// As the README has it, whole.
mod program {
    include!("../bin/loopback.rs");

    pub(crate) fn run() -> verbs::Result<()> {
        main()
    }
}

/// Sends 12 bytes from one queue pair of the first RDMA device to another one of the same device.
///
/// It is the shortest program that moves data. For each request that is done it prints a line, and then what has arrived.
#[derive(Debug, Parser)]
struct Options {
    /// Seconds after which to give up
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,
}

fn main() -> ExitCode {
    let options = Options::parse();
    report::run(|_| within(Duration::from_secs(options.timeout), || Ok(program::run()?)))
}

/// Runs a program that may wait for ever, but no longer than so.
fn within(timeout: Duration, program: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let (done, outcome) = channel();
    thread::spawn(move || {
        // Nobody listens any more if the time is over.
        let _ = done.send(program());
    });
    match outcome.recv_timeout(timeout) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => {
            bail!("the device completed nothing for {timeout:?}; see what devinfo says of it")
        }
        Err(RecvTimeoutError::Disconnected) => bail!("it could not go on; see above"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Options::command().debug_assert();
        assert_eq!(Options::parse_from(["loopback"]).timeout, 30);
        assert!(Options::try_parse_from(["loopback", "word"]).is_err());
    }

    #[test]
    fn a_program_that_never_ends_is_given_up_and_one_that_does_tells_how_it_went() {
        let waits = within(Duration::from_millis(10), || {
            loop {
                thread::park();
            }
        });
        assert!(waits.unwrap_err().to_string().starts_with("the device completed nothing for 10ms; "));
        within(Duration::from_secs(60), || Ok(())).unwrap();
        assert_eq!(within(Duration::from_secs(60), || bail!("no device")).unwrap_err().to_string(), "no device");
    }
}
