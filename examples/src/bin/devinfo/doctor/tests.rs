//! What the doctor says of machines, sound and sick.

use verbs::Mtu;

use super::*;

fn sound() -> Machine {
    Machine {
        no_device: None,
        unopened: Vec::new(),
        silent: Vec::new(),
        without_provider: Vec::new(),
        has_nodes: true,
        connection_manager: Ok(()),
        locked_memory: None,
    }
}

fn port() -> PortFacts {
    PortFacts {
        name: "rxe0, port 1".into(),
        state: PortState::ACTIVE,
        ethernet: true,
        interface: Some("eth0".into()),
        gid: Some(("GID index 1: ::ffff:192.0.2.1 (RoCE v2)".into(), false)),
        active_mtu: Mtu::MTU_4096,
        max_mtu: Mtu::MTU_4096,
    }
}

/// What is not as it should be: the check, the level, and its remedy.
fn complaints(machine: Machine, port: PortFacts) -> Vec<(&'static str, Level, String)> {
    let findings = examine(&machine, &[port]).into_iter().filter(|finding| finding.level != Level::Ok);
    findings.map(|finding| (finding.check, finding.level, finding.remedy.unwrap())).collect()
}

/// The only complaint, of which the remedy has to name something.
fn complaint(machine: Machine, port: PortFacts, remedy: &str) -> (&'static str, Level) {
    let all = complaints(machine, port);
    assert!(all.len() == 1 && all[0].2.contains(remedy), "{all:?}");
    (all[0].0, all[0].1)
}

#[test]
fn a_sound_machine_is_sound() {
    assert_eq!(complaints(sound(), port()), []);
    let checks: Vec<_> = examine(&sound(), &[port()]).into_iter().map(|finding| finding.check).collect();
    let all = [
        "device",
        "provider",
        "device nodes",
        "attributes",
        "port",
        "GID",
        "MTU",
        "connection manager",
        "locked memory",
    ];
    assert_eq!(checks, all);
}

#[test]
fn a_machine_without_rdma_is_told_how_to_get_a_device() {
    let machine = Machine { no_device: Some(NoDevice::AtAll), has_nodes: false, ..sound() };
    let findings = examine(&machine, &[]);
    let problems: Vec<_> = findings.iter().filter(|finding| finding.level == Level::Problem).collect();
    assert_eq!(problems.iter().map(|finding| finding.check).collect::<Vec<_>>(), ["device", "device nodes"]);
    assert!(problems[0].remedy.as_ref().unwrap().contains("rdma link add rxe0 type rxe netdev NETDEV"));
    assert!(problems[1].remedy.as_ref().unwrap().contains("modprobe ib_uverbs"));
}

#[test]
fn a_device_that_is_not_there_and_devices_without_a_provider_are_told_apart() {
    let device = |no_device| {
        let findings = examine(&Machine { no_device: Some(no_device), ..sound() }, &[]);
        assert_eq!((findings[0].check, findings[0].level), ("device", Level::Problem));
        (findings[0].finding.clone(), findings[0].remedy.clone().unwrap())
    };
    let (finding, remedy) =
        device(NoDevice::OfThatName { wanted: "mlx5_0".into(), available: vec!["rxe0".into(), "rxe1".into()] });
    assert_eq!((finding.as_str(), remedy.as_str()), ("no device is named mlx5_0", "choose one of rxe0, rxe1"));
    assert_eq!(device(NoDevice::WithoutProvider).1, INSTALL);
}

#[test]
fn each_fault_has_its_remedy() {
    use Level::{Hint, Problem};
    let machine = Machine { without_provider: vec!["mlx5_0".into()], ..sound() };
    assert_eq!(complaint(machine, port(), "ibverbs-providers"), ("provider", Problem));
    let machine = Machine { unopened: vec!["ibv_open_device: Permission denied".into()], ..sound() };
    assert_eq!(complaint(machine, port(), "chmod 0666"), ("device nodes", Problem));
    let machine = Machine { connection_manager: Err("No such file".into()), ..sound() };
    assert_eq!(complaint(machine, port(), "modprobe rdma_ucm"), ("connection manager", Hint));
    let machine = Machine { locked_memory: Some(8 << 20), ..sound() };
    assert_eq!(complaint(machine, port(), "ulimit -l unlimited"), ("locked memory", Hint));
    let enough = Machine { locked_memory: Some(ENOUGH_LOCKED_MEMORY), ..sound() };
    assert_eq!(complaints(enough, port()), []);

    let findings = examine(&sound(), &[]);
    let port_finding = findings.iter().find(|finding| finding.check == "port").unwrap();
    assert!(port_finding.level == Problem && port_finding.remedy.as_ref().unwrap().contains("--ib-port"));
    let down = PortFacts { state: PortState::DOWN, ..port() };
    assert_eq!(complaint(sound(), down.clone(), "ip link set eth0 up"), ("port", Problem));
    let infiniband = PortFacts { ethernet: false, interface: None, ..down };
    assert_eq!(complaint(sound(), infiniband.clone(), "cable"), ("port", Problem));
    let unmanaged = PortFacts { state: PortState::INIT, ..infiniband };
    assert_eq!(complaint(sound(), unmanaged, "start opensm"), ("port", Problem));

    let no_gid = PortFacts { gid: None, ..port() };
    assert_eq!(complaint(sound(), no_gid.clone(), "ip addr add ADDRESS/PREFIX dev eth0"), ("GID", Problem));
    assert_eq!(complaints(sound(), PortFacts { ethernet: false, ..no_gid }), []);
    let link_local = PortFacts { gid: Some(("GID index 0: fe80::1 (RoCE v2)".into(), true)), ..port() };
    assert_eq!(complaint(sound(), link_local, "ip addr add"), ("GID", Hint));
    let short = PortFacts { active_mtu: Mtu::MTU_1024, ..port() };
    assert_eq!(complaint(sound(), short, "ip link set eth0 mtu 4224"), ("MTU", Hint));
}

#[test]
fn devices_that_cannot_be_listed_or_that_are_silent_are_problems_of_their_own() {
    let out_of_descriptors =
        verbs::Error::Verb { verb: "ibv_get_device_list", arguments: String::new(), errno: 24, remedy: String::new() };
    let machine = Machine { no_device: Some(out_of_descriptors.into()), ..sound() };
    let finding = examine(&machine, &[]).into_iter().find(|finding| finding.check == "device").unwrap();
    assert_eq!(finding.level, Level::Problem);
    assert!(finding.finding.starts_with("the devices cannot be listed: ibv_get_device_list("), "{finding:?}");
    let nodes = verbs::Error::NoDevice {
        wanted: None,
        available: Box::default(),
        kernel_devices: ["rxe0".to_owned()].into(),
        missing_nodes: ["/dev/infiniband/uverbs0".into()].into(),
    };
    let machine = Machine { no_device: Some(nodes.into()), ..sound() };
    let finding = examine(&machine, &[]).into_iter().find(|finding| finding.check == "device").unwrap();
    assert_eq!(finding.finding, "the kernel has devices, but /dev/infiniband/uverbs0 is not there");
    let machine = Machine { silent: vec!["ibv_query_port(3): errno 22".into()], ..sound() };
    assert_eq!(complaint(machine, port(), "dmesg"), ("attributes", Level::Problem));
}
