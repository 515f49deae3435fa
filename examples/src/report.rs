//! What the programs print.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use verbs::{Context, Endpoint, LocalEndpoint};

/// Runs a program; an error is printed and ends it with status 1.
///
/// A reader of the output that is gone, as `head` is when it has read enough, changes nothing: the program does what it is there for, and its
/// status tells how that went. What it still prints is lost.
pub fn run(program: impl FnOnce(&mut dyn Write) -> Result<()>) -> ExitCode {
    // Not locked: a program may print from several threads.
    run_with(io::stdout(), program)
}

fn run_with(out: impl Write, program: impl FnOnce(&mut dyn Write) -> Result<()>) -> ExitCode {
    let mut out = Unheard { out, reader_is_gone: false };
    exit_code(program(&mut out).and_then(|()| Ok(out.flush()?)))
}

/// As [`run`], for a program that does nothing but print: it ends, and well, when the reader is gone.
pub fn run_for_reader(program: impl FnOnce(&mut dyn Write) -> Result<()>) -> ExitCode {
    run_for_reader_with(io::stdout(), program)
}

fn run_for_reader_with(out: impl Write, program: impl FnOnce(&mut dyn Write) -> Result<()>) -> ExitCode {
    let mut out = Heard { out, reader_is_gone: false };
    match program(&mut out).and_then(|()| Ok(out.flush()?)) {
        Err(_) if out.reader_is_gone => ExitCode::SUCCESS,
        result => exit_code(result),
    }
}

fn exit_code(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            note(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// The output of a program's other threads, as [`run`] gives it to the first one.
pub fn output() -> impl Write {
    Unheard { out: io::stdout(), reader_is_gone: false }
}

/// Says something beside what is printed. Nobody needs to hear it.
pub fn note(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

fn is_gone<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// An output that takes everything once its reader is gone.
struct Unheard<W> {
    out: W,
    reader_is_gone: bool,
}

impl<W: Write> Unheard<W> {
    fn try_to<T>(&mut self, lost: T, act: impl FnOnce(&mut W) -> io::Result<T>) -> io::Result<T> {
        if !self.reader_is_gone {
            let result = act(&mut self.out);
            if !is_gone(&result) {
                return result;
            }
            self.reader_is_gone = true;
        }
        Ok(lost)
    }
}

impl<W: Write> Write for Unheard<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.try_to(bytes.len(), |out| out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.try_to((), Write::flush)
    }
}

/// An output that knows whether its reader is gone. The error alone does not tell: a peer that is gone has the same one.
struct Heard<W> {
    out: W,
    reader_is_gone: bool,
}

impl<W: Write> Write for Heard<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let result = self.out.write(bytes);
        self.reader_is_gone |= is_gone(&result);
        result
    }

    fn flush(&mut self) -> io::Result<()> {
        let result = self.out.flush();
        self.reader_is_gone |= is_gone(&result);
        result
    }
}

/// Prints which device, port and GID are used.
///
/// # Errors
///
/// `out` takes no more.
pub fn print_device(out: &mut dyn Write, context: &Context, local: &LocalEndpoint) -> Result<()> {
    let port = &local.port_attributes;
    writeln!(
        out,
        "device {}, port {} ({}, {}), active MTU {}",
        context.device().name(),
        local.port,
        port.link_layer(),
        port.state(),
        port.active_mtu()
    )?;
    match local.gid {
        Some(entry) => {
            let interface = entry.interface_name().map(|name| format!(", interface {name}")).unwrap_or_default();
            writeln!(out, "GID index {}: {} ({}{interface})", entry.index, entry.gid, entry.gid_type)?;
        }
        None => writeln!(out, "no GID: the path stays in the subnet")?,
    }
    Ok(())
}

/// Prints an end of a connection, the `local` or the `remote` one.
///
/// # Errors
///
/// `out` takes no more.
pub fn print_endpoint(out: &mut dyn Write, name: &str, endpoint: &Endpoint) -> Result<()> {
    let gid = endpoint.gid.unwrap_or_default();
    let Endpoint { lid, qp_num, psn, .. } = endpoint;
    Ok(writeln!(out, "{name:6} LID {lid:#06x}, QPN {qp_num:#08x}, PSN {psn:#08x}, GID {gid}")?)
}

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// How many iterations.
    pub iterations: u64,
    /// How many bytes were moved in all of them, both ways together.
    pub bytes: u64,
    /// How long they took.
    pub elapsed: Duration,
}

impl Measurement {
    /// Of messages of `size` bytes that went there and back `iterations` times since `start`.
    pub fn of_ping_pong(iterations: u32, size: u32, start: Instant) -> Self {
        let (iterations, size) = (u64::from(iterations), u64::from(size));
        Self { iterations, bytes: 2 * iterations * size, elapsed: start.elapsed() }
    }
}

impl std::fmt::Display for Measurement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let seconds = self.elapsed.as_secs_f64();
        let per_iteration = seconds * 1e6 / self.iterations as f64;
        let gigabits = self.bytes as f64 * 8.0 / seconds / 1e9;
        let Self { iterations, bytes, .. } = self;
        write!(
            f,
            "{iterations} iterations, {bytes} bytes in {seconds:.3} s, {per_iteration:.2} µs per iteration, {gigabits:.3} Gbit/s"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken_pipe() -> io::Error {
        ErrorKind::BrokenPipe.into()
    }

    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(broken_pipe())
        }

        fn flush(&mut self) -> io::Result<()> {
            Err(broken_pipe())
        }
    }

    fn lose_the_peer(_: &mut dyn Write) -> Result<()> {
        Err(anyhow::Error::from(broken_pipe()).context("cannot tell the peer"))
    }

    #[test]
    fn a_program_whose_reader_is_gone_does_its_work_and_tells_how_it_went() {
        let mut done = 0;
        let code = run_with(Closed, |out| {
            for _ in 0..3 {
                writeln!(out, "a line")?;
                out.flush()?;
                done += 1;
            }
            Ok(())
        });
        assert_eq!((code, done), (ExitCode::SUCCESS, 3));
        assert_eq!(
            run_with(Closed, |out| Ok(writeln!(out, "a line")?).and_then(|()| lose_the_peer(out))),
            ExitCode::FAILURE
        );
        assert_eq!(run_with(Vec::new(), lose_the_peer), ExitCode::FAILURE);
        // Any other error of the output is one.
        let mut full = [0; 3];
        assert_eq!(run_with(&mut full[..], |out| Ok(writeln!(out, "a line")?)), ExitCode::FAILURE);
    }

    #[test]
    fn a_program_that_only_prints_ends_when_its_reader_is_gone_and_a_peer_that_is_gone_is_an_error() {
        let print_for_ever = |out: &mut dyn Write| loop {
            writeln!(out, "a line")?;
        };
        assert_eq!(run_for_reader_with(Closed, print_for_ever), ExitCode::SUCCESS);
        assert_eq!(run_for_reader_with(Vec::new(), lose_the_peer), ExitCode::FAILURE);
        assert_eq!(run_for_reader_with(Closed, lose_the_peer), ExitCode::FAILURE);
    }

    #[test]
    fn a_measurement_prints_its_rates() {
        let measurement = Measurement { iterations: 1000, bytes: 8_192_000, elapsed: Duration::from_millis(250) };
        assert_eq!(
            measurement.to_string(),
            "1000 iterations, 8192000 bytes in 0.250 s, 250.00 µs per iteration, 0.262 Gbit/s"
        );
    }
}
