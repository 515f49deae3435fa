//! `ud_pingpong`, `uc_pingpong` and `srq_pingpong` with themselves and with the C programs, each as server and as client, and with
//! wrong input. (`rc_pingpong`, whose exchange and options they share, has tests of its own.)

mod ends;
mod programs;

use std::io::Write;
use std::net::TcpStream;

use ends::{outputs, run, run_unless_lost};
use programs::{Program, port, setting, wait_for_listener};

const UD: &str = env!("CARGO_BIN_EXE_ud_pingpong");
const UC: &str = env!("CARGO_BIN_EXE_uc_pingpong");
const SRQ: &str = env!("CARGO_BIN_EXE_srq_pingpong");

/// Runs a program with itself and with its C counterpart, in both roles, and looks at what each end says it moved.
///
/// Each message is looked at, by both: C's programs, which are given the same options, print what is wrong.
fn with_itself_and_with_c(ours: &str, c: &str, title: &str, cases: [&[&str]; 4]) {
    let roles = [(ours, ours), (ours, c), (c, ours), (ours, ours)];
    let numbers = |options: &[&str], name: &str| -> u64 {
        let at = options.iter().position(|option| *option == name).unwrap();
        options[at + 1].parse().unwrap()
    };
    for (options, (server, client)) in cases.into_iter().zip(roles) {
        let (iterations, size) = (numbers(options, "-n"), numbers(options, "-s"));
        let bytes = 2 * iterations * size;
        let options = [options, &["--chk"]].concat();
        // A message of RC does not get lost.
        let run = if ours == SRQ { run } else { run_unless_lost };
        let (of_server, of_client) = run(server, client, &options);
        for (program, output) in [(server, of_server), (client, of_client)] {
            let expected = match program == c {
                true => format!("{iterations} iters in "),
                false => format!("{title}: {iterations} iterations, {bytes} bytes in "),
            };
            assert!(output.contains(&expected), "{program} {options:?}\n{output}");
            assert!(!output.contains("invalid data"), "{program} {options:?}\n{output}");
        }
    }
}

#[test]
fn ud_datagrams_go_back_and_forth_with_both_programs_in_both_roles() {
    let (poll, events) = (["-n", "60", "-s", "1024"], ["-n", "40", "-s", "1", "-r", "2", "-e"]);
    let largest = ["-n", "40", "-s", "4096", "-e"];
    with_itself_and_with_c(UD, "ibv_ud_pingpong", "SEND", [&poll, &events, &poll, &largest]);
}

#[test]
fn uc_messages_go_back_and_forth_with_both_programs_in_both_roles() {
    let (poll, events) = (["-n", "60", "-s", "1"], ["-n", "40", "-s", "10000", "-m", "2048", "-r", "3", "-e"]);
    with_itself_and_with_c(UC, "ibv_uc_pingpong", "SEND", [&poll, &events, &poll, &events]);
}

#[test]
fn srq_messages_of_all_queue_pairs_go_back_and_forth_with_both_programs_in_both_roles() {
    let poll = ["-n", "90", "-s", "1", "-q", "3", "-r", "3"];
    let events = ["-n", "60", "-s", "10000", "-q", "8", "-e"];
    with_itself_and_with_c(SRQ, "ibv_srq_pingpong", "SEND", [&poll, &events, &poll, &events]);
}

#[test]
fn ends_that_use_different_sizes_say_so() {
    for program in [UD, UC, SRQ] {
        let (server, client) = outputs((program, &["-s", "128"]), (program, &["-s", "64", "--timeout", "5"]));
        let server = server.error();
        assert!(server.contains(" of 64 bytes arrived; both ends have to use the same --size"), "{server}");
        let client = client.error();
        assert!(client.starts_with("the peer made no progress for 5s; "), "{client}");
        let losses = client.contains("got lost, which UD") || client.contains("got lost, which UC");
        assert_eq!(losses, program != SRQ, "{client}");
    }
}

fn error(program: &str, arguments: &[&str]) -> String {
    Program::start(program, arguments).ended().error()
}

#[test]
fn wrong_input_ends_soon_with_status_1_and_says_what_to_do() {
    let device = setting("RDMA_TEST_DEVICE");
    assert!(error(UD, &["-d", "mlx5_7"]).starts_with("no RDMA device named \"mlx5_7\"; there is "));
    let port = port().to_string();
    assert!(error(UC, &["-p", &port, "127.0.0.1"]).contains("start the server first (without HOST)"));
    assert!(error(UD, &["-g", "200"]).contains("the entries of port 1 that hold an address"));
    let many = error(SRQ, &["-r", "2000000"]);
    assert!(many.contains(&format!("{device} takes 1 to ")), "{many}");
}

#[test]
fn peers_without_a_gid_and_with_too_few_queue_pairs_end_the_server() {
    for (program, endpoints, expected) in
        [(UD, 1, "needs the remote GID"), (SRQ, 256, "both ends have to use the same --num-qp")]
    {
        let port = port();
        let server = Program::start(program, &["-p", &port.to_string(), "--timeout", "2"]);
        wait_for_listener(port);
        let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
        peer.write_all(&b"0000:000000:000001:00000000000000000000000000000000\0".repeat(endpoints)).unwrap();
        let error = server.ended().error();
        assert!(error.contains(expected), "{error}");
    }
}
