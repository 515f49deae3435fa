//! `rc_pingpong` with itself and with the C program, each as server and as client, and with peers that misbehave.

mod ends;
mod programs;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use ends::run;
use programs::{Program, SOON, error_of, port, setting, wait_for_listener};

const OURS: &str = env!("CARGO_BIN_EXE_rc_pingpong");
const C: &str = "ibv_rc_pingpong";

#[test]
fn our_server_serves_the_c_client() {
    for options in [
        &[][..],
        &["-e", "-n", "200"],
        &["-s", "65536", "-n", "50", "-m", "4096"],
        &["-s", "1", "-r", "2", "-n", "200"],
    ] {
        let (server, client) = run(OURS, C, options);
        assert!(server.contains("SEND: ") && client.contains(" iters in "), "{server}\n{client}");
    }
}

#[test]
fn our_client_is_served_by_the_c_server() {
    for options in [
        &[][..],
        &["-e", "-n", "200"],
        &["-s", "65536", "-n", "50", "-m", "4096"],
        &["-s", "1", "-r", "2", "-n", "200"],
    ] {
        let (server, client) = run(C, OURS, options);
        assert!(server.contains(" iters in ") && client.contains("SEND: "), "{server}\n{client}");
    }
}

#[test]
fn each_operation_moves_the_bytes_that_were_asked_for() {
    for (operation, name) in [("send", "SEND"), ("write", "RDMA WRITE"), ("read", "RDMA READ")] {
        for events in [&[][..], &["--events"]] {
            let mut options = vec!["--op", operation, "--size", "10000", "--iters", "50", "--mtu", "2048"];
            options.extend(events);
            let (server, client) = run(OURS, OURS, &options);
            for output in [server, client] {
                assert!(output.contains(&format!("{name}: 50 iterations, 1000000 bytes in ")), "{output}");
                assert!(output.contains(" µs per iteration, ") && output.contains(" Gbit/s"), "{output}");
            }
        }
    }
}

#[test]
fn all_operations_run_one_after_the_other() {
    for events in [&[][..], &["--events"]] {
        let mut options = vec!["--op", "send", "--op", "all", "--size", "5000", "--iters", "20"];
        options.extend(events);
        let (server, client) = run(OURS, OURS, &options);
        for output in [server, client] {
            let lines: Vec<_> =
                output.lines().filter_map(|line| line.split_once(": 20 iterations, 200000 bytes")).collect();
            let names: Vec<_> = lines.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, ["SEND", "RDMA WRITE", "RDMA READ"], "{output}");
        }
    }
}

#[test]
fn what_was_used_is_printed_and_each_ends_remote_is_the_others_local() {
    let (server, client) = run(OURS, OURS, &["--op", "write", "-n", "10"]);
    let line = |output: &str, start: &str| {
        output.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{output}")).to_owned()
    };
    let device = setting("RDMA_TEST_DEVICE");
    assert_eq!(line(&server, "device"), format!("device {device}, port 1 (Ethernet, active), active MTU 4096"));
    let (address, interface) = (setting("RDMA_TEST_ADDRESS"), setting("RDMA_TEST_NETDEV"));
    assert_eq!(line(&server, "GID"), format!("GID index 1: ::ffff:{address} (RoCE v2, interface {interface})"));
    for (one, other) in [(&server, &client), (&client, &server)] {
        let (local, remote) = (line(one, "local "), line(other, "remote "));
        assert_eq!(local.split_once(" LID").unwrap().1, remote.split_once(" LID").unwrap().1);
        assert!(local.contains("QPN 0x") && local.contains("PSN 0x"), "{local}");
        let buffer = line(one, "path MTU");
        assert!(buffer.starts_with("path MTU 1024, buffer 8192 bytes, lkey 0x"), "{buffer}");
        assert!(buffer.contains(", rkey 0x"), "{buffer}");
    }
}

fn error(arguments: &[&str]) -> String {
    error_of(Program::start(OURS, arguments).output(SOON))
}

#[test]
fn wrong_input_ends_soon_with_status_1_and_says_what_to_do() {
    let device = setting("RDMA_TEST_DEVICE");
    let unknown = error(&["-d", "mlx5_7"]);
    assert!(
        unknown.starts_with("no RDMA device named \"mlx5_7\"; there is ") && unknown.contains(&device),
        "{unknown}"
    );
    let no_server = error(&["-p", &port().to_string(), "127.0.0.1"]);
    assert!(no_server.contains("start the server first (without HOST)"), "{no_server}");
    assert!(error(&["host.invalid"]).starts_with("there is no host named \"host.invalid\""));
    let empty = error(&["-g", "200"]);
    assert!(empty.contains("sgid_index is 200, but the entry is empty; the entries of port 1"), "{empty}");
    let beyond = error(&["-g", "70000"]);
    assert!(beyond.contains("the table of port 1 has "), "{beyond}");
    assert!(error(&["-i", "9"]).contains(&format!("the ports of {device} are 1 to 1")));
    assert!(error(&["-m", "1500"]).contains("an MTU is 256, 512, 1024, 2048 or 4096 bytes"));
    assert!(error(&["-r", "1000000"]).contains(&format!("{device} takes 1 to ")));
    let taken = TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    assert!(error(&["-p", &port]).contains("choose another one with --port"));
}

#[test]
fn usage_errors_and_help_are_claps() {
    let output = Program::start(OURS, &["--iters", "0"]).output(SOON);
    assert_eq!(output.status.code(), Some(2));
    let output = Program::start(OURS, &["--help"]).output(SOON);
    assert!(output.status.success());
    let help = String::from_utf8(output.stdout).unwrap();
    for option in
        ["--ib-dev", "--ib-port", "--size", "--mtu", "--rx-depth", "--iters", "--sl", "--events", "--gid-idx", "--op"]
    {
        assert!(help.contains(option), "{option}\n{help}");
    }
}

/// Runs our server with a peer that does as it is told, and returns the server's error.
fn server_error(misbehave: impl FnOnce(&mut TcpStream)) -> String {
    let port = port();
    let server = Program::start(OURS, &["-p", &port.to_string(), "--timeout", "2"]);
    wait_for_listener(port);
    let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    misbehave(&mut peer);
    error_of(server.output(SOON))
}

#[test]
fn a_client_that_talks_nonsense_hangs_up_or_is_silent_ends_the_server() {
    let nonsense = server_error(|peer| peer.write_all(&[b'x'; 100]).unwrap());
    assert!(nonsense.starts_with("the peer does not speak the protocol of the ping-pong programs"), "{nonsense}");
    let hang_up = server_error(|peer| {
        peer.write_all(b"0000:000011").unwrap();
        peer.shutdown(std::net::Shutdown::Both).unwrap();
    });
    assert!(hang_up.starts_with("the peer hung up during the exchange of endpoints"), "{hang_up}");
    let silence = server_error(|_| {});
    assert!(silence.starts_with("the peer said nothing for 2s"), "{silence}");
    let after_the_endpoint = server_error(|peer| {
        peer.write_all(b"0000:000011:000001:00000000000000000000ffffc0000201\0").unwrap();
        let mut answer = [0; 52];
        peer.read_exact(&mut answer).unwrap();
        peer.shutdown(std::net::Shutdown::Both).unwrap();
    });
    assert!(after_the_endpoint.starts_with("the peer hung up"), "{after_the_endpoint}");
    // An endpoint without a GID, as the C program sends it without its option -g.
    let no_gid = server_error(|peer| {
        peer.write_all(b"0000:000011:000001:00000000000000000000000000000000\0").unwrap();
    });
    assert!(no_gid.contains("needs the remote GID"), "{no_gid}");
    // A peer that says it is done, and then never sends.
    let no_traffic = server_error(|peer| {
        peer.write_all(b"0000:abcdef:000001:00000000000000000000ffffc0000201\0").unwrap();
        let mut answer = [0; 52];
        peer.read_exact(&mut answer).unwrap();
        peer.write_all(b"done\0").unwrap();
    });
    assert!(no_traffic.starts_with("the peer made no progress for 2s"), "{no_traffic}");
}

#[test]
fn a_server_that_talks_nonsense_or_hangs_up_ends_the_client() {
    for (answer, expected) in [
        (&b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"[..], "the peer does not speak"),
        (b"0000:0000", "the peer hung up during the exchange"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let client = Program::start(OURS, &["-p", &port, "127.0.0.1"]);
        let (mut peer, _) = listener.accept().unwrap();
        let mut endpoint = [0; 52];
        peer.read_exact(&mut endpoint).unwrap();
        peer.write_all(answer).unwrap();
        drop(peer);
        let error = error_of(client.output(SOON));
        assert!(error.starts_with(expected), "{error}");
    }
}
