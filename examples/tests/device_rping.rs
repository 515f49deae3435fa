//! `rping` with itself and with the C program, each as server and as client, and with peers that misbehave.

mod programs;

use cm::{Connection, ConnectionOptions, Listener};
use programs::{Ended, LIMIT, Program, cm_port as port, link_local, setting, wait_for_cm_listener};
use verbs::{AccessFlags, ReceiveRequest, RemoteSlice, SendRequest, WorkCompletion, WorkCompletionStatus};

const OURS: &str = env!("CARGO_BIN_EXE_rping");
const C: &str = "rping";

fn address() -> String {
    setting("RDMA_TEST_ADDRESS")
}

fn start(program: &str, role: &str, address: &str, port: u16, options: &[&str]) -> Program {
    let port = port.to_string();
    Program::start(program, &[&[role, "-a", address, "-p", &port], options].concat())
}

fn outputs(server: (&str, &str), client: (&str, &str), options: &[&str]) -> (Ended, Ended) {
    let port = port();
    let ((server, at), (client, to)) = (server, client);
    let server = start(server, "-s", at, port, options);
    wait_for_cm_listener(port);
    let client = start(client, "-c", to, port, options).ended();
    (server.ended(), client)
}

fn text(output: &Ended) -> String {
    assert!(output.status.success(), "{output:?}");
    output.stdout.clone()
}

/// The pings as both programs print them, each line behind `before`.
fn pings(before: &str, output: &str) -> Vec<String> {
    output.lines().filter_map(|line| line.strip_prefix(before)).map(str::to_owned).collect()
}

fn expected(count: usize, size: usize) -> Vec<String> {
    let letters = |ping: usize| (b'A'..=b'z').cycle().skip(ping % 58).map(char::from);
    let data = |ping: usize| format!("rdma-ping-{ping}: ").chars().chain(letters(ping)).take(size - 1).collect();
    (0..count).map(data).collect()
}

#[test]
fn pings_of_any_size_arrive_and_come_back_between_both_programs_in_both_roles() {
    let [local, to_local] = link_local();
    for (server, client) in [(OURS, OURS), (OURS, C), (C, OURS)] {
        // The short ones through IPv6. The long ones are not printed.
        for (count, size, at, to) in [(60, 26, &local, &to_local), (2, 65535, &address(), &address())] {
            let (count_text, size_text) = (count.to_string(), size.to_string());
            let mut options = vec!["-V", "-C", &count_text, "-S", &size_text];
            let is_short = size < 1000;
            options.extend(is_short.then_some("-v"));
            let (of_server, of_client) = outputs((server, at), (client, to), &options);
            let (of_server, of_client) = (text(&of_server), text(&of_client));
            let expected = if is_short { expected(count, size) } else { Vec::new() };
            assert_eq!(pings("server ping data: ", &of_server), expected, "{server} with {client}");
            assert_eq!(pings("ping data: ", &of_client), expected, "{client} with {server}");
            if client == OURS {
                let last = format!("{count} pings of {size} bytes, and what came back is what was sent");
                assert_eq!(of_client.lines().last(), Some(last.as_str()));
            }
            if server == OURS {
                let last = format!("the client has ended the connection after {count} pings");
                assert_eq!(of_server.lines().last(), Some(last.as_str()));
            }
        }
    }
}

#[test]
fn a_persistent_server_serves_several_at_once_and_one_after_another() {
    for (server, clients) in [(OURS, &[OURS, C][..]), (C, &[OURS])] {
        let port = port();
        let _server = start(server, "-s", &address(), port, &["-P", "-S", "1000"]);
        wait_for_cm_listener(port);
        let pinging = |client: &&str| start(client, "-c", &address(), port, &["-v", "-V", "-C", "20", "-S", "1000"]);
        for client in clients.iter().map(pinging).collect::<Vec<_>>() {
            assert_eq!(pings("ping data: ", &text(&client.ended())), expected(20, 1000));
        }
        let last = start(OURS, "-c", &address(), port, &["-v", "-C", "1"]).ended();
        assert_eq!(pings("ping data: ", &text(&last)), expected(1, 64));
    }
}

#[test]
fn a_client_says_who_is_not_there() {
    let port = port();
    let to = |address: &str, more: &[&str]| {
        let options = [more, &["--timeout", "2"]].concat();
        start(OURS, "-c", address, port, &options).ended().error()
    };
    let error = to(&address(), &[]);
    assert!(error.contains("the peer rejected the connection: invalid service id: nobody listens"), "{error}");
    let error = to("192.0.2.99", &[]);
    assert!(error.starts_with("rdma_resolve_addr(192.0.2.99:"), "{error}");
    let error = to("127.0.0.1", &[]);
    assert!(error.contains("use the address of the interface that has"), "{error}");
    let error = to("host.invalid", &[]);
    assert!(error.starts_with(&format!("no address for \"host.invalid:{port}\"")), "{error}");
    let error = to(&address(), &["-I", "192.0.2.77"]);
    assert!(error.starts_with("rdma_resolve_addr("), "{error}");
}

#[test]
fn a_server_says_why_it_cannot_listen() {
    let port = port();
    let taken = Listener::bind((address(), port)).unwrap();
    let error = start(OURS, "-s", &address(), port, &[]).ended().error();
    assert!(error.contains("the address is already in use"), "{error}");
    drop(taken);
    let error = start(OURS, "-s", "192.0.2.99", port, &[]).ended().error();
    assert!(error.contains(&format!("rdma_bind_addr(192.0.2.99:{port}")), "{error}");
}

#[test]
fn a_client_whose_server_is_killed_ends_with_an_error() {
    for server in [OURS, C] {
        let port = port();
        let server = start(server, "-s", &address(), port, &[]);
        wait_for_cm_listener(port);
        let mut client = start(OURS, "-c", &address(), port, &["-v", "--timeout", "5"]);
        client.wait_for_line("ping data: rdma-ping-1: ");
        drop(server);
        let error = client.ended().error();
        let expected = ["the peer has ended the connection in the middle", "retry", "remote", "rejected"];
        assert!(expected.iter().any(|text| error.contains(text)), "{error}");
    }
}

/// Runs our server with a client that does as it is told, and returns what the server did.
fn with_client(misbehave: impl FnOnce(Connection)) -> Ended {
    let port = port();
    let server = start(OURS, "-s", &address(), port, &["--timeout", "2"]);
    wait_for_cm_listener(port);
    misbehave(ConnectionOptions::default().connect((address(), port)).unwrap());
    server.ended()
}

fn send(connection: &Connection, message: &[u8]) {
    let region = connection.protection_domain().register(message.to_vec(), AccessFlags::empty()).unwrap();
    let slices = [region.slice(..).unwrap()];
    connection.queue_pair().post_send(&SendRequest::send(1, &slices).signaled()).unwrap();
    let mut completions = [WorkCompletion::default()];
    // It may fail at the other end, whose error it is that matters.
    connection.completion_queue().wait(&mut completions, Some(LIMIT)).unwrap();
}

#[test]
fn clients_that_leave_are_silent_or_send_nonsense_end_the_server() {
    let output = with_client(drop);
    assert!(text(&output).contains("the client has ended the connection after 0 pings"), "{output:?}");
    let error = with_client(|connection| {
        assert!(connection.wait_disconnected(Some(LIMIT)).unwrap());
    })
    .error();
    assert!(error.starts_with("the peer said nothing for 2s"), "{error}");
    let error = with_client(|connection| send(&connection, b"hello")).error();
    assert!(error.contains("a message of 5 bytes instead of 16; is it another program?"), "{error}");
    let error = with_client(|connection| send(&connection, &[0xff; 16])).error();
    assert!(error.contains("a ping has 65535 at most"), "{error}");
    let error = with_client(|connection| send(&connection, &[0xee; 17])).error();
    assert!(error.contains("receive") || error.contains("invalid request"), "{error}");
    // Memory of the server's to which the client has no right: the server's queue pair fails.
    let error = with_client(|connection| {
        let region = connection.protection_domain().register(vec![0; 8], AccessFlags::LOCAL_WRITE).unwrap();
        let (slices, to) = ([region.slice(..).unwrap()], RemoteSlice::new(0x1000, 8, 0xdead).unwrap());
        connection.queue_pair().post_send(&SendRequest::rdma_write(1, &slices, to).signaled()).unwrap();
        let mut completions = [WorkCompletion::default()];
        let found = connection.completion_queue().wait(&mut completions, Some(LIMIT)).unwrap();
        assert_eq!(found[0].status(), WorkCompletionStatus::REMOTE_ACCESS_ERROR);
        // The server ends the connection, not the client.
        assert!(connection.wait_disconnected(Some(LIMIT)).unwrap());
    })
    .error();
    assert!(error.contains("the connection has failed, though the peer has not ended it"), "{error}");
    // Memory that is not the client's to give.
    let mut offer = [0; 16];
    offer[15] = 64;
    let error = with_client(|connection| {
        send(&connection, &offer);
        assert!(connection.wait_disconnected(Some(LIMIT)).unwrap());
    })
    .error();
    assert!(error.contains("remote access error"), "{error}");
}

#[test]
fn servers_that_refuse_or_leave_in_the_middle_of_a_ping_end_the_client() {
    let listener = Listener::bind((address(), 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = start(OURS, "-c", &address(), port, &[]);
    listener.next_request(Some(LIMIT)).unwrap().unwrap().reject(b"no").unwrap();
    let error = client.ended().error();
    assert!(error.contains("rejected the connection: by the peer's program"), "{error}");

    let client = start(OURS, "-c", &address(), port, &[]);
    let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
    let incoming = request.prepare(&ConnectionOptions::default()).unwrap();
    let region = incoming.protection_domain().register(vec![0; 16], AccessFlags::LOCAL_WRITE).unwrap();
    incoming.queue_pair().post_receive(&ReceiveRequest::new(1, &[region.slice(..).unwrap()])).unwrap();
    let connection = incoming.accept().unwrap();
    let mut completions = [WorkCompletion::default()];
    assert_eq!(connection.completion_queue().wait(&mut completions, Some(LIMIT)).unwrap().len(), 1);
    // The client's offer: 64 bytes.
    assert_eq!(region.to_vec(12..).unwrap(), [0, 0, 0, 64]);
    drop(connection);
    let error = client.ended().error();
    assert!(error.starts_with("the peer has ended the connection in the middle of a ping"), "{error}");

    // A server that neither accepts nor refuses.
    let client = start(OURS, "-c", &address(), port, &["--timeout", "2"]);
    let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
    let error = client.ended().error();
    assert!(error.contains("not done after 2s"), "{error}");
    drop(request);
}
