//! A provider that says what no device says: it is told as it is, or refused, and nothing panics.

use std::fmt::{Debug, Display};

use verbs::completion_field::{ByteLen, ImmData, Opcode, QueuePairNumber};
use verbs::*;

use crate::null_provider::NullProvider;
use crate::{Bench, connect};

/// What each byte of an answer is.
const PATTERNS: [u8; 6] = [0xff, 0x80, 0x7f, 0xaa, 0x01, 0x00];

/// Has each byte of a structure be this.
fn fill<T: Copy>(structure: &mut T, byte: u8) {
    // SAFETY: the structures of these tests are made of integers, so any bytes are valid ones.
    unsafe { (&raw mut *structure).write_bytes(byte, 1) };
}

fn prints(value: &impl Debug) {
    assert!(!format!("{value:?} {value:#?}").is_empty());
}

fn shows(value: &(impl Debug + Display)) {
    prints(value);
    assert!(!format!("{value} {value:>80}").is_empty());
}

/// What becomes of everything that looks at a port, a device or a queue pair: any outcome will do, but a panic.
fn looks_around(bench: &Bench) {
    let Bench { context, pd, cq, qp, .. } = bench;
    let _ = context.port(1).map(|port| shows(&port));
    let _ = context.port(2).unwrap_err();
    let _ = context.gid_table(1).map(|table| table.iter().for_each(shows));
    let _ = context.gid(1, 0);
    let _ = context.gid(1, u32::MAX).unwrap_err();
    let _ = context.pkey_index(1, PartitionKey::new(0xffff));
    let _ = context.port_speed_mbps(1);
    for filter in [GidFilter::default(), GidFilter::for_local("192.0.2.9".parse().unwrap())] {
        let _ = context.choose_gid(1, &filter).map(|entry| shows(&entry));
    }
    let _ = qp.query().map(|attributes| prints(&attributes));
    let _ = qp.reset();
    if let Ok(local) = qp.local_endpoint(1, &GidFilter::default()) {
        shows(&local);
        let _ = qp.connect(&local, &local.endpoint, &ConnectOptions::default());
        let _ = pd.create_address_handle_to(&local, &local.endpoint).map(|ah| prints(&ah));
    }
    // What is refused is explained by the limits.
    for errno in [libc::EINVAL, libc::ENOMEM] {
        for verb in
            ["ibv_create_cq", "ibv_create_srq", "ibv_create_qp", "ibv_resize_cq", "ibv_modify_qp", "ibv_modify_srq"]
        {
            bench.provider.fail(verb, errno);
        }
        let _ = context.create_completion_queue(u32::MAX).unwrap_err();
        let _ = cq.resize(u32::MAX).unwrap_err();
        let srq = SharedReceiveQueueBuilder::new(pd, u32::MAX).max_sge(u32::MAX).build().unwrap_err();
        shows(&srq);
        let huge = QueuePair::<Rc>::builder(pd, cq, cq).max_send_wr(u32::MAX).max_send_sge(u32::MAX);
        let _ = huge.max_recv_wr(u32::MAX).max_recv_sge(u32::MAX).max_inline_data(u32::MAX).build().unwrap_err();
        let modification =
            QueuePairModification::to(QueuePairState::READY_TO_SEND).max_rd_atomic(255).path_mtu(Mtu::MTU_4096);
        let _ = qp.modify(&modification).unwrap_err();
        let _ = pd.create_shared_receive_queue(8).unwrap().set_limit(u32::MAX).unwrap_err();
    }
}

#[test]
fn whatever_a_port_says_is_told_as_it_is() {
    let bench = Bench::new();
    for byte in PATTERNS {
        bench.provider.lie_about_port(move |port| fill(port, byte));
        let port = bench.context.port(1).unwrap();
        let word = u32::from_ne_bytes([byte; 4]);
        assert_eq!((port.state(), port.link_layer()), (PortState::from_raw(word), LinkLayer::from_raw(byte)));
        assert_eq!((port.max_mtu(), port.active_mtu()), (Mtu::from_raw(word), Mtu::from_raw(word)));
        assert_eq!(port.gid_table_len(), if byte < 0x80 { word } else { 0 });
        assert_eq!((port.physical_state().as_raw(), port.active_width().as_raw()), (byte, byte));
        assert_eq!(port.capabilities().bits(), word);
        assert_eq!(
            port.link_rate_mbps(),
            port.active_width().lanes().zip(port.active_speed().lane_mbps()).map(|(a, b)| a * b)
        );
        looks_around(&bench);
    }
}

#[test]
fn whatever_a_device_says_is_told_as_it_is() {
    let bench = Bench::new();
    for byte in PATTERNS {
        bench.provider.lie_about_device(move |device| fill(device, byte));
        let device = bench.context.device_attributes().unwrap();
        prints(&device);
        assert_eq!((device.port_count(), device.max_pkeys()), (byte, u16::from_ne_bytes([byte; 2])));
        assert_eq!(device.atomic_capability(), AtomicCapability::from_raw(u32::from_ne_bytes([byte; 4])));
        assert_eq!(device.local_ack_delay().is_some(), byte < 32);
        // Text without an end ends where its memory does.
        assert!(device.firmware_version().len() <= 3 * 64);
        shows(&device.node_guid());
        looks_around(&bench);
        bench.provider.lie_about_extended_device(move |device| fill(device, byte));
        let device = bench.context.extended_device_attributes().unwrap();
        prints(&device);
        assert_eq!(device.port_count(), u32::from_ne_bytes([byte; 4]));
        prints(&(
            device.on_demand_paging(),
            device.completion_moderation(),
            device.packet_pacing(),
            device.pci_atomics(),
        ));
        prints(&(device.segmentation_offload(), device.receive_side_scaling(), device.tag_matching()));
        prints(&(device.raw_packet_capabilities(), device.capabilities(), device.device()));
    }
}

#[test]
fn a_device_of_any_kind_and_name_is_listed() {
    let provider = NullProvider::new();
    let devices = devices().unwrap();
    let device = devices.get(0).unwrap();
    for byte in PATTERNS {
        // SAFETY: nobody else reads the device's fields meanwhile, which are integers.
        unsafe {
            let raw = device.as_raw();
            fill(&mut (*raw).name, byte);
            fill(&mut (*raw).dev_name, byte);
            fill(&mut (*raw).node_type, byte);
            fill(&mut (*raw).transport_type, byte);
        }
        let word = i32::from_ne_bytes([byte; 4]);
        assert_eq!(device.node_type(), NodeType::from_raw(word));
        assert_eq!(device.transport_type(), TransportType::from_raw(word));
        // Without an end it is no text, and a byte that is no ASCII ends it.
        assert_eq!(device.name(), "", "{byte:#x}");
        shows(&device);
        prints(&devices);
        assert!(devices.find(Some("mlx5_0")).is_err());
        drop(device.open().unwrap());
    }
    drop((device, devices));
    provider.assert_clean();
}

#[test]
fn whatever_a_queue_pair_says_is_told_as_it_is() {
    let bench = Bench::new();
    for byte in PATTERNS {
        bench.provider.lie_about_queue_pairs(move |attributes| fill(attributes, byte));
        let word = u32::from_ne_bytes([byte; 4]);
        let attributes = bench.qp.query().unwrap();
        assert_eq!(attributes.state(), QueuePairState::from_raw(word));
        assert_eq!(bench.qp.state().unwrap(), QueuePairState::from_raw(word));
        assert_eq!((attributes.port(), attributes.is_draining()), (byte, byte != 0));
        assert_eq!(attributes.path_mtu(), Some(Mtu::from_raw(word)));
        // A code of five bits that has more is none.
        prints(&(
            attributes.ack_timeout(),
            attributes.min_rnr_timer(),
            attributes.alternate_path(),
            attributes.address(),
        ));
        looks_around(&bench);
    }
}

#[test]
fn sizes_that_no_queue_has_are_believed_and_harm_nobody() {
    let bench = Bench::new();
    let slices = [bench.region.slice(..64).unwrap(); 8];
    let bytes = [7; 512];
    for byte in PATTERNS {
        bench.provider.lie_about_capabilities(move |capabilities| fill(capabilities, byte));
        let qp = QueuePair::<Rc>::builder(&bench.pd, &bench.cq, &bench.cq).max_send_wr(16).build().unwrap();
        connect(&qp);
        assert_eq!(qp.capabilities().max_send_wr, u32::from_ne_bytes([byte; 4]));
        let mut sends = SelectiveSignaling::new(&qp, 16, 0);
        let _ = sends.post(&qp, &mut SendRequest::send(0, &[]));
        assert_eq!(
            u64::from(sends.free_slots()) + u64::from(sends.outstanding()),
            u64::from(qp.capabilities().max_send_wr)
        );
        // The provider knows what it has room for.
        assert_eq!(qp.post_send(&SendRequest::send(1, &slices)).unwrap_err().kind(), PostErrorKind::Invalid);
        let inline = [InlineSlice::new(&bytes)];
        assert_eq!(qp.post_send(&SendRequest::send_inline(1, &inline)).unwrap_err().kind(), PostErrorKind::Invalid);
        bench.provider.tell_the_truth();
    }
    // SAFETY: the queue is alive, and nobody resizes it.
    unsafe { (*bench.cq.as_raw()).cqe = -1 };
    bench.provider.fail("ibv_resize_cq", libc::EIO);
    let _ = bench.cq.resize(8).unwrap_err();
    assert_eq!(bench.cq.capacity(), 0);
}

#[test]
fn as_many_gids_as_there_was_room_for_are_told_and_more_are_an_error() {
    let bench = Bench::new();
    assert_eq!(bench.context.gid_table(1).unwrap().len(), 2);
    for count in [3, 1000, isize::MAX] {
        bench.provider.tell_gids(count);
        let error = bench.context.gid_table(1).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        assert!(error.to_string().contains("room for 2 entries): "), "{error}");
        assert!(error.to_string().ends_with(&format!("the provider told of {count}")), "{error}");
    }
    for (count, errno) in [(-1, 1), (-5, libc::EIO), (isize::MIN, libc::EIO)] {
        bench.provider.tell_gids(count);
        assert_eq!(bench.context.gid_table(1).unwrap_err().raw_os_error(), Some(errno));
    }
    // An entry that was not filled in is no entry.
    bench.provider.lie_about_port(|port| port.gid_tbl_len = 10);
    bench.provider.tell_gids(10);
    assert_eq!(bench.context.gid_table(1).unwrap().len(), 2);
    // There is room for what a device may have, and not for what it says.
    bench.provider.lie_about_port(|port| port.gid_tbl_len = i32::MAX);
    bench.provider.tell_gids(2);
    assert_eq!(bench.context.gid_table(1).unwrap().len(), 2);
}

#[test]
fn whatever_a_completion_says_is_told_as_it_is() {
    let bench = Bench::new();
    let ud = QueuePair::<Ud>::builder(&bench.pd, &bench.cq, &bench.cq).build().unwrap();
    ud.activate(&ud.local_endpoint(1, &GidFilter::default()).unwrap(), 0x11).unwrap();
    let mut receives = ReceiveSlots::new(bench.region.hold(..256).unwrap(), 64, 0).unwrap();
    let mut sends = SelectiveSignaling::new(&bench.qp, 1, 0);
    let slices = [bench.region.slice(..64).unwrap()];
    let mut room = [WorkCompletion::default(); 4];
    for byte in PATTERNS {
        for (status, opcode) in
            [(None, None), (Some(0), None), (Some(0), Some(128)), (Some(0), Some(0)), (Some(5), Some(128))]
        {
            bench.provider.lie_in_completions(move |completion| {
                fill(completion, byte);
                completion.wr_id = 3;
                completion.status.0 = status.unwrap_or(completion.status.0);
                completion.opcode.0 = opcode.unwrap_or(completion.opcode.0);
            });
            bench.qp.post_send(&SendRequest::send(1, &[]).signaled()).unwrap();
            ud.post_receive(&ReceiveRequest::new(2, &slices)).unwrap();
            receives.refill(&bench.qp).unwrap();
            while let [first, ..] = bench.cq.poll(&mut room).unwrap() {
                let completion = *first;
                prints(&completion);
                assert_eq!(completion.wr_id(), 3);
                assert_eq!(completion.qp_num(), u32::from_ne_bytes([byte; 4]));
                assert_eq!(completion.success().is_ok(), completion.as_raw().status.0 == 0);
                match completion.success() {
                    Ok(success) => {
                        prints(&success);
                        shows(&success.opcode());
                        prints(&(success.byte_len(), success.imm_data(), success.invalidated_rkey()));
                        if let Some(datagram) = success.datagram() {
                            prints(&datagram);
                            let payload = datagram.payload_at(usize::MAX - 1);
                            assert!(
                                payload.start <= payload.end
                                    && datagram.payload_len() == success.byte_len().unwrap() as usize - 40
                            );
                            assert!(datagram.grh(&bench.region, usize::MAX).is_err() || !datagram.has_grh());
                            let _ = AddressHandleAttributes::from_completion(&bench.context, 1, &datagram, None);
                        }
                    }
                    Err(error) => shows(&error),
                }
                // However many bytes it says have arrived, a slot has its own, and is taken once.
                if let Some(range) = receives.take(&completion) {
                    assert!(range.start == 192 && range.end <= 256, "{range:?}");
                    assert_eq!(receives.take(&completion), None);
                    receives.release(3).unwrap();
                }
                assert_eq!(sends.retire(&completion), 0);
            }
            receives.reset();
            bench.provider.tell_the_truth();
        }
    }
}

#[test]
fn whatever_a_completion_says_through_the_extended_interface_is_told_as_it_is() {
    let bench = Bench::new();
    type Fields = (ByteLen, ImmData, Opcode, QueuePairNumber);
    let cq = CompletionQueueBuilder::new(&bench.context, 8).build_extended::<Fields>().unwrap();
    let queue = cq.as_completion_queue();
    let qp = QueuePair::<Rc>::builder(&bench.pd, queue, queue).build().unwrap();
    connect(&qp);
    for byte in PATTERNS {
        for status in [None, Some(0)] {
            bench.provider.lie_in_completions(move |completion| {
                fill(completion, byte);
                completion.status.0 = status.unwrap_or(completion.status.0);
            });
            qp.post_send(&SendRequest::send(1, &[]).signaled()).unwrap();
            let completion = cq.poll().unwrap().unwrap();
            prints(&completion);
            let word = u32::from_ne_bytes([byte; 4]);
            assert_eq!(completion.status(), WorkCompletionStatus::from_raw(status.unwrap_or(word)));
            match completion.success() {
                Ok((byte_len, _, opcode, qp_num)) => {
                    assert_eq!((byte_len, opcode, qp_num), (word, WorkCompletionOpcode::from_raw(word), word));
                }
                Err(error) => assert_eq!((error.vendor_error, error.qp_num), (word, word)),
            }
            assert!(cq.poll().unwrap().is_none());
        }
    }
}

#[test]
fn an_asynchronous_event_of_a_type_that_nobody_knows_is_kept() {
    let bench = Bench::new();
    for event_type in [18, 21, 22, 1000, 0x7fff_ffff, u32::MAX].map(AsyncEventType::from_raw) {
        for element in [0, 1, usize::MAX] {
            bench.provider.raise(&bench.context, event_type, element);
            let event = bench.context.try_async_event().unwrap().unwrap();
            shows(&event);
            assert_eq!(event.event_type(), event_type);
            assert!(!event.is_for(&bench.qp) && !event.is_for(&bench.cq));
        }
    }
    // The number of a port that there cannot be.
    for port in [0, 255, 256, usize::MAX] {
        bench.provider.raise(&bench.context, AsyncEventType::PORT_ERROR, port);
        let event = bench.context.try_async_event().unwrap().unwrap();
        assert_eq!(event.source(), AsyncEventSource::Port(port as u8));
    }
    bench.provider.assert_no_violation();
}
