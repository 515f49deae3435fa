//! UC: what arrives, and what gets lost without a word.

use std::time::{Duration, Instant};

use verbs::*;

use crate::harness::*;

/// Two connected queue pairs, of one device or of two.
fn pair(contexts: [Context; 2]) -> [Side<Uc>; 2] {
    let sides = contexts.map(|context| {
        Side::of(context, |builder| {
            builder.max_send_wr(32).max_recv_wr(32).max_send_sge(4).max_recv_sge(4).max_inline_data(64)
        })
    });
    connect(&sides[0], &sides[1], &ConnectOptions::default());
    sides
}

fn local_pair() -> [Side<Uc>; 2] {
    let context = open();
    pair([context.clone(), context])
}

/// What has completed after a time in which everything would have.
fn silent(side: &Side<Uc>) -> Vec<WorkCompletion> {
    let mut room = [WorkCompletion::default(); 16];
    side.cq.wait(&mut room, Some(Duration::from_millis(300))).unwrap().to_vec()
}

#[test]
fn each_operation_of_uc_arrives() {
    let [a, b] = local_pair();
    let mut source = a.region(5000, RW);
    source.write_at(0, &pattern(5000)).unwrap();
    let target = b.region(5000, RW);
    let remote = target.remote_slice(..).unwrap();
    let (slices, into) = ([source.slice(..).unwrap()], [target.slice(..).unwrap()]);
    let clear = |target: &MemoryRegion<Vec<u8>>| target.to_vec(..).unwrap() == pattern(5000);
    // RDMA WRITE, of several packets.
    a.qp.post_send(&SendRequest::rdma_write(1, &slices, remote).signaled()).unwrap();
    assert_eq!(a.completion().success().unwrap().opcode(), WorkCompletionOpcode::RDMA_WRITE);
    let deadline = Instant::now() + LIMIT;
    // The sender's completion says only that the packets are on their way.
    while !clear(&target) {
        assert!(Instant::now() < deadline, "the written bytes did not arrive");
    }
    // With immediate.
    b.qp.post_receive(&ReceiveRequest::new(2, &[])).unwrap();
    a.qp.post_send(&SendRequest::rdma_write_with_imm(3, &slices, remote, 0x89ab_cdef)).unwrap();
    let arrived = b.completion();
    let success = arrived.success().unwrap();
    assert_eq!(
        (success.opcode(), success.imm_data()),
        (WorkCompletionOpcode::RECEIVE_RDMA_WITH_IMMEDIATE, Some(0x89ab_cdef))
    );
    // SEND, with immediate and without, inline and not.
    b.qp.post_receive(&ReceiveRequest::new(4, &into)).unwrap();
    a.qp.post_send(&SendRequest::send_with_imm(5, &slices, 7).signaled()).unwrap();
    assert_eq!((a.completion().wr_id(), a.qp.state().unwrap()), (5, QueuePairState::READY_TO_SEND));
    let arrived = b.completion();
    let success = arrived.success().unwrap();
    assert_eq!((success.byte_len(), success.imm_data()), (Some(5000), Some(7)));
    b.qp.post_receive(&ReceiveRequest::new(6, &into)).unwrap();
    a.qp.post_send(&SendRequest::send_inline(7, &[InlineSlice::new(b"inline")])).unwrap();
    assert_eq!(b.completion().success().unwrap().byte_len(), Some(6));
    assert_eq!(target.to_vec(..6).unwrap(), b"inline");
    // Prepared, and in a batch.
    b.qp.post_receive_chain(&mut [ReceiveRequest::new(8, &into), ReceiveRequest::new(9, &into)]).unwrap();
    a.qp.post_prepared_send(&PreparedSend::send(10, [source.hold(..10).unwrap()])).unwrap();
    let mut batch = SendBatch::with_capacity(1);
    let mut chain = batch.begin();
    chain.push_with(SendRequest::send(11, &[]).signaled(), &[source.slice(..20).unwrap()]);
    a.qp.post_send_chain(&mut chain).unwrap();
    assert_eq!(a.completion().wr_id(), 11);
    let lengths: Vec<_> = b.completions(2).iter().map(|wc| wc.success().unwrap().byte_len()).collect();
    assert_eq!(lengths, [Some(10), Some(20)]);
}

#[test]
fn a_message_without_a_receive_is_lost_and_the_next_one_arrives() {
    patiently(message_without_a_receive);
}

/// Whether the message was gone before there was a receive.
fn message_without_a_receive(pause: Duration) -> bool {
    let [a, b] = local_pair();
    let (mut source, target) = (a.region(64, RW), b.region(64, RW));
    source.write_at(0, &pattern(64)).unwrap();
    let slices = [source.slice(..).unwrap()];
    a.qp.post_send(&SendRequest::send(1, &slices[..]).signaled()).unwrap();
    // Unlike RC's, the sender is told of success, and both queue pairs go on.
    assert_eq!(a.completion().success().unwrap().wr_id(), 1);
    assert!(b.cq.wait(&mut [WorkCompletion::default()], Some(pause)).unwrap().is_empty());
    b.qp.post_receive(&ReceiveRequest::new(2, &[target.slice(..).unwrap()])).unwrap();
    if !silent(&b).is_empty() {
        return false;
    }
    a.qp.post_send(&SendRequest::send(3, &slices).signaled()).unwrap();
    assert_eq!(a.completion().success().unwrap().wr_id(), 3);
    assert_eq!(b.completion().success().unwrap().wr_id(), 2);
    assert_eq!(target.to_vec(..).unwrap(), pattern(64));
    for side in [&a, &b] {
        assert_eq!(side.qp.state().unwrap(), QueuePairState::READY_TO_SEND);
    }
    true
}

#[test]
fn a_message_that_is_larger_than_its_receive_does_not_concern_the_sender() {
    let [a, b] = local_pair();
    let (source, target) = (a.region(64, RW), b.region(64, RW));
    b.qp.post_receive(&ReceiveRequest::new(1, &[target.slice(..32).unwrap()])).unwrap();
    a.qp.post_send(&SendRequest::send(2, &[source.slice(..).unwrap()]).signaled()).unwrap();
    assert_eq!(a.completion().success().unwrap().wr_id(), 2);
    assert_eq!(a.qp.state().unwrap(), QueuePairState::READY_TO_SEND);
    a.qp.post_send(&SendRequest::send(3, &[source.slice(..16).unwrap()]).signaled()).unwrap();
    assert_eq!(a.completion().success().unwrap().wr_id(), 3);
    let completion = b.completion();
    assert_eq!(completion.wr_id(), 1);
    match completion.success() {
        // The specification has it dropped, and the receive taken by the next one.
        Ok(success) => {
            assert_eq!(success.byte_len(), Some(16));
            assert_eq!(b.qp.state().unwrap(), QueuePairState::READY_TO_SEND);
        }
        // With rxe the receive fails, and the queue pair with it.
        Err(error) => {
            let length = WorkCompletionStatus::LOCAL_LENGTH_ERROR;
            let known = [length, WorkCompletionStatus::LOCAL_QUEUE_PAIR_OPERATION_ERROR];
            assert!(known.contains(&error.status), "{error}");
            becomes(&b.qp, QueuePairState::ERROR);
        }
    }
    assert_eq!(a.qp.state().unwrap(), QueuePairState::READY_TO_SEND);
}

#[test]
fn a_message_that_the_peer_does_not_allow_is_lost_without_an_error_at_the_sender() {
    let context = open();
    let sides = [context.clone(), context].map(|context| Side::<Uc>::of(context, |builder| builder));
    let mut options = ConnectOptions::default();
    options.access = AccessFlags::REMOTE_READ;
    connect(&sides[0], &sides[1], &options);
    let [a, b] = sides;
    // UC has no RDMA READ, so the right to it was not asked for.
    assert_eq!(b.qp.query().unwrap().access(), Some(AccessFlags::empty()));
    let (source, target) = (a.region(64, RW), b.region(64, RW));
    let remote = target.remote_slice(..).unwrap();
    a.qp.post_send(&SendRequest::rdma_write(1, &[source.slice(..).unwrap()], remote).signaled()).unwrap();
    assert_eq!(a.completion().success().unwrap().wr_id(), 1);
    assert!(silent(&b).is_empty());
    assert_eq!(target.to_vec(..).unwrap(), [0; 64]);
    assert_eq!(a.qp.state().unwrap(), QueuePairState::READY_TO_SEND);
}

#[test]
fn a_peer_that_is_gone_is_not_noticed() {
    let [a, b] = local_pair();
    let source = a.region(64, RW);
    drop(b);
    for wr_id in 0..3 {
        a.qp.post_send(&SendRequest::send(wr_id, &[source.slice(..).unwrap()]).signaled()).unwrap();
        assert_eq!(a.completion().success().unwrap().wr_id(), wr_id);
    }
    assert_eq!(a.qp.state().unwrap(), QueuePairState::READY_TO_SEND);
}

#[test]
fn messages_between_two_devices_arrive_whole() {
    let [a, b] = pair([open(), open_peer()]);
    let mut source = a.region(10_000, RW);
    source.write_at(0, &pattern(10_000)).unwrap();
    let target = b.region(10_000, RW);
    let (mut arrived, mut receives, deadline) = (0, 0, Instant::now() + LIMIT);
    for wr_id in 0.. {
        if arrived == 10 {
            break;
        }
        assert!(Instant::now() < deadline, "{arrived} of {wr_id} messages have arrived");
        if receives == arrived {
            receives += 1;
            b.qp.post_receive(&ReceiveRequest::new(wr_id, &[target.slice(..).unwrap()])).unwrap();
        }
        a.qp.post_send(&SendRequest::send(wr_id, &[source.slice(..).unwrap()]).signaled()).unwrap();
        assert_eq!(a.completion().success().unwrap().wr_id(), wr_id);
        // A machine that is busy may drop a packet, and with it the message; its receive then takes the next one.
        let mut room = [WorkCompletion::default(); 2];
        for completion in b.cq.wait(&mut room, Some(Duration::from_millis(500))).unwrap() {
            assert_eq!(completion.success().unwrap().byte_len(), Some(10_000));
            assert_eq!(target.to_vec(..).unwrap(), pattern(10_000));
            arrived += 1;
        }
    }
}
