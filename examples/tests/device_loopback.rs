//! The program of the README runs, and is the one that the README shows.

mod programs;

use programs::Program;

const LOOPBACK: &str = env!("CARGO_BIN_EXE_loopback");

#[test]
fn the_program_of_the_readme_says_hello() {
    let text = Program::start(LOOPBACK, &[]).ended().success();
    let mut lines: Vec<_> = text.lines().collect();
    // Which of the two completes first is up to the device.
    lines[..2].sort_unstable();
    assert_eq!(lines, ["request 1: receive, Some(12) bytes", "request 2: SEND, None bytes", "Hello, RDMA!"]);
}
