//! One thread that serves several queues of one channel, and sleeps when there is nothing to do.

use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::Instant;

use verbs::*;

use crate::harness::*;

fn sleep_until_readable(channel: &CompletionChannel) {
    let mut poll = libc::pollfd { fd: channel.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: `poll` is one structure and outlives the call.
    let readable = unsafe { libc::poll(&mut poll, 1, LIMIT.as_millis() as i32) };
    assert_eq!(readable, 1, "nothing came");
}

#[test]
fn a_loop_over_the_queues_of_a_channel_misses_no_completion_and_sleeps_in_between() {
    const PEERS: usize = 3;
    const MESSAGES: u64 = 200;
    let context = open();
    let channel = context.create_completion_channel().unwrap();
    let pd = context.create_protection_domain().unwrap();
    let queues: Vec<_> =
        (0..PEERS).map(|_| CompletionQueueBuilder::new(&context, 64).channel(&channel).build().unwrap()).collect();
    let peers: Vec<_> = (0..PEERS).map(|_| Side::on(context.clone())).collect();
    let qps: Vec<_> = queues
        .iter()
        .zip(&peers)
        .map(|(queue, peer)| {
            let qp = QueuePair::<Rc>::builder(&pd, queue, queue).max_recv_wr(16).build().unwrap();
            let (from, to) = (qp.local_endpoint(1, &GidFilter::default()).unwrap(), peer.local());
            qp.connect(&from, &to.endpoint, &options()).unwrap();
            peer.qp.connect(&to, &from.endpoint, &options()).unwrap();
            qp
        })
        .collect();
    for qp in &qps {
        for wr_id in 0..16 {
            qp.post_receive(&ReceiveRequest::new(wr_id, &[])).unwrap();
        }
    }
    thread::scope(|scope| {
        for peer in &peers {
            scope.spawn(move || {
                for number in 0..MESSAGES as u32 {
                    peer.qp.post_send(&SendRequest::send_with_imm(1, &[], number).signaled()).unwrap();
                    peer.completion().success().unwrap();
                }
            });
        }
        let (mut arrived, mut sleeps) = (vec![Vec::new(); PEERS], 0);
        let mut room = [WorkCompletion::default(); 4];
        let deadline = Instant::now() + LIMIT;
        while arrived.iter().map(Vec::len).sum::<usize>() < PEERS * MESSAGES as usize {
            assert!(Instant::now() < deadline, "{arrived:?}");
            let mut idle = true;
            for ((queue, qp), arrived) in queues.iter().zip(&qps).zip(&mut arrived) {
                for completion in queue.poll_or_arm(Notify::Any, &mut room).unwrap() {
                    idle = false;
                    arrived.push(completion.success().unwrap().imm_data().unwrap());
                    qp.post_receive(&ReceiveRequest::new(0, &[])).unwrap();
                }
            }
            if idle {
                sleep_until_readable(&channel);
                sleeps += 1;
                channel.take_events().unwrap();
            }
        }
        assert!(sleeps > 0);
        for arrived in arrived {
            assert_eq!(arrived, (0..MESSAGES as u32).collect::<Vec<_>>());
        }
    });
}
