//! `cm_server`, `cm_client`, `udaddy`, `mckey`, `ucmatose` and `cmtime` with themselves and with the C programs, in both roles, and with wrong
//! input. (`rping` has tests of its own.)

mod programs;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use cm::{ConnectionOptions, DatagramListener, Listener};
use programs::{
    Ended, LIMIT, Program, cm_port as port, ended_or_lost, link_local, setting, unless_lost, wait_for_cm_listener,
};
use verbs::{AccessFlags, GidFilter, Grh, QueuePair, ReceiveRequest, SendRequest, Ud, WorkCompletion};

const SERVER: &str = env!("CARGO_BIN_EXE_cm_server");
const CLIENT: &str = env!("CARGO_BIN_EXE_cm_client");
const UDADDY: &str = env!("CARGO_BIN_EXE_udaddy");
const MCKEY: &str = env!("CARGO_BIN_EXE_mckey");
const CMTIME: &str = env!("CARGO_BIN_EXE_cmtime");
const UCMATOSE: &str = env!("CARGO_BIN_EXE_ucmatose");

const RECEIVE: u64 = 2;

fn address() -> String {
    setting("RDMA_TEST_ADDRESS")
}

fn start(server: (&str, &[&str]), client: (&str, &[&str]), port: u16) -> (Program, Program) {
    let server = Program::start(server.0, server.1);
    wait_for_cm_listener(port);
    (server, Program::start(client.0, client.1))
}

fn outputs(server: (&str, &[&str]), client: (&str, &[&str]), port: u16) -> (Ended, Ended) {
    let (server, client) = start(server, client, port);
    let client = client.ended();
    if !client.status.success() {
        println!("the client: {client:?}");
    }
    (server.ended(), client)
}

/// What both ends printed, after they have ended well.
fn run(server: (&str, &[&str]), client: (&str, &[&str]), port: u16) -> (String, String) {
    successes(outputs(server, client, port))
}

/// As [`run`], of datagrams, which may get lost.
fn run_unless_lost(server: (&str, &[&str]), client: (&str, &[&str]), port: u16) -> (String, String) {
    unless_lost(|| {
        let (server, client) = start(server, client, port);
        ended_or_lost(server, client).map(successes)
    })
}

fn successes((server, client): (Ended, Ended)) -> (String, String) {
    assert!(client.status.success() && server.status.success(), "client {client:?}\nserver {server:?}");
    (server.stdout, client.stdout)
}

fn error(program: &str, arguments: &[&str]) -> String {
    Program::start(program, arguments).ended().error()
}

#[test]
fn cm_server_and_cm_client_greet_each_other_and_the_c_programs() {
    let [local, to_local] = link_local();
    let address = address();
    let (v4, v6) = ([&address, &address], [&local, &to_local]);
    for (server, client, [at, to]) in [(SERVER, CLIENT, v6), (SERVER, "rdma_client", v4), ("rdma_server", CLIENT, v6)] {
        let port = port();
        let text = port.to_string();
        let (of_server, of_client) = run((server, &["-s", at, "-p", &text]), (client, &["-s", to, "-p", &text]), port);
        let received = |ours: bool, text: &str| match ours {
            true => format!("received \"{text}\"\n"),
            false => "received 16 zeroes\n".to_owned(),
        };
        if server == SERVER {
            assert!(of_server.contains(&received(client == CLIENT, "hello, server")), "{of_server}");
            assert!(of_server.starts_with("connected to ") && of_server.ends_with("answered, and disconnected\n"));
        } else {
            assert!(of_server.contains("rdma_server: end 0"), "{of_server}");
        }
        if client == CLIENT {
            assert!(of_client.starts_with("connected from "), "{of_client}");
            assert!(of_client.ends_with(&received(server == SERVER, "hello, client")), "{of_client}");
        } else {
            assert!(of_client.contains("rdma_client: end 0"), "{of_client}");
        }
    }
}

#[test]
fn cm_client_says_that_nobody_listens_or_answers() {
    let port = port();
    let text = port.to_string();
    let nobody = error(CLIENT, &["-s", &address(), "-p", &text]);
    assert!(nobody.contains("nobody listens at the port"), "{nobody}");
    let wrong = error(CLIENT, &["-s", "192.0.2.99", "-p", &text, "--timeout", "2"]);
    assert!(wrong.starts_with("rdma_resolve_addr(192.0.2.99:"), "{wrong}");
    let listener = Listener::bind((address(), port)).unwrap();
    let client = Program::start(CLIENT, &["-s", &address(), "-p", &text, "--timeout", "2"]);
    let connection = listener.accept().unwrap();
    let silent = client.ended().error();
    assert_eq!(silent, "the server said nothing for 2s; see what it printed");
    assert!(connection.wait_disconnected(Some(LIMIT)).unwrap());
    let taken = error(SERVER, &["-s", &address(), "-p", &text]);
    assert!(taken.starts_with("cannot listen: ") && taken.contains("already in use"), "{taken}");
}

#[test]
fn cm_server_says_that_its_client_is_silent() {
    let port = port();
    let server = Program::start(SERVER, &["-p", &port.to_string(), "--timeout", "2"]);
    wait_for_cm_listener(port);
    let _connection = ConnectionOptions::default().connect((address(), port)).unwrap();
    assert_eq!(server.ended().error(), "the client said nothing for 2s; see what it printed");
}

#[test]
fn messages_go_both_ways_through_all_connections_of_ucmatose() {
    let [local, to_local] = link_local();
    let (v4, v6) = ([address(), address()], [local, to_local]);
    for (server, client, [at, to], options) in [
        (UCMATOSE, UCMATOSE, &v6, &["-c", "5", "-C", "20", "-S", "3000", "-V"][..]),
        (UCMATOSE, "ucmatose", &v6, &["-c", "4", "-C", "20", "-S", "3000"]),
        ("ucmatose", UCMATOSE, &v4, &["-c", "3", "-C", "10", "-S", "100"]),
    ] {
        let port = port();
        let text = port.to_string();
        let server_options = [&["-b", at, "-p", &text], options].concat();
        let client_options = [&["-s", to, "-p", &text], options].concat();
        let (of_server, of_client) = run((server, &server_options), (client, &client_options), port);
        let expected = |program: &str| match program == UCMATOSE {
            true => format!(
                "{} connections\n{} messages of {} bytes each way through each\ndisconnected\n",
                options[1], options[3], options[5]
            ),
            false => "data transfers complete\n".to_owned(),
        };
        assert!(of_server.contains(&expected(server)), "{server} {options:?}\n{of_server}");
        assert!(of_client.contains(&expected(client)), "{client} {options:?}\n{of_client}");
    }
}

#[test]
fn ends_of_ucmatose_that_differ_or_die_say_so() {
    let with = |port: &str, server: &[&str], client: &[&str]| {
        let address = address();
        let server = [&["-b", &address, "-p", port, "--timeout", "60"], server].concat();
        let client = [&["-s", &address, "-p", port, "--timeout", "10"], client].concat();
        let (server, client) = outputs((UCMATOSE, &server), (UCMATOSE, &client), port.parse().unwrap());
        (server.error(), client.error())
    };
    let (_, client) = with(&port().to_string(), &["-S", "64"], &["-S", "128"]);
    assert_eq!(client, "a message of 64 bytes arrived; both ends have to use the same --size");
    let (server, client) = with(&port().to_string(), &["-C", "3"], &["-C", "4"]);
    assert!(client.starts_with("the peer said nothing for 10s"), "{client}");
    assert!(server.starts_with("the peer has ended the connection after 0 of 3 messages"), "{server}");

    // The server waits for a second client, and is killed.
    let port = port();
    let text = port.to_string();
    let server = Program::start(UCMATOSE, &["-b", &address(), "-p", &text, "-c", "2"]);
    wait_for_cm_listener(port);
    let mut client = Program::start(UCMATOSE, &["-s", &address(), "-p", &text]);
    client.wait_for_line("1 connections");
    drop(server);
    let error = client.ended().error();
    assert!(error.starts_with("the peer has ended the connection after 0 of 10 messages"), "{error}");
}

#[test]
fn datagrams_are_answered_by_udaddy_in_both_roles() {
    // The C program cannot be told a port.
    const PORT: u16 = 7174;
    let [local, to_local] = link_local();
    let (v4, v6) = ([address(), address()], [local, to_local]);
    for (server, client, [at, to], options) in [
        (UDADDY, UDADDY, &v6, &["-c", "3", "-C", "5", "-S", "4096", "-V"][..]),
        (UDADDY, "udaddy", &v4, &["-c", "2", "-C", "10", "-S", "100"]),
        ("udaddy", UDADDY, &v6, &["-c", "3", "-C", "5", "-S", "4096"]),
    ] {
        let server_options = [&["-b", at.as_str()], options].concat();
        let client_options = [&["-s", to.as_str()], options].concat();
        let (of_server, of_client) = run_unless_lost((server, &server_options), (client, &client_options), PORT);
        let messages =
            format!("{} datagrams of {} bytes from each of {} queue pairs", options[3], options[5], options[1]);
        let expected = |program: &str, ours: String| match program == UDADDY {
            true => ours,
            false => "data transfers complete\n".to_owned(),
        };
        let text = expected(server, format!("received and answered {messages}\n"));
        assert!(of_server.contains(&text), "{of_server}");
        let text = expected(client, format!("sent {messages}; all were answered\n"));
        assert!(of_client.contains(&text), "{of_client}");
    }
}

#[test]
fn udaddy_says_that_nobody_listens_refuses_or_answers() {
    let port = port();
    let text = port.to_string();
    let arguments = ["-s", &address(), "--port", &text, "--timeout", "2"];
    let nobody = error(UDADDY, &arguments);
    assert!(nobody.contains("the peer told no queue pair: nobody listens at the port"), "{nobody}");
    let listener = DatagramListener::bind((address(), port)).unwrap();
    let client = Program::start(UDADDY, &arguments);
    listener.next_request(Some(LIMIT)).unwrap().unwrap().reject(b"no").unwrap();
    let refused = client.ended().error();
    assert!(refused.contains("refused by the peer's program"), "{refused}");
    // A service that never answers.
    let client = Program::start(UDADDY, &arguments);
    let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
    let qp = request.create_queue_pair(&ConnectionOptions::default()).unwrap();
    request.accept(&qp, b"").unwrap();
    let silent = client.ended().error();
    assert!(silent.starts_with("0 of 10 datagrams came in 2s; the others got lost"), "{silent}");
}

/// What comes from another queue pair than the client's is left alone, whatever it says of itself, and takes no message's place.
#[test]
fn strangers_datagrams_are_neither_counted_nor_answered_by_udaddy() {
    unless_lost(|| {
        let port = port();
        let server = Program::start(UDADDY, &["-b", &address(), "--port", &port.to_string(), "-C", "4", "-S", "64"]);
        wait_for_cm_listener(port);
        let service = ConnectionOptions::default().connect_datagram((address(), port)).unwrap();
        let (qp, peer, ah) = (service.queue_pair(), service.peer(), service.address_handle());
        let pd = qp.protection_domain();
        let cq = pd.context().create_completion_queue(16).unwrap();
        let stranger = QueuePair::<Ud>::builder(pd, &cq, &cq).build().unwrap();
        let local = stranger.local_endpoint(service.id().port(), &GidFilter::default()).unwrap();
        stranger.init(&local, peer.qkey).unwrap();
        stranger.activate(&local, peer.qkey).unwrap();
        let region = pd.register(vec![7; 64], AccessFlags::LOCAL_WRITE).unwrap();
        let replies = pd.register(vec![0; 4 * (Grh::LEN + 64)], AccessFlags::LOCAL_WRITE).unwrap();
        for reply in 0..4 {
            let place = replies.slice(reply * (Grh::LEN + 64)..(reply + 1) * (Grh::LEN + 64)).unwrap();
            qp.post_receive(&ReceiveRequest::new(RECEIVE, &[place])).unwrap();
        }
        let send = |from: &QueuePair<Ud>, length: usize, imm_data: u32| {
            let slices = [region.slice(..length).unwrap()];
            let request = SendRequest::send_to_with_imm(1, &slices, ah, peer.qp_num, peer.qkey, imm_data);
            from.post_send(&request.signaled()).unwrap();
            // One after the other, and not so fast that the server has no receive posted. An answer may come meanwhile.
            let mut completions = [WorkCompletion::default(); 8];
            let deadline = Instant::now() + LIMIT;
            while !from.send_cq().poll(&mut completions).unwrap().iter().any(|done| done.wr_id() != RECEIVE) {
                assert!(Instant::now() < deadline, "the device does not send");
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(100));
        };
        // Before the client is known, one that does not speak the language; then one of another size, and one that seems right.
        send(&stranger, 64, 0);
        for _ in 0..4 {
            send(qp, 64, qp.qp_num());
            send(&stranger, 10, stranger.qp_num());
            send(&stranger, 64, stranger.qp_num());
        }
        let ended = server.ended();
        if ended.stderr.contains("got lost") {
            return Err(ended.stderr);
        }
        assert_eq!(ended.success(), "received and answered 4 datagrams of 64 bytes from each of 1 queue pairs\n");
        Ok(())
    });
}

/// The Ethernet address of a group's datagrams: that of a device of rxe is the group's last four bytes behind 33:33.
fn ethernet_address(group: &str) -> String {
    let octets = group.parse::<std::net::Ipv4Addr>().unwrap().octets();
    let hex: Vec<_> = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    format!("33:33:{}", hex.join(":"))
}

/// Waits until a receiver takes the datagrams of its group.
fn wait_for_member(receiver: &mut Program, is_ours: bool, group: &str) {
    if is_ours {
        receiver.wait_for_line("joined ");
        return;
    }
    let (netdev, address) = (setting("RDMA_TEST_NETDEV"), ethernet_address(group));
    let deadline = Instant::now() + LIMIT;
    loop {
        let output = Command::new("ip").args(["maddr", "show", "dev", &netdev]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        if text.contains(&address) {
            return;
        }
        assert!(Instant::now() < deadline, "{address} is not among {text}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// One receiver of a group and one sender, through the two devices.
fn with_group(
    group: &str,
    receiver: &str,
    sender: &str,
    options: &[&str],
    sender_options: &[&str],
) -> (String, String) {
    let (at, from) = (setting("RDMA_TEST_ADDRESS"), setting("RDMA_TEST_PEER_ADDRESS"));
    let is_ours = receiver == MCKEY;
    unless_lost(|| {
        let mut receiver = Program::start(receiver, &[&["-m", group, "-b", &at], options].concat());
        wait_for_member(&mut receiver, is_ours, group);
        let all = [&["-m", group, "-b", &from, "-s"], options, sender_options].concat();
        ended_or_lost(receiver, Program::start(sender, &all)).map(successes)
    })
}

#[test]
fn datagrams_of_mckey_reach_the_group_in_both_roles() {
    std::thread::scope(|scope| {
        for (group, gid, receiver, sender) in [
            ("239.1.2.3", "::ffff:239.1.2.3", MCKEY, MCKEY),
            ("239.1.2.4", "::ffff:239.1.2.4", MCKEY, "mckey"),
            ("239.1.2.5", "::ffff:239.1.2.5", "mckey", MCKEY),
        ] {
            scope.spawn(move || {
                // The C program destroys its queue pair as soon as it has posted, and on 6.12 rxe sends no more than one until then.
                let count = if sender == MCKEY { "7" } else { "1" };
                let mut options = vec!["-C", count, "-S", "1000"];
                options.extend((receiver == sender).then_some("-V"));
                let only = if receiver == sender { &["-o"][..] } else { &[] };
                let outputs = with_group(group, receiver, sender, &options, only);
                for (program, output, done) in [(receiver, &outputs.0, "received"), (sender, &outputs.1, "sent")] {
                    let expected = match program == MCKEY {
                        true => format!("{done} {count} datagrams of 1000 bytes\n"),
                        false => "data transfers complete\n".to_owned(),
                    };
                    assert!(output.contains(&expected), "{program}\n{output}");
                    let joined = if program == MCKEY {
                        format!("joined {gid}: queue pair 0xffffff, Q_Key ")
                    } else {
                        format!("joined dgid: {gid} ")
                    };
                    assert!(output.contains(&joined), "{program}\n{output}");
                }
            });
        }
    });
}

#[test]
fn mckey_says_what_is_no_group_and_that_a_sender_has_stopped() {
    let wrong = error(MCKEY, &["-m", "192.0.2.1"]);
    assert!(wrong.contains("the group is 192.0.2.1, but"), "{wrong}");
    let source = error(MCKEY, &["-m", "239.1.2.6", "-b", "192.0.2.99", "--timeout", "3"]);
    assert!(source.starts_with("rdma_resolve_addr("), "{source}");
    let mut receiver = Program::start(MCKEY, &["-m", "239.1.2.7", "-b", &address(), "-C", "5", "--timeout", "2"]);
    receiver.wait_for_line("joined ");
    let peer = setting("RDMA_TEST_PEER_ADDRESS");
    Program::start(MCKEY, &["-m", "239.1.2.7", "-b", &peer, "-s", "-C", "3", "--settle", "1"]).ended().success();
    let error = receiver.ended().error();
    // On a busy machine, fewer.
    let (came, rest) = error.split_once(" of 5 datagrams came; the next one did not in 2 s: it got lost").unwrap();
    assert!((1..=3).contains(&came.parse::<u32>().unwrap()) && rest == ", or the sender is gone", "{error}");
}

#[test]
fn all_connections_of_cmtime_go_through_all_steps_in_both_roles() {
    for (server, client, connections) in [(CMTIME, CMTIME, "30"), (CMTIME, "cmtime", "15"), ("cmtime", CMTIME, "15")] {
        let port = port();
        let text = port.to_string();
        let started = Program::start(server, &["-b", &address(), "-p", &text, "-c", connections]);
        wait_for_cm_listener(port);
        let of_client = Program::start(client, &["-s", &address(), "-p", &text, "-c", connections]).ended();
        let of_client = of_client.success();
        let steps: Vec<_> = of_client.lines().filter(|line| line.contains(" per connection")).collect();
        let names =
            ["create id", "resolve address", "resolve route", "create queue pair", "connect", "disconnect", "destroy"];
        match client == CMTIME {
            true => assert!(steps.iter().zip(names).all(|(line, name)| line.starts_with(name)), "{of_client}"),
            false => assert!(of_client.contains("us / conn"), "{of_client}"),
        }
        assert_eq!(steps.len(), if client == CMTIME { names.len() } else { 0 }, "{of_client}");
        // The C server does not always see the end of its last connection.
        if server == CMTIME {
            let of_server = started.ended().success();
            let expected = format!("{connections} connections established, {connections} ended\n");
            assert_eq!(of_server, expected);
        }
    }
}

#[test]
fn cmtime_says_at_which_step_connections_failed() {
    let nobody = error(CMTIME, &["-s", &address(), "-p", &port().to_string(), "-c", "3"]);
    assert!(nobody.starts_with("0 of 3 connections came through this step; then: RDMA_CM_EVENT_REJECTED"), "{nobody}");
    assert!(nobody.contains("nobody listens at the port"), "{nobody}");
    let wrong = error(CMTIME, &["-s", "192.0.2.99", "-c", "2", "-t", "100"]);
    assert!(wrong.starts_with("0 of 2 connections came through this step; then: RDMA_CM_EVENT_ADDR_ERROR"), "{wrong}");
}
