//! `async_events` on a device whose link goes down and up again. The device is made for the test, which takes root's rights, as they are in
//! the virtual machine.

mod ends_of_cm;

use std::process::Command;
use std::time::Instant;

use ends_of_cm::{End, LIMIT, SOON, setting};

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
fn watch(arguments: &[&str], expected: &str) -> End {
    let deadline = Instant::now() + LIMIT;
    loop {
        let mut watching = End::start(ASYNC_EVENTS, arguments);
        let line = watching.line();
        if line.starts_with("watching ") && line.contains(expected) {
            return watching;
        }
        assert!(Instant::now() < deadline, "{line}");
    }
}

/// The lines that a program prints, up to the one that says this of a device.
fn lines_until(watching: &mut End, what: &str) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let line = watching.line();
        assert!(!line.is_empty(), "{what} never came, but {lines:?}");
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
    let mut all = watch(&["--timeout", "4"], "aev");
    let mut one = watch(&["--ib-dev", "aev"], "aev");
    let first = watch(&["-d", "aev", "-n", "1"], "aev");
    for (state, event) in
        [("down", "aev: port error, port 1, which is down"), ("up", "aev: port active, port 1, which is active")]
    {
        link.set(state);
        lines_until(&mut all, event);
        let lines = lines_until(&mut one, event);
        assert!(lines.iter().all(|line| line.starts_with("aev: ")), "{lines:?}");
    }
    run("ip address add 192.0.2.202/32 dev aeva");
    lines_until(&mut one, "aev: GID change, port 1");
    assert_eq!(first.ended(SOON).success().lines().count(), 2, "as many events as were asked for");
    assert!(one.is_running(), "it goes on until it is stopped");
    assert!(all.ended(SOON).status.success(), "and with a timeout, until nothing has come for that long");
}

#[test]
fn a_device_that_is_not_there_is_an_error_that_names_those_that_are() {
    let error = End::start(ASYNC_EVENTS, &["-d", "mlx5_7"]).ended(SOON).error();
    assert!(error.starts_with("error: no RDMA device named \"mlx5_7\"; there is "), "{error}");
    assert!(error.contains(&setting("RDMA_TEST_DEVICE")), "{error}");
}
