//! Both ends of a ping-pong: programs of ours and the C ones, in either role.
#![allow(dead_code, reason = "each test binary uses its part")]

use crate::programs::{Ended, Program, ended_or_lost, port, setting, unless_lost, wait_for_listener};

/// Starts both ends, the server's first.
fn start(server: (&str, &[&str]), client: (&str, &[&str])) -> (Program, Program) {
    let port = port();
    let start = |(program, options): (&str, &[&str]), device: &str, host: Option<String>| {
        let mut arguments: Vec<String> = ["-p", &port.to_string(), "-d", &setting(device)].map(String::from).into();
        // The C programs have to be told the GID.
        if program.starts_with("ibv_") {
            arguments.extend(["-g", "1"].map(String::from));
        }
        arguments.extend(options.iter().map(|option| (*option).to_owned()));
        arguments.extend(host);
        Program::start(program, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let server = start(server, "RDMA_TEST_DEVICE", None);
    wait_for_listener(port);
    (server, start(client, "RDMA_TEST_PEER_DEVICE", Some(setting("RDMA_TEST_ADDRESS"))))
}

/// Runs both ends, each with its options, and returns what they did, the server's first.
pub(crate) fn outputs(server: (&str, &[&str]), client: (&str, &[&str])) -> (Ended, Ended) {
    let (server, client) = start(server, client);
    let client = client.ended();
    (server.ended(), client)
}

/// Runs both ends with the same options and returns what they printed, after they have ended well.
pub(crate) fn run(server: &str, client: &str, options: &[&str]) -> (String, String) {
    successes(outputs((server, options), (client, options)))
}

/// As [`run`], over a service that may lose messages.
pub(crate) fn run_unless_lost(server: &str, client: &str, options: &[&str]) -> (String, String) {
    unless_lost(|| {
        let (server, client) = start((server, options), (client, options));
        ended_or_lost(server, client).map(successes)
    })
}

fn successes((server, client): (Ended, Ended)) -> (String, String) {
    assert!(client.status.success() && server.status.success(), "client {client:?}\nserver {server:?}");
    (server.stdout, client.stdout)
}
