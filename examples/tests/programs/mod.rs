//! Starting the example programs, and waiting for them.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::env;
use std::fs;
use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How long one run may take, and how soon wrong input has to end it.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) fn setting(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the device tests by `cargo xtask test`"))
}

/// A TCP port for each test.
pub(crate) fn port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(19000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A program that is ended when the test is.
pub(crate) struct Program(Option<Child>);

impl Program {
    pub(crate) fn start(program: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(Some(command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"))))
    }

    /// Waits until it has printed a line that begins so. What it has printed up to there is gone.
    pub(crate) fn wait_for_line(&mut self, beginning: &str) {
        let stdout = self.0.as_mut().unwrap().stdout.as_mut().unwrap();
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !(byte == *b"\n" && line.starts_with(beginning.as_bytes())) {
            if byte == *b"\n" {
                line.clear();
            }
            stdout.read_exact(&mut byte).unwrap_or_else(|error| panic!("it printed no {beginning:?}: {error}"));
            line.push(byte[0]);
        }
    }

    /// The output, once it has ended by itself within `limit`.
    pub(crate) fn output(mut self, limit: Duration) -> Output {
        let deadline = Instant::now() + limit;
        let mut child = self.0.take().unwrap();
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                child.kill().unwrap();
                panic!("still running after {limit:?}: {:?}", child.wait_with_output().unwrap());
            }
            thread::sleep(Duration::from_millis(10));
        }
        child.wait_with_output().unwrap()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits until somebody listens at a TCP port.
pub(crate) fn wait_for_listener(port: u16) {
    let deadline = Instant::now() + LIMIT;
    // The local address of a listening socket (state 0A) ends with the port.
    let listens = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        local.ends_with(&format!(":{port:04X}")) && fields.nth(1) == Some("0A")
    };
    while !["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .any(|path| fs::read_to_string(path).unwrap_or_default().lines().any(listens))
    {
        assert!(Instant::now() < deadline, "nobody listens at port {port}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until somebody listens at a port of the connection manager.
pub(crate) fn wait_for_cm_listener(port: u16) {
    let deadline = Instant::now() + 2 * SOON;
    let listens = |line: &str| {
        let mut words = line.split_whitespace();
        line.contains("state LISTEN") && words.any(|word| word.ends_with(&format!(":{port}")))
    };
    loop {
        let output = Command::new("rdma").args(["resource", "show", "cm_id"]).output().unwrap();
        if String::from_utf8_lossy(&output.stdout).lines().any(listens) {
            return;
        }
        assert!(Instant::now() < deadline, "nobody listens at port {port}: {output:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// The error of a program that is to end soon with status 1.
pub(crate) fn error_of(output: Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    text.strip_prefix("error: ").unwrap_or_else(|| panic!("{text}")).trim_end().to_owned()
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
