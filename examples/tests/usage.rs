//! What the programs say to command lines that need no device.

use std::process::{Command, Output};

const DEVINFO: &str = env!("CARGO_BIN_EXE_devinfo");
const UD: &str = env!("CARGO_BIN_EXE_ud_pingpong");
const UC: &str = env!("CARGO_BIN_EXE_uc_pingpong");
const SRQ: &str = env!("CARGO_BIN_EXE_srq_pingpong");

fn output(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

fn error(program: &str, arguments: &[&str]) -> String {
    let output = output(program, arguments);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn usage_errors_and_help_are_claps() {
    for (program, wrong, special) in [(UD, "4097", "--size"), (UC, "0", "--mtu"), (SRQ, "0", "--num-qp")] {
        let usage = output(program, &["--size", wrong]);
        assert_eq!(usage.status.code(), Some(2), "{usage:?}");
        let help = output(program, &["--help"]);
        assert!(help.status.success());
        let help = String::from_utf8(help.stdout).unwrap();
        for option in ["--ib-dev", "--size", "--rx-depth", "--iters", "--events", "--gid-idx", special] {
            assert!(help.contains(option), "{option}\n{help}");
        }
    }
}

#[test]
fn values_that_do_not_fit_each_other_are_refused_before_a_device_is_looked_for() {
    assert!(error(UC, &["-m", "1500"]).contains("an MTU is 256, 512, 1024, 2048 or 4096 bytes"));
    let few = error(SRQ, &["-q", "8", "-r", "7"]);
    let expected = "--rx-depth is 7, but each of the 8 queue pairs needs a receive; raise it, or lower --num-qp";
    assert_eq!(few, format!("error: {expected}\n"));
}

#[test]
fn devinfo_works_on_any_machine_and_has_a_remedy_for_each_complaint() {
    let output = output(DEVINFO, &["--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["doctor"].as_array().unwrap();
    let is = |finding: &serde_json::Value, level: &str| finding["level"] == level;
    assert!(findings.iter().all(|finding| is(finding, "ok") == finding["remedy"].is_null()), "{report}");
    let problems = findings.iter().filter(|finding| is(finding, "problem")).count();
    assert_eq!(output.status.code(), Some(i32::from(problems > 0)), "{report}");
    // No device is a problem.
    let device = findings.iter().find(|finding| finding["check"] == "device").unwrap();
    assert_eq!(is(device, "problem"), report["devices"].as_array().unwrap().is_empty(), "{report}");

    let error = error(DEVINFO, &["--list", "--ib-dev", "no_such_device"]);
    assert!(error.starts_with("error: no RDMA device"), "{error}");
}

#[test]
fn the_programs_on_the_connection_manager_have_help_and_refuse_what_is_out_of_range() {
    for (program, wrong, options) in [
        (env!("CARGO_BIN_EXE_rping"), &["-c", "-a", "host", "-S", "65536"][..], &["--persistent", "--validate"]),
        (env!("CARGO_BIN_EXE_cm_server"), &["--timeout", "0"], &["--address", "--port"]),
        (env!("CARGO_BIN_EXE_cm_client"), &[], &["--server", "--port"]),
        (env!("CARGO_BIN_EXE_udaddy"), &["-S", "4097"], &["--bind", "--count"]),
        (env!("CARGO_BIN_EXE_mckey"), &["-m", "no address"], &["--group", "--send-only"]),
        (env!("CARGO_BIN_EXE_ucmatose"), &["-c", "0"], &["--connections", "--count"]),
        (env!("CARGO_BIN_EXE_cmtime"), &["-s", "no address"], &["--connections", "--bind"]),
    ] {
        let usage = output(program, wrong);
        assert_eq!(usage.status.code(), Some(2), "{program}: {usage:?}");
        let help = output(program, &["--help"]);
        assert!(help.status.success());
        let help = String::from_utf8(help.stdout).unwrap();
        assert!(options.iter().all(|option| help.contains(option)), "{help}");
    }
}
