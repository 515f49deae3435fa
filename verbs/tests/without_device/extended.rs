use verbs::completion_field::*;
use verbs::*;

use crate::null_provider::{BadWr, CVLAN, FLOW_TAG, Fault, NullProvider, Refusal, TIMESTAMP};
use crate::{Bench, LONG, connect};

type Fields = (Opcode, ByteLen, ImmData, QueuePairNumber, Timestamp);

fn bench() -> Bench {
    Bench::build(|builder| builder.max_send_sge(4).max_inline_data(64).max_send_wr(16).require_extended())
}

/// One request of each operation; the result of an atomic one is to go to `word`.
fn all<'a>(
    slices: &'a [LocalSlice<'a>],
    word: &'a [LocalSlice<'a>],
    inline: &'a [InlineSlice<'a>],
) -> Vec<SendRequest<'a>> {
    let remote = RemoteSlice::new(0x1000, 64, 7).unwrap();
    let requests = vec![
        SendRequest::send(0, slices),
        SendRequest::send_with_imm(1, slices, 1),
        SendRequest::rdma_write(2, slices, remote),
        SendRequest::rdma_write_with_imm(3, slices, remote, 1),
        SendRequest::rdma_read(4, slices, remote),
        SendRequest::compare_and_swap(5, word, remote, 1, 2),
        SendRequest::fetch_and_add(6, word, remote, 1),
        SendRequest::send_inline(7, inline),
        SendRequest::send_inline_with_imm(8, inline, 1),
        SendRequest::rdma_write_inline(9, inline, remote),
        SendRequest::rdma_write_inline_with_imm(10, inline, remote, 1),
        SendRequest::send_with_invalidate(11, slices, 7),
        SendRequest::send_inline_with_invalidate(12, inline, 7),
        SendRequest::local_invalidate(13, 7),
    ];
    requests.into_iter().map(SendRequest::signaled).collect()
}

#[test]
fn each_operation_does_the_same_through_both_interfaces() {
    let bench = bench();
    let extended = bench.qp.extended().unwrap();
    let outcomes = || -> Vec<_> {
        let mut room = [WorkCompletion::default(); 16];
        let completions = bench.cq.poll(&mut room).unwrap();
        completions.iter().map(|wc| (wc.wr_id(), wc.success().unwrap().opcode())).collect()
    };
    let slices = [bench.region.slice(..8).unwrap(); 4];
    let inline = [InlineSlice::new(&[0; 8]); 4];
    for pieces in 0..=4 {
        // An atomic operation has 8 bytes, in as many pieces.
        let lengths: &[usize] = [&[8][..], &[8], &[4, 4], &[4, 2, 2], &[2, 2, 2, 2]][pieces];
        let word: Vec<_> = lengths.iter().map(|length| bench.region.slice(..*length).unwrap()).collect();
        let mut requests = all(&slices[..pieces], &word, &inline[..pieces]);
        bench.qp.post_send_chain(&mut requests).unwrap();
        let plain = outcomes();
        assert_eq!(plain.len(), 14);
        extended.post_send_chain(&mut requests).unwrap();
        assert_eq!(outcomes(), plain);
        for request in &requests {
            extended.post_send(request).unwrap();
        }
        assert_eq!(outcomes(), plain);
    }
    let prepared = PreparedSend::send(77, [bench.region.hold(..64).unwrap()]).signaled();
    extended.post_prepared_send(&prepared).unwrap();
    assert_eq!(outcomes(), [(77, WorkCompletionOpcode::SEND)]);
    bench.provider.assert_no_violation();
}

#[test]
fn a_chain_that_the_provider_refuses_is_not_posted_at_all() {
    let bench = bench();
    let extended = bench.qp.extended().unwrap();
    let mut chain: Vec<SendRequest> = (0..17).map(|wr_id| SendRequest::send(wr_id, &[]).signaled()).collect();
    let error = extended.post_send_chain(&mut chain).unwrap_err();
    assert_eq!((error.kind(), error.accepted(), error.requests()), (PostErrorKind::QueueFull, Some(0), 17));
    assert!(error.to_string().starts_with("ibv_wr_complete: "), "{error}");
    assert_eq!(bench.polled(), []);
    extended.post_send_chain(&mut chain[..16]).unwrap();
    assert_eq!(bench.polled().len(), 16);
    // Of another error it is not known what the device took.
    bench.provider.refuse(Refusal { after: 1, errno: libc::EIO, bad_wr: BadWr::Refused });
    assert_eq!(extended.post_send_chain(&mut chain[..3]).unwrap_err().accepted(), None);
    bench.provider.refuse(Refusal { after: 0, errno: libc::ENOSPC, bad_wr: BadWr::Refused });
    let error = extended.post_send(&chain[0]).unwrap_err();
    assert_eq!((error.kind(), error.accepted()), (PostErrorKind::QueueFull, Some(0)));
    bench.qp.reset().unwrap();
    let error = extended.post_send(&chain[0]).unwrap_err();
    assert_eq!((error.kind(), error.accepted()), (PostErrorKind::Invalid, None));
    bench.provider.assert_no_violation();
}

#[test]
fn a_chain_is_posted_up_to_the_request_that_does_not_fit() {
    let bench = bench();
    let extended = bench.qp.extended().unwrap();
    let (short, long) = ([InlineSlice::new(&[0; 64])], [InlineSlice::new(&[0; 65])]);
    let pieces = [InlineSlice::new(&[]); 33];
    for unfit in [&long[..], &pieces[..]] {
        let mut chain = [
            SendRequest::send_inline(0, &short).signaled(),
            SendRequest::send_inline(1, unfit).signaled(),
            SendRequest::send_inline(2, &short).signaled(),
        ];
        let error = extended.post_send_chain(&mut chain).unwrap_err();
        assert_eq!((error.kind(), error.accepted()), (PostErrorKind::Invalid, Some(1)));
        assert_eq!(bench.polled(), [0]);
        assert_eq!(extended.post_send(&chain[1]).unwrap_err().accepted(), Some(0));
    }
    extended.post_send_chain::<[SendRequest; 0]>(&mut []).unwrap();
    assert_eq!(bench.polled(), []);
}

#[test]
fn a_provider_without_the_extended_interface_is_unsupported_or_makes_plain_queue_pairs() {
    let bench = Bench::new();
    assert!(bench.qp.extended().is_none());
    let builder = || QueuePair::<Rc>::builder(&bench.pd, &bench.cq, &bench.cq);
    for errno in [libc::EOPNOTSUPP, libc::ENOSYS] {
        bench.provider.fail("ibv_create_qp_ex", errno);
        assert!(matches!(builder().require_extended().build(), Err(Error::Unsupported { .. })));
        bench.provider.fail("ibv_create_qp_ex", errno);
        let qp = builder().prefer_extended().build().unwrap();
        assert!(qp.extended().is_none());
        connect(&qp);
        qp.post_send(&SendRequest::send(1, &[]).signaled()).unwrap();
        assert_eq!(bench.polled(), [1]);
    }
    // A builder that is asked for and not there is as good as none at all.
    bench.provider.lack_builders();
    assert!(matches!(builder().require_extended().build(), Err(Error::Unsupported { .. })));
    bench.provider.lack_builders();
    assert!(builder().prefer_extended().build().unwrap().extended().is_none());
    assert!(builder().prefer_extended().build().unwrap().extended().is_some());
    // Other errors are not covered up.
    bench.provider.fail("ibv_create_qp_ex", libc::ENOMEM);
    let error = builder().prefer_extended().build().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
}

#[test]
fn an_atomic_write_is_handed_over_as_it_is() {
    let bench = Bench::build(|builder| builder.max_send_wr(2).require_extended().extended_atomic_write());
    let extended = bench.qp.extended().unwrap();
    let remote = RemoteSlice::new(0x1008, 8, 7).unwrap();
    let request = AtomicWriteRequest::new(3, remote, [1, 2, 3, 4, 5, 6, 7, 8]);
    extended.post_atomic_write(&request).unwrap();
    extended.post_atomic_write(&request.signaled().fenced()).unwrap();
    assert_eq!(bench.provider.atomic_writes(), [(7, 0x1008, [1, 2, 3, 4, 5, 6, 7, 8]); 2]);
    let mut room = [WorkCompletion::default(); 2];
    let completions = bench.cq.poll(&mut room).unwrap();
    assert_eq!(completions.len(), 1);
    let done = completions[0].success().unwrap();
    assert_eq!((done.wr_id(), done.opcode()), (3, WorkCompletionOpcode::ATOMIC_WRITE));
    bench.provider.refuse(Refusal { after: 0, errno: libc::ENOMEM, bad_wr: BadWr::Refused });
    match extended.post_atomic_write(&request) {
        Err(Error::Post(error)) => assert_eq!(error.accepted(), Some(0)),
        other => panic!("{other:?}"),
    }
    bench.provider.assert_no_violation();
}

#[test]
fn an_operation_that_was_not_asked_for_is_refused_by_name() {
    let bench = Bench::build(QueuePairBuilder::require_extended);
    let remote = RemoteSlice::new(0x1000, 8, 7).unwrap();
    let error = bench.qp.extended().unwrap().post_atomic_write(&AtomicWriteRequest::new(1, remote, [0; 8]));
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("ibv_wr_atomic_write: qp is QueuePair"), "{error}");
    assert!(error.ends_with("it is to be made with `extended_atomic_write`"), "{error}");
    assert_eq!(bench.provider.atomic_writes(), []);
}

#[test]
fn what_the_device_or_its_provider_cannot_do_is_unsupported_when_the_queue_pair_is_made() {
    let bench = Bench::new();
    let builder = || QueuePair::<Rc>::builder(&bench.pd, &bench.cq, &bench.cq).extended_atomic_write();
    bench.provider.lack_builders();
    assert!(matches!(builder().require_extended().build(), Err(Error::Unsupported { .. })));
    builder().require_extended().build().unwrap();
    bench.provider.lack_atomic_write_and_flush();
    let error = builder().require_extended().build().unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }));
    assert!(error.to_string().contains("with atomic write"), "{error}");
    assert!(builder().prefer_extended().build().unwrap().extended().is_none());
    bench.provider.assert_no_violation();
}

#[cfg(rdma_core_45)]
#[test]
fn a_flush_is_handed_over_as_it_is() {
    let bench = Bench::build(|builder| builder.require_extended().extended_flush());
    let extended = bench.qp.extended().unwrap();
    let remote = RemoteSlice::new(0x1000, 100, 7).unwrap();
    let (both, global) = (PlacementType::all(), PlacementType::GLOBAL);
    extended.post_flush(&FlushRequest::new(1, remote, global, SelectivityLevel::RANGE)).unwrap();
    extended.post_flush(&FlushRequest::new(2, remote, both, SelectivityLevel::MEMORY_REGION).signaled()).unwrap();
    assert_eq!(bench.provider.flushes(), [(7, 0x1000, 100, 1, 0), (7, 0x1000, 0, 3, 1)]);
    let mut room = [WorkCompletion::default(); 2];
    let done = bench.cq.poll(&mut room).unwrap()[0].success().unwrap();
    assert_eq!((done.wr_id(), done.opcode()), (2, WorkCompletionOpcode::FLUSH));
    let nothing = FlushRequest::new(3, remote, PlacementType::empty(), SelectivityLevel::RANGE);
    assert!(matches!(extended.post_flush(&nothing), Err(Error::InvalidArgument { argument: "type", .. })));
    let without = Bench::build(QueuePairBuilder::require_extended);
    let error = without.qp.extended().unwrap().post_flush(&FlushRequest::new(1, remote, both, SelectivityLevel::RANGE));
    assert!(error.unwrap_err().to_string().ends_with("it is to be made with `extended_flush`"));
    bench.provider.lack_atomic_write_and_flush();
    let builder = QueuePair::<Rc>::builder(&bench.pd, &bench.cq, &bench.cq).require_extended().extended_flush();
    let error = builder.build().unwrap_err();
    assert!(error.to_string().contains("with flush"), "{error}");
    bench.provider.assert_no_violation();
}

#[test]
fn a_key_that_was_invalidated_and_a_header_are_told_where_their_flags_are_set() {
    let provider = NullProvider::new();
    let (cq, qp) = extended_queue::<(InvalidatedRkey, ImmData, HasGrh)>(&provider);
    let receive = |flags: u32, data: u32| {
        qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
        provider.complete_with_flags(flags, data);
        let completion = cq.poll().unwrap().unwrap();
        assert_eq!(completion.to_string(), "request 1: success");
        completion.success().unwrap()
    };
    let bit = |flag: ffi::ibv_wc_flags| flag.0;
    let (inv, imm, grh) = (
        bit(ffi::ibv_wc_flags::IBV_WC_WITH_INV),
        bit(ffi::ibv_wc_flags::IBV_WC_WITH_IMM),
        bit(ffi::ibv_wc_flags::IBV_WC_GRH),
    );
    // A key is in host byte order, and immediate data in that of the wire.
    assert_eq!(receive(inv, 0x1234), (Some(0x1234), None, false));
    assert_eq!(receive(imm | grh, 0x1234_u32.to_be()), (None, Some(0x1234), true));
    assert_eq!(receive(0, 7), (None, None, false));
}

/// A queue with the fields, and a queue pair on it.
fn extended_queue<F: CompletionFields>(provider: &NullProvider) -> (ExtendedCompletionQueue<F>, QueuePair<Rc>) {
    let context = provider.open();
    let pd = context.create_protection_domain().unwrap();
    let channel = context.create_completion_channel().unwrap();
    let cq = CompletionQueueBuilder::new(&context, 64).channel(&channel).build_extended::<F>().unwrap();
    let qp = QueuePair::builder(&pd, cq.as_completion_queue(), cq.as_completion_queue()).build().unwrap();
    connect(&qp);
    (cq, qp)
}

#[test]
fn a_completion_has_the_fields_that_were_asked_for() {
    let provider = NullProvider::new();
    let (cq, qp) = extended_queue::<Fields>(&provider);
    assert!(cq.poll().unwrap().is_none());
    for wr_id in 0..3 {
        qp.post_send(&SendRequest::send(wr_id, &[]).signaled()).unwrap();
    }
    for wr_id in 0..2 {
        let completion = cq.poll().unwrap().unwrap();
        assert_eq!((completion.wr_id(), completion.status()), (wr_id, WorkCompletionStatus::SUCCESS));
        let expected = (WorkCompletionOpcode::SEND, 0, None, qp.qp_num(), TIMESTAMP);
        assert_eq!(completion.success().unwrap(), expected);
    }
    // The plain way finds what is left.
    let mut room = [WorkCompletion::default(); 4];
    assert_eq!(cq.as_completion_queue().poll(&mut room).unwrap()[0].wr_id(), 2);
    assert!(cq.clone().poll().unwrap().is_none());
    provider.assert_no_violation();
}

#[test]
fn a_packet_tells_its_vlan_and_the_rule_that_steered_it() {
    let provider = NullProvider::new();
    let (cq, qp) = extended_queue::<(CustomerVlan, FlowTag)>(&provider);
    qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
    assert_eq!(cq.poll().unwrap().unwrap().success().unwrap(), (CVLAN, FLOW_TAG));
    provider.assert_no_violation();
}

#[test]
fn no_fields_are_enough_to_know_what_completed() {
    let provider = NullProvider::new();
    let (cq, qp) = extended_queue::<()>(&provider);
    qp.post_send(&SendRequest::send(5, &[]).signaled()).unwrap();
    let completion = cq.poll().unwrap().unwrap();
    assert_eq!((completion.wr_id(), completion.success().unwrap()), (5, ()));
}

#[test]
fn a_failed_completion_names_its_queue_pair_and_no_fields() {
    let provider = NullProvider::new();
    let (cq, qp) = extended_queue::<(ByteLen,)>(&provider);
    for (status, expected) in [
        (ffi::ibv_wc_status::IBV_WC_WR_FLUSH_ERR.0, WorkCompletionStatus::WORK_REQUEST_FLUSHED),
        (99, WorkCompletionStatus::from_raw(99)),
    ] {
        provider.complete_with(status, 77);
        qp.post_send(&SendRequest::send(5, &[]).signaled()).unwrap();
        let completion = cq.poll().unwrap().unwrap();
        assert_eq!(completion.status(), expected);
        let error = completion.success().unwrap_err();
        assert_eq!((error.wr_id, error.status, error.qp_num), (5, expected, qp.qp_num()));
    }
}

#[test]
fn completions_are_taken_as_many_as_there_is_room_for_under_one_lock() {
    let provider = NullProvider::new();
    for has_next in [true, false] {
        if !has_next {
            provider.lack_next_poll();
        }
        let (cq, qp) = extended_queue::<(QueuePairNumber,)>(&provider);
        let mut room = [ExtendedCompletion::default(); 8];
        assert_eq!(room[7].status(), WorkCompletionStatus::GENERAL_ERROR);
        assert!(cq.poll_into(&mut room).unwrap().is_empty());
        let post = |count| {
            for wr_id in 0..count {
                qp.post_send(&SendRequest::send(wr_id, &[]).signaled()).unwrap();
            }
        };
        let found = |completions: &[ExtendedCompletion<_>]| {
            let seen = |completion: &ExtendedCompletion<(QueuePairNumber,)>| {
                assert_eq!(completion.success().unwrap(), (qp.qp_num(),));
                completion.wr_id()
            };
            completions.iter().map(seen).collect::<Vec<_>>()
        };
        post(10);
        let before = provider.starts();
        assert!(cq.poll_into(&mut []).unwrap().is_empty());
        assert_eq!(found(cq.poll_into(&mut room[..3]).unwrap()), [0, 1, 2]);
        assert_eq!(found(cq.poll_into(&mut room[..1]).unwrap()), [3]);
        assert_eq!(found(cq.poll_into(&mut room).unwrap()), [4, 5, 6, 7, 8, 9]);
        assert!(cq.poll_into(&mut room).unwrap().is_empty());
        // One by one, each is a start, and so is finding nothing.
        assert_eq!(provider.starts() - before, if has_next { 4 } else { 12 });

        // A failed request among others.
        post(1);
        provider.complete_with(ffi::ibv_wc_status::IBV_WC_REM_ACCESS_ERR.0, 77);
        post(2);
        let all = cq.poll_into(&mut room).unwrap();
        let statuses: Vec<_> = all.iter().map(|completion| completion.status().as_raw()).collect();
        assert_eq!(statuses, [0, ffi::ibv_wc_status::IBV_WC_REM_ACCESS_ERR.0, 0]);

        // What was found before the queue broke is not lost.
        post(2);
        if has_next {
            provider.fault("ibv_next_poll", Fault { errno: libc::EIO, returns: None });
            assert_eq!(found(cq.poll_into(&mut room).unwrap()), [0]);
        }
        provider.fault("ibv_start_poll", Fault { errno: libc::EIO, returns: None });
        let error = cq.poll_into(&mut room).unwrap_err();
        assert_eq!(error.raw_os_error(), libc::EIO);
        assert!(error.to_string().starts_with("ibv_start_poll: "), "{error}");
        assert_eq!(cq.poll_into(&mut room).unwrap().len(), if has_next { 1 } else { 2 });
    }
    provider.assert_no_violation();
}

#[test]
fn a_wait_finds_what_was_there_and_what_comes_later() {
    let provider = NullProvider::new();
    let (cq, qp) = extended_queue::<(Opcode,)>(&provider);
    qp.post_send(&SendRequest::send(1, &[]).signaled()).unwrap();
    assert_eq!(cq.wait(Some(LONG)).unwrap().unwrap().wr_id(), 1);
    assert!(cq.wait(Some(std::time::Duration::from_millis(1))).unwrap().is_none());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| cq.wait(Some(LONG)).unwrap().unwrap().wr_id());
        qp.post_send(&SendRequest::send(2, &[]).signaled()).unwrap();
        assert_eq!(waiter.join().unwrap(), 2);
    });
    provider.assert_no_violation();
}

#[test]
fn a_poll_that_fails_tells_the_error_number() {
    let provider = NullProvider::new();
    let (cq, _qp) = extended_queue::<()>(&provider);
    for (returned, errno) in [(libc::EIO, libc::EIO), (-libc::ENODEV, libc::ENODEV), (i32::MIN, i32::MAX)] {
        provider.fault("ibv_start_poll", Fault { errno, returns: Some(returned) });
        assert_eq!(cq.poll().unwrap_err().raw_os_error(), errno);
    }
    assert!(cq.poll().unwrap().is_none());
    provider.assert_no_violation();
}

#[test]
fn fields_that_the_provider_lacks_are_unsupported() {
    let provider = NullProvider::new();
    let context = provider.open();
    let builder = || CompletionQueueBuilder::new(&context, 64);
    assert!(matches!(builder().build_extended::<(WallClock,)>(), Err(Error::Unsupported { .. })));
    provider.lack_readers();
    assert!(matches!(builder().build_extended::<(ByteLen,)>(), Err(Error::Unsupported { .. })));
    provider.fail("ibv_create_cq_ex", libc::ENOMEM);
    assert_eq!(builder().build_extended::<()>().unwrap_err().raw_os_error(), Some(libc::ENOMEM));
    drop(context);
    provider.assert_clean();
}

#[test]
fn a_queue_is_made_as_it_was_asked_for() {
    let provider = NullProvider::new();
    let context = provider.open();
    let builder = || CompletionQueueBuilder::new(&context, 64);
    let mask = ffi::ibv_cq_init_attr_mask::IBV_CQ_INIT_ATTR_MASK_FLAGS.0;
    let ignore = ffi::ibv_create_cq_attr_flags::IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN.0;
    let single = ffi::ibv_create_cq_attr_flags::IBV_CREATE_CQ_ATTR_SINGLE_THREADED.0;
    builder().build_extended::<()>().unwrap();
    assert_eq!(provider.creation_flags(), (0, 0));
    builder().ignore_overrun().build_extended::<()>().unwrap();
    assert_eq!(provider.creation_flags(), (mask, ignore));
    // SAFETY: this thread is the only one.
    unsafe { builder().single_threaded() }.ignore_overrun().build().unwrap();
    assert_eq!(provider.creation_flags(), (mask, ignore | single));
    provider.fail("ibv_create_cq_ex", libc::EOPNOTSUPP);
    assert!(matches!(builder().ignore_overrun().build(), Err(Error::Unsupported { .. })));
}
