//! Prints the asynchronous events of devices, as `ibv_asyncwatch` does: what happens to a device, a port or a queue, and no completion
//! tells of.
//!
//! * Each context of a device gets the events of the device and of its ports, and those of its own queues. This program has no queues, so
//!   what it prints are ports that go down and come up, addresses that come and go, and a device that fails.
//! * A context is a file descriptor: it is readable when there is an event. One `poll` waits for any number of devices.
//! * An event is taken and acknowledged in one step, so none can be left for which closing its queue would wait.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Parser;
use examples::report;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use verbs::{AsyncEvent, AsyncEventSource, AsyncEventType, Context};

/// Prints the asynchronous events of RDMA devices, until it is stopped.
///
/// For a port that comes up or goes down, the line says in which state it is now.
#[derive(Debug, Parser)]
struct Options {
    /// Only this device [default: all of them]
    #[arg(short = 'd', long, value_name = "DEVICE")]
    ib_dev: Option<String>,

    /// Stop after so many events; with --timeout, fewer are an error
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// Stop after so many seconds without an event
    #[arg(short, long, value_name = "SECONDS")]
    timeout: Option<u32>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    report::run_for_reader(|out| run(&options, out))
}

fn run(Options { ib_dev, count, timeout }: &Options, out: &mut dyn Write) -> Result<()> {
    let devices = verbs::devices()?;
    let contexts = match ib_dev {
        Some(name) => vec![devices.find(Some(name))?.open()?],
        None => {
            // None at all is an error, which says what to do.
            devices.find(None)?;
            devices.iter().map(|device| device.open()).collect::<verbs::Result<Vec<_>>>()?
        }
    };
    let names: Vec<_> = contexts.iter().map(|context| context.device().name().to_string()).collect();
    writeln!(out, "watching {}", names.join(", "))?;
    out.flush()?;

    let timeout = timeout.map(|seconds| Timespec { tv_sec: seconds.into(), tv_nsec: 0 });
    let start = Instant::now();
    let mut left = count.unwrap_or(u64::MAX);
    while left > 0 {
        let mut fds: Vec<_> = contexts.iter().map(|context| PollFd::new(context, PollFlags::IN)).collect();
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => return count.map_or(Ok(()), |count| Err(too_few(count - left, count))),
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error).context("cannot wait for events"),
        }
        for context in &contexts {
            while left > 0 {
                let Some(event) = context.try_async_event()? else { break };
                left -= 1;
                let seconds = start.elapsed().as_secs_f64();
                writeln!(out, "{seconds:.3} s, {}: {event}{}", context.device().name(), state(context, &event))?;
                out.flush()?;
                if event.event_type() == AsyncEventType::DEVICE_FATAL {
                    bail!("{} has failed: a program has to close it, and open it again", context.device().name());
                }
            }
        }
    }
    Ok(())
}

fn too_few(came: u64, count: u64) -> anyhow::Error {
    anyhow!("{came} of {count} events came, and then none for as long as --timeout says")
}

/// What has become of a port.
fn state(context: &Context, event: &AsyncEvent) -> String {
    let (AsyncEventSource::Port(port), AsyncEventType::PORT_ACTIVE | AsyncEventType::PORT_ERROR) =
        (event.source(), event.event_type())
    else {
        return String::new();
    };
    match context.port(port) {
        Ok(attributes) => format!(", which is {}", attributes.state()),
        Err(error) => format!(", of which nothing is known: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Options::command().debug_assert();
        assert!(Options::try_parse_from(["async_events", "-n", "0"]).is_err());
        let options = Options::parse_from(["async_events", "-d", "rxe0", "-n", "2", "-t", "3"]);
        assert_eq!((options.ib_dev.as_deref(), options.count, options.timeout), (Some("rxe0"), Some(2), Some(3)));
    }
}
