use std::net::IpAddr;
use std::os::unix::fs::FileTypeExt;
use std::process::Command;
use std::thread;

use verbs::*;

use crate::harness::*;

#[test]
fn the_list_has_the_device_and_each_device_outlives_it() {
    let list = devices().unwrap();
    let device = list.find(Some(&device_name())).unwrap();
    assert!(!list.is_empty() && list.get(list.len()).is_none());
    drop(list);
    assert_eq!(device.name(), device_name());
    assert_eq!(device.node_type(), NodeType::CHANNEL_ADAPTER);
    assert_eq!(device.transport_type(), TransportType::INFINIBAND);
    assert!(std::fs::metadata(device.node()).unwrap().file_type().is_char_device(), "{:?}", device.node());
    let context = thread::spawn(move || device.open().unwrap()).join().unwrap();
    assert_eq!(context.device().name(), device_name());
}

#[test]
fn guid_and_limits_are_those_that_ibv_devinfo_prints() {
    let context = open();
    let attributes = context.device_attributes().unwrap();
    let output = Command::new("ibv_devinfo").args(["-v", "-d", &device_name()]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let field = |name: &str| {
        let line = text.lines().find(|line| line.trim_start().starts_with(&format!("{name}:"))).unwrap();
        line.split_once(':').unwrap().1.trim().to_owned()
    };
    assert_eq!(field("node_guid"), context.device().guid().to_string());
    assert_eq!(field("node_guid"), attributes.node_guid().to_string());
    assert_eq!(field("sys_image_guid"), attributes.system_image_guid().to_string());
    assert_eq!(field("fw_ver"), attributes.firmware_version());
    assert_eq!(field("max_qp"), attributes.max_queue_pairs().to_string());
    assert_eq!(field("max_qp_wr"), attributes.max_queue_pair_work_requests().to_string());
    assert_eq!(field("max_sge"), attributes.max_sge().to_string());
    assert_eq!(field("max_cqe"), attributes.max_cqe().to_string());
    assert_eq!(field("phys_port_cnt"), attributes.port_count().to_string());
    let port = context.port(1).unwrap();
    assert_eq!(port.state(), PortState::ACTIVE);
    assert_eq!(field("active_mtu"), format!("{} ({})", port.active_mtu(), port.active_mtu().as_raw()));
    assert_eq!(field("link_layer"), port.link_layer().to_string());
    assert_eq!(field("max_msg_sz"), format!("{:#x}", port.max_message_size()));
}

#[test]
fn an_unknown_name_is_an_error_that_lists_the_names() {
    let error = devices().unwrap().find(Some("mlx5_7")).unwrap_err();
    assert!(matches!(&error, Error::NoDevice { available, .. } if available.contains(&device_name())));
    assert!(error.to_string().starts_with("no RDMA device named \"mlx5_7\"; there is "), "{error}");
}

#[test]
fn a_port_that_is_not_there_is_an_error_that_counts_the_ports() {
    let context = open();
    let count = context.device_attributes().unwrap().port_count();
    for port in [0, count + 1] {
        let error = context.port(port).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        assert!(error.to_string().ends_with(&format!("the ports of {} are 1 to {count}", device_name())), "{error}");
        assert_eq!(context.gid_table(port).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(context.gid(port, 0).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}

#[test]
fn the_gid_table_skips_holes_and_the_entries_say_what_they_are() {
    let context = open();
    let table = context.gid_table(1).unwrap();
    let length = context.port(1).unwrap().gid_table_len();
    assert!(!table.is_empty() && table.len() < length as usize);
    for entry in &table {
        assert!(!entry.gid.is_unspecified());
        assert_eq!(context.gid(1, entry.index).unwrap().as_ref(), Some(entry));
    }
    let free = (0..length).rev().find(|index| table.iter().all(|entry| entry.index != *index)).unwrap();
    assert_eq!(context.gid(1, free).unwrap(), None);
    for index in [length, length + 1000, u32::MAX] {
        let error = context.gid(1, index).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        assert!(error.to_string().ends_with(&format!("the table of port 1 has {length} entries, from 0")), "{error}");
    }
}

#[test]
fn the_gid_that_is_chosen_is_the_interfaces_ipv4_address() {
    let address: IpAddr = setting("RDMA_TEST_ADDRESS").parse().unwrap();
    let interface = setting("RDMA_TEST_NETDEV");
    let context = open();
    let chosen = context.choose_gid(1, &GidFilter::default()).unwrap();
    assert_eq!((chosen.gid.to_ip(), chosen.gid_type), (address, GidType::ROCE_V2));
    assert_eq!(chosen.interface_name().as_deref(), Some(interface.as_str()));
    let by = |filter: GidFilter| context.choose_gid(1, &filter);
    assert_eq!(by(GidFilter { address: Some(address), ..Default::default() }).unwrap(), chosen);
    assert_eq!(by(GidFilter { interface: Some(interface), ..Default::default() }).unwrap(), chosen);
    let link_local = context.gid_table(1).unwrap().into_iter().find(|entry| entry.gid.is_link_local()).unwrap();
    let filter = GidFilter { address: Some(link_local.gid.to_ip()), ..Default::default() };
    assert_eq!(by(filter).unwrap(), link_local);
    let error = by(GidFilter { address: Some([192, 0, 2, 99].into()), ..Default::default() }).unwrap_err().to_string();
    assert!(error.contains("is the address 192.0.2.99, but port 1 of"), "{error}");
    assert!(error.contains(&chosen.gid.to_string()), "{error}");
}

/// Set for the child of the test below.
const NO_PROVIDER: &str = "RDMA_TEST_NO_PROVIDER";

#[test]
fn a_device_without_its_provider_library_is_named_with_the_package_to_install() {
    if std::env::var_os(NO_PROVIDER).is_some() {
        println!("error: {}", devices().unwrap().find(None).unwrap_err());
        return;
    }
    // In a mount namespace of its own, libibverbs finds no provider's configuration.
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", "mount -t tmpfs none /etc/libibverbs.d && exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("device::a_device_without_its_provider_library_is_named_with_the_package_to_install")
        .env(NO_PROVIDER, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let error = text.lines().find_map(|line| line.split_once("error: ")).map(|(_, error)| error).unwrap_or(&text);
    assert!(error.starts_with("no RDMA device: the kernel has ") && error.contains(&device_name()), "{error}");
    assert!(error.contains("install ibverbs-providers"), "{error}");
}

#[test]
fn a_device_has_the_kernels_index() {
    let list = devices().unwrap();
    let device = list.find(Some(&device_name())).unwrap();
    // A line as `0: rxe0: node_type ca …`.
    let output = std::process::Command::new("rdma").args(["dev", "show", &device_name()]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let index = text.split(':').next().unwrap().trim().parse().unwrap();
    assert_eq!(device.index(), Some(index));
}
