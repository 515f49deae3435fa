//! What a person reads of a device, a port and a queue pair.

use verbs::*;

use crate::Bench;

#[test]
fn what_a_device_can_do_with_raw_packets_and_tags_is_told() {
    let bench = Bench::new();
    let attributes = bench.context.extended_device_attributes().unwrap();
    let tso = attributes.segmentation_offload();
    assert_eq!((tso.max_size, tso.queue_pair_types), (1 << 18, QueuePairTypes::RAW_PACKET));
    let rss = attributes.receive_side_scaling();
    assert_eq!((rss.max_indirection_tables, rss.max_indirection_table_size), (1 << 20, 512));
    assert_eq!((rss.queue_pair_types, rss.functions), (QueuePairTypes::RAW_PACKET, ReceiveHashFunctions::TOEPLITZ));
    assert!(rss.fields.contains(ReceiveHashFields::SOURCE_IPV4 | ReceiveHashFields::DESTINATION_IPV4));
    // A bit that has no name is kept.
    assert_eq!(rss.fields.bits() >> 40, 1);
    let raw = RawPacketCapabilities::SCATTER_FCS | RawPacketCapabilities::IP_CHECKSUM;
    assert_eq!(attributes.raw_packet_capabilities(), raw);
    let tags = attributes.tag_matching();
    assert_eq!((tags.max_tags, tags.max_operations, tags.max_sge), (127, 16384, 1));
    assert_eq!((tags.capabilities, tags.max_rendezvous_header), (TagMatchingCapabilities::RC, 64));
    let debug = format!("{attributes:?}");
    assert!(debug.contains("max_receive_work_queues: 8388608") && debug.contains("max_tags: 127"), "{debug}");
}

#[test]
fn a_devices_facts_are_printed() {
    let bench = Bench::new();
    let context = &bench.context;
    assert_eq!(context.device().to_string(), "null0");
    assert_eq!(context.device().node_type().to_string(), "channel adapter");
    assert_eq!(context.device().transport_type().to_string(), "InfiniBand");
    let attributes = context.extended_device_attributes().unwrap();
    let text = "node 0000:0000:0000:0000, vendor 0x000000 part 0, 1 port";
    assert_eq!((attributes.device().to_string(), attributes.to_string()), (text.to_owned(), text.to_owned()));
    let types = attributes.packet_pacing().queue_pair_types;
    assert!(types.supports::<Rc>() && !types.supports::<Uc>() && !types.supports::<Ud>());
    assert_eq!(attributes.on_demand_paging().to_string(), "RC: SEND | RECEIVE, UC: none, UD: SEND, XRC: none");
    assert_eq!(attributes.completion_moderation().to_string(), "up to 1000 completions, 1000 us");
    assert_eq!(attributes.packet_pacing().to_string(), "1 to 100000000 kbit/s on RC");
    assert_eq!(attributes.pci_atomics().to_string(), "fetch and add 0x2, swap 0x4, compare and swap 0x7");
    assert_eq!(attributes.segmentation_offload().to_string(), "up to 262144 bytes on RAW_PACKET");
    let rss = attributes.receive_side_scaling().to_string();
    assert!(rss.starts_with("RAW_PACKET, 1048576 tables of up to 512 queues, by TOEPLITZ of SOURCE_IPV4 | "), "{rss}");
    let tags = "RC, up to 127 tags, 16384 operations, 1 scatter/gather entries, a header of 64 bytes";
    assert_eq!(attributes.tag_matching().to_string(), tags);
    assert_eq!(OnDemandPaging::default().to_string(), "none");
    assert_eq!(ModerationLimits::default().to_string(), "none");
    assert_eq!(PacketPacing::default().to_string(), "none");
}

#[test]
fn a_ports_facts_are_printed() {
    let bench = Bench::new();
    let context = &bench.context;
    let port = context.port(1).unwrap();
    assert_eq!(port.link_rate(), LinkRate::new(LinkWidth::X4, LinkSpeed::EDR));
    assert_eq!(port.link_rate().to_string(), "100 Gb/s (4X EDR)");
    assert_eq!(port.to_string(), "active, Ethernet, MTU 1024, 100 Gb/s (4X EDR)");
    assert_eq!(port.capabilities().to_string(), "CONNECTION_MANAGEMENT | IP_BASED_GIDS");
    assert_eq!(context.pkey(1, 1).unwrap().to_string(), "0x8012");
    assert_eq!(context.gid_table(1).unwrap()[1].to_string(), "1: ::ffff:192.0.2.9 (RoCE v2)");
}

#[test]
fn a_queue_pairs_facts_are_printed() {
    let bench = Bench::new();
    let caps = "max_send_wr 64, max_recv_wr 64, max_send_sge 1, max_recv_sge 1, max_inline_data 0";
    assert_eq!(bench.qp.capabilities().to_string(), caps);
    let local = bench.qp.local_endpoint(1, &GidFilter::default()).unwrap();
    assert_eq!(local.to_string(), format!("{}, port 1, GID 1: ::ffff:192.0.2.9 (RoCE v2)", local.endpoint));
    let srq = bench.pd.create_shared_receive_queue(9).unwrap();
    assert_eq!(srq.attributes().unwrap().to_string(), "max_wr 9, max_sge 1, limit 0");
    assert_eq!(EnhancedConnection::new(0x2c9, 1).to_string(), "vendor 0x2c9, options 0x1");
}

#[test]
fn a_gid_is_chosen_by_the_hosts_address_or_by_the_peers_or_by_neither() {
    let bench = Bench::new();
    let context = &bench.context;
    let index = |filter: GidFilter| context.choose_gid(1, &filter).map(|entry| entry.index);
    assert_eq!(index(GidFilter::default()).unwrap(), 1);
    assert_eq!(index(GidFilter::for_local("192.0.2.9".parse().unwrap())).unwrap(), 1);
    assert_eq!(index(GidFilter::for_local("fe80::1".parse().unwrap())).unwrap(), 0);
    // A link-local peer is reached from a link-local address.
    assert_eq!(index(GidFilter::for_peer("fe80::77".parse().unwrap())).unwrap(), 0);
    // The route to this host's own address starts there, and the device has no such GID.
    let error = index(GidFilter::for_peer("127.0.0.1".parse().unwrap())).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "the GID to choose", .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("is a route to 127.0.0.1, but that route starts at 127.0.0.1, and port 1 of null0 has"),
        "{text}"
    );
}

#[test]
fn a_completion_is_printed_with_what_means_something() {
    let bench = Bench::new();
    let printed = |status, opcode| {
        bench.provider.complete_with(status, opcode);
        bench.qp.post_receive(&ReceiveRequest::new(7, &[])).unwrap();
        let mut room = [WorkCompletion::default(); 1];
        let completion = bench.cq.poll(&mut room).unwrap()[0];
        assert_eq!((completion.as_raw().wr_id, completion.as_raw().status.0), (7, status));
        completion.to_string()
    };
    let opcode = WorkCompletionOpcode::RECEIVE;
    assert_eq!(printed(0, opcode.as_raw()), format!("request 7: {opcode}, {}", WorkCompletionStatus::SUCCESS));
    let status = WorkCompletionStatus::REMOTE_ACCESS_ERROR;
    assert_eq!(printed(status.as_raw(), 77), format!("request 7: {status} (vendor error 0x0)"));
}

#[test]
fn slices_and_the_extended_interface_show_what_c_has_of_them() {
    let bench = Bench::build(|builder| builder.require_extended());
    let slice = bench.region.slice(8..24).unwrap();
    let raw = slice.as_raw();
    assert_eq!((raw.length, raw.lkey), (16, slice.lkey()));
    assert_eq!(raw.addr, bench.region.slice(..).unwrap().as_raw().addr + 8);
    // An `ibv_qp_ex` begins with its `ibv_qp`.
    assert_eq!(bench.qp.extended().unwrap().as_raw().cast(), bench.qp.as_raw());
}
