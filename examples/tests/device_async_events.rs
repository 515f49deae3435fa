//! `async_events` on a device whose link goes down and up again. The device is made for the test, which takes root's rights, as they are in
//! the virtual machine.

mod programs;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use programs::{LIMIT, Program, setting};

const ASYNC_EVENTS: &str = env!("CARGO_BIN_EXE_async_events");

/// Runs a command, which has to succeed.
fn run(command: &str) {
    let mut words = command.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An rxe device of its own on a virtual link; gone when it is dropped.
struct Link(&'static str);

impl Link {
    fn new(name: &'static str) -> Self {
        run(&format!("ip link add {name}a type veth peer name {name}b"));
        let link = Self(name);
        run(&format!("ip link set {name}a up"));
        run(&format!("ip link set {name}b up"));
        run(&format!("rdma link add {name} type rxe netdev {name}a"));
        link
    }

    fn set(&self, state: &str) {
        run(&format!("ip link set {}a {state}", self.0));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for words in [["rdma", "link", "delete", self.0], ["ip", "link", "delete", &format!("{}a", self.0)]] {
            let _ = Command::new(words[0]).args(&words[1..]).status();
        }
    }
}

/// Starts to watch. A device's node comes a moment after the device.
fn watch(arguments: &[&str], expected: &str) -> Program {
    let deadline = Instant::now() + LIMIT;
    loop {
        let mut watching = Program::start(ASYNC_EVENTS, arguments);
        match watching.next_line() {
            Some(line) if line.starts_with("watching ") && line.contains(expected) => return watching,
            other => assert!(Instant::now() < deadline, "{other:?}"),
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// The lines that a program prints, up to the one that says this of a device.
fn lines_until(watching: &mut Program, what: &str) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let line = watching.next_line().unwrap_or_else(|| panic!("{what} never came, but {lines:?}"));
        let (time, event) = line.split_once(", ").unwrap();
        assert!(time.strip_suffix(" s").unwrap().parse::<f64>().unwrap() >= 0.0, "{line}");
        lines.push(event.to_owned());
        if event == what {
            return lines;
        }
    }
}

#[test]
fn a_link_that_goes_down_and_up_again_is_told_by_all_who_watch_its_device() {
    let link = Link::new("aev");
    let mut all = watch(&[], "aev");
    let mut one = watch(&["--ib-dev", "aev"], "aev");
    let first = watch(&["-d", "aev", "-n", "1"], "aev");
    // C's program keeps what it prints to itself for long when its reader is a pipe.
    let mut c = Program::start("stdbuf", &["-oL", "ibv_asyncwatch", "-d", "aev"]);
    c.wait_for_line("aev: async event FD ");
    for (state, event, of_c) in [
        ("down", "aev: port error, port 1, which is down", "event_type IBV_EVENT_PORT_ERR (10), port 1"),
        ("up", "aev: port active, port 1, which is active", "event_type IBV_EVENT_PORT_ACTIVE (9), port 1"),
    ] {
        link.set(state);
        lines_until(&mut all, event);
        let lines = lines_until(&mut one, event);
        assert!(lines.iter().all(|line| line.starts_with("aev: ")), "{lines:?}");
        while !c.line().ends_with(of_c) {}
    }
    run("ip address add 192.0.2.202/32 dev aeva");
    lines_until(&mut one, "aev: GID change, port 1");
    assert_eq!(first.ended().success().lines().count(), 2, "as many events as were asked for");
    assert!(one.is_running() && all.is_running(), "they go on until they are stopped");
}

#[test]
fn a_watch_ends_when_nothing_has_come_for_long_and_too_few_events_are_an_error() {
    let _link = Link::new("aew");
    let printed = watch(&["-d", "aew", "--timeout", "1"], "aew").ended().success();
    assert!(printed.starts_with("watching aew\n"), "{printed}");
    let error = watch(&["-d", "aew", "--timeout", "1", "-n", "1000"], "aew").ended().error();
    assert!(error.ends_with(" of 1000 events came, and then none for as long as --timeout says"), "{error}");
}

#[test]
fn a_watch_ends_when_nobody_reads_it_any_more() {
    let link = Link::new("aex");
    // Its node comes a moment after the device.
    drop(watch(&["-d", "aex"], "aex"));
    let mut unread = Program::start_unread(ASYNC_EVENTS, &["-d", "aex"]);
    while unread.is_running() {
        link.set("down");
        link.set("up");
        thread::sleep(Duration::from_millis(20));
    }
    unread.ended().success();
}

#[test]
fn a_device_that_is_not_there_is_an_error_that_names_those_that_are() {
    let error = Program::start(ASYNC_EVENTS, &["-d", "mlx5_7"]).ended().error();
    assert!(error.starts_with("no RDMA device named \"mlx5_7\"; there is "), "{error}");
    assert!(error.contains(&setting("RDMA_TEST_DEVICE")), "{error}");
}
