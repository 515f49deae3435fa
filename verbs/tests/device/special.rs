//! What few devices have: each can be made, or is refused as unsupported.

use verbs::*;

use crate::harness::*;

/// Whether the device has it; if not, it says so by this verb.
fn has<T>(result: Result<T>, wanted: &str) -> bool {
    match result {
        Ok(_) => true,
        Err(Error::Unsupported { verb, errno: libc::EOPNOTSUPP, .. }) if verb == wanted => false,
        Err(error) => panic!("{wanted}: {error:?}"),
    }
}

#[test]
fn a_device_without_extended_reliable_connections_says_so() {
    let side = Side::new();
    let supported = side.context.device_attributes().unwrap().capabilities().contains(DeviceCapabilities::XRC);
    let domain = side.context.create_xrc_domain();
    let sender = XrcSendQueuePair::new(&side.pd, &side.cq, 4, 1);
    if let Ok(domain) = &domain {
        assert!(supported);
        let srq = SharedReceiveQueueBuilder::new(&side.pd, 4).build_xrc(domain, &side.cq).unwrap();
        assert!(srq.number().is_ok());
        let receiver = XrcReceiveQueuePair::new(domain).unwrap();
        assert_ne!(receiver.qp_num(), sender.unwrap().qp_num());
        return;
    }
    assert!(!supported);
    assert!(!has(domain, "ibv_open_xrcd"));
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(!has(side.context.open_xrc_domain(&file), "ibv_open_xrcd"));
    assert!(!has(sender, "ibv_create_qp_ex"));
}

#[test]
fn a_device_without_raw_packets_says_so() {
    let side = Side::new();
    let qp = RawPacketQueuePair::new(&side.pd, &side.cq, &side.cq, QueuePairCapabilities::default());
    if let Ok(qp) = &qp {
        qp.activate(1).unwrap();
        let _ = has(qp.create_flow(&FlowRule::new(1).ethernet(EthernetMatch::default())), "ibv_create_flow");
    }
    let _ = has(qp, "ibv_create_qp");
    let flags = QueuePairCreationFlags::SCATTER_FCS;
    let with_flags =
        RawPacketQueuePair::with_flags(&side.pd, &side.cq, &side.cq, QueuePairCapabilities::default(), flags);
    let _ = has(with_flags, "ibv_create_qp_ex");
}

#[test]
fn a_device_that_pads_nothing_says_so() {
    let side = Side::new();
    // SAFETY: nothing is written through it.
    let builder = unsafe { QueuePair::<Rc>::builder(&side.pd, &side.cq, &side.cq).pci_write_end_padding() };
    let _ = has(builder.build(), "ibv_create_qp_ex");
}

#[test]
fn a_device_without_work_queues_says_so() {
    let side = Side::new();
    let supported = side.context.extended_device_attributes().unwrap().max_receive_work_queues() > 0;
    let queue = WorkQueueBuilder::new(&side.pd, &side.cq, 8).build();
    if let Ok(queue) = &queue {
        side.context.create_indirection_table(&[queue.clone(), queue.clone()]).unwrap();
    }
    assert_eq!(has(queue, "ibv_create_wq"), supported);
}

#[test]
fn a_device_without_counters_or_esp_says_so() {
    let context = open();
    if let Ok(counters) = context.create_counters() {
        assert!(counters.read(&mut [0]).is_err(), "nothing is attached");
    }
    let _ = has(context.create_counters(), "ibv_create_counters");
    let _ = has(context.create_esp_action(&EspAttributes::new(1, &[0; 16])), "ibv_create_flow_action_esp");
}

#[test]
fn what_rxe_does_not_have_is_unsupported() {
    let side = Side::new();
    if side.context.device_attributes().unwrap().vendor_id() != 0xff_ffff {
        return;
    }
    assert!(!has(side.context.create_xrc_domain(), "ibv_open_xrcd"));
    assert!(!has(WorkQueueBuilder::new(&side.pd, &side.cq, 8).build(), "ibv_create_wq"));
    assert!(!has(side.context.create_counters(), "ibv_create_counters"));
    let esp = EspAttributes::new(1, &[0; 16]);
    assert!(!has(side.context.create_esp_action(&esp), "ibv_create_flow_action_esp"));
    let qp = RawPacketQueuePair::new(&side.pd, &side.cq, &side.cq, QueuePairCapabilities::default());
    assert!(!has(qp, "ibv_create_qp"));
    // What would lead packets is not there either, though neither a raw packet queue pair nor a work queue can be made that would have it.
    let error = side.context.create_indirection_table(&[]).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    let ud = QueuePair::<Ud>::builder(&side.pd, &side.cq, &side.cq).build().unwrap();
    // SAFETY: all zeroes are valid structures; they and the array outlive the calls, and no provider that has no such objects looks at
    // the queue that is not there.
    unsafe {
        let mut queues = [std::ptr::null_mut(); 1];
        let mut table: ffi::ibv_rwq_ind_table_init_attr = std::mem::zeroed();
        table.ind_tbl = queues.as_mut_ptr();
        *libc::__errno_location() = 0;
        assert!(ffi::ibv_create_rwq_ind_table(side.context.as_raw(), &mut table).is_null());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EOPNOTSUPP));
        let mut flow: ffi::ibv_flow_attr = std::mem::zeroed();
        (flow.size, flow.port) = (size_of::<ffi::ibv_flow_attr>() as u16, 1);
        *libc::__errno_location() = 0;
        assert!(ffi::ibv_create_flow(ud.as_raw(), &mut flow).is_null());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EOPNOTSUPP));
    }
    let attributes = side.context.extended_device_attributes().unwrap();
    assert_eq!(attributes.receive_side_scaling(), ReceiveSideScaling::default());
    assert_eq!(attributes.segmentation_offload(), SegmentationOffload::default());
    assert_eq!(attributes.tag_matching(), TagMatching::default());
    assert_eq!(attributes.raw_packet_capabilities(), RawPacketCapabilities::empty());
}

#[test]
fn a_device_that_cannot_be_imported_says_so() {
    let side = Side::new();
    // SAFETY: the descriptor is that of an open context; there is no device memory to import.
    let (context, memory) = unsafe {
        let context = Context::import(side.context.command_fd());
        (context, side.context.import_device_memory(1, 64))
    };
    assert_eq!(has(side.context.import_protection_domain(side.pd.handle()), "ibv_import_pd"), context.is_ok());
    let region = side.region(64, RW);
    let imported = side.pd.import_memory_region(region.handle(), region.address(), RW);
    assert_eq!(has(imported, "ibv_import_mr"), context.is_ok());
    if !has(context, "ibv_import_device") {
        assert!(!has(memory, "ibv_import_dm"));
    }
}

#[test]
fn a_device_that_does_not_pace_packets_or_keep_their_order_says_so() {
    let (a, _b) = pair();
    let pacing = a.context.extended_device_attributes().unwrap().packet_pacing();
    let supported = has(a.qp.set_rate_limit(&RateLimit::new(pacing.max_rate_kbps)), "ibv_modify_qp_rate_limit");
    assert_eq!(supported, pacing.max_rate_kbps > 0);
    if a.context.device_attributes().unwrap().vendor_id() == 0xff_ffff {
        // rxe promises nothing.
        for operation in [OrderedOperation::Send, OrderedOperation::RdmaWrite, OrderedOperation::RdmaRead] {
            assert_eq!(a.qp.data_order(operation), DataOrder::empty());
        }
    }
}
