//! Requests in their other forms: inline, prepared, in batches, signaled now and then, received into slots; and atomics.

use std::sync::atomic::{AtomicU64, Ordering};

use verbs::*;

use crate::harness::*;

/// Two connected queue pairs with room for inline data and long queues.
fn wide_pair() -> (Side, Side) {
    let context = open();
    let wide = |builder: QueuePairBuilder<Rc>| {
        builder.max_send_wr(32).max_recv_wr(32).max_send_sge(4).max_recv_sge(4).max_inline_data(64)
    };
    let (a, b) = (Side::build(context.clone(), wide), Side::build(context, wide));
    connect(&a, &b, &options());
    (a, b)
}

#[test]
fn inline_data_arrives_though_its_memory_was_used_for_something_else() {
    let (a, b) = wide_pair();
    let target = b.region(1000, RW);
    let limit = a.qp.capabilities().max_inline_data as usize;
    assert!(limit >= 64);
    for length in [0, 1, 5, 64] {
        let mut message = pattern(length);
        b.qp.post_receive(&ReceiveRequest::new(1, &[target.slice(..).unwrap()])).unwrap();
        a.qp.post_send(&SendRequest::send_inline(2, &[InlineSlice::new(&message)]).signaled()).unwrap();
        message.fill(0xff);
        a.completion().success().unwrap();
        assert_eq!(b.completion().success().unwrap().byte_len(), Some(length as u32));
        assert_eq!(target.to_vec(..length).unwrap(), pattern(length));
    }
    // Several pieces, by RDMA WRITE, with immediate.
    let message = pattern(60);
    let pieces = [InlineSlice::new(&message[..7]), InlineSlice::new(&[]), InlineSlice::new(&message[7..])];
    b.qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
    let remote = target.remote_slice(500..560).unwrap();
    a.qp.post_send(&SendRequest::rdma_write_inline_with_imm(2, &pieces, remote, 0x0102_0304)).unwrap();
    assert_eq!(b.completion().success().unwrap().imm_data(), Some(0x0102_0304));
    assert_eq!(target.to_vec(500..560).unwrap(), message);
    let remote = target.remote_slice(600..660).unwrap();
    a.qp.post_send(&SendRequest::rdma_write_inline(3, &pieces, remote).signaled()).unwrap();
    a.completion().success().unwrap();
    assert_eq!(target.to_vec(600..660).unwrap(), message);
}

#[test]
fn one_byte_of_inline_data_too_many_is_refused_and_the_chain_before_it_arrives() {
    let (a, b) = wide_pair();
    let target = b.region(1000, RW);
    let limit = a.qp.capabilities().max_inline_data as usize;
    let bytes = pattern(limit + 1);
    let (whole, more) = ([InlineSlice::new(&bytes[..limit])], [InlineSlice::new(&bytes)]);
    for _ in 0..2 {
        b.qp.post_receive(&ReceiveRequest::new(1, &[target.slice(..).unwrap()])).unwrap();
    }
    let mut chain = [
        SendRequest::send_inline(1, &whole).signaled(),
        SendRequest::send_inline(2, &more).signaled(),
        SendRequest::send_inline(3, &whole).signaled(),
    ];
    let error = a.qp.post_send_chain(&mut chain).unwrap_err();
    assert_eq!((error.kind(), error.accepted(), error.requests()), (PostErrorKind::Invalid, Some(1), 3));
    assert_eq!(a.completion().wr_id(), 1);
    // The queue pair is as good as before.
    a.qp.post_send(&chain[2]).unwrap();
    assert_eq!(a.completion().wr_id(), 3);
    assert!(b.completions(2).iter().all(|wc| wc.success().unwrap().byte_len() == Some(limit as u32)));
    assert_eq!(target.to_vec(..limit).unwrap(), pattern(limit));
}

#[test]
fn atomics_change_the_peers_memory_and_fetch_what_was_there() {
    let (a, b) = wide_pair();
    let counters: Box<[AtomicU64]> = [5, 7].map(AtomicU64::new).into();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_ATOMIC;
    let target = b.pd.register(counters, access).unwrap();
    let before = a.pd.register(Box::<[AtomicU64]>::from([const { AtomicU64::new(0) }; 2]), access).unwrap();
    let (slices, second) = ([before.slice(..8).unwrap()], [before.slice(8..).unwrap()]);
    let done = |operation| {
        let completion = a.completion();
        let success = completion.success().unwrap();
        assert_eq!((success.opcode(), success.byte_len()), (operation, Some(8)));
        before.as_atomics()[0].load(Ordering::Relaxed)
    };
    let (five, seven) = (target.remote_slice(..8).unwrap(), target.remote_slice(8..).unwrap());
    a.qp.post_send(&SendRequest::fetch_and_add(1, &slices, five, 10).signaled()).unwrap();
    assert_eq!(done(WorkCompletionOpcode::FETCH_AND_ADD), 5);
    // It wraps around.
    a.qp.post_send(&SendRequest::fetch_and_add(2, &slices, five, u64::MAX).signaled()).unwrap();
    assert_eq!(done(WorkCompletionOpcode::FETCH_AND_ADD), 15);
    a.qp.post_send(&SendRequest::compare_and_swap(3, &slices, five, 14, 1 << 60).signaled()).unwrap();
    assert_eq!(done(WorkCompletionOpcode::COMPARE_AND_SWAP), 14);
    a.qp.post_send(&SendRequest::compare_and_swap(4, &slices, five, 14, 0).signaled()).unwrap();
    assert_eq!(done(WorkCompletionOpcode::COMPARE_AND_SWAP), 1 << 60);
    let value = |index: usize| target.as_atomics()[index].load(Ordering::Relaxed);
    assert_eq!((value(0), value(1)), (1 << 60, 7));
    // A prepared one, changed in place: other operands, another word, another place for the result.
    let mut add = PreparedAtomic::fetch_and_add(5, [before.hold(..8).unwrap()], five, 1).unwrap().signaled();
    a.qp.post_prepared_send(&add).unwrap();
    assert_eq!(done(WorkCompletionOpcode::FETCH_AND_ADD), 1 << 60);
    add.set_remote(seven).unwrap();
    add.set_operands(100, 0);
    add.set_range(0, 8..16).unwrap();
    a.qp.post_prepared_send(&add).unwrap();
    a.completion().success().unwrap();
    assert_eq!((value(1), before.as_atomics()[1].load(Ordering::Relaxed)), (107, 7));
    a.qp.post_send(&SendRequest::fetch_and_add(6, &second, seven, 0).signaled()).unwrap();
    a.completion().success().unwrap();
    assert_eq!(before.as_atomics()[1].load(Ordering::Relaxed), 107);
}

#[test]
fn a_prepared_request_takes_effect_as_it_was_at_the_time_of_the_post() {
    let (a, b) = wide_pair();
    let mut source = a.region(1600, RW);
    source.write_at(0, &pattern(1600)).unwrap();
    let target = b.region(1600, RW);
    let remote = |range: std::ops::Range<usize>| target.remote_slice(range).unwrap();
    let halves = [source.hold(..50).unwrap(), source.hold(50..100).unwrap()];
    let mut write = PreparedSend::rdma_write_with_imm(0, halves, remote(0..100), 0).signaled();
    let receive = PreparedReceive::new(7, [target.hold(..0).unwrap()]);
    for slot in 0..16u32 {
        let start = slot as usize * 100;
        write.set_wr_id(slot.into());
        write.set_imm_data(slot << 24 | slot).unwrap();
        write.set_range(0, start..start + 30).unwrap();
        write.set_range(1, start + 30..start + 100).unwrap();
        write.set_remote(remote(start..start + 100)).unwrap();
        b.qp.post_prepared_receive(&receive).unwrap();
        a.qp.post_prepared_send(&write).unwrap();
    }
    let sent: Vec<u64> = a.completions(16).iter().map(WorkCompletion::wr_id).collect();
    assert_eq!(sent, (0..16).collect::<Vec<_>>());
    let arrived: Vec<_> = b.completions(16).iter().map(|wc| wc.success().unwrap().imm_data()).collect();
    assert_eq!(arrived, (0..16).map(|slot| Some(slot << 24 | slot)).collect::<Vec<_>>());
    assert_eq!(target.to_vec(..).unwrap(), pattern(1600));
}

#[test]
fn chains_of_prepared_requests_arrive_in_their_order() {
    let (a, b) = wide_pair();
    let mut source = a.region(160, RW);
    let target = b.region(160, RW);
    let mut receives: Vec<_> =
        (0..16).map(|i| PreparedReceive::new(i as u64, [target.hold(10 * i..10 * i + 10).unwrap()])).collect();
    let mut sends: Vec<_> =
        (0..16).map(|i| PreparedSend::send(i as u64, [source.hold(10 * i..10 * i + 10).unwrap()]).signaled()).collect();
    for round in 0..3 {
        // The region can be written to though the requests hold it.
        source.write_at(0, &pattern(160 + round)[round..]).unwrap();
        b.qp.post_receive_chain(&mut receives).unwrap();
        a.qp.post_send_chain(&mut sends).unwrap();
        assert_eq!(a.completions(16).iter().map(WorkCompletion::wr_id).sum::<u64>(), 120);
        b.completions(16);
        assert_eq!(target.to_vec(..).unwrap(), pattern(160 + round)[round..]);
    }
}

#[test]
fn a_batch_with_lists_of_all_lengths_arrives() {
    let (a, b) = wide_pair();
    let mut source = a.region(1000, RW);
    source.write_at(0, &pattern(1000)).unwrap();
    let target = b.region(1000, RW);
    let mut batch = SendBatch::with_capacity(1);
    for _ in 0..2 {
        let inline = [InlineSlice::new(b"inline")];
        let mut chain = batch.begin();
        for pieces in 0..=4 {
            let slices: Vec<_> = (0..pieces).map(|i| source.slice(100 * i..100 * i + 25).unwrap()).collect();
            let write = SendRequest::rdma_write(pieces as u64, &[], target.remote_slice(200 * pieces..).unwrap());
            chain.push_with(write.signaled(), &slices);
        }
        chain.push(SendRequest::rdma_write_inline(5, &inline, target.remote_slice(100..106).unwrap()).signaled());
        a.qp.post_send_chain(&mut chain).unwrap();
        assert_eq!(a.completions(6).iter().filter(|wc| wc.success().is_ok()).count(), 6);
        for pieces in 0..=4 {
            let message: Vec<u8> = (0..pieces).flat_map(|i| pattern(1000)[100 * i..100 * i + 25].to_vec()).collect();
            assert_eq!(target.to_vec(200 * pieces..200 * pieces + 25 * pieces).unwrap(), message);
        }
        assert_eq!(target.to_vec(100..106).unwrap(), b"inline");
    }
}

#[test]
fn a_thousand_messages_go_through_short_queues_without_one_being_lost() {
    let (a, b) = wide_pair();
    let mut source = a.region(1000, RW);
    source.write_at(0, &pattern(1000)).unwrap();
    let target = b.region(32 * 8, RW);
    let mut receives = ReceiveSlots::new(target.hold(..).unwrap(), 8, 1 << 40).unwrap();
    assert_eq!(receives.refill(&b.qp).unwrap(), 32);
    let mut sends = SelectiveSignaling::new(&a.qp, 8, 0);
    let (mut sent, mut arrived, mut completions) = (0, 0, 0);
    let mut room = [WorkCompletion::default(); 16];
    let deadline = std::time::Instant::now() + LIMIT;
    while arrived < 1000 {
        assert!(std::time::Instant::now() < deadline, "{sent} were sent, {arrived} have arrived");
        while sent < 1000 && sends.free_slots() > 0 {
            if sent == 999 {
                sends.signal_next();
            }
            // The message at `i` is one to eight bytes from there on.
            let slices = [source.slice(sent..(sent + 1 + sent % 8).min(1000)).unwrap()];
            sends.post(&a.qp, &mut SendRequest::send(0, &slices)).unwrap();
            sent += 1;
        }
        for completion in a.cq.poll(&mut room).unwrap() {
            completion.success().unwrap();
            assert!(sends.retire(completion) > 0);
            completions += 1;
        }
        for completion in b.cq.poll(&mut room).unwrap() {
            completion.success().unwrap();
            let range = receives.take(completion).unwrap();
            let message = &pattern(1000)[arrived..(arrived + 1 + arrived % 8).min(1000)];
            assert_eq!(target.to_vec(range).unwrap(), message, "message {arrived}");
            receives.release(completion.wr_id()).unwrap();
            arrived += 1;
        }
        if receives.waiting() >= 16 {
            receives.refill(&b.qp).unwrap();
        }
    }
    while sends.outstanding() > 0 {
        sends.retire(&a.completion());
        completions += 1;
    }
    assert_eq!((sends.next_wr_id(), completions), (1000, 125));
}

#[test]
fn what_is_flushed_is_retired_one_by_one() {
    let (a, _b) = wide_pair();
    let mut sends = SelectiveSignaling::new(&a.qp, 8, 0);
    // No receive is posted, so nothing completes before the queue pair is moved to ERROR.
    for _ in 0..12 {
        sends.post(&a.qp, &mut SendRequest::send(0, &[])).unwrap();
    }
    a.qp.move_to_error().unwrap();
    let mut retired = 0;
    while sends.outstanding() > 0 {
        let completion = a.completion();
        assert_eq!(completion.status(), WorkCompletionStatus::WORK_REQUEST_FLUSHED);
        retired += sends.retire(&completion);
    }
    assert_eq!(retired, 12);
}
