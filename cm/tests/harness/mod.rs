//! What the device tests stand on: the addresses that `cargo xtask test` chose, and both ends of a connection.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::env;
use std::fs;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cm::*;
use verbs::{CompletionQueue, WorkCompletion};

/// How long a test waits for what has to come.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Longer than any call takes on a slow machine, and shorter than what the kernel waits for if it waits for a peer: 64 s or more.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(30);

/// How long many things may take, one after another.
pub(crate) const LONG: Duration = Duration::from_secs(300);

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

/// The link-local address of the first device's interface, with the interface as its scope.
pub(crate) fn link_local() -> SocketAddrV6 {
    let name = setting("RDMA_TEST_NETDEV");
    let table = fs::read_to_string("/proc/net/if_inet6").unwrap();
    let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let fields = fields.into_iter().find(|fields| fields[5] == name && fields[0].starts_with("fe80")).unwrap();
    let ip = Ipv6Addr::from(u128::from_str_radix(fields[0], 16).unwrap());
    SocketAddrV6::new(ip, 0, 0, u32::from_str_radix(fields[1], 16).unwrap())
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

/// What this process has: descriptors, and objects in the kernel.
pub(crate) type Possessions = (usize, [usize; 5]);

pub(crate) fn possessions() -> Possessions {
    let text = resources();
    (descriptors(), ["qp", "cq", "mr", "pd", "cm_id"].map(|kind| count(&text, kind)))
}

/// What this process has once all is made that stays: what librdmacm keeps of the device, and what wakes this thread.
pub(crate) fn possessions_to_keep() -> Possessions {
    drop(pair());
    assert!(EventChannel::create().unwrap().next_event(Some(Duration::from_millis(1))).unwrap().is_none());
    possessions()
}

/// Waits until the process has no more than before. (A thread that has ended may let go of what woke it a little later.)
pub(crate) fn has_only(before: Possessions) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let now = possessions();
        if now.0 <= before.0 && now.1.iter().zip(&before.1).all(|(now, before)| now <= before) {
            return;
        }
        assert!(Instant::now() < deadline, "{now:?} are left, and {before:?} were there before");
        thread::sleep(Duration::from_millis(50));
    }
}

/// How many file descriptors the process has open.
pub(crate) fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// How many objects of each kind the devices have, a line each: `0: rxe0: pd 2 cq 1 qp 1 cm_id 1 mr 0 ctx 1 srq 0`. (The list of the
/// objects says which thread made each, and leaves those out whose thread has ended.)
fn resources() -> String {
    let output = Command::new("rdma").args(["resource", "show"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn count(text: &str, kind: &str) -> usize {
    let counts = text.lines().map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != kind).skip(1);
        words.next().and_then(|count| count.parse::<usize>().ok()).unwrap_or_else(|| panic!("no {kind} in {line}"))
    });
    counts.sum()
}
