use std::process::Command;

use verbs::*;

use crate::harness::*;

/// What `ibv_devinfo -v` prints.
fn devinfo() -> impl Fn(&str) -> String {
    let output = Command::new("ibv_devinfo").args(["-v", "-d", &device_name()]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    move |name| {
        let line = text.lines().find(|line| line.trim_start().starts_with(&format!("{name}:"))).unwrap();
        line.split_once(':').unwrap().1.trim().to_owned()
    }
}

#[test]
fn the_devices_attributes_are_those_that_ibv_devinfo_prints() {
    let field = devinfo();
    let context = open();
    let attributes = context.device_attributes().unwrap();
    assert_eq!(field("page_size_cap"), format!("{:#x}", attributes.page_sizes()));
    assert_eq!(field("device_cap_flags"), format!("{:#010x}", attributes.capabilities().bits()));
    assert_eq!(field("num_comp_vectors"), context.completion_vectors().to_string());
    assert_eq!(field("hw_ver"), format!("0x{:X}", attributes.hardware_version()));
    assert_eq!(field("max_res_rd_atom"), attributes.max_res_rd_atom().to_string());
    assert_eq!(field("max_mcast_grp"), attributes.max_multicast_groups().to_string());
    assert_eq!(field("max_mcast_qp_attach"), attributes.max_multicast_group_queue_pairs().to_string());
    assert_eq!(field("max_total_mcast_qp_attach"), attributes.max_multicast_queue_pairs().to_string());
    assert_eq!(field("max_srq"), attributes.max_shared_receive_queues().to_string());
    assert_eq!(field("max_srq_wr"), attributes.max_srq_work_requests().to_string());
    assert!(field("atomic_cap").ends_with(&format!("({})", attributes.atomic_capability().as_raw())));
    let delay = attributes.local_ack_delay().unwrap().as_nanos();
    assert_eq!(field("local_ca_ack_delay"), (delay / 4096).ilog2().to_string());
    assert!(attributes.capabilities().contains(DeviceCapabilities::PORT_ACTIVE_EVENT));
}

#[test]
fn the_extended_attributes_are_those_that_ibv_devinfo_prints() {
    let field = devinfo();
    let context = open();
    let attributes = context.extended_device_attributes().unwrap();
    assert_eq!(attributes.device().max_cqe(), context.device_attributes().unwrap().max_cqe());
    assert_eq!(field("device_cap_flags_ex"), format!("0x{:X}", attributes.as_raw().device_cap_flags_ex));
    assert!(attributes.capabilities().contains(attributes.device().capabilities()));
    assert_eq!(attributes.port_count(), u32::from(attributes.device().port_count()));
    let pacing = attributes.packet_pacing();
    assert_eq!(field("qp_rate_limit_max"), format!("{}kbps", pacing.max_rate_kbps));
    assert_eq!(field("max_wq_type_rq"), attributes.as_raw().max_wq_type_rq.to_string());
    // What a device cannot do and what it says it cannot agree.
    let clock = context.raw_clock();
    match attributes.core_clock_khz() {
        0 => assert!(matches!(clock, Err(Error::Unsupported { verb: "ibv_query_rt_values_ex", .. })), "{clock:?}"),
        _ => assert!(clock.unwrap() > 0),
    }
    let cq = context.create_completion_queue(4).unwrap();
    let moderated = cq.moderate(1, std::time::Duration::from_micros(1));
    match attributes.completion_moderation().max_count {
        0 => assert!(matches!(moderated, Err(Error::Unsupported { verb: "ibv_modify_cq", .. })), "{moderated:?}"),
        _ => moderated.unwrap(),
    }
}

#[test]
fn a_ports_link_is_what_ibv_devinfo_prints() {
    let field = devinfo();
    let port = open().port(1).unwrap();
    let code = |name: &str| {
        let text = field(name);
        let (text, code) = text.split_once(" (").unwrap();
        (text.to_owned(), code.trim_end_matches(')').parse::<u32>().unwrap())
    };
    let (width, width_code) = code("active_width");
    assert_eq!(
        (width.to_lowercase(), width_code),
        (port.active_width().to_string(), port.active_width().as_raw().into())
    );
    let (speed, speed_code) = code("active_speed");
    let mbps = speed.strip_suffix(" Gbps").unwrap().parse::<f64>().unwrap() * 1000.0;
    assert_eq!((mbps as u32, speed_code), (port.active_speed().lane_mbps().unwrap(), port.active_speed().as_raw()));
    assert_eq!(port.link_rate_mbps(), Some(port.active_width().lanes().unwrap() * mbps as u32));
    match open().port_speed_mbps(1) {
        Ok(speed) => assert!(speed > 0),
        Err(error) => assert!(matches!(error, Error::Unsupported { verb: "ibv_query_port_speed", .. }), "{error:?}"),
    }
    assert_eq!(code("phys_state"), ("LINK_UP".to_owned(), PhysicalState::LINK_UP.as_raw().into()));
    assert_eq!(port.physical_state(), PhysicalState::LINK_UP);
    assert_eq!(field("port_cap_flags"), format!("{:#010x}", port.capabilities().bits()));
    assert_eq!(code("max_vl_num").1, u32::from(port.max_virtual_lanes_code()));
    assert_eq!(field("bad_pkey_cntr"), format!("{:#x}", port.bad_pkey_counter()));
    assert_eq!(field("qkey_viol_cntr"), format!("{:#x}", port.bad_qkey_counter()));
    assert_eq!(field("sm_sl"), port.subnet_manager_service_level().to_string());
    assert_eq!(field("subnet_timeout"), port.subnet_timeout_code().to_string());
}

#[test]
fn the_pkey_table_is_read_both_ways() {
    let context = open();
    let length = context.port(1).unwrap().pkey_table_len();
    let first = context.pkey(1, 0).unwrap();
    assert_eq!(context.pkey_index(1, first).unwrap(), Some(0));
    // On RoCE there is the default key only.
    if context.port(1).unwrap().link_layer() == LinkLayer::ETHERNET {
        assert_eq!((first, length), (PartitionKey::DEFAULT, 1));
        assert_eq!(context.pkey_index(1, PartitionKey::new(0x8012)).unwrap(), None);
    }
    let error = context.pkey(1, length).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{error}");
    assert!(error.to_string().ends_with(&format!("the table of port 1 has {length} P_Keys, from 0")), "{error}");
    for port in [0, 9] {
        assert_eq!(context.pkey(port, 0).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert_eq!(context.pkey_index(port, first).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}

#[test]
fn a_device_without_enhanced_connections_says_so() {
    let side = Side::new();
    match side.qp.enhanced_connection() {
        Ok(options) => side.qp.set_enhanced_connection(&options).unwrap(),
        Err(error) => {
            assert!(matches!(error, Error::Unsupported { verb: "ibv_query_ece", .. }), "{error:?}");
            let error = side.qp.set_enhanced_connection(&EnhancedConnection::new(1, 1)).unwrap_err();
            assert!(matches!(error, Error::Unsupported { verb: "ibv_set_ece", .. }), "{error:?}");
        }
    }
}
