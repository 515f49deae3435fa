//! Requests that a queue does not take, and requests that a device would take wrongly.

use std::sync::mpsc;
use std::thread;

use verbs::*;

use super::{failure, ids, works};
use crate::harness::*;

use WorkCompletionStatus as Status;

#[test]
fn unsignaled_requests_fill_the_queue_until_it_is_told_full_and_none_of_them_is_lost() {
    let (a, b) = pair();
    // No receive is posted, so nothing is done.
    let mut taken = 0;
    let error = loop {
        match a.qp.post_send(&SendRequest::send_with_imm(taken, &[], taken as u32)) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!((8..64).contains(&taken), "{taken}");
    assert_eq!(
        (error.kind(), error.raw_os_error(), error.accepted()),
        (PostErrorKind::QueueFull, libc::ENOMEM, Some(0))
    );
    assert!(error.to_string().contains("unsignaled ones free their slots only with a later signaled one"), "{error}");
    for number in 0..taken {
        b.qp.post_receive(&ReceiveRequest::new(number, &[])).unwrap();
        assert_eq!(b.completion().success().unwrap().imm_data(), Some(number as u32));
    }
    assert!(a.cq.poll(&mut [WorkCompletion::default()]).unwrap().is_empty());
    works(&a, &b);
}

#[test]
fn a_list_of_one_entry_too_many_is_refused_with_both_numbers_and_one_of_none_is_an_empty_message() {
    let (a, b) = pair();
    let region = a.region(64, RW);
    let far = b.region(64, RW);
    let limit = a.qp.capabilities().max_send_sge as usize;
    let slices = vec![region.slice(..1).unwrap(); limit + 1];
    let far_slices = vec![far.slice(..1).unwrap(); b.qp.capabilities().max_recv_sge as usize + 1];
    for error in [
        a.qp.post_send(&SendRequest::send(1, &slices)).unwrap_err(),
        a.qp.post_send(&SendRequest::rdma_write(1, &slices, far.remote_slice(..).unwrap())).unwrap_err(),
        a.qp.post_send(&SendRequest::rdma_read(1, &slices, far.remote_slice(..).unwrap())).unwrap_err(),
        b.qp.post_receive(&ReceiveRequest::new(1, &far_slices)).unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.raw_os_error()), (PostErrorKind::Invalid, libc::EINVAL), "{error}");
        assert_eq!(error.accepted(), Some(0), "{error}");
        let words = format!("has {} scatter/gather entries, and the queue was made for {limit}", limit + 1);
        assert!(error.to_string().contains(&words), "{error}");
    }
    b.qp.post_receive(&ReceiveRequest::new(2, &far_slices[..limit])).unwrap();
    a.qp.post_send(&SendRequest::send(3, &slices[..limit]).signaled()).unwrap();
    assert_eq!(b.completion().success().unwrap().byte_len(), Some(limit as u32));
    a.completion().success().unwrap();
    b.qp.post_receive(&ReceiveRequest::new(4, &[])).unwrap();
    a.qp.post_send(&SendRequest::send(5, &[]).signaled()).unwrap();
    assert_eq!(b.completion().success().unwrap().byte_len(), Some(0));
    a.completion().success().unwrap();
}

#[test]
fn a_batch_that_is_used_again_sends_the_inline_data_of_now() {
    let context = open();
    let inline = |builder: QueuePairBuilder<Rc>| builder.max_inline_data(64);
    let (a, b) = (Side::build(context.clone(), inline), Side::build(context, inline));
    connect(&a, &b, &options());
    let target = b.region(8, RW);
    let mut batch = SendBatch::<Rc>::with_capacity(1);
    for round in 0..5u64 {
        b.qp.post_receive(&ReceiveRequest::new(1, &[target.slice(..).unwrap()])).unwrap();
        let message = round.to_ne_bytes();
        let pieces = [InlineSlice::new(&message)];
        let mut chain = batch.begin();
        chain.push(SendRequest::send_inline(round, &pieces).signaled());
        a.qp.post_send_chain(&mut chain).unwrap();
        assert_eq!(a.completion().success().unwrap().wr_id(), round);
        b.completion().success().unwrap();
        assert_eq!(target.to_vec(..).unwrap(), round.to_ne_bytes());
    }
}

#[test]
fn a_batch_that_is_begun_and_not_posted_sends_nothing_and_holds_up_nobody() {
    // It has no lock to give back: to drop it is to forget it.
    const { assert!(!std::mem::needs_drop::<BatchedSends<'_>>()) };
    // In a thread of its own: what hangs is to fail the test and not to hang it.
    let (done, wait) = mpsc::channel();
    thread::spawn(move || {
        let context = open();
        let make = || Side::build(context.clone(), |builder| builder.require_extended());
        let (a, b) = (make(), make());
        connect(&a, &b, &options());
        let mut batch = SendBatch::<Rc>::with_capacity(4);
        batch.begin().push(SendRequest::send(1, &[]).signaled());
        let receive = |id| b.qp.post_receive(&ReceiveRequest::new(id, &[])).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                receive(10);
                a.qp.extended().unwrap().post_send(&SendRequest::send_with_imm(3, &[], 3).signaled()).unwrap();
                assert_eq!(ids(&a.completions(1)), [3]);
            });
        });
        assert_eq!(b.completion().success().unwrap().imm_data(), Some(3));
        let mut chain = batch.begin();
        chain.push(SendRequest::send_with_imm(4, &[], 4).signaled());
        receive(11);
        a.qp.extended().unwrap().post_send_chain(&mut chain).unwrap();
        assert_eq!(ids(&a.completions(1)), [4]);
        assert_eq!(b.completion().success().unwrap().imm_data(), Some(4));
        done.send(()).unwrap();
    });
    wait.recv_timeout(LIMIT).expect("a post hangs, or a check in the thread failed");
}

#[test]
fn a_chain_of_the_extended_interface_that_does_not_fit_is_refused_whole_and_the_peer_gets_nothing_of_it() {
    let context = open();
    let make =
        |builder: QueuePairBuilder<Rc>| builder.max_send_wr(8).max_recv_wr(64).max_inline_data(64).require_extended();
    let (a, b) = (Side::build(context.clone(), make), Side::build(context, make));
    connect(&a, &b, &options());
    let target = b.region(64 * 64, RW);
    for id in 0..64 {
        let place = id as usize * 64;
        b.qp.post_receive(&ReceiveRequest::new(id, &[target.slice(place..place + 64).unwrap()])).unwrap();
    }
    let extended = a.qp.extended().unwrap();
    let mut batch = SendBatch::<Rc>::with_capacity(40);
    for _ in 0..3 {
        let mut chain = batch.begin();
        (0..40).for_each(|id| chain.push(SendRequest::send_with_imm(id, &[], 1).signaled()));
        let error = extended.post_send_chain(&mut chain).unwrap_err();
        assert_eq!((error.kind(), error.raw_os_error()), (PostErrorKind::QueueFull, libc::ENOSPC), "{error}");
        assert_eq!((error.accepted(), error.requests()), (Some(0), 40), "{error}");
    }
    // One that is too long to go inline is found before the device sees it, whichever way it is posted.
    let long = [InlineSlice::new(&[7; 513])];
    for error in [
        extended.post_send(&SendRequest::send_inline(50, &long).signaled()).unwrap_err(),
        a.qp.post_send(&SendRequest::send_inline(51, &long).signaled()).unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.accepted()), (PostErrorKind::Invalid, Some(0)), "{error}");
    }
    // What follows is the first that arrives, in the first receive.
    extended.post_send(&SendRequest::send_with_imm(60, &[], 60).signaled()).unwrap();
    let completion = b.completion();
    assert_eq!((completion.wr_id(), completion.success().unwrap().imm_data()), (0, Some(60)));
    assert_eq!(a.completion().success().unwrap().wr_id(), 60);
    for side in [&a, &b] {
        assert!(side.cq.poll(&mut [WorkCompletion::default()]).unwrap().is_empty());
        assert_eq!(side.qp.state().unwrap(), QueuePairState::READY_TO_SEND);
    }
    assert_eq!(target.to_vec(..).unwrap(), [0; 64 * 64]);
}

#[test]
fn a_write_with_immediate_finds_a_receive_or_is_told_that_there_was_none() {
    let mut options = options();
    (options.rnr_retry_count, options.min_rnr_timer) = (1, RnrTimer::from_code(1).unwrap());
    let (a, b) = pair_with(&options);
    let (mut source, target) = (a.region(100, RW), b.region(100, RW));
    source.write_at(0, &pattern(100)).unwrap();
    let slices = [source.slice(..).unwrap()];
    let request = || SendRequest::rdma_write_with_imm(1, &slices, target.remote_slice(..).unwrap(), 5).signaled();
    a.qp.post_send(&request()).unwrap();
    assert_eq!(failure(&a.completion()), Status::RNR_RETRY_COUNTER_EXCEEDED);
    // With a receive, whose own memory stays as it is.
    for side in [&a, &b] {
        side.qp.reset().unwrap();
    }
    connect(&a, &b, &options);
    let own = b.region(100, RW);
    for slices in [&[][..], &[own.slice(..).unwrap()]] {
        b.qp.post_receive(&ReceiveRequest::new(2, slices)).unwrap();
        a.qp.post_send(&request()).unwrap();
        a.completion().success().unwrap();
        let completion = b.completion();
        let success = completion.success().unwrap();
        assert_eq!((success.byte_len(), success.imm_data()), (Some(100), Some(5)));
        assert_eq!((target.to_vec(..).unwrap(), own.to_vec(..).unwrap()), (pattern(100), vec![0; 100]));
    }
}

#[test]
fn an_atomic_that_is_not_on_an_aligned_word_is_refused_by_every_way_to_post_it_and_changes_nothing() {
    let access = RW | AccessFlags::REMOTE_ATOMIC;
    let context = open();
    let make = || Side::build(context.clone(), |builder| builder.max_send_sge(2).prefer_extended());
    let (a, b) = (make(), make());
    connect(&a, &b, &options());
    let (local, target) = (a.region(64, RW), b.region(64, access));
    let word = target.remote_slice(8..16).unwrap();
    let askew = target.remote_slice(9..17).unwrap();
    let slices = [4, 0, 16, 7].map(|length| local.slice(..length).unwrap());
    let eight = local.slice(..8).unwrap();
    let mut cases: Vec<(&[LocalSlice<'_>], RemoteSlice)> = slices.chunks(1).map(|slices| (slices, word)).collect();
    let pair = [eight, eight];
    cases.extend([(&[][..], word), (&pair[..], word), (std::slice::from_ref(&eight), askew)]);
    for (slices, remote) in cases {
        let request = || SendRequest::fetch_and_add(1, slices, remote, 1).signaled();
        let swap = SendRequest::compare_and_swap(1, slices, remote, 0, 1).signaled();
        let mut batch = SendBatch::with_capacity(1);
        let mut chain = batch.begin();
        chain.push_with(SendRequest::fetch_and_add(1, &[], remote, 1), slices);
        for error in [
            a.qp.post_send(&request()).unwrap_err(),
            a.qp.post_send(&swap).unwrap_err(),
            a.qp.post_send_chain(&mut [request()]).unwrap_err(),
            a.qp.post_send_chain(&mut chain).unwrap_err(),
            a.qp.extended().unwrap().post_send(&request()).unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.accepted()), (PostErrorKind::Invalid, Some(0)), "{error}");
            let words = "an atomic operation that is not on a word: its slices have 8 bytes in all";
            assert!(error.to_string().contains(words), "{error}");
        }
    }
    let prepare = |length, remote| PreparedAtomic::fetch_and_add(1, [local.hold(..length).unwrap()], remote, 1);
    let mut prepared = prepare(8, word).unwrap().signaled();
    for error in [prepared.set_remote(askew).unwrap_err(), prepare(8, askew).unwrap_err()] {
        assert!(error.to_string().contains("an atomic operation has an address that is a multiple of 8"), "{error}");
    }
    for error in [prepared.set_range(0, ..16).unwrap_err(), prepare(16, word).unwrap_err()] {
        assert!(error.to_string().contains("the slices of an atomic operation have 8 bytes in all"), "{error}");
    }
    assert_eq!(target.to_vec(..).unwrap(), [0; 64]);
    // The right one works, with its result in two parts as well.
    a.qp.post_prepared_send(&prepared).unwrap();
    let done = a.completion();
    let done = done.success().unwrap();
    assert_eq!((done.opcode(), done.byte_len()), (WorkCompletionOpcode::FETCH_AND_ADD, Some(8)));
    let parts = [local.slice(16..20).unwrap(), local.slice(32..36).unwrap()];
    a.qp.post_send(&SendRequest::fetch_and_add(2, &parts, word, 1 << 40).signaled()).unwrap();
    a.completion().success().unwrap();
    assert_eq!(target.to_vec(8..16).unwrap(), ((1u64 << 40) + 1).to_ne_bytes());
    let before = [local.to_vec(16..20).unwrap(), local.to_vec(32..36).unwrap()].concat();
    assert_eq!(before, 1u64.to_ne_bytes());
}
