use std::time::Duration;

use verbs::*;

use crate::null_provider::Fault;
use crate::{Bench, ERRNOS};

#[test]
fn what_was_added_to_the_devices_attributes_is_told() {
    let bench = Bench::new();
    let attributes = bench.context.extended_device_attributes().unwrap();
    assert_eq!(attributes.device().max_cqe(), bench.context.device_attributes().unwrap().max_cqe());
    let capabilities = attributes.capabilities();
    assert!(
        capabilities.contains(DeviceCapabilities::RAW_SCATTER_FCS | DeviceCapabilities::RESIZE_SHARED_RECEIVE_QUEUE)
    );
    // A bit that has no name is kept.
    assert_eq!(capabilities.bits() >> 50, 1);
    assert_eq!(attributes.device().capabilities(), DeviceCapabilities::RESIZE_SHARED_RECEIVE_QUEUE);
    assert_eq!(attributes.device().atomic_capability(), AtomicCapability::DEVICE);
    assert_eq!(attributes.device().local_ack_delay(), Some(Duration::from_nanos(4096 << 15)));
    assert_eq!(attributes.port_count(), 300);
    let paging = attributes.on_demand_paging();
    assert!(paging.supported && !paging.implicit);
    assert_eq!(paging.rc, OnDemandOperations::SEND | OnDemandOperations::RECEIVE);
    assert_eq!((paging.ud, paging.uc), (OnDemandOperations::SEND, OnDemandOperations::empty()));
    assert_eq!((attributes.completion_timestamp_mask(), attributes.core_clock_khz()), (u64::MAX, 156_250));
    let limits = attributes.completion_moderation();
    assert_eq!((limits.max_count, limits.max_period_us), (1000, 1000));
    let pacing = attributes.packet_pacing();
    assert_eq!(
        (pacing.min_rate_kbps, pacing.max_rate_kbps, pacing.queue_pair_types),
        (1, 100_000_000, QueuePairTypes::RC)
    );
    let atomics = attributes.pci_atomics();
    assert_eq!((atomics.fetch_add, atomics.swap, atomics.compare_swap), (2, 4, 7));
    assert_eq!((attributes.max_device_memory(), attributes.max_receive_work_queues()), (1 << 17, 1 << 23));
}

#[test]
fn a_provider_without_the_extended_question_is_asked_the_old_one() {
    let bench = Bench::new();
    bench.provider.fail("ibv_query_device_ex", libc::EOPNOTSUPP);
    let attributes = bench.context.extended_device_attributes().unwrap();
    assert_eq!(attributes.device().max_sge(), 32);
    assert_eq!(attributes.capabilities(), DeviceCapabilities::RESIZE_SHARED_RECEIVE_QUEUE);
    assert_eq!((attributes.port_count(), attributes.completion_timestamp_mask()), (1, 0));
    assert_eq!(attributes.on_demand_paging(), OnDemandPaging::default());
}

#[test]
fn the_raw_clock_is_told_in_ticks_or_not_at_all() {
    let bench = Bench::new();
    assert_eq!(bench.context.raw_clock().unwrap(), 123_456_789_012);
    bench.provider.fault("ibv_query_rt_values_ex", Fault { errno: 0, returns: Some(0) });
    let error = bench.context.raw_clock().unwrap_err();
    assert!(matches!(error, Error::Unsupported { verb: "ibv_query_rt_values_ex", .. }), "{error:?}");
}

#[test]
fn the_pkey_table_is_read_both_ways() {
    let bench = Bench::new();
    let context = &bench.context;
    let table: Vec<u16> = (0..3).map(|index| context.pkey(1, index).unwrap().get()).collect();
    assert_eq!(table, [0xffff, 0x8012, 0x0013]);
    let find = |key| context.pkey_index(1, PartitionKey::new(key)).unwrap();
    assert_eq!([find(0xffff), find(0x8012), find(0x0013)], [Some(0), Some(1), Some(2)]);
    // Another membership is another key, and the bytes are not swapped.
    assert_eq!([find(0x0012), find(0x1280), find(0)], [None; 3]);
    for index in [3, u16::MAX] {
        let error = context.pkey(1, index).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
        assert!(error.to_string().ends_with("the table of port 1 has 3 P_Keys, from 0"), "{error}");
    }
    for port in [0, 2] {
        assert!(context.pkey(port, 0).unwrap_err().to_string().contains("the ports of null0 are 1 to 1"));
        let error = context.pkey_index(port, PartitionKey::DEFAULT).unwrap_err();
        assert!(error.to_string().contains("the ports of null0 are 1 to 1"), "{error}");
    }
}

#[test]
fn the_options_of_an_enhanced_connection_are_asked_for_and_set() {
    let bench = Bench::new();
    let ece = bench.qp.enhanced_connection().unwrap();
    assert_eq!((ece.vendor_id, ece.options, ece.comp_mask), (0x2c9, 0xff, 0));
    bench.qp.set_enhanced_connection(&EnhancedConnection::new(ece.vendor_id, 1)).unwrap();
    let error = bench.qp.set_enhanced_connection(&EnhancedConnection::new(7, 1)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    assert!(error.to_string().contains("vendor_id 0x7, options 0x1"), "{error}");
    let error = bench.qp.set_enhanced_connection(&EnhancedConnection::default()).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "vendor_id", .. }), "{error:?}");
}

#[test]
fn the_link_of_a_port_is_told() {
    let bench = Bench::new();
    let port = bench.context.port(1).unwrap();
    assert_eq!((port.active_width(), port.active_speed()), (LinkWidth::X4, LinkSpeed::EDR));
    assert_eq!((port.link_rate_mbps(), port.physical_state()), (Some(100_000), PhysicalState::LINK_UP));
    assert_eq!(bench.context.completion_vectors(), 1);
    assert_eq!(port.capabilities(), PortCapabilities::CONNECTION_MANAGEMENT | PortCapabilities::IP_BASED_GIDS);
    assert_eq!((port.bad_pkey_counter(), port.bad_qkey_counter()), (3, 4));
    assert_eq!((port.max_virtual_lanes_code(), port.subnet_timeout_code()), (1, 18));
    assert_eq!(port.subnet_manager_service_level(), 2);
}

#[test]
fn a_rate_limit_is_told_to_the_device() {
    let bench = Bench::new();
    let mut limit = RateLimit::new(1000);
    bench.qp.set_rate_limit(&limit).unwrap();
    (limit.max_burst_bytes, limit.typical_packet_bytes) = (8192, 1024);
    let raw = RawPacketQueuePair::new(&bench.pd, &bench.cq, &bench.cq, QueuePairCapabilities::default()).unwrap();
    raw.set_rate_limit(&limit).unwrap();
    assert_eq!(bench.provider.rate_limits(), [(1000, 0, 0), (1000, 8192, 1024)]);
    assert_eq!(limit.to_string(), "1000 kbit/s, bursts of 8192 bytes, packets of 1024 bytes");
    assert_eq!(RateLimit::default().to_string(), "no limit");
    for errno in ERRNOS {
        bench.provider.fail("ibv_modify_qp_rate_limit", errno);
        let error = bench.qp.set_rate_limit(&limit).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno));
        assert!(error.to_string().contains("1000 kbit/s"), "{error}");
    }
}

#[test]
fn the_order_of_data_is_what_the_device_promises() {
    let bench = Bench::new();
    let order = |operation| bench.qp.data_order(operation);
    let whole = order(OrderedOperation::RdmaWrite);
    assert!(whole.contains(DataOrder::WHOLE_MESSAGE));
    let blocks = if cfg!(rdma_core_46) { DataOrder::ALIGNED_128_BYTES } else { DataOrder::empty() };
    assert_eq!(whole - DataOrder::WHOLE_MESSAGE, blocks);
    assert_eq!(order(OrderedOperation::Send), blocks);
    assert_eq!(order(OrderedOperation::RdmaRead), DataOrder::empty());
    // A failure promises nothing.
    bench.provider.fail("ibv_query_qp_data_in_order", libc::EOPNOTSUPP);
    bench.provider.fail("ibv_query_qp_data_in_order", libc::EOPNOTSUPP);
    assert_eq!(order(OrderedOperation::Send), DataOrder::empty());
}
