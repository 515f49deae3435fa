//! Raw packets, flows, counters and actions of ESP.

use verbs::*;

use crate::null_provider::Kind;
use crate::{Bench, ERRNOS};

fn raw_packet(bench: &Bench) -> RawPacketQueuePair {
    RawPacketQueuePair::new(&bench.pd, &bench.cq, &bench.cq, QueuePairCapabilities::default()).unwrap()
}

#[test]
fn a_raw_packet_queue_pair_goes_from_reset_to_ready_to_send() {
    let bench = Bench::new();
    let qp = raw_packet(&bench);
    // SAFETY: the queue pair is alive.
    let state = || unsafe { ((*qp.as_raw()).qp_type.0, (*qp.as_raw()).state.0) };
    assert_eq!(state(), (8, 0));
    qp.activate(1).unwrap();
    assert_eq!(state(), (8, 3));
    assert!(format!("{qp:?}").ends_with("on null0)"));
}

#[test]
fn a_rule_is_what_c_reads_of_it() {
    let bench = Bench::new();
    let qp = raw_packet(&bench);
    let ethernet =
        EthernetMatch { destination: Some([1, 2, 3, 4, 5, 6]), ether_type: Some(0x0800), ..Default::default() };
    let ip = Ipv4Match { destination: Some([192, 0, 2, 1].into()), ..Default::default() };
    let udp = PortMatch { destination: Some(4791), source: None };
    let rule = FlowRule::new(2).priority(0x102).ethernet(ethernet).ipv4(ip).udp(udp).tag(0x0a0b_0c0d).discard();
    let flow = qp.create_flow(&rule).unwrap();
    assert_eq!(flow.queue_pair().qp_num(), qp.qp_num());
    let bytes = bench.provider.flow_rule();
    // SAFETY: the rule begins with the structure, which is of integers.
    let attributes: ffi::ibv_flow_attr = unsafe { bytes.as_ptr().cast::<ffi::ibv_flow_attr>().read_unaligned() };
    assert_eq!((attributes.num_of_specs, attributes.port, attributes.priority), (5, 2, 0x102));
    assert_eq!(usize::from(attributes.size), bytes.len());
    let mut structures = Vec::new();
    let mut rest = &bytes[20..];
    while !rest.is_empty() {
        let size = usize::from(u16::from_ne_bytes([rest[4], rest[5]]));
        structures.push(rest[..size].to_vec());
        rest = &rest[size..];
    }
    let types = structures.iter().map(|bytes| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
    assert_eq!(types.collect::<Vec<_>>(), [0x20, 0x30, 0x41, 0x1000, 0x1001]);
    // Each value is followed by its mask, both in network byte order.
    let [ethernet, ip, udp, tag, _] = &structures[..] else { panic!("{structures:?}") };
    assert_eq!(ethernet[6..22], [1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0]);
    assert_eq!(ethernet[22..38], [255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 255, 255, 0, 0]);
    assert_eq!(ip[8..24], [0, 0, 0, 0, 192, 0, 2, 1, 0, 0, 0, 0, 255, 255, 255, 255]);
    assert_eq!(udp[6..14], [0x12, 0xb7, 0, 0, 255, 255, 0, 0]);
    assert_eq!(tag[8..12], 0x0a0b_0c0d_u32.to_ne_bytes());
}

#[test]
fn ipv6_and_tcp_are_told_too_and_the_other_kinds_of_rules() {
    let bench = Bench::new();
    let qp = raw_packet(&bench);
    let ip = Ipv6Match { source: Some("2001:db8::7".parse().unwrap()), destination: None };
    let tcp = PortMatch { source: Some(80), destination: None };
    let _flow = qp.create_flow(&FlowRule::new(1).ipv6(ip).tcp(tcp)).unwrap();
    let bytes = bench.provider.flow_rule();
    assert_eq!(bytes.len(), 20 + 88 + 16);
    assert_eq!(bytes[28..44], "2001:db8::7".parse::<std::net::Ipv6Addr>().unwrap().octets());
    assert_eq!((bytes[68], bytes[83], bytes[84]), (255, 255, 0));
    assert_eq!(bytes[108..112], 0x40_u32.to_ne_bytes());
    assert_eq!(bytes[114..122], [0, 0, 0, 80, 0, 0, 255, 255]);
    for (rule, kind) in
        [(FlowRule::all_others(1), 1_u32), (FlowRule::all_other_multicast(1), 2), (FlowRule::sniffer(1), 3)]
    {
        let _flow = qp.create_flow(&rule).unwrap();
        let bytes = bench.provider.flow_rule();
        assert_eq!((bytes.len(), &bytes[4..8]), (20, &kind.to_ne_bytes()[..]));
    }
}

#[test]
fn a_flow_holds_its_queue_pair_its_counters_and_its_action() {
    let bench = Bench::new();
    let live = |kind| bench.provider.live(kind);
    let qp = raw_packet(&bench);
    let counters = bench.context.create_counters().unwrap();
    let action = bench.context.create_esp_action(&EspAttributes::new(0x77, &[3; 16])).unwrap();
    let rule = FlowRule::new(1).ethernet(EthernetMatch::default()).count(&counters).esp(&action);
    // The rule outlives its handles, and a flow its rule.
    drop((counters, action));
    let flow = qp.create_flow(&rule).unwrap();
    drop((qp, rule));
    assert_eq!((live(Kind::QueuePair), live(Kind::Counters), live(Kind::FlowAction), live(Kind::Flow)), (2, 1, 1, 1));
    drop(flow);
    assert_eq!((live(Kind::QueuePair), live(Kind::Counters), live(Kind::FlowAction), live(Kind::Flow)), (1, 0, 0, 0));
}

#[test]
fn counters_are_attached_and_read() {
    let bench = Bench::new();
    let counters = bench.context.create_counters().unwrap();
    let mut values = [0; 2];
    assert_eq!(counters.read(&mut values).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    counters.attach(CounterDescription::BYTES, 0).unwrap();
    counters.attach(CounterDescription::PACKETS, 1).unwrap();
    counters.read(&mut values).unwrap();
    assert_eq!(values, [2000, 1000]);
    counters.read_cached(&mut values).unwrap();
    assert_eq!(values, [2001, 1001]);
    counters.read(&mut values[..1]).unwrap();
    assert_eq!(values, [2000, 1001]);
}

#[test]
fn counters_are_attached_to_a_flow_that_there_is_already() {
    let bench = Bench::new();
    let counters = bench.context.create_counters().unwrap();
    let mut flow = raw_packet(&bench).create_flow(&FlowRule::new(1)).unwrap();
    bench.provider.fail("ibv_attach_counters_point_flow", libc::EOPNOTSUPP);
    let error = flow.attach_counters(&counters, CounterDescription::BYTES, 0).unwrap_err();
    assert!(matches!(error, Error::Unsupported { verb: "ibv_attach_counters_point_flow", .. }), "{error}");
    let foreign = bench.provider.open().create_counters().unwrap();
    let error = flow.attach_counters(&foreign, CounterDescription::BYTES, 0).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "counters", .. }), "{error}");
    flow.attach_counters(&counters, CounterDescription::BYTES, 0).unwrap();
    let mut values = [0];
    counters.read(&mut values).unwrap();
    assert_eq!(values, [2000]);
    // The flow holds them.
    drop((counters, foreign));
    assert_eq!(bench.provider.live(Kind::Counters), 1);
    drop(flow);
    assert_eq!(bench.provider.live(Kind::Counters), 0);
    bench.provider.assert_no_violation();
}

#[test]
fn an_action_of_esp_gets_its_key_and_can_be_changed() {
    let bench = Bench::new();
    let mut attributes = EspAttributes::new(0x77, &[3; 16]);
    attributes.flags = EspFlags::ENCRYPT | EspFlags::TUNNEL;
    let action = bench.context.create_esp_action(&attributes).unwrap();
    attributes.key = (0..32).collect();
    attributes.extended_sequence = Some(1);
    attributes.replay_window = Some(64);
    action.modify(&attributes).unwrap();
    assert_eq!(bench.provider.esp(), [(0x77, vec![3; 16]), (0x77, (0..32).collect())]);
    for length in [0, 15, 17, 33] {
        attributes.key = vec![0; length];
        let error = bench.context.create_esp_action(&attributes).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "key_len", .. }), "{error:?}");
        assert!(matches!(action.modify(&attributes), Err(Error::InvalidArgument { .. })));
    }
}

#[test]
fn a_key_is_not_printed() {
    let attributes = EspAttributes::new(0x77, &[0xab; 16]);
    let text = format!("{attributes:?}");
    assert!(text.contains("key_length: 16") && !text.contains("171") && !text.contains("ab,"), "{text}");
}

#[test]
fn what_fails_is_told_and_leaves_nothing_behind() {
    let bench = Bench::new();
    let qp = raw_packet(&bench);
    let counters = bench.context.create_counters().unwrap();
    let esp = EspAttributes::new(1, &[0; 16]);
    let action = bench.context.create_esp_action(&esp).unwrap();
    for errno in ERRNOS.into_iter().chain([libc::EPERM]) {
        let fails = |verb: &'static str, make: &dyn Fn() -> Result<()>| {
            bench.provider.fail(verb, errno);
            let error = make().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(errno), "{verb}");
            assert_eq!(matches!(error, Error::Unsupported { .. }), errno == libc::EOPNOTSUPP, "{verb}");
            assert!(error.to_string().starts_with(verb), "{error}");
            error.to_string()
        };
        let capabilities = QueuePairCapabilities::default();
        let new = || RawPacketQueuePair::new(&bench.pd, &bench.cq, &bench.cq, capabilities);
        let text = fails("ibv_create_qp", &|| new().map(drop));
        assert_eq!(text.ends_with("CAP_NET_RAW"), errno == libc::EPERM, "{text}");
        let text = fails("ibv_create_flow", &|| qp.create_flow(&FlowRule::sniffer(1)).map(drop));
        assert_eq!(text.ends_with("CAP_NET_RAW"), errno == libc::EPERM, "{text}");
        fails("ibv_modify_qp", &|| qp.activate(1));
        fails("ibv_create_counters", &|| bench.context.create_counters().map(drop));
        fails("ibv_attach_counters_point_flow", &|| counters.attach(CounterDescription::BYTES, 0));
        fails("ibv_read_counters", &|| counters.read(&mut []));
        fails("ibv_create_flow_action_esp", &|| bench.context.create_esp_action(&esp).map(drop));
        fails("ibv_modify_flow_action_esp", &|| action.modify(&esp));
    }
}

#[test]
fn objects_of_another_context_are_refused() {
    let bench = Bench::new();
    let qp = raw_packet(&bench);
    let other = bench.provider.open();
    let counters = other.create_counters().unwrap();
    let action = other.create_esp_action(&EspAttributes::new(1, &[0; 16])).unwrap();
    let argument = |rule: FlowRule| match qp.create_flow(&rule) {
        Err(Error::InvalidArgument { argument, .. }) => argument,
        other => panic!("{other:?}"),
    };
    assert_eq!(argument(FlowRule::new(1).count(&counters)), "counters");
    assert_eq!(argument(FlowRule::new(1).esp(&action)), "action");
}
