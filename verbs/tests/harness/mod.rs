//! What the device tests stand on: the device that `cargo xtask test` chose, and connected queue pairs.
#![allow(dead_code, reason = "each test binary uses its part")]

pub(crate) mod link;
pub(crate) mod resources;

use std::env;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use verbs::*;

/// How long a test waits for what has to come.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A variable that `cargo xtask test` sets; a device test without a device fails.
pub(crate) fn setting(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the device tests by `cargo xtask test`"))
}

pub(crate) fn device_name() -> String {
    setting("RDMA_TEST_DEVICE")
}

pub(crate) fn open() -> Context {
    devices().unwrap().find(Some(&device_name())).unwrap().open().unwrap()
}

/// The device at the other end of the first one's wire.
pub(crate) fn open_peer() -> Context {
    devices().unwrap().find(Some(&setting("RDMA_TEST_PEER_DEVICE"))).unwrap().open().unwrap()
}

/// The version of the kernel, as (6, 12).
pub(crate) fn kernel() -> (u32, u32) {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

/// The first kernel whose rxe is known to differ from that of Linux 6.1. What those in between do was not measured.
pub(crate) const LATER: (u32, u32) = (6, 12);

/// This thread's number, by which [`is_asleep`] knows it.
pub(crate) fn thread_number() -> String {
    let thread = std::fs::read_link("/proc/thread-self").unwrap();
    thread.file_name().unwrap().to_str().unwrap().to_owned()
}

/// Whether a thread of this process sleeps until a descriptor is readable.
pub(crate) fn is_asleep(thread: &str) -> bool {
    // The number of the system call that it sleeps in, or else "running".
    let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall")).unwrap();
    let number = call.split_whitespace().next().and_then(|number| number.parse().ok());
    #[cfg(target_arch = "x86_64")]
    let polls = [libc::SYS_poll, libc::SYS_ppoll];
    #[cfg(not(target_arch = "x86_64"))]
    let polls = [libc::SYS_ppoll];
    number.is_some_and(|number: libc::c_long| polls.contains(&number))
}

/// For a test that something is lost unless somebody takes it: it is to be gone before somebody does. The test tells whether it was, and
/// is given more and more time, which only a busy machine needs.
pub(crate) fn patiently(mut test: impl FnMut(Duration) -> bool) {
    assert!([300, 2000, 10_000, 30_000].map(Duration::from_millis).into_iter().any(&mut test));
}

/// Has the calling thread go on as a user who is nobody.
pub(crate) fn be_nobody() {
    // The system call is the thread's alone, unlike libc's function of the name.
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, -1, 65534, -1) }, 0);
}

/// Waits for something that another thread, or the system, is to do.
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in {LIMIT:?}: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A domain, a queue, and a queue pair on them.
pub(crate) struct Side<T: Transport = Rc> {
    pub(crate) context: Context,
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePair<T>,
}

impl Side {
    pub(crate) fn new() -> Self {
        Self::on(open())
    }

    pub(crate) fn on(context: Context) -> Self {
        Self::build(context, |builder| builder.max_send_wr(8).max_recv_wr(8).max_send_sge(4).max_recv_sge(4))
    }

    pub(crate) fn build(
        context: Context,
        configure: impl FnOnce(QueuePairBuilder<Rc>) -> QueuePairBuilder<Rc>,
    ) -> Self {
        Self::of(context, configure)
    }
}

impl<T: Transport> Side<T> {
    /// A queue pair of any transport.
    pub(crate) fn of(context: Context, configure: impl FnOnce(QueuePairBuilder<T>) -> QueuePairBuilder<T>) -> Self {
        let pd = context.create_protection_domain().unwrap();
        let channel = context.create_completion_channel().unwrap();
        let cq = CompletionQueueBuilder::new(&context, 64).channel(&channel).build().unwrap();
        let qp = configure(QueuePair::builder(&pd, &cq, &cq)).build().unwrap();
        Self { context, pd, cq, qp }
    }

    pub(crate) fn local(&self) -> LocalEndpoint {
        self.qp.local_endpoint(1, &GidFilter::default()).unwrap()
    }

    pub(crate) fn region(&self, length: usize, access: AccessFlags) -> MemoryRegion<Vec<u8>> {
        self.pd.register(vec![0; length], access).unwrap()
    }

    /// The next `count` completions.
    pub(crate) fn completions(&self, count: usize) -> Vec<WorkCompletion> {
        completions(&self.cq, count)
    }

    pub(crate) fn completion(&self) -> WorkCompletion {
        self.completions(1)[0]
    }
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

/// Two connected queue pairs of one device, each with a domain and queue of its own.
pub(crate) fn pair() -> (Side, Side) {
    pair_with(&options())
}

/// Options that let a test end soon when a peer is silent.
pub(crate) fn options() -> ConnectOptions {
    let mut options = ConnectOptions::default();
    options.rnr_retry_count = 7;
    options
}

pub(crate) fn pair_with(options: &ConnectOptions) -> (Side, Side) {
    let context = open();
    let (a, b) = (Side::on(context.clone()), Side::on(context));
    connect(&a, &b, options);
    (a, b)
}

pub(crate) fn connect<T: Connected>(a: &Side<T>, b: &Side<T>, options: &ConnectOptions) {
    let (local_a, local_b) = (a.local(), b.local());
    a.qp.connect(&local_a, &local_b.endpoint, options).unwrap();
    b.qp.connect(&local_b, &local_a.endpoint, options).unwrap();
}

/// Waits until a queue pair is in a state. A failure has a completion first, and then the queue pair changes, on some kernels.
#[track_caller]
pub(crate) fn becomes<T: Transport>(qp: &QueuePair<T>, state: QueuePairState) {
    let deadline = Instant::now() + LIMIT;
    loop {
        let now = qp.state().unwrap();
        if now == state {
            return;
        }
        assert!(Instant::now() < deadline, "{qp:?} is in {now}, not in {state}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + index / 251) as u8).collect()
}

pub(crate) const RW: AccessFlags =
    AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_READ);

/// Runs a test on a thread of its own; one that hangs fails.
pub(crate) fn in_time(what: &str, limit: Duration, test: impl FnOnce() + Send + 'static) {
    let (done, is_done) = mpsc::channel();
    let thread = thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    match is_done.recv_timeout(limit) {
        // The thread is not waited for: it hangs.
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("{what}: not done after {limit:?}"),
        _ => thread.join().unwrap_or_else(|_| panic!("{what}: it failed")),
    }
}
