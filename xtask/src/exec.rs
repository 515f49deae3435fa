//! `vm exec` and `vm shell`: one program in the guest, as if it ran here.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::termios::{OptionalActions, Termios};

use crate::process::{Event, Input, Program, Stream};
use crate::say;
use crate::vm::{News, Vm};
use crate::wire::Order;

/// Variables that `cargo run` sets for us and that would mislead a program started from here.
fn is_cargos(name: &str) -> bool {
    name == "CARGO"
        || name == "LD_LIBRARY_PATH"
        || name.starts_with("CARGO_PKG_")
        || name.starts_with("CARGO_MANIFEST_")
}

/// The environment that a program started here gets: ours, without what cargo put there for us.
pub(crate) fn environment() -> Vec<(OsString, OsString)> {
    std::env::vars_os()
        .filter(|(name, _)| !name.to_str().is_some_and(is_cargos))
        .collect()
}

/// Runs `command` in the guest and returns its status.
///
/// # Errors
///
/// The machine or the program does not start, the machine dies, or the time is up.
pub(crate) fn run(vm: Vm, command: &[OsString], timeout: Option<Duration>) -> Result<i32> {
    let interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let input = if interactive {
        let size = rustix::termios::tcgetwinsize(std::io::stdout())?;
        Input::Terminal {
            rows: size.ws_row,
            columns: size.ws_col,
        }
    } else {
        Input::Pipe
    };
    let program = Program {
        path: command[0].clone(),
        arguments: command[1..].to_vec(),
        environment: environment(),
        folder: std::env::current_dir()?,
        input,
    };
    let raw = interactive.then(RawTerminal::enter).transpose()?;
    vm.run(1, program);
    let orders = vm.orders();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        loop {
            let length = std::io::stdin().read(&mut buffer).unwrap_or(0);
            if orders
                .send(Order::Feed {
                    id: 1,
                    bytes: buffer[..length].to_vec(),
                })
                .is_err()
                || length == 0
            {
                return;
            }
        }
    });
    let result = watch(vm, timeout);
    drop(raw);
    result
}

fn watch(mut vm: Vm, timeout: Option<Duration>) -> Result<i32> {
    let deadline = timeout.map(|timeout| Instant::now() + timeout);
    loop {
        let patience = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        match vm.news(patience) {
            Some(News::Program(Event::Output {
                stream: Stream::Output,
                bytes,
                ..
            })) => {
                let mut to = std::io::stdout().lock();
                to.write_all(&bytes).and_then(|()| to.flush())?;
            }
            Some(News::Program(Event::Output {
                stream: Stream::Error,
                bytes,
                ..
            })) => std::io::stderr().write_all(&bytes)?,
            Some(News::Program(Event::Ended { outcome, .. })) => {
                vm.power_off();
                return Ok(outcome.code());
            }
            Some(News::Program(Event::NotStarted { reason, .. })) => {
                vm.power_off();
                bail!("cannot be started: {reason}");
            }
            Some(News::Signal(signal)) => {
                say!("interrupted by signal {signal}: switching the machine off");
                vm.power_off();
                return Ok(128 + signal);
            }
            Some(News::Gone) => return Err(vm.obituary()),
            Some(News::Ready | News::Alive | News::Broken(_)) => {}
            None => {
                vm.power_off();
                bail!(
                    "not finished after {} s: the machine was switched off",
                    timeout.unwrap_or_default().as_secs()
                );
            }
        }
    }
}

/// The terminal passes each key to the guest while this lives.
struct RawTerminal(Termios);

impl RawTerminal {
    fn enter() -> Result<Self> {
        let before = rustix::termios::tcgetattr(std::io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        rustix::termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // There is nobody left to tell.
        let _ = rustix::termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}
