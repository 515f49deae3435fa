//! Programs that print where they listen, and that can be killed or stopped.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{self, Child, ChildStderr, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

/// How long one run may take, and how soon the end of a peer, or wrong input, has to end it.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) fn setting(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the device tests by `cargo xtask test`"))
}

/// The program of the tests, from a file in memory that has no name any more: to start it from the host's folders takes the virtual machine
/// a second each time.
fn in_memory(program: &str) -> String {
    static FILE: OnceLock<File> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("program");
        std::fs::copy(program, &copy).unwrap();
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
    pub(crate) fn success(self) -> String {
        assert!(self.status.success(), "{self:?}");
        self.stdout
    }

    /// What it complained of, if it ended with status 1.
    pub(crate) fn error(self) -> String {
        assert_eq!(self.status.code(), Some(1), "{self:?}");
        self.stderr
    }
}

/// A program that is ended when the test is.
pub(crate) struct End {
    child: Child,
    stdout: BufReader<ChildStdout>,
    stderr: ChildStderr,
    printed: String,
}

impl End {
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(in_memory(program));
        command.arg0(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdout, stderr) = (BufReader::new(child.stdout.take().unwrap()), child.stderr.take().unwrap());
        Self { child, stdout, stderr, printed: String::new() }
    }

    /// The next line that it prints; empty if it ends instead.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        self.printed += &line;
        line.trim_end().to_owned()
    }

    /// Where it listens, once it does: the last word of the line that it prints then.
    pub(crate) fn address(&mut self) -> String {
        let line = self.line();
        let Some((_, address)) = line.rsplit_once(' ') else {
            let mut errors = String::new();
            self.stderr.read_to_string(&mut errors).unwrap();
            panic!("it does not listen: {line:?} {errors}");
        };
        address.to_owned()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// By name, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Waits until it has ended by itself within `limit`.
    pub(crate) fn ended(mut self, limit: Duration) -> Ended {
        let deadline = Instant::now() + limit;
        while self.is_running() {
            if Instant::now() > deadline {
                self.child.kill().unwrap();
                let mut errors = String::new();
                self.stderr.read_to_string(&mut errors).unwrap();
                panic!("still running after {limit:?}: {} {errors}", self.printed);
            }
            thread::sleep(Duration::from_millis(10));
        }
        let (mut stdout, mut stderr) = (std::mem::take(&mut self.printed), String::new());
        self.stdout.read_to_string(&mut stdout).unwrap();
        self.stderr.read_to_string(&mut stderr).unwrap();
        Ended { status: self.child.wait().unwrap(), stdout, stderr }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
