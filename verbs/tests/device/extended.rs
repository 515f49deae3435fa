//! The extended interface, `ibv_wr_start` and `ibv_start_poll`, against the plain one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use verbs::completion_field::*;
use verbs::*;

use crate::harness::*;

/// A queue pair with the extended interface and a plain one, connected.
fn extended_pair() -> (Side, Side) {
    let context = open();
    let wide = |builder: QueuePairBuilder<Rc>| {
        builder.max_send_wr(16).max_recv_wr(16).max_send_sge(4).max_recv_sge(4).max_inline_data(64)
    };
    let a = Side::build(context.clone(), |builder| wide(builder).require_extended());
    let b = Side::build(context, wide);
    assert!(b.qp.extended().is_none());
    connect(&a, &b, &options());
    (a, b)
}

#[test]
fn each_operation_through_the_extended_interface_does_what_it_is_to_do() {
    let (a, b) = extended_pair();
    let extended = a.qp.extended().unwrap();
    let mut source = a.region(100, RW);
    source.write_at(0, &pattern(100)).unwrap();
    let mut target = b.region(100, RW);
    let slices = [source.slice(..).unwrap()];
    let remote = target.remote_slice(..).unwrap();
    let arrived = |target: &mut MemoryRegion<Vec<u8>>, length: usize| {
        assert_eq!(target.to_vec(..length).unwrap(), pattern(length));
        target.fill(0);
    };

    for (request, length, imm_data) in [
        (SendRequest::send(1, &slices), 100, None),
        (SendRequest::send_with_imm(1, &slices, 0x0102_0304), 100, Some(0x0102_0304)),
        (SendRequest::rdma_write_with_imm(1, &slices, remote, 0x0506_0708), 100, Some(0x0506_0708)),
        (SendRequest::send_inline(1, &[InlineSlice::new(&pattern(64))]), 64, None),
        (SendRequest::send_inline_with_imm(1, &[InlineSlice::new(&pattern(64))], 9), 64, Some(9)),
        (SendRequest::rdma_write_inline_with_imm(1, &[InlineSlice::new(&pattern(64))], remote, 8), 64, Some(8)),
    ] {
        b.qp.post_receive(&ReceiveRequest::new(2, &[target.slice(..).unwrap()])).unwrap();
        extended.post_send(&request.signaled()).unwrap();
        a.completion().success().unwrap();
        let received = b.completion();
        let received = received.success().unwrap();
        assert_eq!((received.byte_len(), received.imm_data()), (Some(length), imm_data));
        arrived(&mut target, length as usize);
    }
    extended.post_send(&SendRequest::rdma_write(3, &slices, remote).signaled()).unwrap();
    assert_eq!(a.completion().success().unwrap().opcode(), WorkCompletionOpcode::RDMA_WRITE);
    arrived(&mut target, 100);

    target.write_at(0, &pattern(200)[100..]).unwrap();
    let fetched = a.region(100, RW);
    extended.post_send(&SendRequest::rdma_read(4, &[fetched.slice(..).unwrap()], remote).signaled()).unwrap();
    assert_eq!(a.completion().success().unwrap().byte_len(), Some(100));
    assert_eq!(fetched.to_vec(..).unwrap(), pattern(200)[100..]);

    // An empty message, with and without inline data.
    for request in [SendRequest::send(5, &[]), SendRequest::send_inline(5, &[InlineSlice::new(&[])])] {
        b.qp.post_receive(&ReceiveRequest::new(6, &[])).unwrap();
        extended.post_send(&request.signaled()).unwrap();
        a.completion().success().unwrap();
        assert_eq!(b.completion().success().unwrap().byte_len(), Some(0));
    }
}

#[test]
fn atomics_go_through_the_extended_interface_too() {
    let (a, b) = extended_pair();
    let extended = a.qp.extended().unwrap();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_ATOMIC;
    let word = |value| Box::<[AtomicU64]>::from([AtomicU64::new(value)]);
    let (before, target) = (a.pd.register(word(0), access).unwrap(), b.pd.register(word(40), access).unwrap());
    let (slices, remote) = ([before.slice(..).unwrap()], target.remote_slice(..).unwrap());
    extended.post_send(&SendRequest::fetch_and_add(1, &slices, remote, 2).signaled()).unwrap();
    a.completion().success().unwrap();
    assert_eq!(before.as_atomics()[0].load(Ordering::Relaxed), 40);
    extended.post_send(&SendRequest::compare_and_swap(2, &slices, remote, 42, 7).signaled()).unwrap();
    a.completion().success().unwrap();
    assert_eq!(before.as_atomics()[0].load(Ordering::Relaxed), 42);
    assert_eq!(target.as_atomics()[0].load(Ordering::Relaxed), 7);
}

#[test]
fn a_chain_through_the_extended_interface_arrives_in_its_order() {
    let (a, b) = extended_pair();
    let mut source = a.region(160, RW);
    source.write_at(0, &pattern(160)).unwrap();
    let target = b.region(160, RW);
    let mut receives = ReceiveSlots::new(target.hold(..).unwrap(), 10, 100).unwrap();
    receives.refill(&b.qp).unwrap();
    let mut batch = SendBatch::with_capacity(16);
    let mut chain = batch.begin();
    for index in 0..16 {
        let request = SendRequest::send(index as u64, &[]).signaled();
        chain.push_with(request, &[source.slice(10 * index..10 * (index + 1)).unwrap()]);
    }
    a.qp.extended().unwrap().post_send_chain(&mut chain).unwrap();
    let sent: Vec<u64> = a.completions(16).iter().map(|wc| wc.success().unwrap().wr_id()).collect();
    assert_eq!(sent, (0..16).collect::<Vec<_>>());
    b.completions(16);
    assert_eq!(target.to_vec(..).unwrap(), pattern(160));
}

/// rxe's provider sends the first length for each entry, and of inline pieces nothing at all.
#[test]
fn a_list_arrives_whole_or_is_refused_and_never_cut_short() {
    let (a, b) = extended_pair();
    let mut source = a.region(100, RW);
    source.write_at(0, &pattern(100)).unwrap();
    let target = b.region(100, RW);
    let lists = [
        [source.slice(..8).unwrap(), source.slice(8..32).unwrap()],
        [source.slice(..24).unwrap(), source.slice(24..32).unwrap()],
    ];
    let bytes = pattern(32);
    let pieces = [InlineSlice::new(&bytes[..16]), InlineSlice::new(&bytes[16..])];
    let is_rxe = a.context.device_attributes().unwrap().vendor_id() == 0xff_ffff;
    let requests =
        [SendRequest::send(1, &lists[0]), SendRequest::send(1, &lists[1]), SendRequest::send_inline(1, &pieces)];
    for request in requests.map(SendRequest::signaled) {
        b.qp.post_receive(&ReceiveRequest::new(2, &[target.slice(..).unwrap()])).unwrap();
        let outcome = a.qp.extended().unwrap().post_send(&request);
        if is_rxe {
            let error = outcome.unwrap_err();
            assert_eq!((error.kind(), error.accepted()), (PostErrorKind::Unsupported, Some(0)));
            assert!(error.to_string().contains("post it by QueuePair::post_send"), "{error}");
            a.qp.post_send(&request).unwrap();
        } else {
            outcome.unwrap();
        }
        a.completion().success().unwrap();
        assert_eq!(b.completion().success().unwrap().byte_len(), Some(32));
        assert_eq!(target.to_vec(..32).unwrap(), bytes);
    }
}

#[test]
fn a_full_queue_is_told_and_nothing_of_the_chain_is_sent() {
    let (a, b) = extended_pair();
    let slots = a.qp.capabilities().max_send_wr as usize;
    let mut chain: Vec<SendRequest> = (0..2 * slots).map(|i| SendRequest::send(i as u64, &[]).signaled()).collect();
    let error = a.qp.extended().unwrap().post_send_chain(&mut chain).unwrap_err();
    assert_eq!((error.kind(), error.accepted()), (PostErrorKind::QueueFull, Some(0)));
    // The queue pair is as good as before, and the first to arrive is the first of what is posted now.
    b.qp.post_receive(&ReceiveRequest::new(7, &[])).unwrap();
    a.qp.extended().unwrap().post_send(&SendRequest::send_with_imm(1000, &[], 5).signaled()).unwrap();
    assert_eq!(a.completion().wr_id(), 1000);
    assert_eq!(b.completion().success().unwrap().imm_data(), Some(5));
}

/// Two connected queue pairs, the first with an extended queue.
fn on_extended_queue<F: CompletionFields>() -> (ExtendedCompletionQueue<F>, QueuePair<Rc>, Side) {
    let b = Side::on(open());
    let channel = b.context.create_completion_channel().unwrap();
    let cq = CompletionQueueBuilder::new(&b.context, 16).channel(&channel).build_extended::<F>().unwrap();
    let queue = cq.as_completion_queue();
    let qp = QueuePair::<Rc>::builder(&b.pd, queue, queue).max_send_sge(2).build().unwrap();
    let (from, to) = (qp.local_endpoint(1, &GidFilter::default()).unwrap(), b.local());
    qp.connect(&from, &to.endpoint, &options()).unwrap();
    b.qp.connect(&to, &from.endpoint, &options()).unwrap();
    (cq, qp, b)
}

/// rdma-core 44's provider of rxe goes on after the last one, if it is polled as the manual page shows.
#[test]
fn an_extended_queue_hands_out_each_completion_once_and_no_others() {
    let (cq, qp, b) = on_extended_queue::<(Opcode, ByteLen, ImmData, QueuePairNumber)>();
    let region = b.region(64, RW);
    for round in 0..40 {
        // Two sends, and one that arrives.
        b.qp.post_receive_chain(&mut [ReceiveRequest::new(1, &[]), ReceiveRequest::new(2, &[])]).unwrap();
        qp.post_receive(&ReceiveRequest::new(100 + round, &[region.slice(..).unwrap()])).unwrap();
        let send = |wr_id| SendRequest::send(wr_id, &[]).signaled();
        qp.post_send_chain(&mut [send(10 * round), send(10 * round + 1)]).unwrap();
        let slices = [region.slice(..round as usize).unwrap()];
        b.qp.post_send(&SendRequest::send_with_imm(3, &slices, round as u32).signaled()).unwrap();
        b.completions(3);
        let mut arrived = Vec::new();
        while arrived.len() < 3 {
            let completion = cq.wait(Some(LIMIT)).unwrap().expect("three completions come");
            let (opcode, byte_len, imm_data, qp_num) = completion.success().unwrap();
            assert_eq!(qp_num, qp.qp_num());
            let fields = (opcode == WorkCompletionOpcode::RECEIVE).then_some((byte_len, imm_data));
            arrived.push((completion.wr_id(), fields));
        }
        arrived.sort_unstable();
        let mut expected =
            [(10 * round, None), (10 * round + 1, None), (100 + round, Some((round as u32, Some(round as u32))))];
        expected.sort_unstable();
        assert_eq!(arrived, expected);
        assert!(cq.poll().unwrap().is_none());
        assert!(cq.poll().unwrap().is_none());
    }
}

/// Again, with room for more than there are.
#[test]
fn an_extended_queue_fills_an_array_with_what_there_is_and_no_more() {
    let (cq, qp, b) = on_extended_queue::<(Opcode,)>();
    let mut room = [ExtendedCompletion::default(); 16];
    for round in 0..40_u64 {
        let count = round % 7 + 1;
        let mut receives: Vec<_> = (0..count).map(|wr_id| ReceiveRequest::new(wr_id, &[])).collect();
        b.qp.post_receive_chain(&mut receives).unwrap();
        let first = 100 * round;
        let mut sends: Vec<_> = (0..count).map(|i| SendRequest::send(first + i, &[]).signaled()).collect();
        qp.post_send_chain(&mut sends).unwrap();
        b.completions(count as usize);
        let mut found = Vec::new();
        let deadline = Instant::now() + LIMIT;
        while (found.len() as u64) < count {
            assert!(Instant::now() < deadline, "{found:?}");
            for completion in cq.poll_into(&mut room).unwrap() {
                assert_eq!(completion.success().unwrap(), (WorkCompletionOpcode::SEND,));
                found.push(completion.wr_id());
            }
        }
        assert_eq!(found, (first..first + count).collect::<Vec<_>>());
        for _ in 0..3 {
            assert!(cq.poll_into(&mut room).unwrap().is_empty());
        }
    }
}

#[test]
fn a_failed_request_is_told_by_an_extended_queue() {
    let (cq, qp, _b) = on_extended_queue::<(ByteLen,)>();
    qp.post_send(&SendRequest::send(1, &[]).signaled()).unwrap();
    qp.move_to_error().unwrap();
    let completion = cq.wait(Some(LIMIT)).unwrap().unwrap();
    let error = completion.success().unwrap_err();
    assert_eq!((error.wr_id, error.status), (1, WorkCompletionStatus::WORK_REQUEST_FLUSHED));
    assert_eq!(error.qp_num, qp.qp_num());
}

#[test]
fn timestamps_grow_or_are_unsupported() {
    let context = open();
    match CompletionQueueBuilder::new(&context, 16).build_extended::<(Timestamp,)>() {
        Err(error) => assert!(matches!(error, Error::Unsupported { .. }), "{error}"),
        Ok(_) => {
            let (cq, qp, b) = on_extended_queue::<(Timestamp,)>();
            let mut last = 0;
            for wr_id in 0..8 {
                b.qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
                qp.post_send(&SendRequest::send(wr_id, &[]).signaled()).unwrap();
                let (timestamp,) = cq.wait(Some(LIMIT)).unwrap().unwrap().success().unwrap();
                assert!(timestamp > last);
                last = timestamp;
            }
        }
    }
}

/// What a device that knows the flag does with more completions than the queue holds, and the clean error of one that does not.
#[test]
fn a_queue_that_ignores_overruns_goes_on_or_is_unsupported() {
    let b = Side::on(open());
    let queue = CompletionQueueBuilder::new(&b.context, 4).ignore_overrun().build();
    let cq = match queue {
        Ok(cq) => cq,
        Err(error) => return assert!(matches!(error, Error::Unsupported { .. }), "{error}"),
    };
    let slots = cq.capacity() + 4;
    let qp = QueuePair::<Rc>::builder(&b.pd, &cq, &cq).max_send_wr(slots).build().unwrap();
    let (from, to) = (qp.local_endpoint(1, &GidFilter::default()).unwrap(), b.local());
    qp.connect(&from, &to.endpoint, &options()).unwrap();
    b.qp.connect(&to, &from.endpoint, &options()).unwrap();
    let target = b.region(8, RW);
    let remote = target.remote_slice(..).unwrap();
    for wr_id in 0..slots.into() {
        qp.post_send(&SendRequest::rdma_write(wr_id, &[], remote).signaled()).unwrap();
    }
    let mut room = [WorkCompletion::default(); 16];
    let deadline = std::time::Instant::now() + LIMIT;
    let mut last = None;
    while last != Some(u64::from(slots) - 1) {
        assert!(std::time::Instant::now() < deadline, "the last completion that came is {last:?}");
        last = cq.poll(&mut room).unwrap().last().map(WorkCompletion::wr_id).or(last);
    }
}

#[test]
fn a_datagram_on_an_extended_queue_tells_its_sender() {
    const QKEY: u32 = 0x1111_1111;
    let context = open();
    let pd = context.create_protection_domain().unwrap();
    let channel = context.create_completion_channel().unwrap();
    type Sender = (SourceQueuePair, SourceLid, ServiceLevel, DestinationPathBits, ByteLen, ReceivedDatagram);
    let cq = CompletionQueueBuilder::new(&context, 16).channel(&channel).build_extended::<Sender>().unwrap();
    let end = || {
        let queue = cq.as_completion_queue();
        let qp = QueuePair::<Ud>::builder(&pd, queue, queue).build().unwrap();
        let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
        qp.activate(&local, QKEY).unwrap();
        (qp, local)
    };
    let ((a, from), (b, to)) = (end(), end());
    let mut region = pd.register(vec![0; 300], RW).unwrap();
    region.write_at(0, b"a question").unwrap();
    let room = |start| [region.slice(start..start + 100).unwrap()];
    b.post_receive(&ReceiveRequest::new(1, &room(100))).unwrap();
    a.post_receive(&ReceiveRequest::new(3, &room(200))).unwrap();
    let ah = pd.create_address_handle_to(&from, &to.endpoint).unwrap();
    a.post_send(&SendRequest::send_to(2, &[region.slice(..10).unwrap()], &ah, b.qp_num(), QKEY).signaled()).unwrap();
    let mut arrived = None;
    for _ in 0..2 {
        let completion = cq.wait(Some(LIMIT)).unwrap().unwrap();
        let (source, lid, service_level, path_bits, byte_len, datagram) = completion.success().unwrap();
        assert_eq!(datagram.is_some(), completion.wr_id() == 1, "{completion:?}");
        if datagram.is_some() {
            // On RoCE there are no LIDs, and this sender asked for no service level.
            assert_eq!((source, lid, service_level, path_bits, byte_len), (a.qp_num(), 0, 0, 0, 50));
            arrived = datagram;
        }
    }
    let datagram = arrived.expect("the receive came");
    assert_eq!((datagram.source_qp_num(), datagram.payload_at(100), datagram.has_grh()), (a.qp_num(), 140..150, true));
    assert_eq!(region.to_vec(datagram.payload_at(100)).unwrap(), b"a question");
    // The answer finds its way back by what the completion and the header tell.
    let grh = datagram.grh(&region, 100).unwrap();
    let back = pd.create_address_handle_from_completion(1, &datagram, grh.as_ref()).unwrap();
    let answer = [region.slice(140..150).unwrap()];
    b.post_send(&SendRequest::send_to(4, &answer, &back, datagram.source_qp_num(), QKEY).signaled()).unwrap();
    let mut ids = [0; 2].map(|_: u64| cq.wait(Some(LIMIT)).unwrap().unwrap().wr_id());
    ids.sort_unstable();
    assert_eq!(ids, [3, 4]);
    assert_eq!(region.to_vec(240..250).unwrap(), b"a question");
}

#[test]
fn fields_that_the_device_does_not_have_are_unsupported() {
    fn make<F: CompletionFields>(context: &Context) -> Option<Error> {
        CompletionQueueBuilder::new(context, 16).build_extended::<F>().err()
    }
    let context = open();
    if context.device_attributes().unwrap().vendor_id() == 0xff_ffff {
        for error in [make::<(CustomerVlan,)>(&context), make::<(FlowTag,)>(&context), make::<(WallClock,)>(&context)] {
            assert!(matches!(error, Some(Error::Unsupported { .. })), "{error:?}");
        }
    }
}
