//! `devinfo` beside the C program.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

const OURS: &str = env!("CARGO_BIN_EXE_devinfo");

fn setting(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run the device tests by `cargo xtask test`"))
}

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn stdout(program: &str, arguments: &[&str]) -> String {
    let output = run(program, arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The lines `name: value` of a report on one device, without the name of the value that C has in parentheses.
fn values(report: &str) -> HashMap<String, String> {
    let lines = report.lines().filter_map(|line| line.trim().split_once(':'));
    lines
        .map(|(name, value)| {
            let value = value.split_once('(').map_or(value, |(value, _)| value).trim();
            // C prints numbers in the one way or the other, and some with leading zeroes.
            let hexadecimal = value.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
            (name.to_owned(), hexadecimal.map_or(value.to_owned(), |number| number.to_string()))
        })
        .collect()
}

/// What both print, but not in the same words; or of which C has a heading only, and what belongs to it in lines without a name.
const IN_OTHER_WORDS: &[&str] = &[
    "atomic_cap",
    "state",
    "active_width",
    "active_speed",
    "phys_state",
    "general_odp_caps",
    "rc_odp_caps",
    "uc_odp_caps",
    "ud_odp_caps",
    "xrc_odp_caps",
    "tso_caps",
    "rss_caps",
    "packet_pacing_caps",
    // With the unit.
    "qp_rate_limit_min",
    "qp_rate_limit_max",
];

/// The device's node, as the kernel has it.
fn node(device: &str) -> String {
    let nodes = fs::read_dir("/sys/class/infiniband_verbs").unwrap().map(|entry| entry.unwrap().path());
    let of_device = |path: &PathBuf| fs::read_to_string(path.join("ibdev")).is_ok_and(|name| name.trim() == device);
    let path = nodes.into_iter().find(of_device).unwrap();
    format!("/dev/infiniband/{}", path.file_name().unwrap().to_str().unwrap())
}

#[test]
fn limits_and_attributes_are_those_that_the_c_program_prints() {
    let device = setting("RDMA_TEST_DEVICE");
    let arguments = ["-v", "-d", &device];
    let report = stdout(OURS, &arguments);
    let gid = format!("::ffff:{} (RoCE v2, interface {})", setting("RDMA_TEST_ADDRESS"), setting("RDMA_TEST_NETDEV"));
    let line = report.lines().find(|line| line.trim().starts_with("GID[1]:")).unwrap();
    assert_eq!(line.trim().split_once(' ').unwrap().1.trim(), gid);
    let (ours, c) = (values(&report), values(&stdout("ibv_devinfo", &arguments)));
    // Flags that C's program has no name for are a number there.
    let is_compared = |name: &&str| !name.starts_with("GID[") && *name != "Unknown flags";
    let names: Vec<_> = c.keys().map(String::as_str).filter(is_compared).collect();
    assert!(names.len() > 70, "{names:?}");
    let missing: Vec<_> = names.iter().filter(|name| !ours.contains_key(**name)).collect();
    assert!(missing.is_empty(), "C prints more: {missing:?}");
    let differs = |name: &&str| !IN_OTHER_WORDS.contains(name) && ours[*name] != c[*name];
    let different: Vec<_> = names.into_iter().filter(differs).map(|name| (name, &ours[name], &c[name])).collect();
    assert_eq!(different, []);
    assert_eq!(ours["state"], "active");
    assert_eq!(ours["node"], node(&device));
}

#[test]
fn json_has_the_ports_with_their_gids_and_the_doctor_finds_the_devices_sound() {
    let report: serde_json::Value = serde_json::from_str(&stdout(OURS, &["--json"])).unwrap();
    let device = setting("RDMA_TEST_DEVICE");
    let devices = report["devices"].as_array().unwrap();
    let own = devices.iter().find(|entry| entry["hca_id"] == device.as_str()).unwrap();
    assert!(devices.iter().any(|entry| entry["hca_id"] == setting("RDMA_TEST_PEER_DEVICE").as_str()), "{report}");
    assert!(own["error"].is_null() && own["max_qp"].as_u64().unwrap() > 0, "{own}");
    assert_eq!(own["ports"].as_array().unwrap().len(), 1);
    let port = &own["ports"][0];
    assert_eq!((&port["port"], &port["state"], &port["link_layer"]), (&1.into(), &"active".into(), &"Ethernet".into()));
    let gid = format!("::ffff:{}", setting("RDMA_TEST_ADDRESS"));
    let entry = port["gids"].as_array().unwrap().iter().find(|entry| entry["gid"] == gid.as_str()).unwrap();
    assert_eq!((&entry["gid_index"], &entry["gid_type"]), (&1.into(), &"RoCE v2".into()));
    assert_eq!(entry["interface"], setting("RDMA_TEST_NETDEV").as_str());

    let findings = report["doctor"].as_array().unwrap();
    let of = |check: &str| -> Vec<_> { findings.iter().filter(|finding| finding["check"] == check).collect() };
    for check in ["device", "provider", "device nodes", "port", "GID", "MTU", "locked memory"] {
        assert!(!of(check).is_empty(), "{check}\n{report}");
    }
    let taken = format!("{device}, port 1: programs take GID index 1: {gid} (RoCE v2)");
    assert!(of("GID").iter().any(|finding| finding["finding"] == taken.as_str()), "{report}");
    assert!(
        of("MTU")
            .iter()
            .any(|finding| finding["finding"] == format!("{device}, port 1: active 4096, at most 4096").as_str())
    );
}

#[test]
fn names_are_listed_and_a_device_or_port_that_is_not_there_is_a_problem() {
    let device = setting("RDMA_TEST_DEVICE");
    assert!(stdout(OURS, &["-l"]).lines().any(|line| line == device));
    let wrong = run(OURS, &["-d", "mlx5_7"]);
    let text = String::from_utf8_lossy(&wrong.stdout).into_owned();
    assert!(text.contains("PROBLEM  device: no device is named mlx5_7") && text.contains(&device), "{text}");
    assert_eq!(wrong.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&wrong.stderr), "error: the doctor found 1 problem; its remedy is above\n");
    let port = run(OURS, &["-d", &device, "-i", "9"]);
    let text = String::from_utf8_lossy(&port.stdout).into_owned();
    assert!(text.contains(&format!("the ports of {device} are 1 to 1")) && text.contains("--ib-port"), "{text}");
    assert_eq!(port.status.code(), Some(1));
}
