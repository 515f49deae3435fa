//! UD: addresses, headers, and what gets lost without a word.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use verbs::*;

use crate::harness::*;

const QKEY: u32 = 0x1111_1111;

/// A UD queue pair that is ready, and where it is.
struct End {
    side: Side<Ud>,
    local: LocalEndpoint,
}

impl End {
    fn on(context: Context, filter: &GidFilter) -> Self {
        let side = Side::of(context, |builder| {
            builder.max_send_wr(16).max_recv_wr(16).max_send_sge(2).max_recv_sge(2).max_inline_data(64)
        });
        let local = side.qp.local_endpoint(1, filter).unwrap();
        side.qp.activate(&local, QKEY).unwrap();
        Self { side, local }
    }

    fn new() -> Self {
        Self::on(open(), &GidFilter::default())
    }

    fn to(&self, other: &Self) -> AddressHandle {
        self.side.pd.create_address_handle_to(&self.local, &other.local.endpoint).unwrap()
    }

    fn qp_num(&self) -> u32 {
        self.side.qp.qp_num()
    }

    /// What arrives within a time in which everything would.
    fn silent(&self) -> Vec<WorkCompletion> {
        let mut room = [WorkCompletion::default(); 16];
        self.side.cq.wait(&mut room, Some(Duration::from_millis(300))).unwrap().to_vec()
    }
}

fn mtu(end: &End) -> usize {
    end.local.port_attributes.active_mtu().bytes().unwrap() as usize
}

#[test]
fn a_datagram_arrives_behind_a_header_that_tells_its_sender() {
    let (a, b) = (End::new(), End::new());
    let ah = a.to(&b);
    let mut source = a.side.region(8, RW);
    source.write_at(0, b"datagram").unwrap();
    let target = b.side.region(400, RW);
    b.side.qp.post_receive(&ReceiveRequest::new(1, &[target.slice(100..300).unwrap()])).unwrap();
    let slices = [source.slice(..).unwrap()];
    let request = SendRequest::send_to_with_imm(2, &slices, &ah, b.qp_num(), QKEY, 0x1122_3344);
    a.side.qp.post_send(&request.signaled()).unwrap();
    assert_eq!(a.side.completion().success().unwrap().opcode(), WorkCompletionOpcode::SEND);
    let completion = b.side.completion();
    let success = completion.success().unwrap();
    assert_eq!((success.byte_len(), success.imm_data()), (Some(48), Some(0x1122_3344)));
    let datagram = success.datagram().unwrap();
    assert_eq!((datagram.source_qp_num(), datagram.payload_len(), datagram.has_grh()), (a.qp_num(), 8, true));
    assert_eq!(datagram.payload_at(100), 140..148);
    assert_eq!(target.to_vec(datagram.payload_at(100)).unwrap(), b"datagram");
    let grh = datagram.grh(&target, 100).unwrap().unwrap();
    // The address that was chosen is an IPv4 one: its header is in the last 20 bytes, the first 20 are zero.
    assert_eq!(grh.format(), GrhFormat::Ipv4);
    assert_eq!((grh.source(), grh.destination()), (a.local.endpoint.gid, b.local.endpoint.gid));
    assert_eq!((grh.hop_limit(), grh.next_header(), grh.flow_label()), (Some(64), Some(17), None));
    assert_eq!((grh.to_bytes()[..20].to_vec(), grh.to_bytes()[20]), (vec![0; 20], 0x45));
}

#[test]
fn a_datagram_over_ipv6_has_an_ipv6_header() {
    let context = open();
    let table = context.gid_table(1).unwrap();
    let entry = table.iter().find(|entry| matches!(entry.gid.to_ip(), IpAddr::V6(_))).unwrap();
    let filter = GidFilter { address: Some(entry.gid.to_ip()), ..GidFilter::default() };
    let (a, b) = (End::on(context.clone(), &filter), End::on(context, &filter));
    let mut path = AddressHandleAttributes::between(&a.local, &b.local.endpoint).unwrap();
    let route = path.global_route.as_mut().unwrap();
    (route.traffic_class, route.flow_label) = (0x20, 0x1_2345);
    let ah = a.side.pd.create_address_handle(&path).unwrap();
    let target = b.side.region(64, RW);
    b.side.qp.post_receive(&ReceiveRequest::new(1, &[target.slice(..).unwrap()])).unwrap();
    let inline = [InlineSlice::new(b"six")];
    a.side.qp.post_send(&SendRequest::send_to_inline(2, &inline, &ah, b.qp_num(), QKEY).signaled()).unwrap();
    a.side.completion().success().unwrap();
    let completion = b.side.completion();
    let datagram = completion.success().unwrap().datagram().unwrap();
    assert_eq!(target.to_vec(datagram.payload_at(0)).unwrap(), b"six");
    let grh = datagram.grh(&target, 0).unwrap().unwrap();
    assert_eq!((grh.format(), grh.source(), grh.destination()), (GrhFormat::Ipv6, Some(entry.gid), Some(entry.gid)));
    // The kernel has found the hop limit itself.
    assert_eq!((grh.hop_limit(), grh.next_header()), (Some(64), Some(17)));
    // rxe sends no flow label.
    assert_eq!((grh.traffic_class(), grh.flow_label()), (Some(0x20), Some(0)));
}

#[test]
fn a_receiver_answers_whoever_sent_the_datagram() {
    let (a, b) = (End::on(open(), &GidFilter::default()), End::on(open_peer(), &GidFilter::default()));
    let (ah, target) = (a.to(&b), b.side.region(64, RW));
    b.side.qp.post_receive(&ReceiveRequest::new(1, &[target.slice(..).unwrap()])).unwrap();
    let question = [InlineSlice::new(b"who?")];
    a.side.qp.post_send(&SendRequest::send_to_inline(2, &question, &ah, b.qp_num(), QKEY)).unwrap();
    let completion = b.side.completion();
    let datagram = completion.success().unwrap().datagram().unwrap();
    let grh = datagram.grh(&target, 0).unwrap();
    let path = AddressHandleAttributes::from_completion(&b.side.context, 1, &datagram, grh.as_ref()).unwrap();
    let route = path.global_route.unwrap();
    assert_eq!((path.port, Some(route.destination)), (1, a.local.endpoint.gid));
    assert_eq!(u32::from(route.source_gid_index), b.local.gid.unwrap().index);
    let back = b.side.pd.create_address_handle_from_completion(1, &datagram, grh.as_ref()).unwrap();
    let answers = a.side.region(64, RW);
    a.side.qp.post_receive(&ReceiveRequest::new(3, &[answers.slice(..).unwrap()])).unwrap();
    let answer = [InlineSlice::new(b"me")];
    let request = SendRequest::send_to_inline(4, &answer, &back, datagram.source_qp_num(), QKEY);
    b.side.qp.post_send(&request.signaled()).unwrap();
    b.side.completion().success().unwrap();
    let completion = a.side.completion();
    let datagram = completion.success().unwrap().datagram().unwrap();
    assert_eq!(datagram.source_qp_num(), b.qp_num());
    assert_eq!(answers.to_vec(datagram.payload_at(0)).unwrap(), b"me");
}

#[test]
fn the_header_can_go_to_memory_of_its_own() {
    let (a, b) = (End::new(), End::new());
    let (headers, payloads) = (b.side.region(40, RW), b.side.region(64, RW));
    let pieces = [headers.slice(..).unwrap(), payloads.slice(..).unwrap()];
    b.side.qp.post_receive(&ReceiveRequest::new(1, &pieces)).unwrap();
    let ah = a.to(&b);
    a.side.qp.post_send(&SendRequest::send_to_inline(2, &[InlineSlice::new(b"apart")], &ah, b.qp_num(), QKEY)).unwrap();
    let completion = b.side.completion();
    let datagram = completion.success().unwrap().datagram().unwrap();
    assert_eq!(datagram.grh(&headers, 0).unwrap().unwrap().source(), a.local.endpoint.gid);
    assert_eq!(payloads.to_vec(..datagram.payload_len()).unwrap(), b"apart");
}

#[test]
fn what_nobody_takes_is_lost_and_the_sender_is_told_of_success() {
    patiently(what_nobody_takes);
}

/// Whether the datagram was gone before there was a receive.
fn what_nobody_takes(pause: Duration) -> bool {
    let (a, b) = (End::new(), End::new());
    let (ah, target) = (a.to(&b), b.side.region(64, RW));
    let send = |wr_id, qp_num, qkey| {
        let inline = [InlineSlice::new(if wr_id == 1 { b"first" } else { b"later" })];
        let request = SendRequest::send_to_inline(wr_id, &inline, &ah, qp_num, qkey);
        a.side.qp.post_send(&request.signaled()).unwrap();
        assert_eq!(a.side.completion().success().unwrap().wr_id(), wr_id);
    };
    // No receive is posted.
    send(1, b.qp_num(), QKEY);
    let mut room = [WorkCompletion::default(); 1];
    assert!(b.side.cq.wait(&mut room, Some(pause)).unwrap().is_empty());
    b.side.qp.post_receive(&ReceiveRequest::new(2, &[target.slice(..).unwrap()])).unwrap();
    // Another Q_Key; a queue pair that is not there; the right ones.
    send(3, b.qp_num(), QKEY + 1);
    send(4, 0xab_cdef, QKEY);
    if !b.silent().is_empty() {
        // None but the first one could have.
        assert_eq!(target.to_vec(Grh::LEN..Grh::LEN + 5).unwrap(), b"first");
        return false;
    }
    send(5, b.qp_num(), QKEY);
    let completion = b.side.completion();
    assert_eq!(completion.wr_id(), 2);
    assert_eq!(target.to_vec(completion.success().unwrap().datagram().unwrap().payload_at(0)).unwrap(), b"later");
    // The receiver may change its mind.
    b.side.qp.modify(&QueuePairModification::in_place().qkey(QKEY + 1)).unwrap();
    b.side.qp.post_receive(&ReceiveRequest::new(6, &[target.slice(..).unwrap()])).unwrap();
    send(7, b.qp_num(), QKEY);
    assert!(b.silent().is_empty());
    send(8, b.qp_num(), QKEY + 1);
    assert_eq!(b.side.completion().wr_id(), 6);
    true
}

#[test]
fn a_datagram_has_at_most_as_many_bytes_as_the_ports_mtu() {
    let (a, b) = (End::new(), End::new());
    let (ah, mtu) = (a.to(&b), mtu(&a));
    let mut source = a.side.region(mtu + 1, RW);
    source.write_at(0, &pattern(mtu + 1)).unwrap();
    let target = b.side.region(mtu + 41, RW);
    b.side.qp.post_receive(&ReceiveRequest::new(1, &[target.slice(..).unwrap()])).unwrap();
    let (whole, more) = ([source.slice(..mtu).unwrap()], [source.slice(..).unwrap()]);
    let error = a.side.qp.post_send(&SendRequest::send_to(2, &more, &ah, b.qp_num(), QKEY)).unwrap_err();
    assert_eq!((error.kind(), error.accepted()), (PostErrorKind::Invalid, Some(0)));
    assert!(error.to_string().contains(&format!("a datagram of {} bytes, which would get lost", mtu + 1)), "{error}");
    a.side.qp.post_send(&SendRequest::send_to(3, &whole, &ah, b.qp_num(), QKEY).signaled()).unwrap();
    assert_eq!(a.side.completion().success().unwrap().wr_id(), 3);
    let completion = b.side.completion();
    let datagram = completion.success().unwrap().datagram().unwrap();
    assert_eq!(target.to_vec(datagram.payload_at(0)).unwrap(), pattern(mtu));
}

#[test]
fn a_receive_that_is_too_small_for_header_and_payload_takes_nothing() {
    let (a, b) = (End::new(), End::new());
    let (ah, target) = (a.to(&b), b.side.region(64, RW));
    let error = b.side.qp.post_receive(&ReceiveRequest::new(0, &[target.slice(..39).unwrap()])).unwrap_err();
    assert!(error.to_string().contains("a receive of 39 bytes"), "{error}");
    b.side.qp.post_receive(&ReceiveRequest::new(1, &[target.slice(..44).unwrap()])).unwrap();
    let inline = [InlineSlice::new(b"12345678")];
    let request = SendRequest::send_to_inline(2, &inline, &ah, b.qp_num(), QKEY);
    a.side.qp.post_send(&request.signaled()).unwrap();
    a.side.completion().success().unwrap();
    let inline = [InlineSlice::new(b"1234")];
    a.side.qp.post_send(&SendRequest::send_to_inline(3, &inline, &ah, b.qp_num(), QKEY)).unwrap();
    let completion = b.side.completion();
    assert_eq!(completion.wr_id(), 1);
    match completion.success() {
        // Linux 6.12: it is dropped, and the receive waits for the next one.
        Ok(success) => {
            assert!(kernel() > (6, 1));
            assert_eq!(success.datagram().unwrap().payload_len(), 4);
            assert_eq!(b.side.qp.state().unwrap(), QueuePairState::READY_TO_SEND);
        }
        // Linux 6.1: the receive fails, and the queue pair with it. The specification has a local length error.
        Err(error) => {
            assert!(kernel() < LATER, "{error}");
            let length = WorkCompletionStatus::LOCAL_LENGTH_ERROR;
            let known = [length, WorkCompletionStatus::LOCAL_QUEUE_PAIR_OPERATION_ERROR];
            assert!(known.contains(&error.status), "{error}");
            becomes(&b.side.qp, QueuePairState::ERROR);
        }
    }
    assert!(b.silent().is_empty());
}

#[test]
fn an_address_handle_that_is_gone_early_costs_at_most_its_datagrams() {
    let (a, b) = (End::new(), End::new());
    let target = b.side.region(64, RW);
    let slices = [target.slice(..).unwrap()];
    for wr_id in 0..8 {
        b.side.qp.post_receive(&ReceiveRequest::new(wr_id, &slices)).unwrap();
    }
    for wr_id in 0..8 {
        let ah = a.to(&b);
        let inline = [InlineSlice::new(b"gone")];
        let request = SendRequest::send_to_inline(wr_id, &inline, &ah, b.qp_num(), QKEY);
        a.side.qp.post_send(&request.signaled()).unwrap();
        drop(ah);
    }
    // Those that were under way already have arrived; the device may have failed the others.
    let completions = a.side.completions(8);
    let failed = completions.iter().filter_map(|completion| completion.success().err());
    let known = [
        WorkCompletionStatus::LOCAL_QUEUE_PAIR_OPERATION_ERROR,
        WorkCompletionStatus::LOCAL_PROTECTION_ERROR,
        WorkCompletionStatus::WORK_REQUEST_FLUSHED,
    ];
    assert!(failed.clone().all(|error| known.contains(&error.status)), "{completions:?}");
    let (failed, state) = (failed.count(), || a.side.qp.state().unwrap());
    match failed {
        0 => assert_eq!(state(), QueuePairState::READY_TO_SEND),
        _ => until("the sender has failed", || {
            [QueuePairState::ERROR, QueuePairState::SEND_QUEUE_ERROR].contains(&state())
        }),
    }
    // A queue pair that failed can be used again.
    a.side.qp.reset().unwrap();
    a.side.qp.activate(&a.local, QKEY).unwrap();
    let ah = a.to(&b);
    for wr_id in 8..16 {
        b.side.qp.post_receive(&ReceiveRequest::new(wr_id, &slices)).unwrap();
    }
    let inline = [InlineSlice::new(b"kept")];
    let request = SendRequest::send_to_inline(9, &inline, &ah, b.qp_num(), QKEY);
    a.side.qp.post_send(&request.signaled()).unwrap();
    assert_eq!(a.side.completion().success().unwrap().wr_id(), 9);
    // It comes behind those that have arrived.
    while target.to_vec(Grh::LEN..Grh::LEN + 4).unwrap() != b"kept" {
        b.side.completion().success().unwrap();
    }
}

#[test]
fn a_privileged_q_key_is_for_programs_that_may_send_raw_packets() {
    const PRIVILEGED: u32 = 0x8000_0000;
    /// In each state in which it may be given.
    fn give(qkey: u32) -> [Result<()>; 2] {
        let side = Side::<Ud>::of(open(), |builder| builder);
        let first = side.qp.init(&side.local(), qkey);
        if first.is_err() {
            // The queue pair is as it was, and takes another one.
            assert_eq!(side.qp.state().unwrap(), QueuePairState::RESET);
            side.qp.init(&side.local(), 1).unwrap();
        }
        let second = side.qp.modify(&QueuePairModification::in_place().qkey(qkey));
        let known = if second.is_ok() { qkey } else { 1 };
        assert_eq!(side.qp.query().unwrap().qkey(), Some(known));
        [first, second]
    }
    // As root, who has CAP_NET_RAW.
    for qkey in [PRIVILEGED, u32::MAX] {
        assert!(give(qkey).iter().all(Result::is_ok), "{qkey:#x}");
    }
    let as_nobody = || {
        be_nobody();
        for qkey in [PRIVILEGED, u32::MAX] {
            for result in give(qkey) {
                let error = result.unwrap_err();
                assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
                assert!(error.to_string().ends_with("needs CAP_NET_RAW"), "{error}");
            }
        }
        assert!(give(PRIVILEGED - 1).iter().all(Result::is_ok));
    };
    std::thread::spawn(as_nobody).join().unwrap();
}

#[test]
fn an_address_handle_of_another_domain_is_refused_before_the_device_sees_it() {
    let (a, b) = (End::new(), End::new());
    let other = a.side.context.create_protection_domain().unwrap();
    for ah in [
        other.create_address_handle_to(&a.local, &b.local.endpoint).unwrap(),
        End::on(open_peer(), &GidFilter::default()).to(&b),
    ] {
        let inline = [InlineSlice::new(b"foreign")];
        let request = SendRequest::send_to_inline(1, &inline, &ah, b.qp_num(), QKEY);
        let error = a.side.qp.post_send(&request).unwrap_err();
        assert!(error.to_string().contains("an address handle of another protection domain"), "{error}");
        assert_eq!(a.side.qp.state().unwrap(), QueuePairState::READY_TO_SEND);
    }
}

#[test]
fn an_address_handle_that_cannot_be_made_is_diagnosed() {
    let a = End::new();
    let path = AddressHandleAttributes::between(&a.local, &a.local.endpoint).unwrap();
    let refused = |change: &dyn Fn(&mut AddressHandleAttributes)| {
        let mut path = path;
        change(&mut path);
        a.side.pd.create_address_handle(&path).unwrap_err()
    };
    let error = refused(&|path| path.global_route = None);
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    assert!(error.to_string().ends_with("the link layer is Ethernet (RoCE), which needs GIDs"), "{error}");
    let error = refused(&|path| path.port = 7);
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    assert!(error.to_string().contains("port_num is 7: ibv_query_port"), "{error}");
    let route = path.global_route.unwrap();
    let error = refused(&|path| path.global_route = Some(GlobalRoute::new(route.destination, 200)));
    assert_eq!(error.raw_os_error(), Some(libc::ENODATA));
    assert!(error.to_string().contains("GID index 200 is empty"), "{error}");
    let start = Instant::now();
    let dead = "192.0.2.77".parse().unwrap();
    let error = refused(&|path| path.global_route = Some(GlobalRoute::new(dead, route.source_gid_index)));
    assert_eq!(error.raw_os_error(), Some(libc::ETIMEDOUT));
    assert!(error.to_string().contains("nobody answers at the remote GID ::ffff:192.0.2.77"), "{error}");
    assert!(start.elapsed() < LIMIT, "{:?}", start.elapsed());
}

#[test]
fn datagrams_go_through_the_extended_interface() {
    let (a, b) = (End::new(), End::new());
    let builder = QueuePair::<Ud>::builder(&a.side.pd, &a.side.cq, &a.side.cq).max_inline_data(64);
    let qp = builder.require_extended().build().unwrap();
    qp.activate(&a.local, QKEY).unwrap();
    let extended = qp.extended().unwrap();
    let (ah, target) = (a.to(&b), b.side.region(256, RW));
    let mut source = a.side.region(8, RW);
    source.write_at(0, b"extended").unwrap();
    let (slices, inline) = ([source.slice(..).unwrap()], [InlineSlice::new(b"inline")]);
    for wr_id in 0..2 {
        let start = wr_id as usize * 128;
        b.side.qp.post_receive(&ReceiveRequest::new(wr_id, &[target.slice(start..start + 128).unwrap()])).unwrap();
    }
    let mut chain = [
        SendRequest::send_to(1, &slices, &ah, b.qp_num(), QKEY).signaled(),
        SendRequest::send_to_inline_with_imm(2, &inline, &ah, b.qp_num(), QKEY, 9).signaled(),
    ];
    extended.post_send_chain(&mut chain).unwrap();
    assert!(a.side.completions(2).iter().all(|completion| completion.success().is_ok()));
    let completions = b.side.completions(2);
    let datagrams: Vec<_> = completions.iter().map(|wc| wc.success().unwrap().datagram().unwrap()).collect();
    assert!(datagrams.iter().all(|datagram| datagram.source_qp_num() == qp.qp_num()));
    assert_eq!(target.to_vec(datagrams[0].payload_at(0)).unwrap(), b"extended");
    assert_eq!(target.to_vec(datagrams[1].payload_at(128)).unwrap(), b"inline");
    assert_eq!(completions[1].success().unwrap().imm_data(), Some(9));
}

#[test]
fn prepared_datagrams_slots_and_signal_counters_carry_a_thousand() {
    let (a, b) = (End::new(), End::new());
    let mut source = a.side.region(1000, RW);
    source.write_at(0, &pattern(1000)).unwrap();
    let target = b.side.region(16 * 48, RW);
    let mut receives = ReceiveSlots::new(target.hold(..).unwrap(), 48, 1 << 40).unwrap();
    receives.refill(&b.side.qp).unwrap();
    let mut sends = SelectiveSignaling::new(&a.side.qp, 4, 0);
    let mut request = PreparedSend::send_to(0, [source.hold(..1).unwrap()], &a.to(&b), b.qp_num(), QKEY);
    let mut room = [WorkCompletion::default(); 16];
    let (mut sent, mut arrived) = (0, 0);
    let deadline = Instant::now() + LIMIT;
    while arrived < 1000 {
        assert!(Instant::now() < deadline, "{sent} were sent, {arrived} have arrived");
        // No more than there are receives for: a datagram too many would be lost.
        while sent < 1000 && sent < arrived + 8 && sends.free_slots() > 0 {
            request.set_range(0, sent..(sent + 1 + sent % 8).min(1000)).unwrap();
            sends.post_prepared(&a.side.qp, &mut request).unwrap();
            sent += 1;
        }
        for completion in a.side.cq.poll(&mut room).unwrap() {
            completion.success().unwrap();
            sends.retire(completion);
        }
        for completion in b.side.cq.poll(&mut room).unwrap() {
            let datagram = completion.success().unwrap().datagram().unwrap();
            let range = receives.take(completion).unwrap();
            let message = &pattern(1000)[arrived..(arrived + 1 + arrived % 8).min(1000)];
            assert_eq!(target.to_vec(datagram.payload_at(range.start)).unwrap(), message, "datagram {arrived}");
            receives.release(completion.wr_id()).unwrap();
            arrived += 1;
        }
        receives.refill(&b.side.qp).unwrap();
    }
}
