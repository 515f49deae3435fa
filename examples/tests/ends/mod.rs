//! Both ends of a ping-pong: programs of ours and the C ones, in either role.

use std::process::Output;

use crate::programs::{LIMIT, Program, port, setting, wait_for_listener};

/// Runs both ends with the same options and returns what they did, the server's first.
pub(crate) fn outputs(server: (&str, &[&str]), client: (&str, &[&str])) -> (Output, Output) {
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
    let client = start(client, "RDMA_TEST_PEER_DEVICE", Some(setting("RDMA_TEST_ADDRESS"))).output(LIMIT);
    (server.output(LIMIT), client)
}

/// Runs both ends with the same options and returns what they printed, after they have ended well.
pub(crate) fn run(server: &str, client: &str, options: &[&str]) -> (String, String) {
    let (server, client) = outputs((server, options), (client, options));
    let text = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(client.status.success() && server.status.success(), "client {client:?}\nserver {server:?}");
    (text(&server), text(&client))
}
