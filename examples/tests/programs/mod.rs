//! Starting the example programs, and waiting for what they print and for their end.
#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]

mod loss;
mod pipe;
mod ports;

use std::collections::HashMap;
use std::env;
use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{self, Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use loss::{ended_or_lost, unless_lost};
use pipe::Pipe;
pub(crate) use ports::{cm_port, port, wait_for_cm_listener, wait_for_listener};

/// How long anything may take: a busy machine is slow, and nothing here waits for this time to pass.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn setting(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the device tests by `cargo xtask test`"))
}

/// A program of ours, from a file in memory that has no name any more: to start it from the host's folders takes the virtual machine a second
/// each time. A program of the system is left where it is.
fn in_memory(program: &str) -> String {
    static FILES: Mutex<Option<HashMap<String, File>>> = Mutex::new(None);
    if !program.contains('/') {
        return program.to_owned();
    }
    let mut files = FILES.lock().unwrap();
    let file = files.get_or_insert_default().entry(program.to_owned()).or_insert_with(|| {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("program");
        fs::copy(program, &copy).unwrap();
        File::open(copy).unwrap()
    });
    format!("/proc/{}/fd/{}", process::id(), file.as_raw_fd())
}

/// What a program has come to.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// What it printed, if it ended well.
    #[track_caller]
    pub(crate) fn success(self) -> String {
        assert!(self.status.success(), "{self:?}");
        self.stdout
    }

    /// The error with which it ended, if its status is 1.
    #[track_caller]
    pub(crate) fn error(self) -> String {
        assert_eq!(self.status.code(), Some(1), "{self:?}");
        let error = self.stderr.lines().rev().find_map(|line| line.strip_prefix("error: "));
        error.unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }
}

/// A program that is ended when the test is.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    child: Child,
    stdout: Pipe,
    stderr: Pipe,
    /// How much of what it printed was looked at, line by line.
    seen: usize,
}

impl Program {
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Self {
        Self::start_with(program, arguments, |command| {
            command.stdout(Stdio::piped());
        })
    }

    /// Starts it with a reader of its output that is gone already, as `head` is when it has read enough.
    pub(crate) fn start_unread(program: &str, arguments: &[&str]) -> Self {
        let (reader, writer) = UnixStream::pair().unwrap();
        drop(reader);
        Self::start_with(program, arguments, |command| {
            command.stdout(OwnedFd::from(writer));
        })
    }

    fn start_with(program: &str, arguments: &[&str], output: impl FnOnce(&mut Command)) -> Self {
        let mut command = Command::new(in_memory(program));
        command.arg0(program).args(arguments).stdin(Stdio::null()).stderr(Stdio::piped());
        output(&mut command);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"));
        let (stdout, stderr) = (Pipe::read(child.stdout.take()), Pipe::read(child.stderr.take()));
        Self { name: program.to_owned(), child, stdout, stderr, seen: 0 }
    }

    /// The next line that it prints; `None` if it ends instead.
    pub(crate) fn next_line(&mut self) -> Option<String> {
        let seen = self.seen;
        let text = self.stdout.wait_until(LIMIT, |text, is_over| is_over || text[seen..].contains('\n'));
        let text = text.unwrap_or_else(|text| panic!("{} printed no line in {LIMIT:?}: {text}", self.name));
        let line = text[seen..].split_inclusive('\n').next().filter(|line| line.ends_with('\n'))?;
        self.seen += line.len();
        Some(line.trim_end().to_owned())
    }

    /// The next line that it prints.
    #[track_caller]
    pub(crate) fn line(&mut self) -> String {
        self.next_line().unwrap_or_else(|| panic!("{} has ended: {}", self.name, self.complaint()))
    }

    /// Waits until it prints a line that begins so, and returns that.
    #[track_caller]
    pub(crate) fn wait_for_line(&mut self, beginning: &str) -> String {
        loop {
            let line = self.next_line();
            match line {
                Some(line) if line.starts_with(beginning) => return line,
                Some(_) => {}
                None => panic!("{} printed no {beginning:?}: {}", self.name, self.complaint()),
            }
        }
    }

    /// Where it listens, once it does: the last word of the line that it prints then.
    #[track_caller]
    pub(crate) fn address(&mut self) -> String {
        let line = self.line();
        line.rsplit_once(' ').unwrap_or_else(|| panic!("it does not listen: {line:?}")).1.to_owned()
    }

    /// All that it printed on either way, once both are closed.
    fn complaint(&self) -> String {
        let text = |pipe: &Pipe| pipe.wait_until(LIMIT, |_, is_over| is_over).unwrap_or_else(|text| text);
        format!("{}\n{}", text(&self.stdout), text(&self.stderr))
    }

    /// All that it complained of, once it has ended.
    fn errors(&self) -> String {
        self.stderr.wait_until(LIMIT, |_, is_over| is_over).unwrap_or_else(|text| text)
    }

    /// Whether it is a program of the system, not one of ours.
    fn is_of_c(&self) -> bool {
        !self.name.contains('/')
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// By name, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Waits until it has ended by itself.
    #[track_caller]
    pub(crate) fn ended(self) -> Ended {
        match self.ended_within(LIMIT) {
            Ok(ended) => ended,
            Err(mut running) => {
                let _ = running.child.kill();
                panic!("{} is still running after {LIMIT:?}: {}", running.name, running.complaint());
            }
        }
    }

    /// Waits until it has ended by itself; it is given back if it does not in this time.
    pub(crate) fn ended_within(mut self, limit: Duration) -> Result<Ended, Self> {
        let deadline = Instant::now() + limit;
        while self.is_running() {
            if Instant::now() > deadline {
                return Err(self);
            }
            thread::sleep(Duration::from_millis(10));
        }
        let text = |pipe: &Pipe| pipe.wait_until(LIMIT, |_, is_over| is_over).unwrap();
        let (stdout, stderr) = (text(&self.stdout), text(&self.stderr));
        Ok(Ended { status: self.child.wait().unwrap(), stdout, stderr })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The IPv6 link-local address of the first device, with the interface of each end.
pub(crate) fn link_local() -> [String; 2] {
    let netdev = setting("RDMA_TEST_NETDEV");
    let command = format!("ip -6 -br address show dev {netdev} scope link; ip -br link show up");
    let output = Command::new("sh").args(["-c", &command]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let ip = text.split_whitespace().find_map(|word| word.split_once('/').filter(|(ip, _)| ip.starts_with("fe80:")));
    let (ip, _) = ip.unwrap_or_else(|| panic!("{netdev} has no link-local address: {text}"));
    let names = text.split_whitespace().filter_map(|word| word.split_once('@'));
    let peer = names.map(|(name, _)| name).find(|name| *name != netdev).unwrap_or(&netdev);
    [format!("{ip}%{netdev}"), format!("{ip}%{peer}")]
}
