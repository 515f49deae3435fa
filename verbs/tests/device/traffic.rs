use verbs::*;

use crate::harness::*;

#[test]
fn send_arrives_in_the_receive_with_its_length() {
    let (a, b) = pair();
    let mut source = a.region(4096, RW);
    source.write_at(0, &pattern(4096)).unwrap();
    let target = b.region(4096, RW);
    for length in [1, 64, 1024, 4096] {
        b.qp.post_receive(&ReceiveRequest::new(7, &[target.slice(..).unwrap()])).unwrap();
        a.qp.post_send(&SendRequest::send(8, &[source.slice(..length).unwrap()]).signaled()).unwrap();
        let sent = a.completion();
        assert_eq!((sent.wr_id(), sent.status(), sent.qp_num()), (8, WorkCompletionStatus::SUCCESS, a.qp.qp_num()));
        assert_eq!(sent.success().unwrap().opcode(), WorkCompletionOpcode::SEND);
        let received = b.completion();
        assert_eq!((received.wr_id(), received.qp_num()), (7, b.qp.qp_num()));
        let received = received.success().unwrap();
        assert_eq!(received.opcode(), WorkCompletionOpcode::RECEIVE);
        assert_eq!((received.byte_len(), received.imm_data()), (Some(length as u32), None));
        assert_eq!(target.to_vec(..length).unwrap(), pattern(length));
    }
}

#[test]
fn immediate_data_arrives_in_host_order_with_send_and_with_write() {
    let (a, b) = pair();
    let (source, target) = (a.region(100, RW), b.region(100, RW));
    for imm_data in [0x1122_3344, 0x89ab_cdef] {
        // Receives without memory: immediate data needs none.
        b.qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
        b.qp.post_receive(&ReceiveRequest::new(2, &[])).unwrap();
        a.qp.post_send(&SendRequest::send_with_imm(3, &[], imm_data).signaled()).unwrap();
        let (slices, remote) = ([source.slice(..).unwrap()], target.remote_slice(..).unwrap());
        a.qp.post_send(&SendRequest::rdma_write_with_imm(4, &slices, remote, imm_data).signaled()).unwrap();
        let received = b.completions(2);
        let (send, write) = (received[0].success().unwrap(), received[1].success().unwrap());
        assert_eq!((send.wr_id(), send.imm_data(), send.byte_len()), (1, Some(imm_data), Some(0)));
        assert_eq!((write.wr_id(), write.imm_data(), write.byte_len()), (2, Some(imm_data), Some(100)));
        assert_eq!(write.opcode(), WorkCompletionOpcode::RECEIVE_RDMA_WITH_IMMEDIATE);
        // The sender's completions carry none.
        assert!(a.completions(2).iter().all(|sent| sent.success().unwrap().imm_data().is_none()));
    }
}

#[test]
fn write_changes_the_peers_memory_in_its_range_only() {
    let (a, b) = pair();
    let mut source = a.region(300, RW);
    source.write_at(0, &pattern(300)).unwrap();
    let mut target = b.region(1000, RW);
    target.fill(9);
    let remote = target.remote_slice(100..400).unwrap();
    a.qp.post_send(&SendRequest::rdma_write(1, &[source.slice(..).unwrap()], remote).signaled()).unwrap();
    let done = a.completion();
    assert_eq!(done.success().unwrap().opcode(), WorkCompletionOpcode::RDMA_WRITE);
    let expected = [vec![9; 100], pattern(300), vec![9; 600]].concat();
    assert_eq!(target.to_vec(..).unwrap(), expected);
}

#[test]
fn read_fetches_the_peers_memory() {
    let (a, b) = pair();
    let mut source = b.region(10_000, RW);
    source.write_at(0, &pattern(10_000)).unwrap();
    let target = a.region(10_000, RW);
    let remote = source.remote_slice(1000..9000).unwrap();
    a.qp.post_send(&SendRequest::rdma_read(5, &[target.slice(10..8010).unwrap()], remote).signaled()).unwrap();
    let done = a.completion();
    let done = done.success().unwrap();
    assert_eq!((done.opcode(), done.byte_len()), (WorkCompletionOpcode::RDMA_READ, Some(8000)));
    assert_eq!(target.to_vec(10..8010).unwrap(), pattern(10_000)[1000..9000]);
    assert_eq!((target.to_vec(..10).unwrap(), target.to_vec(8010..).unwrap()), (vec![0; 10], vec![0; 1990]));
}

#[test]
fn a_message_is_gathered_from_and_scattered_to_lists_of_unequal_parts() {
    let (a, b) = pair();
    let mut source = a.region(1000, RW);
    source.write_at(0, &pattern(1000)).unwrap();
    let target = b.region(1000, RW);
    let from = [source.slice(500..508).unwrap(), source.slice(0..24).unwrap(), source.slice(100..200).unwrap()];
    let to = [target.slice(900..901).unwrap(), target.slice(0..100).unwrap(), target.slice(200..300).unwrap()];
    let message = [&pattern(1000)[500..508], &pattern(1000)[0..24], &pattern(1000)[100..200]].concat();
    b.qp.post_receive(&ReceiveRequest::new(1, &to)).unwrap();
    a.qp.post_send(&SendRequest::send(2, &from).signaled()).unwrap();
    assert_eq!(b.completion().success().unwrap().byte_len(), Some(132));
    a.completion().success().unwrap();
    let arrived =
        [target.to_vec(900..901).unwrap(), target.to_vec(0..100).unwrap(), target.to_vec(200..231).unwrap()].concat();
    assert_eq!(arrived, message);
    // RDMA READ scatters, RDMA WRITE gathers.
    let to = [to[0], to[1], to[2].slice(..31).unwrap()];
    let remote = source.remote_slice(..132).unwrap();
    b.qp.post_send(&SendRequest::rdma_read(3, &to, remote).signaled()).unwrap();
    assert_eq!(b.completion().success().unwrap().byte_len(), Some(132));
    assert_eq!(target.to_vec(200..231).unwrap(), pattern(132)[101..]);
    let remote = target.remote_slice(400..532).unwrap();
    a.qp.post_send(&SendRequest::rdma_write(4, &from, remote).signaled()).unwrap();
    a.completion().success().unwrap();
    assert_eq!(target.to_vec(400..532).unwrap(), message);
}

#[test]
fn a_chain_is_carried_out_in_its_order() {
    let context = open();
    let wide = |builder: QueuePairBuilder<Rc>| builder.max_send_wr(16).max_recv_wr(16);
    let (a, b) = (Side::build(context.clone(), wide), Side::build(context, wide));
    connect(&a, &b, &options());
    let mut source = a.region(16, RW);
    source.write_at(0, &pattern(16)).unwrap();
    let target = b.region(16, RW);
    let places: Vec<_> = (0..16).map(|i| [target.slice(i..=i).unwrap()]).collect();
    let mut receives: Vec<_> = (0..16).map(|i| ReceiveRequest::new(100 + i as u64, &places[i])).collect();
    let messages: Vec<_> = (0..16).map(|i| [source.slice(i..=i).unwrap()]).collect();
    let mut sends: Vec<_> = (0..16).map(|i| SendRequest::send(i as u64, &messages[i]).signaled()).collect();
    // Twice, since a chain can be posted again, and in another order.
    for round in 0..2 {
        b.qp.post_receive_chain(&mut receives).unwrap();
        a.qp.post_send_chain(&mut sends).unwrap();
        let sent: Vec<u64> = a.completions(16).iter().map(|wc| wc.success().unwrap().wr_id()).collect();
        let received: Vec<u64> = b.completions(16).iter().map(|wc| wc.success().unwrap().wr_id()).collect();
        let order = |first: u64| -> Vec<u64> { (first..first + 16).collect() };
        if round == 0 {
            assert_eq!((sent, received), (order(0), order(100)));
            assert_eq!(target.to_vec(..).unwrap(), pattern(16));
            sends.reverse();
        } else {
            assert_eq!((sent, received), (order(0).into_iter().rev().collect(), order(100)));
            assert_eq!(target.to_vec(..).unwrap(), pattern(16).into_iter().rev().collect::<Vec<_>>());
        }
    }
    a.qp.post_send_chain::<[SendRequest; 0]>(&mut []).unwrap();
    b.qp.post_receive_chain::<[ReceiveRequest; 0]>(&mut []).unwrap();
}

#[test]
fn one_request_can_be_posted_again_and_again() {
    let (a, b) = pair();
    let (source, target) = (a.region(64, RW), b.region(64, RW));
    let (from, to) = ([source.slice(..).unwrap()], [target.slice(..).unwrap()]);
    let (send, receive) = (SendRequest::send(1, &from).signaled(), ReceiveRequest::new(2, &to));
    for _ in 0..20 {
        b.qp.post_receive(&receive).unwrap();
        a.qp.post_send(&send).unwrap();
        a.completion().success().unwrap();
        b.completion().success().unwrap();
    }
}

#[test]
fn only_signaled_requests_complete_unless_the_queue_pair_signals_all() {
    let context = open();
    for signal_all in [false, true] {
        let build = |context: &Context| Side::build(context.clone(), |builder| builder.signal_all(signal_all));
        let (a, b) = (build(&context), build(&context));
        connect(&a, &b, &options());
        let (source, target) = (a.region(64, RW), b.region(64, RW));
        let (slices, remote) = ([source.slice(..).unwrap()], target.remote_slice(..).unwrap());
        a.qp.post_send(&SendRequest::rdma_write(1, &slices, remote)).unwrap();
        a.qp.post_send(&SendRequest::rdma_write(2, &slices, remote)).unwrap();
        a.qp.post_send(&SendRequest::rdma_write(3, &slices, remote).signaled()).unwrap();
        let expected: &[u64] = if signal_all { &[1, 2, 3] } else { &[3] };
        let ids: Vec<u64> = a.completions(expected.len()).iter().map(|wc| wc.success().unwrap().wr_id()).collect();
        assert_eq!(ids, expected);
        assert!(a.cq.poll(&mut [WorkCompletion::default(); 4]).unwrap().is_empty());
    }
}

#[test]
fn a_fenced_request_sees_what_the_read_before_it_fetched() {
    let (a, b) = pair();
    let mut peer = b.region(4096, RW);
    peer.write_at(0, &pattern(2048)).unwrap();
    let local = a.region(2048, RW);
    let slices = [local.slice(..).unwrap()];
    let (first, second) = (peer.remote_slice(..2048).unwrap(), peer.remote_slice(2048..).unwrap());
    let mut chain =
        [SendRequest::rdma_read(1, &slices, first), SendRequest::rdma_write(2, &slices, second).fenced().signaled()];
    a.qp.post_send_chain(&mut chain).unwrap();
    a.completion().success().unwrap();
    assert_eq!(peer.to_vec(2048..).unwrap(), pattern(2048));
}

#[test]
fn two_devices_on_a_wire_move_data_both_ways() {
    let open = |name: &str| devices().unwrap().find(Some(name)).unwrap().open().unwrap();
    let (a, b) = (Side::on(open(&device_name())), Side::on(open(&setting("RDMA_TEST_PEER_DEVICE"))));
    connect(&a, &b, &options());
    let packets = || {
        let path = format!("/sys/class/net/{}/statistics/tx_packets", setting("RDMA_TEST_NETDEV"));
        std::fs::read_to_string(path).unwrap().trim().parse::<u64>().unwrap()
    };
    let before = packets();
    let length = 100_000;
    for (from, to) in [(&a, &b), (&b, &a)] {
        let mut source = from.region(length, RW);
        source.write_at(0, &pattern(length)).unwrap();
        let target = to.region(length, RW);
        to.qp.post_receive(&ReceiveRequest::new(1, &[target.slice(..).unwrap()])).unwrap();
        from.qp.post_send(&SendRequest::send(2, &[source.slice(..).unwrap()]).signaled()).unwrap();
        from.completion().success().unwrap();
        assert_eq!(to.completion().success().unwrap().byte_len(), Some(length as u32));
        assert_eq!(target.to_vec(..).unwrap(), pattern(length));
    }
    assert!(packets() - before >= (length / 4096) as u64, "the data did not cross the wire");
}

#[test]
fn a_queue_pair_is_shared_by_threads_that_post_and_poll() {
    const EACH: u64 = 200;
    let context = open();
    let wide = |builder: QueuePairBuilder<Rc>| builder.max_send_wr(64);
    let (a, b) = (Side::build(context.clone(), wide), Side::build(context, wide));
    connect(&a, &b, &options());
    let (source, target) = (a.region(64, RW), b.region(64, RW));
    let remote = target.remote_slice(..).unwrap();
    let ids: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let (a, source) = (&a, &source);
                scope.spawn(move || {
                    let slices = [source.slice(..).unwrap()];
                    let mut room = [WorkCompletion::default(); 4];
                    let mut ids = Vec::new();
                    for i in 0..EACH {
                        a.qp.post_send(&SendRequest::rdma_write(thread * EACH + i, &slices, remote).signaled())
                            .unwrap();
                        // One of anybody's, so that the queue never fills up.
                        while a.cq.poll(&mut room[..1]).unwrap().is_empty() {}
                        ids.push(room[0].success().unwrap().wr_id());
                    }
                    ids
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let mut sorted = ids;
    sorted.sort_unstable();
    assert_eq!(sorted, (0..4 * EACH).collect::<Vec<_>>());
}
