//! What the device tests stand on: the addresses that `cargo xtask test` chose, and both ends of a connection.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::env;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cm::*;
use verbs::{CompletionQueue, WorkCompletion};

/// How long a test waits for what has to come.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A variable that `cargo xtask test` sets; a device test without a device fails.
pub(crate) fn setting(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the device tests by `cargo xtask test`"))
}

/// The address of the first device's interface.
pub(crate) fn ip() -> IpAddr {
    setting("RDMA_TEST_ADDRESS").parse().unwrap()
}

/// The address of the device at the other end of the wire.
pub(crate) fn peer_ip() -> IpAddr {
    setting("RDMA_TEST_PEER_ADDRESS").parse().unwrap()
}

/// An address of the first device at which nobody else listens.
pub(crate) fn address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    SocketAddr::new(ip(), NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn options() -> ConnectionOptions {
    let mut options = ConnectionOptions::default();
    options.timeout = LIMIT;
    options
}

/// Both ends of a connection: the one that connected, and the one that accepted.
pub(crate) fn pair() -> (Connection, Connection) {
    pair_with(&options(), &options())
}

pub(crate) fn pair_with(connecting: &ConnectionOptions, accepting: &ConnectionOptions) -> (Connection, Connection) {
    let listener = Listener::bind_with(address(), accepting, 8).unwrap();
    let address = listener.local_addr().unwrap();
    thread::scope(|scope| {
        let server = scope.spawn(|| listener.accept().unwrap());
        let client = connecting.connect(address).unwrap();
        (client, server.join().unwrap())
    })
}

/// The next `count` completions of a queue with a channel.
pub(crate) fn completions(cq: &CompletionQueue, count: usize) -> Vec<WorkCompletion> {
    let mut all = Vec::new();
    let mut room = [WorkCompletion::default(); 1];
    let deadline = Instant::now() + LIMIT;
    while all.len() < count {
        let time = deadline.saturating_duration_since(Instant::now());
        let some = cq.wait(&mut room, Some(time)).unwrap();
        assert!(!some.is_empty(), "{} of {count} completions came in {LIMIT:?}: {all:?}", all.len());
        all.extend_from_slice(some);
    }
    all
}

/// The next event of an id, which has to be there soon.
pub(crate) fn event(id: &Id) -> EventKind {
    let event = id.channel().next_event(Some(LIMIT)).unwrap().expect("no event came");
    assert_eq!(event.id(), id.key(), "{event}");
    event.into_kind()
}

/// Whether a descriptor is readable at once.
pub(crate) fn is_readable(fd: &impl AsFd) -> bool {
    becomes_readable(fd, Duration::ZERO)
}

/// Whether a descriptor is readable in time.
pub(crate) fn becomes_readable(fd: &impl AsFd, time: Duration) -> bool {
    let mut poll = libc::pollfd { fd: fd.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `poll` is one structure and outlives the call.
    unsafe { libc::poll(&mut poll, 1, time.as_millis() as i32) == 1 }
}

/// Runs `test` on a thread, and fails if it does not end in time: what must not hang is not waited for.
pub(crate) fn within<R: Send + 'static>(limit: Duration, test: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = thread::spawn(move || {
        let result = test();
        sender.send(()).unwrap();
        result
    });
    match receiver.recv_timeout(limit) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("not done after {limit:?}"),
        _ => thread.join().unwrap(),
    }
}

/// How many file descriptors the process has open.
pub(crate) fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// How many objects of a kind, such as `qp` or `cm_id`, this process has in the kernel.
pub(crate) fn resources(kind: &str) -> usize {
    let output = Command::new("rdma").args(["resource", "show", kind, "pid", &std::process::id().to_string()]).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| line.contains(&format!("pid {}", std::process::id()))).count()
}
