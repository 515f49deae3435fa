//! What the programs say to command lines that need no device.

mod programs;

use std::fs;

use programs::{Ended, Program};

/// All of them, each with what its `-s` is, whose meaning is that of the counterpart in C (`None`: there is none), and with a command line
/// that it refuses.
const ALL: &[(&str, &str, Option<&str>, &[&str])] = &[
    ("loopback", env!("CARGO_BIN_EXE_loopback"), None, &["word"]),
    ("rc_pingpong", env!("CARGO_BIN_EXE_rc_pingpong"), Some("--size"), &["--iters", "0"]),
    ("uc_pingpong", env!("CARGO_BIN_EXE_uc_pingpong"), Some("--size"), &["-s", "0"]),
    ("ud_pingpong", env!("CARGO_BIN_EXE_ud_pingpong"), Some("--size"), &["-s", "4097"]),
    ("srq_pingpong", env!("CARGO_BIN_EXE_srq_pingpong"), Some("--size"), &["-q", "0"]),
    ("cm_server", env!("CARGO_BIN_EXE_cm_server"), Some("--address"), &["--timeout", "0"]),
    ("cm_client", env!("CARGO_BIN_EXE_cm_client"), Some("--server"), &[]),
    ("rping", env!("CARGO_BIN_EXE_rping"), Some("--server"), &["-c", "-a", "host", "-S", "65536"]),
    ("ucmatose", env!("CARGO_BIN_EXE_ucmatose"), Some("--server"), &["-c", "0"]),
    ("udaddy", env!("CARGO_BIN_EXE_udaddy"), Some("--server"), &["-S", "4097"]),
    ("mckey", env!("CARGO_BIN_EXE_mckey"), Some("--sender"), &["-m", "no address"]),
    ("cmtime", env!("CARGO_BIN_EXE_cmtime"), Some("--server"), &["-s", "no address"]),
    ("copy", env!("CARGO_BIN_EXE_copy"), None, &["here"]),
    ("one_sided", env!("CARGO_BIN_EXE_one_sided"), None, &["serve"]),
    ("devinfo", env!("CARGO_BIN_EXE_devinfo"), None, &["-i", "256"]),
    ("async_events", env!("CARGO_BIN_EXE_async_events"), None, &["-n", "0"]),
    ("perf", env!("CARGO_BIN_EXE_perf"), Some("--size"), &["send", "bw", "-s", "4x"]),
];

fn program(name: &str) -> &'static str {
    ALL.iter().find(|(known, ..)| *known == name).unwrap().1
}

fn run(program: &str, arguments: &[&str]) -> Ended {
    Program::start(program, arguments).ended()
}

/// The options and arguments of a help text that have no explanation.
fn unexplained(help: &str) -> Vec<&str> {
    let lines: Vec<_> = help.lines().collect();
    let indent = |line: &str| line.len() - line.trim_start().len();
    let is_entry = |line: &str| (2..=6).contains(&indent(line)) && line.trim_start().starts_with(['-', '<', '[']);
    let entries = lines.iter().enumerate().filter(|(_, line)| is_entry(line));
    let is_bare = |(at, line): &(usize, &&str)| {
        let beside = line.trim_start().contains("  ");
        let below = lines.get(at + 1).is_some_and(|next| indent(next) > indent(line) && !next.trim().is_empty());
        !beside && !below
    };
    entries.filter(is_bare).map(|(_, line)| *line).collect()
}

#[test]
fn every_program_has_a_help_that_explains_each_of_its_options() {
    for (name, program, s, _) in ALL {
        let help = run(program, &["--help"]).success();
        assert!(help.contains(&format!("Usage: {name}")), "{help}");
        assert!(help.lines().next().unwrap().len() > 20, "{name} says first what it does: {help}");
        assert_eq!(unexplained(&help), [""; 0], "{name}");
        let line = help.lines().map(str::trim_start).find(|line| line.starts_with("-s"));
        assert_eq!(line.is_some(), s.is_some(), "{name}: {line:?}");
        if let Some((line, s)) = line.zip(*s) {
            assert!(line.starts_with(&format!("-s, {s}")), "{name}: {line}");
        }
    }
    for command in ["serve", "get", "put", "add", "delete", "stress"] {
        let help = run(program("one_sided"), &[command, "--help"]).success();
        assert_eq!(unexplained(&help), [""; 0], "one_sided {command}");
    }
    assert_eq!(unexplained("  -x\n  -y, --yes  It is\n      --zed\n          Explained\n  <A>\n"), ["  -x", "  <A>"]);
}

#[test]
fn every_program_refuses_what_is_out_of_range_or_unknown() {
    for (name, program, _, wrong) in ALL {
        for arguments in [wrong, &["--no-such-option"][..]] {
            let refused = run(program, arguments);
            assert_eq!(refused.status.code(), Some(2), "{name} {arguments:?}: {refused:?}");
            assert!(refused.stderr.starts_with("error: ") && refused.stdout.is_empty(), "{name}: {refused:?}");
        }
    }
}

#[test]
fn no_program_is_left_out() {
    let folder = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/bin")).unwrap();
    let names = folder.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned());
    let mut names: Vec<_> = names.collect();
    let mut known: Vec<_> = ALL.iter().map(|(name, ..)| *name).collect();
    names.sort();
    known.sort_unstable();
    assert_eq!(names, known);
    let readme = include_str!("../README.md");
    assert!(known.iter().all(|name| readme.contains(&format!("[`{name}`]"))), "the README has a row for each");
}

#[test]
fn values_that_do_not_fit_each_other_are_refused_before_a_device_is_looked_for() {
    let mtu = run(program("uc_pingpong"), &["-m", "1500"]).error();
    assert!(mtu.contains("an MTU is 256, 512, 1024, 2048 or 4096 bytes"), "{mtu}");
    let few = run(program("srq_pingpong"), &["-q", "8", "-r", "7"]).error();
    let expected = "--rx-depth is 7, but each of the 8 queue pairs needs a receive; raise it, or lower --num-qp";
    assert_eq!(few, expected);
}

#[test]
fn devinfo_works_on_any_machine_and_has_a_remedy_for_each_complaint() {
    let output = run(program("devinfo"), &["--json"]);
    let report: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let findings = report["doctor"].as_array().unwrap();
    let is = |finding: &serde_json::Value, level: &str| finding["level"] == level;
    assert!(findings.iter().all(|finding| is(finding, "ok") == finding["remedy"].is_null()), "{report}");
    let problems = findings.iter().filter(|finding| is(finding, "problem")).count();
    assert_eq!(output.status.code(), Some(i32::from(problems > 0)), "{report}");
    // No device is a problem.
    let device = findings.iter().find(|finding| finding["check"] == "device").unwrap();
    assert_eq!(is(device, "problem"), report["devices"].as_array().unwrap().is_empty(), "{report}");

    let error = run(program("devinfo"), &["--list", "--ib-dev", "no_such_device"]).error();
    assert!(error.starts_with("no RDMA device"), "{error}");
}

#[test]
fn the_status_tells_how_it_went_though_nobody_reads_what_is_printed() {
    let unread = Program::start_unread(program("devinfo"), &["--ib-dev", "no_such_device"]).ended();
    let problem = unread.error();
    assert!(problem.starts_with("the doctor found "), "{problem}");
}
