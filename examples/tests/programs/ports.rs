//! Ports that nobody listens at, and waiting for somebody who does.

use std::fs;
use std::net::{Ipv6Addr, TcpListener};
use std::process::{self, Command};
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::LIMIT;

/// Ports below those that the system gives to clients, from another one on in each process.
fn candidates() -> impl Iterator<Item = u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + (process::id() % 1000) as u16 * 20;
    (0..20_000).map(move |_| first + NEXT.fetch_add(1, Ordering::Relaxed) % 2000)
}

/// A TCP port for each test, which is free.
pub(crate) fn port() -> u16 {
    let mut ports = candidates();
    ports.find(|port| TcpListener::bind((Ipv6Addr::UNSPECIFIED, *port)).is_ok()).expect("a TCP port that is free")
}

/// A port of the connection manager for each test, which is free.
pub(crate) fn cm_port() -> u16 {
    let taken = cm_ids();
    candidates().find(|port| !taken.lines().any(|line| has_port(line, *port))).expect("a port that is free")
}

/// Waits until somebody listens at a TCP port.
pub(crate) fn wait_for_listener(port: u16) {
    // The local address of a listening socket (state 0A) ends with the port.
    let listens = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        local.ends_with(&format!(":{port:04X}")) && fields.nth(1) == Some("0A")
    };
    let is_listed = |path: &&str| fs::read_to_string(path).unwrap_or_default().lines().any(listens);
    wait(port, || ["/proc/net/tcp", "/proc/net/tcp6"].iter().any(is_listed));
}

/// Waits until somebody listens at a port of the connection manager.
pub(crate) fn wait_for_cm_listener(port: u16) {
    wait(port, || cm_ids().lines().any(|line| line.contains("state LISTEN") && has_port(line, port)));
}

fn wait(port: u16, listens: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !listens() {
        assert!(Instant::now() < deadline, "nobody listens at port {port}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// All ids of the connection manager, a line for each.
fn cm_ids() -> String {
    let output = Command::new("rdma").args(["resource", "show", "cm_id"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn has_port(line: &str, port: u16) -> bool {
    line.split_whitespace().any(|word| word.ends_with(&format!(":{port}")))
}
