//! Programs that run on this side of the wire: started, read and waited for by threads, reported as [`Event`]s.
//!
//! The same code runs a program on the host and, inside the guest, for the host: what happens to it comes out as events either way.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use rustix::termios::Winsize;
use serde::{Deserialize, Serialize};

/// How long a program's output is read after its end: a grandchild that keeps the pipe open must not hold up the run.
const OUTPUT_AFTER_END: Duration = Duration::from_millis(500);

/// What to run, where, and with which environment (all of it: nothing is inherited).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Program {
    pub(crate) path: OsString,
    pub(crate) arguments: Vec<OsString>,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) folder: PathBuf,
    pub(crate) input: Input,
}

/// Where a program's standard input, output and error lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Input {
    /// Nothing to read; output and error are pipes.
    Null,
    /// Standard input is fed by [`Running::feed`]; output and error are pipes.
    Pipe,
    /// All three are a terminal of this size.
    Terminal { rows: u16, columns: u16 },
}

/// A program's two outputs; a terminal has only [`Stream::Output`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stream {
    Output,
    Error,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Exited(i32),
    Signaled(i32),
}

impl Outcome {
    /// The status a shell would report.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Exited(code) => code,
            Self::Signaled(signal) => 128 + signal,
        }
    }

    pub(crate) fn success(self) -> bool {
        self == Self::Exited(0)
    }
}

impl From<ExitStatus> for Outcome {
    fn from(status: ExitStatus) -> Self {
        match status.code() {
            Some(code) => Self::Exited(code),
            None => Self::Signaled(status.signal().unwrap_or_default()),
        }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exit status {code}"),
            Self::Signaled(signal) => write!(f, "ended by signal {signal}"),
        }
    }
}

/// What happened to the program that was started under the number `id`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Output { id: u32, stream: Stream, bytes: Vec<u8> },
    Ended { id: u32, outcome: Outcome },
    NotStarted { id: u32, reason: String },
}

/// Where events go; called from several threads.
pub(crate) type Sink = Arc<dyn Fn(Event) + Send + Sync>;

/// A started program.
#[derive(Debug)]
pub(crate) struct Running {
    group: Pid,
    input: Option<Feed>,
}

#[derive(Debug)]
enum Feed {
    Pipe(ChildStdin),
    Terminal(File),
}

impl Running {
    /// Hands bytes to the program's standard input; an empty slice closes it. A program that no longer reads is no error.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        use std::io::Write as _;
        let result = match &mut self.input {
            // A terminal is closed with the end-of-file character, not by hanging up.
            Some(Feed::Terminal(master)) if bytes.is_empty() => master.write_all(&[4]),
            Some(Feed::Terminal(master)) => master.write_all(bytes),
            Some(Feed::Pipe(pipe)) if !bytes.is_empty() => pipe.write_all(bytes),
            _ => {
                self.input = None;
                return;
            }
        };
        if result.is_err() {
            self.input = None;
        }
    }

    /// Tells the terminal, if the program has one, its new size.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        if let Some(Feed::Terminal(master)) = &self.input {
            // Only the picture suffers when this fails.
            let _ = rustix::termios::tcsetwinsize(master, size(rows, columns));
        }
    }

    /// Signals the program and all that it started in its process group.
    pub(crate) fn signal(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            // It may just have ended.
            let _ = rustix::process::kill_process_group(self.group, signal);
        }
    }
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Starts `program`; all that happens to it goes to `sink` under the number `id`, its end last.
///
/// # Errors
///
/// The program cannot be started.
pub(crate) fn start(id: u32, program: &Program, sink: &Sink) -> io::Result<Running> {
    let mut command = Command::new(&program.path);
    let mut sources: Vec<(Stream, Box<dyn Read + Send>)> = Vec::new();
    let mut terminal = None;
    match program.input {
        Input::Terminal { rows, columns } => {
            let (master, slave) = open_terminal(rows, columns)?;
            // util-linux makes the terminal the program's controlling one, in a session of its own.
            command = Command::new("setsid");
            command.arg("--ctty").arg(&program.path);
            command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
            terminal = Some(master);
        }
        Input::Null => {
            command.stdin(Stdio::null());
        }
        Input::Pipe => {
            command.stdin(Stdio::piped());
        }
    }
    if terminal.is_none() {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    }
    command.args(&program.arguments).current_dir(&program.folder);
    command.env_clear().envs(program.environment.iter().map(|(name, value)| (name, value)));
    let mut child = command.spawn()?;
    // The command keeps the slave end open, which would hide the program's end from the master.
    drop(command);

    let input = match (child.stdin.take(), terminal) {
        (_, Some(master)) => {
            sources.push((Stream::Output, Box::new(master.try_clone()?)));
            Some(Feed::Terminal(master))
        }
        (Some(pipe), None) => Some(Feed::Pipe(pipe)),
        (None, None) => None,
    };
    if let Some(pipe) = child.stdout.take() {
        sources.push((Stream::Output, Box::new(pipe)));
    }
    if let Some(pipe) = child.stderr.take() {
        sources.push((Stream::Error, Box::new(pipe)));
    }
    let group = Pid::from_child(&child);
    let (open, closed) = channel::<()>();
    for (stream, mut source) in sources {
        let (sink, open) = (Arc::clone(sink), open.clone());
        thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            // A terminal's master reports its end as an error, a pipe as 0.
            while let Ok(length @ 1..) = read(&mut source, &mut buffer) {
                sink(Event::Output { id, stream, bytes: buffer[..length].to_vec() });
            }
            drop(open);
        });
    }
    drop(open);
    let sink = Arc::clone(sink);
    thread::spawn(move || {
        let outcome = child.wait().map_or(Outcome::Exited(255), Outcome::from);
        match closed.recv_timeout(OUTPUT_AFTER_END) {
            Ok(()) | Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => {}
        }
        sink(Event::Ended { id, outcome });
    });
    Ok(Running { group, input })
}

fn read(source: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

fn open_terminal(rows: u16, columns: u16) -> io::Result<(File, File)> {
    use rustix::fs::{Mode, OFlags};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    rustix::termios::tcsetwinsize(&master, size(rows, columns))?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let slave = rustix::fs::open(ptsname(&master, Vec::new())?, flags, Mode::empty())?;
    Ok((File::from(master), File::from(slave)))
}
