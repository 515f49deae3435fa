//! `run`, as a user meets it: the ends of an example, in one virtual machine or in two.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// `run` with these words.
fn run(words: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.arg("run").args(words).current_dir(root).stdin(Stdio::null()).output().unwrap()
}

/// What an end printed, line by line.
fn lines<'a>(stdout: &'a str, end: &str) -> Vec<&'a str> {
    stdout.lines().filter_map(|line| line.strip_prefix(end)?.strip_prefix("| ")).collect()
}

const ROUTE_REFUSED: &str = "rdma_resolve_route(192.0.2.1:7174): Invalid argument";

#[test]
fn the_ends_of_rping_find_each_other_between_two_machines() {
    let mut output = run(&["rping", "--two-hosts"]);
    // Just after the boot of a busy machine the kernel was seen to refuse the route to an address that it had resolved.
    for _ in 0..2 {
        if String::from_utf8_lossy(&output.stderr).contains(ROUTE_REFUSED) {
            output = run(&["rping", "--two-hosts"]);
        }
    }
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    let (server, client) = (lines(&stdout, "server"), lines(&stdout, "client"));
    assert_eq!(client.last(), Some(&"3 pings of 64 bytes, and what came back is what was sent"), "{stdout}");
    assert_eq!(server.last(), Some(&"the client has ended the connection after 3 pings"), "{stdout}");
    let pings = |lines: &[&str], before: &str| lines.iter().filter(|line| line.starts_with(before)).count();
    assert_eq!((pings(&server, "server ping data: rdma-ping-"), pings(&client, "ping data: rdma-ping-")), (3, 3));
}

#[test]
fn a_folder_of_the_users_own_is_copied_with_options_of_the_senders() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    fs::write(folder.path().join("one"), [1; 100_000]).unwrap();
    fs::write(folder.path().join("two"), [2; 5]).unwrap();
    let output = run(&["copy", "--", folder.path().to_str().unwrap(), "--chunk", "65536"]);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}\n{}", String::from_utf8_lossy(&output.stderr));
    for (end, beginning) in [("client", "sent to "), ("server", "received from ")] {
        let lines = lines(&stdout, end);
        let last = lines.last().unwrap();
        assert!(last.starts_with(beginning) && last.contains(": 2 files, 100005 bytes in "), "{stdout}");
        assert!(last.ends_with("; every checksum is right"), "{stdout}");
    }
}

#[test]
fn an_end_that_refuses_its_words_gives_the_run_its_status() {
    let output = run(&["copy", "--", "--chunk", "1000"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("client| error: --chunk and --in-flight: a chunk of 1000 bytes"), "{errors}");
}
