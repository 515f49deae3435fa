//! `vm exec` and `vm shell`: one program in the guest, as if it ran here.

use std::ffi::OsString;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::termios::{OptionalActions, Termios};

use crate::place::{self, News};
use crate::process::{Event, Input, Program, Stream};
use crate::say;
use crate::vm::{Options, Vm};
use crate::wire::Order;
use crate::workspace;

/// How long the program may take to end after the user wants it to.
const GRACE: Duration = Duration::from_secs(2);

/// Ctrl-]: three of them end the machine, whatever the guest does with the terminal.
const ESCAPE: u8 = 0x1d;

/// Boots a machine, runs `command` in it and returns its status.
///
/// # Errors
///
/// The machine or the program does not start, the machine dies, or the time is up.
pub(crate) fn run(options: &Options, command: &[OsString], timeout: Option<Duration>) -> Result<i32> {
    let terminal = (std::io::stdin().is_terminal() && std::io::stdout().is_terminal())
        .then(|| rustix::termios::tcgetwinsize(std::io::stdout()))
        .transpose()?;
    let input = terminal.map_or(Input::Pipe, |size| Input::Terminal { rows: size.ws_row, columns: size.ws_col });
    let vm = Vm::boot(options)?;
    let program = Program {
        path: command[0].clone(),
        arguments: command[1..].to_vec(),
        environment: workspace::environment(),
        folder: std::env::current_dir()?,
        input,
    };
    if terminal.is_some() {
        say!("the guest has the terminal; Ctrl-] three times switches the machine off");
    }
    let raw = terminal.map(|_| RawTerminal::enter()).transpose()?;
    vm.order(Order::Start { id: 1, program });
    let orders = vm.orders();
    let is_raw = raw.is_some();
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        let mut escapes = 0;
        loop {
            // What cannot be read is at its end.
            let length = std::io::stdin().read(&mut buffer).unwrap_or(0);
            for byte in &buffer[..length] {
                escapes = if *byte == ESCAPE { escapes + 1 } else { 0 };
            }
            if is_raw && escapes >= 3 {
                // As if it came from outside; nothing else can reach us while the guest has the terminal.
                let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM);
            }
            if orders.send(Order::Feed { id: 1, bytes: buffer[..length].to_vec() }).is_err() || length == 0 {
                return;
            }
        }
    });
    let result = watch(vm, timeout, raw.is_some());
    drop(raw);
    match result? {
        Ok(status) => Ok(status),
        Err(problem) => bail!("{problem}; {} was running", command[0].to_string_lossy()),
    }
}

/// Hands on what the program prints until it ends; the inner error is what became of it instead.
fn watch(mut vm: Vm, timeout: Option<Duration>, terminal: bool) -> Result<Result<i32, String>> {
    let mut deadline = timeout.map(|timeout| Instant::now() + timeout);
    let mut interrupted = None;
    loop {
        match vm.news(deadline) {
            Some(News::Program(Event::Output { stream, bytes, .. })) => {
                let result = match stream {
                    Stream::Output => {
                        let mut to = std::io::stdout().lock();
                        to.write_all(&bytes).and_then(|()| to.flush())
                    }
                    Stream::Error => std::io::stderr().write_all(&bytes),
                };
                if let Err(error) = result {
                    vm.power_off();
                    // As a shell says it of a program whose reader is gone.
                    return if error.kind() == std::io::ErrorKind::BrokenPipe {
                        Ok(Ok(141))
                    } else {
                        Err(error.into())
                    };
                }
            }
            Some(News::Program(Event::Ended { outcome, .. })) => {
                vm.power_off();
                return Ok(Ok(interrupted.map_or(outcome.code(), |signal: i32| 128 + signal)));
            }
            Some(News::Program(Event::NotStarted { reason, .. })) => {
                vm.power_off();
                return Ok(Err(format!("the program cannot be started: {reason}")));
            }
            Some(News::Signal(signal)) if place::is_end(signal) => {
                say!("interrupted: ending the program and the virtual machine");
                vm.order(Order::Signal { id: 1, signal });
                interrupted = Some(signal);
                deadline = Some(Instant::now() + GRACE);
            }
            Some(News::Signal(_)) if terminal => {
                if let Ok(size) = rustix::termios::tcgetwinsize(std::io::stdout()) {
                    vm.order(Order::Resize { id: 1, rows: size.ws_row, columns: size.ws_col });
                }
            }
            Some(News::Gone) => return Ok(Err(vm.obituary())),
            Some(News::Signal(_) | News::Ready | News::Alive | News::Broken(_)) => {}
            None => {
                vm.power_off();
                return match interrupted {
                    Some(signal) => Ok(Ok(128 + signal)),
                    None => Ok(Err(format!(
                        "not finished after {} s, the --timeout: the virtual machine was switched off",
                        timeout.unwrap_or_default().as_secs()
                    ))),
                };
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
