//! Reliable connections, made the short way.

use std::net::SocketAddrV6;
use std::thread;

use cm::Listener;
use verbs::{AccessFlags, ReceiveRequest, SendRequest, WorkCompletionOpcode};

use crate::harness::*;

const RW: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

#[test]
fn messages_arrive_in_both_directions() {
    let (client, server) = pair();
    for (from, to) in [(&client, &server), (&server, &client)] {
        let mut source = from.protection_domain().register(vec![0; 64], AccessFlags::LOCAL_WRITE).unwrap();
        let mut sink = to.protection_domain().register(vec![0; 64], AccessFlags::LOCAL_WRITE).unwrap();
        source.write_at(0, b"Hello, RDMA!").unwrap();
        to.queue_pair().post_receive(&ReceiveRequest::new(1, &[sink.slice(..).unwrap()])).unwrap();
        let message = [source.slice(..12).unwrap()];
        from.queue_pair().post_send(&SendRequest::send(2, &message).signaled()).unwrap();
        let done = completions(to.completion_queue(), 1);
        assert_eq!(done[0].success().unwrap().byte_len(), Some(12));
        assert_eq!(done[0].wr_id(), 1);
        assert_eq!(completions(from.completion_queue(), 1)[0].wr_id(), 2);
        assert_eq!(sink.to_vec(..12).unwrap(), b"Hello, RDMA!");
        sink.write_at(0, &[0; 12]).unwrap();
    }
}

#[test]
fn memory_of_the_peer_is_written_read_and_changed_atomically() {
    let (client, server) = pair();
    let mut remote = server.protection_domain().register(vec![0u8; 64], RW).unwrap();
    let mut local = client.protection_domain().register(vec![7u8; 64], RW).unwrap();
    let qp = client.queue_pair();
    let target = remote.remote_slice(..16).unwrap();
    let slice = [local.slice(..16).unwrap()];
    qp.post_send(&SendRequest::rdma_write(1, &slice, target).signaled()).unwrap();
    completions(client.completion_queue(), 1)[0].success().unwrap();
    assert_eq!(remote.to_vec(..17).unwrap(), [[7u8; 16].as_slice(), &[0]].concat());

    remote.write_at(32, &5u64.to_ne_bytes()).unwrap();
    let counter = remote.remote_slice(32..40).unwrap();
    let slice = [local.slice(32..40).unwrap()];
    qp.post_send(&SendRequest::rdma_read(2, &slice, counter).signaled()).unwrap();
    let done = completions(client.completion_queue(), 1)[0];
    assert_eq!(done.success().unwrap().opcode(), WorkCompletionOpcode::RDMA_READ);
    assert_eq!(local.to_vec(32..40).unwrap(), 5u64.to_ne_bytes());

    qp.post_send(&SendRequest::fetch_and_add(3, &slice, counter, 3).signaled()).unwrap();
    completions(client.completion_queue(), 1)[0].success().unwrap();
    assert_eq!(remote.to_vec(32..40).unwrap(), 8u64.to_ne_bytes());
    local.write_at(0, &[1]).unwrap();
}

#[test]
fn each_end_knows_the_others_address_and_numbers() {
    let (client, server) = pair();
    assert_eq!(client.peer_addr(), server.local_addr());
    assert_eq!(client.local_addr(), server.peer_addr());
    assert_eq!(client.peer_addr().unwrap().ip(), ip());
    assert_eq!(client.peer_parameters().qp_num, server.queue_pair().qp_num());
    assert_eq!(server.peer_parameters().qp_num, client.queue_pair().qp_num());
    assert_eq!(client.id().peer_gid(), server.id().local_gid());
    assert_eq!(client.id().peer_gid().to_ip(), ip());
    assert_eq!(client.id().port(), 1);
    let state = client.queue_pair().query().unwrap();
    assert_eq!(state.state(), verbs::QueuePairState::READY_TO_SEND);
    assert_eq!(state.dest_qp_num(), Some(server.queue_pair().qp_num()));
    assert_eq!(state.retry_count(), Some(7));
    assert_eq!(state.min_rnr_timer(), Some(verbs::RnrTimer::default()));
    // The most that both devices can.
    let limit = client.id().context().unwrap().device_attributes().unwrap();
    assert_eq!(u32::from(state.max_rd_atomic().unwrap()), limit.max_qp_init_rd_atom());
}

#[test]
fn the_end_of_one_side_reaches_the_other() {
    let (client, server) = pair();
    assert!(!server.wait_disconnected(Some(std::time::Duration::from_millis(50))).unwrap());
    client.disconnect().unwrap();
    assert!(server.wait_disconnected(Some(LIMIT)).unwrap());
    assert!(client.wait_disconnected(Some(LIMIT)).unwrap());
    client.disconnect().unwrap();
    let (client, server) = pair();
    drop(client);
    assert!(server.wait_disconnected(Some(LIMIT)).unwrap(), "dropping tells the peer too");
}

#[test]
fn an_end_is_told_to_every_thread_and_told_again_at_once() {
    within(LIMIT, || {
        let (client, server) = pair();
        thread::scope(|scope| {
            let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| server.wait_disconnected(None))).collect();
            client.disconnect().unwrap();
            for thread in waiting {
                assert!(thread.join().unwrap().unwrap());
            }
        });
        for end in [&server, &client] {
            for time in [None, None, Some(std::time::Duration::ZERO)] {
                assert!(end.wait_disconnected(time).unwrap());
            }
        }
    });
}

#[test]
fn connections_are_made_over_ipv6_too() {
    let address = link_local();
    let listener = Listener::bind(address).unwrap();
    let target = listener.local_addr().unwrap();
    assert!(target.is_ipv6() && target.port() != 0);
    let (client, server) = thread::scope(|scope| {
        let server = scope.spawn(|| listener.accept().unwrap());
        (options().connect(target).unwrap(), server.join().unwrap())
    });
    assert_eq!(client.peer_addr().unwrap().ip(), *address.ip());
    assert_eq!(server.id().local_gid().to_ip(), *address.ip());
    let message = client.protection_domain().register(b"six".to_vec(), AccessFlags::empty()).unwrap();
    let room = server.protection_domain().register(vec![0u8; 8], AccessFlags::LOCAL_WRITE).unwrap();
    server.queue_pair().post_receive(&ReceiveRequest::new(1, &[room.slice(..).unwrap()])).unwrap();
    let slice = [message.slice(..).unwrap()];
    client.queue_pair().post_send(&SendRequest::send(2, &slice).signaled()).unwrap();
    completions(server.completion_queue(), 1)[0].success().unwrap();
    assert_eq!(room.to_vec(..3).unwrap(), b"six");
    // A listener on every IPv6 address takes it as well.
    let everywhere = Listener::bind("[::]:0").unwrap();
    let port = everywhere.local_addr().unwrap().port();
    thread::scope(|scope| {
        let server = scope.spawn(|| everywhere.accept().unwrap());
        options().connect(SocketAddrV6::new(*address.ip(), port, 0, address.scope_id())).unwrap();
        server.join().unwrap();
    });
}
