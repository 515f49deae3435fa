//! `perf` with itself: every test, every way to post and to wait, what it reports, and ends that do not fit.

mod programs;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use programs::{Ended, Program, ended_or_lost, port, setting, unless_lost, wait_for_listener};
use serde_json::Value;

const PERF: &str = env!("CARGO_BIN_EXE_perf");

/// Starts both ends, each with its own words.
fn start(server: &str, client: &str) -> (Program, Program) {
    let port = port();
    let number = port.to_string();
    let (device, peer, address) =
        (setting("RDMA_TEST_DEVICE"), setting("RDMA_TEST_PEER_DEVICE"), setting("RDMA_TEST_ADDRESS"));
    let server: Vec<&str> = server.split(' ').chain(["-p", &number, "-d", &device]).collect();
    let client: Vec<&str> = client.split(' ').chain(["-p", &number, "-d", &peer, &address]).collect();
    let server = Program::start(PERF, &server);
    wait_for_listener(port);
    (server, Program::start(PERF, &client))
}

/// Runs both ends, each with its own words.
fn outputs(server: &str, client: &str) -> (Ended, Ended) {
    let (server, client) = start(server, client);
    let client = client.ended();
    (server.ended(), client)
}

/// Runs both ends with the same words; what they print: the server's and the client's. An error is a loss.
fn try_to_run(words: &str) -> Result<(String, String), String> {
    let (server, client) = start(words, words);
    let (server, client) = ended_or_lost(server, client)?;
    assert!(server.status.success() && client.status.success(), "{words}\nserver {server:?}\nclient {client:?}");
    Ok((server.stdout, client.stdout))
}

/// Runs both ends and returns their JSON, of which all but the ends' own must be the same.
fn measure(words: &str) -> Value {
    unless_lost(|| {
        let (server, client) = try_to_run(&format!("{words} --json"))?;
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let (server, client) = (read(&server), read(&client));
        assert_eq!((&server["role"], &client["role"]), (&"server".into(), &"client".into()));
        assert_eq!(server["device"], setting("RDMA_TEST_DEVICE").as_str());
        assert_eq!(client["device"], setting("RDMA_TEST_PEER_DEVICE").as_str());
        assert_eq!(server["results"], client["results"], "both ends report the same");
        let is_whole = |row: &Value| row.get("lost").and_then(Value::as_u64).unwrap_or(0) == 0;
        if client["results"].as_array().unwrap().iter().all(is_whole) { Ok(client) } else { Err(client.to_string()) }
    })
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// Checks a row of bandwidth: its figures say the same thing.
fn is_bandwidth(row: &Value, size: u64, messages: u64) {
    assert_eq!((&row["size"], &row["messages"]), (&size.into(), &messages.into()), "{row}");
    assert_eq!(row["bytes"], size * messages, "{row}");
    let seconds = number(&row["seconds"]);
    assert!(seconds > 0.0, "{row}");
    let near = |figure: &Value, expected: f64| (number(figure) / expected - 1.0).abs() < 1e-6;
    assert!(near(&row["messages_per_s"], messages as f64 / seconds), "{row}");
    assert!(near(&row["gbit_per_s"], (size * messages * 8) as f64 / seconds / 1e9), "{row}");
    assert!(near(&row["mib_per_s"], (size * messages) as f64 / seconds / f64::from(1 << 20)), "{row}");
}

/// Checks a row of latency: the percentiles are in their order, and fit the time that all of it took.
fn is_latency(row: &Value, size: u64, messages: u64, hops: f64) {
    assert_eq!((&row["size"], &row["messages"]), (&size.into(), &messages.into()), "{row}");
    let latency = ["min", "median", "p99", "p99_9", "max"].map(|name| number(&row["latency_us"][name]));
    assert!(latency[0] > 0.0 && latency.is_sorted(), "{row}");
    let mean = number(&row["seconds"]) * 1e6 / messages as f64 / hops;
    assert!((number(&row["latency_us"]["mean"]) / mean - 1.0).abs() < 0.01, "{row}");
}

/// Checks that nothing was lost where a message may be, and that losses are not spoken of where none may be.
fn is_complete(record: &Value) {
    let counts = record["connection"] != "RC" && record["op"] == "send" && record["test"] == "bw";
    for row in record["results"].as_array().unwrap() {
        assert_eq!(row.get("lost").cloned(), counts.then(|| 0.into()), "{row}");
    }
}

#[test]
fn bandwidth_of_each_operation_counts_every_message() {
    // Of the queue's depth, every so many requests are signaled. The last ones have queues as short as they come, a chain as long
    // as the queue, and one READ under way.
    for (words, connection, sizes, messages, cq_mod) in [
        ("send bw -s 32,4000 -n 150 -I 32 -m 1024 --warm-up 30", "RC", &[32, 4000][..], 150, 64),
        ("send bw -s 4000 -n 150 -c UC", "UC", &[4000], 150, 64),
        ("atomic bw -n 150", "RC", &[8], 150, 64),
        ("send bw -s 64 -n 40 -t 1 -r 2", "RC", &[64], 40, 1),
        ("write bw -s 64,20000 -n 100 -t 16 -l 16 -c uc", "UC", &[64, 20000], 100, 1),
        ("read bw -s 5000 -n 40 -o 1 -Q 1", "RC", &[5000], 40, 1),
    ] {
        let record = measure(words);
        let (op, _) = words.split_once(' ').unwrap();
        assert_eq!(
            (&record["op"], &record["test"], &record["connection"]),
            (&op.into(), &"bw".into(), &connection.into())
        );
        let rows = record["results"].as_array().unwrap();
        assert_eq!(rows.len(), sizes.len(), "{words}");
        for (row, size) in rows.iter().zip(sizes) {
            is_bandwidth(row, *size, messages);
            assert_eq!(row["cq_mod"], cq_mod, "{words}");
        }
        is_complete(&record);
        let blind = words.contains("write") && connection == "UC";
        assert_eq!(record.get("note").is_some(), blind, "{record}");
        if words.contains("--warm-up") {
            has_what_users_of_perftest_keep(&record);
        }
    }
}

fn has_what_users_of_perftest_keep(record: &Value) {
    let (address, interface) = (setting("RDMA_TEST_PEER_ADDRESS"), setting("RDMA_TEST_PEER_NETDEV"));
    assert_eq!(
        (&record["warm_up"], &record["inline_size"], &record["use_srq"]),
        (&30.into(), &32.into(), &false.into())
    );
    assert_eq!((&record["link_layer"], &record["mtu"], &record["port"]), (&"Ethernet".into(), &1024.into(), &1.into()));
    assert_eq!((&record["gid_index"], &record["gid_type"]), (&1.into(), &"RoCE v2".into()));
    assert_eq!((&record["gid"], &record["interface"]), (&format!("::ffff:{address}").into(), &interface.into()));
}

#[test]
fn latency_of_each_operation_has_its_percentiles_in_order() {
    // Of the sizes with `-I 32`, one goes inline. More iterations than there are values that the last byte of an RDMA WRITE counts
    // through.
    for (words, sizes, messages, hops) in [
        ("send lat -s 1,33 -n 260 -I 32", &[1, 33][..], 260, 2.0),
        ("write lat -s 1,33 -n 260 -I 32", &[1, 33], 260, 2.0),
        ("send lat -s 2,4k,64k -n 30 -e -c uc", &[2, 4096, 65536], 30, 2.0),
        ("read lat -s 64 -n 60", &[64], 60, 1.0),
        ("atomic lat -n 30 -e", &[8], 30, 1.0),
    ] {
        let record = measure(words);
        let (op, _) = words.split_once(' ').unwrap();
        assert_eq!((&record["op"], &record["test"], &record["tx_depth"]), (&op.into(), &"lat".into(), &1.into()));
        assert_eq!(record["events"], words.contains("-e"));
        let rows = record["results"].as_array().unwrap();
        assert_eq!(rows.len(), sizes.len(), "{words}");
        for (row, size) in rows.iter().zip(sizes) {
            is_latency(row, *size, messages, hops);
        }
        is_complete(&record);
    }
}

#[test]
fn queue_pairs_directions_and_chains_multiply_the_messages() {
    for (test, size) in [
        ("send bw -s 1000 -e --use-srq", 1000),
        ("send bw -s 1000 -c ud", 1000),
        ("write bw -s 1000 -e", 1000),
        ("read bw -s 1000", 1000),
        ("atomic bw", 8),
    ] {
        // 20 is no multiple of 7: the last chain is shorter.
        let record = measure(&format!("{test} -n 20 -q 3 -b -l 7 -t 16"));
        assert_eq!((&record["qps"], &record["bidirectional"]), (&3.into(), &true.into()));
        assert_eq!((&record["post_list"], &record["tx_depth"]), (&7.into(), &16.into()));
        assert_eq!(
            (&record["events"], &record["use_srq"]),
            (&test.contains("-e").into(), &test.contains("srq").into())
        );
        is_bandwidth(&record["results"][0], size, 20 * 3 * 2);
        is_complete(&record);
    }
}

#[test]
fn a_sweep_measures_all_powers_of_two() {
    let record = measure("write bw --all -n 2");
    let rows = record["results"].as_array().unwrap();
    assert_eq!(rows.len(), 23);
    for (row, exponent) in rows.iter().zip(1..) {
        is_bandwidth(row, 1 << exponent, 2);
    }
}

#[test]
fn a_duration_ends_the_test() {
    for test in ["send bw -s 64 -q 2 -b", "write bw -s 64 -l 4", "send lat -s 64", "write lat -s 64 -I 64 -c uc"] {
        let record = measure(&format!("{test} -D 1"));
        assert_eq!(record["goal"]["seconds"], 1);
        let row = &record["results"][0];
        let (messages, seconds) = (row["messages"].as_u64().unwrap(), number(&row["seconds"]));
        assert!(messages > 10 && seconds >= 1.0, "{test}: {row}");
        match test.contains(" bw ") {
            true => is_bandwidth(row, 64, messages),
            false => is_latency(row, 64, messages, 2.0),
        }
    }
}

#[test]
fn datagrams_up_to_the_mtu_are_reported_as_a_table() {
    let (server, client) = unless_lost(|| try_to_run("send lat -s 64,4k -n 20 -c UD --use-srq"));
    for (output, role) in [(&server, "server"), (&client, "client")] {
        assert!(output.contains(&format!("SEND latency over UD, as {role}")), "{output}");
        assert!(
            output.contains("port 1 (Ethernet), path MTU 4096") && output.contains("GID index 1: ::ffff:"),
            "{output}"
        );
        assert!(output.contains("polling, a shared receive queue"), "{output}");
        for head in ["bytes", "min µs", "median", "99 %", "99.9 %", "max"] {
            assert!(output.contains(head), "{head}: {output}");
        }
        let cells: Vec<Vec<&str>> = output.lines().map(|line| line.split_whitespace().collect()).collect();
        for size in ["64", "4096"] {
            assert!(cells.iter().any(|row| row.get(1..3) == Some(&[size, "20"])), "{output}");
        }
    }
}

/// The errors of both ends, which were given different words.
fn errors(server: &str, client: &str) -> (String, String) {
    let (server, client) = outputs(server, client);
    (server.error(), client.error())
}

#[test]
fn ends_with_different_tests_both_say_what_differs() {
    let (server, client) = errors("send bw -s 64 -n 10", "write bw -s 128 -n 10 -c uc");
    assert!(
        server.contains(
            "the operation is SEND here and RDMA WRITE there; --connection is RC here and UC there; --size is 64 here"
        ),
        "{server}"
    );
    assert!(
        client.contains(
            "the operation is RDMA WRITE here and SEND there; --connection is UC here and RC there; --size is 128 here"
        ),
        "{client}"
    );
    let (server, client) = errors("read lat -n 10", "read lat -D 1");
    assert!(server.contains("the end of the test is --iters 10 here and --duration 1 there"), "{server}");
    assert!(client.contains("the end of the test is --duration 1 here and --iters 10 there"), "{client}");
}

#[test]
fn a_client_that_cannot_get_ready_tells_the_server() {
    let (server, client) = errors("send bw -n 10", "send bw -n 10 -I 1000000");
    assert!(client.contains("max_inline_data 1000000") && client.contains("ask for less, or for 0"), "{client}");
    assert!(server.starts_with("the peer failed: ibv_create_qp(") && server.contains("ask for less"), "{server}");
    let (server, client) = errors("send bw -n 10", "send bw -n 10 -x 200");
    assert!(client.contains("sgid_index is 200, but the entry is empty"), "{client}");
    assert!(server.starts_with("the peer failed: ") && server.contains("sgid_index is 200"), "{server}");
}

fn error(words: &str) -> String {
    let words: Vec<&str> = words.split(' ').collect();
    Program::start(PERF, &words).ended().error()
}

#[test]
fn wrong_input_ends_soon_and_says_what_to_do() {
    let device = setting("RDMA_TEST_DEVICE");
    let unknown = error("send bw -d mlx5_7");
    assert!(
        unknown.starts_with("no RDMA device named \"mlx5_7\"; there is ") && unknown.contains(&device),
        "{unknown}"
    );
    let no_server = error(&format!("send bw -p {} 127.0.0.1", port()));
    assert!(no_server.contains("start the server first (without HOST)"), "{no_server}");
    let inline = error("write lat -I 1000000");
    assert!(
        inline.contains("max_inline_data may be, of which devices do not tell: ask for less, or for 0"),
        "{inline}"
    );
    // rxe of Linux 6.12 takes messages of that size; the machine has no memory for two of them.
    let large = error("send bw -s 1024m");
    let too_large = large.starts_with("--size is 1073741824, and a message of ") && large.contains("has at most ");
    assert!(too_large || large.starts_with("no memory for 2147487744 bytes: ask for a smaller --size"), "{large}");
    assert!(error("send bw -t 10000000").contains("takes 1 to "));
    assert!(error("send bw -m 1500").contains("an MTU is 256, 512, 1024, 2048 or 4096 bytes"));
    let datagram = error("send lat -c ud -s 4097");
    assert_eq!(datagram, "--size is 4097, and a message of UD is one packet, here of at most 4096 bytes");
    assert_eq!(error("write bw -c ud"), "UD has no RDMA WRITE: ask for --connection RC or UC");
    let taken = TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    assert!(error(&format!("send bw -p {port}")).contains("choose another one with --port"));
}

#[test]
fn usage_errors_and_help_are_claps() {
    let output = Program::start(PERF, &["send", "bw", "-s", "4x"]).ended();
    assert_eq!(output.status.code(), Some(2));
    let error = output.stderr;
    assert!(error.contains("a size is a number of bytes, as 64, 4k or 1m"), "{error}");
    let help = Program::start(PERF, &["--help"]).ended();
    let help = help.success();
    for option in
        ["--connection", "--size", "--all", "--iters", "--duration", "--tx-depth", "--qp", "--use-srq", "--json"]
    {
        assert!(help.contains(option), "{option}\n{help}");
    }
}

#[test]
fn a_peer_that_hangs_up_or_talks_nonsense_ends_the_server() {
    for (words, expected) in [
        (&b""[..], "the peer hung up"),
        (b"GET / HTTP/1.1\r\n\r\n", "the peer does not speak the protocol of this program"),
    ] {
        let port = port();
        let server = Program::start(PERF, &["send", "bw", "-p", &port.to_string(), "--timeout", "2"]);
        wait_for_listener(port);
        let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
        peer.write_all(words).unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = peer.read_to_end(&mut answer);
        let error = server.ended().error();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn a_client_that_is_killed_ends_the_server() {
    let port = port();
    let number = port.to_string();
    let (peer, address) = (setting("RDMA_TEST_PEER_DEVICE"), setting("RDMA_TEST_ADDRESS"));
    let words = ["write", "bw", "-s", "64", "-D", "60", "-p", &number];
    let server = Program::start(PERF, &words);
    wait_for_listener(port);
    let mut client = Program::start(PERF, &[&words[..], &["-d", &peer, &address]].concat());
    // Both ends have agreed on the test by then.
    client.wait_for_line("queue pairs ");
    // Dropping it kills it.
    drop(client);
    let error = server.ended().error();
    assert!(error.contains("the peer hung up"), "{error}");
}
