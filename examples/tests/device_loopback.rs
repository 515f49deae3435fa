//! The program of the README runs, and is the one that the README shows.

use std::process::Command;

#[test]
fn the_program_of_the_readme_says_hello() {
    let output = Command::new(env!("CARGO_BIN_EXE_loopback")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert_eq!(text, "request 1: receive, Some(12) bytes\nrequest 2: SEND, None bytes\nHello, RDMA!\n");
}
