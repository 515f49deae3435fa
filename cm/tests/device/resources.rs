//! Queue pairs, domains and queues that the program has made.

use std::thread;

use cm::*;
use verbs::{AccessFlags, QueuePair, Rc, ReceiveRequest, SendRequest, SharedReceiveQueueBuilder};

use crate::harness::*;

#[test]
fn a_domain_shared_by_connections_lets_memory_be_registered_once() {
    let (one, other) = (pair(), pair());
    assert_eq!(one.0.protection_domain().as_raw(), other.0.protection_domain().as_raw(), "librdmacm has one");
    let region = one.1.protection_domain().register(vec![3u8; 16], AccessFlags::REMOTE_READ).unwrap();
    for (client, _) in [&one, &other] {
        let sink = client.protection_domain().register(vec![0u8; 16], AccessFlags::LOCAL_WRITE).unwrap();
        let slice = [sink.slice(..).unwrap()];
        let read = SendRequest::rdma_read(1, &slice, region.remote_slice(..).unwrap()).signaled();
        client.queue_pair().post_send(&read).unwrap();
        completions(client.completion_queue(), 1)[0].success().unwrap();
        assert_eq!(sink.to_vec(..).unwrap(), [3; 16]);
    }
}

#[test]
fn a_domain_of_ones_own_keeps_a_peer_from_the_rest() {
    let context = devices().unwrap().into_iter().find(|c| c.device().name() == setting("RDMA_TEST_DEVICE")).unwrap();
    let own = context.create_protection_domain().unwrap();
    let mut accepting = options();
    accepting.protection_domain = Some(own.clone());
    let (client, server) = pair_with(&options(), &accepting);
    assert_eq!(server.protection_domain().as_raw(), own.as_raw());
    let elsewhere = server.id().protection_domain().unwrap();
    assert_ne!(elsewhere.as_raw(), own.as_raw());
    let secret = elsewhere.register(vec![1u8; 16], AccessFlags::REMOTE_READ).unwrap();
    let sink = client.protection_domain().register(vec![0u8; 16], AccessFlags::LOCAL_WRITE).unwrap();
    let slice = [sink.slice(..).unwrap()];
    let read = SendRequest::rdma_read(1, &slice, secret.remote_slice(..).unwrap()).signaled();
    client.queue_pair().post_send(&read).unwrap();
    let done = completions(client.completion_queue(), 1)[0];
    assert_eq!(done.status(), verbs::WorkCompletionStatus::REMOTE_ACCESS_ERROR);
    assert_eq!(sink.to_vec(..).unwrap(), [0; 16]);
}

#[test]
fn a_domain_of_the_same_device_opened_by_hand_is_refused_with_the_reason() {
    let by_hand = verbs::devices().unwrap().find(Some(&setting("RDMA_TEST_DEVICE"))).unwrap().open().unwrap();
    let mut options = options();
    options.protection_domain = Some(by_hand.create_protection_domain().unwrap());
    let listener = Listener::bind(address()).unwrap();
    let error = options.connect(listener.local_addr().unwrap()).unwrap_err().to_string();
    assert!(error.contains("of another context") && error.contains("cm::devices"), "{error}");

    let cq = by_hand.create_completion_queue(8).unwrap();
    let foreign = QueuePair::<Rc>::builder(options.protection_domain.as_ref().unwrap(), &cq, &cq).build().unwrap();
    let route = crate::harness::options().resolve(listener.local_addr().unwrap()).unwrap();
    let error = route.prepare_with(foreign).unwrap_err().to_string();
    assert!(error.contains("of another context") && error.contains("Id::context"), "{error}");
}

#[test]
fn a_queue_pair_made_beforehand_is_connected_at_both_ends() {
    let listener = Listener::bind(address()).unwrap();
    let address = listener.local_addr().unwrap();
    let build = |id: &Id| {
        let context = id.context().unwrap();
        let pd = context.create_protection_domain().unwrap();
        let channel = context.create_completion_channel().unwrap();
        let cq = verbs::CompletionQueueBuilder::new(&context, 16).channel(&channel).build().unwrap();
        QueuePair::<Rc>::builder(&pd, &cq, &cq).max_send_wr(4).max_recv_wr(4).max_inline_data(32).build().unwrap()
    };
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let request = listener.next_request(Some(LIMIT)).unwrap().unwrap();
            let qp = build(request.id());
            let number = qp.qp_num();
            let incoming = request.prepare_with(qp, &options()).unwrap();
            let region = incoming.protection_domain().register(vec![0u8; 8], AccessFlags::LOCAL_WRITE).unwrap();
            incoming.queue_pair().post_receive(&ReceiveRequest::new(1, &[region.slice(..).unwrap()])).unwrap();
            let connection = incoming.accept().unwrap();
            assert_eq!(connection.queue_pair().qp_num(), number);
            assert_eq!(completions(connection.completion_queue(), 1)[0].success().unwrap().byte_len(), Some(5));
            region.to_vec(..5).unwrap()
        });
        let route = options().resolve(address).unwrap();
        let qp = build(route.id());
        let client = route.prepare_with(qp).unwrap().connect().unwrap();
        let inline = [verbs::InlineSlice::new(b"first")];
        client.queue_pair().post_send(&SendRequest::send_inline(1, &inline).signaled()).unwrap();
        completions(client.completion_queue(), 1)[0].success().unwrap();
        assert_eq!(server.join().unwrap(), b"first");
    });
}

#[test]
fn connections_take_their_receives_from_a_shared_queue() {
    let context = devices().unwrap().into_iter().find(|c| c.device().name() == setting("RDMA_TEST_DEVICE")).unwrap();
    let pd = context.create_protection_domain().unwrap();
    let srq = SharedReceiveQueueBuilder::new(&pd, 16).build().unwrap();
    let region = pd.register(vec![0u8; 64], AccessFlags::LOCAL_WRITE).unwrap();
    for slot in 0..2 {
        let room = [region.slice(slot * 32..slot * 32 + 32).unwrap()];
        srq.post_receive(&ReceiveRequest::new(slot as u64, &room)).unwrap();
    }
    let mut accepting = options();
    accepting.protection_domain = Some(pd.clone());
    accepting.shared_receive_queue = Some(srq);
    let pairs = [pair_with(&options(), &accepting), pair_with(&options(), &accepting)];
    for (number, (client, server)) in pairs.iter().enumerate() {
        assert!(client.peer_parameters().srq, "the peer is told of the shared queue");
        let message = client.protection_domain().register(vec![number as u8 + 1; 32], AccessFlags::empty()).unwrap();
        let slice = [message.slice(..).unwrap()];
        client.queue_pair().post_send(&SendRequest::send(1, &slice).signaled()).unwrap();
        let done = completions(server.completion_queue(), 1)[0];
        done.success().unwrap();
        let slot = done.wr_id() as usize;
        assert_eq!(region.to_vec(slot * 32..slot * 32 + 32).unwrap(), vec![number as u8 + 1; 32]);
    }
}

#[test]
fn depths_are_negotiated_and_those_beyond_the_device_refused() {
    let (mut connecting, mut accepting) = (options(), options());
    (connecting.responder_resources, connecting.initiator_depth) = (Depth::Exactly(3), Depth::Exactly(5));
    accepting.responder_resources = Depth::Exactly(2);
    let (client, server) = pair_with(&connecting, &accepting);
    let asked = server.peer_parameters();
    assert_eq!((asked.responder_resources, asked.initiator_depth), (5, 3), "as seen from this end");
    let answer = client.peer_parameters();
    assert_eq!((answer.responder_resources, answer.initiator_depth), (3, 2), "{answer:?}");
    let state = client.queue_pair().query().unwrap();
    assert_eq!(state.max_rd_atomic(), Some(2), "no more than the peer answers");
    assert_eq!(server.queue_pair().query().unwrap().max_dest_rd_atomic(), Some(2));

    connecting.initiator_depth = Depth::Exactly(200);
    let listener = Listener::bind(address()).unwrap();
    let error = connecting.connect(listener.local_addr().unwrap()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    assert!(error.to_string().contains("the device has 128 and 128"), "{error}");
}

#[test]
fn who_accepts_reads_no_more_at_once_than_the_peer_answers() {
    let (mut connecting, mut accepting) = (options(), options());
    connecting.responder_resources = Depth::Exactly(1);
    (accepting.responder_resources, accepting.initiator_depth) = (Depth::Exactly(16), Depth::Exactly(16));
    let (client, server) = pair_with(&connecting, &accepting);
    let state = server.queue_pair().query().unwrap();
    assert_eq!(state.max_rd_atomic(), Some(1));
    assert_eq!(client.queue_pair().query().unwrap().max_dest_rd_atomic(), Some(1));
    let source = client.protection_domain().register(vec![5u8; 32 * 64], AccessFlags::REMOTE_READ).unwrap();
    let sink = server.protection_domain().register(vec![0u8; 32 * 64], AccessFlags::LOCAL_WRITE).unwrap();
    for index in 0..32 {
        let range = index * 64..index * 64 + 64;
        let slice = [sink.slice(range.clone()).unwrap()];
        let read = SendRequest::rdma_read(index as u64, &slice, source.remote_slice(range).unwrap()).signaled();
        server.queue_pair().post_send(&read).unwrap();
    }
    for (index, done) in completions(server.completion_queue(), 32).iter().enumerate() {
        assert_eq!(done.success().unwrap().wr_id(), index as u64);
    }
    assert_eq!(sink.to_vec(..).unwrap(), vec![5u8; 32 * 64]);
}

#[test]
fn requests_that_are_too_large_for_the_device_are_refused_with_the_limit() {
    let listener = Listener::bind(address()).unwrap();
    let mut options = options();
    options.capabilities.max_send_wr = 1 << 30;
    let error = options.connect(listener.local_addr().unwrap()).unwrap_err().to_string();
    assert!(error.contains("max_send_wr is 1073741824"), "{error}");
}
