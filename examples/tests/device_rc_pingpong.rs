//! `rc_pingpong` with itself and with the C program, each as server and as client, and with peers that misbehave.

mod ends;
mod programs;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use ends::run;
use examples::exchange::Exchange;
use programs::{LIMIT, Program, port, setting, wait_for_listener};
use verbs::{
    AccessFlags, CompletionQueue, ConnectOptions, Endpoint, GidFilter, Mtu, QueuePair, Rc, ReceiveRequest, SendRequest,
    WorkCompletion,
};

const OURS: &str = env!("CARGO_BIN_EXE_rc_pingpong");
const C: &str = "ibv_rc_pingpong";

#[test]
fn our_server_serves_the_c_client() {
    for options in [
        &[][..],
        &["-e", "-n", "200", "-c"],
        &["-s", "65536", "-n", "50", "-m", "4096", "-c", "-r", "20"],
        &["-s", "1", "-r", "2", "-n", "200", "-c"],
    ] {
        let (server, client) = run(OURS, C, options);
        assert!(server.contains("SEND: ") && client.contains(" iters in "), "{server}\n{client}");
        assert!(!client.contains("invalid data"), "{client}");
    }
}

#[test]
fn our_client_is_served_by_the_c_server() {
    for options in [
        &[][..],
        &["-e", "-n", "200", "-c"],
        &["-s", "65536", "-n", "50", "-m", "4096", "-c", "-r", "20"],
        &["-s", "1", "-r", "2", "-n", "200", "-c"],
    ] {
        let (server, client) = run(C, OURS, options);
        assert!(server.contains(" iters in ") && client.contains("SEND: "), "{server}\n{client}");
        assert!(!server.contains("invalid data"), "{server}");
    }
}

#[test]
fn each_operation_moves_the_bytes_that_were_asked_for() {
    for (operation, name) in [("send", "SEND"), ("write", "RDMA WRITE"), ("read", "RDMA READ")] {
        for events in [&[][..], &["--events", "--chk"]] {
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
    for events in [&[][..], &["--events", "--chk"]] {
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
    Program::start(OURS, arguments).ended().error()
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
    let output = Program::start(OURS, &["--iters", "0"]).ended();
    assert_eq!(output.status.code(), Some(2));
    let output = Program::start(OURS, &["--help"]).ended();
    assert!(output.status.success());
    let help = output.stdout;
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
    server.ended().error()
}

/// An endpoint at the first device's address, as the programs tell of it.
fn endpoint(qp_num: u32) -> String {
    let gid: verbs::Gid = format!("::ffff:{}", setting("RDMA_TEST_ADDRESS")).parse().unwrap();
    let mut endpoint = Endpoint::new(qp_num, 1);
    endpoint.gid = Some(gid);
    format!("{endpoint}\0")
}

/// A client made by hand that sends these messages, one after the other; the server's error.
fn error_at(messages: &[Vec<u8>], options: &[&str]) -> String {
    let (port, size) = (port(), messages[0].len().to_string());
    let port_text = port.to_string();
    let server = Program::start(OURS, &[&["-p", &port_text, "-s", &size, "-n", "3"], options].concat());
    wait_for_listener(port);
    let context = verbs::devices().unwrap().find(Some(&setting("RDMA_TEST_PEER_DEVICE"))).unwrap().open().unwrap();
    let pd = context.create_protection_domain().unwrap();
    let cq = context.create_completion_queue(16).unwrap();
    let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).build().unwrap();
    let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
    let mut exchange = Exchange::connect("127.0.0.1", port, LIMIT).unwrap();
    let mut options = ConnectOptions::default();
    options.path_mtu = Some(Mtu::MTU_1024);
    exchange.swap_endpoint(local.endpoint, |remote| Ok(qp.connect(&local, remote, &options)?)).unwrap();
    exchange.finish().unwrap();
    let mut memory = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let answer = pd.register(vec![0; message.len()], AccessFlags::LOCAL_WRITE).unwrap();
        qp.post_receive(&ReceiveRequest::new(ANSWER, &[answer.slice(..).unwrap()])).unwrap();
        let region = pd.register(message.clone(), AccessFlags::LOCAL_WRITE).unwrap();
        qp.post_send(&SendRequest::send(1, &[region.slice(..).unwrap()]).signaled()).unwrap();
        memory.extend([answer, region]);
        // The last one is not answered.
        if index + 1 < messages.len() {
            wait_for_answer(&cq);
        }
    }
    server.ended().error()
}

const ANSWER: u64 = 2;

/// Waits for an answer; a send that has completed is none.
fn wait_for_answer(cq: &CompletionQueue) {
    let mut completions = [WorkCompletion::default(); 2];
    let deadline = Instant::now() + LIMIT;
    while !cq.poll(&mut completions).unwrap().iter().any(|completion| completion.success().unwrap().wr_id() == ANSWER) {
        assert!(Instant::now() < deadline, "the server does not answer");
        thread::yield_now();
    }
}

#[test]
fn a_message_with_a_wrong_byte_is_found_whichever_it_is() {
    let right = |chk: bool| {
        let mut message = vec![0x7b; 5000];
        if chk {
            (message[0], message[4096]) = (0, 0);
        }
        message
    };
    let wrong = |chk: bool, offset: usize| {
        let mut message = right(chk);
        message[offset] = 0x7a;
        message
    };
    let error = error_at(&[wrong(true, 4096)], &["--chk"]);
    assert_eq!(error, "byte 4096 of what arrived is 0x7a instead of 0x00");
    let error = error_at(&[right(true), wrong(true, 4999)], &["--chk"]);
    assert_eq!(error, "byte 4999 of what arrived is 0x7a instead of 0x7b");
    // Without --chk it is the last one.
    let error = error_at(&[right(false), right(false), wrong(false, 0)], &[]);
    assert_eq!(error, "byte 0 of what arrived is 0x7a instead of 0x7b");
    let error = error_at(&[right(false)], &["--chk"]);
    assert_eq!(
        error,
        "byte 0 of what arrived is 0x7b instead of 0x00; either both ends have to be given --chk, or neither"
    );
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
        peer.write_all(endpoint(0x11).as_bytes()).unwrap();
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
        peer.write_all(endpoint(0xabcdef).as_bytes()).unwrap();
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
        let error = client.ended().error();
        assert!(error.starts_with(expected), "{error}");
    }
}
