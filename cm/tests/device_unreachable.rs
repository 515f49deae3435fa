//! A host that is dead, though its address is known. It has interfaces and a process of its own, since the kernel asks again for a minute.

mod harness;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use cm::*;

use harness::*;

/// Runs a command that has to succeed.
fn run(command: &str) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_dead_host_is_unreachable_when_the_kernel_says_so_and_not_in_time_before() {
    run("ip link add cmd0 type veth peer name cmd1");
    run("ip address add 192.0.2.69/30 dev cmd0");
    run("ip link set cmd0 up");
    run("ip link set cmd1 up");
    run("ip neighbour add 192.0.2.70 lladdr 02:00:00:00:00:70 dev cmd0 nud permanent");
    run("rdma link add rxedead type rxe netdev cmd0");
    let dead = "192.0.2.70:7471";
    // When this process ends it lets go of the device.
    let patient = || {
        let mut options = options();
        options.timeout = LONG;
        options
    };
    thread::scope(|scope| {
        let connection = scope.spawn(|| patient().connect(dead).map(drop));
        let datagrams = scope.spawn(|| patient().connect_datagram(dead).map(drop));
        let mut hasty = options().prepare(dead).unwrap();
        hasty.options_mut().timeout = Duration::from_secs(1);
        let started = Instant::now();
        let error = hasty.connect().unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        assert!(started.elapsed() < AT_ONCE, "{:?}", started.elapsed());
        for outcome in [connection.join().unwrap(), datagrams.join().unwrap()] {
            match outcome {
                Err(error @ Error::Unreachable { address, errno }) => {
                    assert_eq!((address, errno), (dead.parse().unwrap(), libc::ETIMEDOUT));
                    assert!(error.to_string().contains("the peer cannot be reached"), "{error}");
                }
                other => panic!("{other:?}"),
            }
        }
    });
    drop(Command::new("sh").args(["-c", "rdma link delete rxedead; ip link delete cmd0"]).spawn().unwrap());
}
