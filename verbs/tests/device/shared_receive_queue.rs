use std::time::Duration;

use verbs::*;

use crate::harness::*;

/// A shared receive queue and queue pairs on it, each connected to one of a side of its own.
struct Shared {
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    pairs: Vec<QueuePair<Rc>>,
    peers: Vec<Side>,
    context: Context,
}

impl Shared {
    fn new(max_wr: u32, pairs: usize, options: &ConnectOptions) -> Self {
        let context = open();
        let pd = context.create_protection_domain().unwrap();
        let channel = context.create_completion_channel().unwrap();
        let cq = CompletionQueueBuilder::new(&context, 64).channel(&channel).build().unwrap();
        let srq = SharedReceiveQueueBuilder::new(&pd, max_wr).max_sge(4).build().unwrap();
        let mut shared = Self { srq, cq, pd, pairs: Vec::new(), peers: Vec::new(), context };
        for _ in 0..pairs {
            let qp = shared.builder().build().unwrap();
            let peer = Side::on(shared.context.clone());
            let (local, remote) = (qp.local_endpoint(1, &GidFilter::default()).unwrap(), peer.local());
            qp.connect(&local, &remote.endpoint, options).unwrap();
            peer.qp.connect(&remote, &local.endpoint, options).unwrap();
            shared.pairs.push(qp);
            shared.peers.push(peer);
        }
        shared
    }

    fn builder(&self) -> QueuePairBuilder<Rc> {
        QueuePair::builder(&self.pd, &self.cq, &self.cq).shared_receive_queue(&self.srq)
    }

    fn post_empty(&self, ids: std::ops::Range<u64>) {
        let mut chain: Vec<_> = ids.map(|id| ReceiveRequest::new(id, &[])).collect();
        self.srq.post_receive_chain(&mut chain).unwrap();
    }

    /// Peer number `index` sends an empty message.
    fn send(&self, index: usize) {
        self.peers[index].qp.post_send(&SendRequest::send(7, &[]).signaled()).unwrap();
    }
}

#[test]
fn messages_to_several_queue_pairs_fill_the_requests_of_one_queue() {
    let shared = Shared::new(8, 3, &options());
    let mut target = shared.pd.register(vec![0; 300], AccessFlags::LOCAL_WRITE).unwrap();
    for round in 0..4u8 {
        target.fill(0);
        for id in 0..3 {
            let slices = [target.slice(100 * id..100 * id + 60).unwrap(), target.slice(100 * id + 60..).unwrap()];
            shared.srq.post_receive(&ReceiveRequest::new(id as u64, &slices)).unwrap();
        }
        for (index, (peer, qp)) in shared.peers.iter().zip(&shared.pairs).enumerate() {
            let mut source = peer.region(80, RW);
            source.fill(16 * round + index as u8 + 1);
            peer.qp.post_send(&SendRequest::send(7, &[source.slice(..).unwrap()]).signaled()).unwrap();
            peer.completion().success().unwrap();
            let got = completions(&shared.cq, 1)[0];
            let got = got.success().unwrap();
            assert_eq!((got.wr_id(), got.byte_len(), got.qp_num()), (index as u64, Some(80), qp.qp_num()));
            assert_eq!(target.to_vec(100 * index..100 * index + 80).unwrap(), [16 * round + index as u8 + 1; 80]);
        }
    }
}

#[test]
fn the_limit_is_told_once_when_fewer_requests_are_left() {
    let shared = Shared::new(16, 1, &options());
    shared.post_empty(0..10);
    shared.srq.set_limit(7).unwrap();
    assert_eq!(shared.srq.attributes().unwrap().limit, 7);
    assert_eq!(shared.context.try_async_event().unwrap(), None);
    for _ in 0..4 {
        shared.send(0);
    }
    completions(&shared.cq, 4);
    let event = shared.context.async_event(Some(LIMIT)).unwrap().unwrap();
    assert_eq!(event.event_type(), AsyncEventType::SHARED_RECEIVE_QUEUE_LIMIT_REACHED, "{event}");
    assert_eq!(event.source(), AsyncEventSource::SharedReceiveQueue(Some(shared.srq.id())));
    assert!(event.is_for(&shared.srq) && !event.is_for(&shared.cq) && !event.is_for(&shared.pairs[0]));
    assert_eq!(shared.srq.attributes().unwrap().limit, 0);
    shared.send(0);
    completions(&shared.cq, 1);
    assert_eq!(shared.context.async_event(Some(Duration::from_millis(50))).unwrap(), None);
    let error = shared.srq.set_limit(1 << 20).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    assert!(error.to_string().contains("the queue holds "), "{error}");
}

#[test]
fn an_empty_queue_makes_the_peer_wait_until_there_is_a_request() {
    let shared = Shared::new(4, 1, &options());
    shared.send(0);
    let time = Some(Duration::from_millis(50));
    assert!(shared.peers[0].cq.wait(&mut [WorkCompletion::default()], time).unwrap().is_empty());
    shared.post_empty(5..6);
    assert_eq!(completions(&shared.cq, 1)[0].success().unwrap().wr_id(), 5);
    shared.peers[0].completion().success().unwrap();
}

#[test]
fn a_peer_that_does_not_wait_is_told_that_the_queue_is_empty() {
    let mut options = options();
    options.rnr_retry_count = 1;
    options.min_rnr_timer = RnrTimer::from_code(1).unwrap();
    let shared = Shared::new(4, 1, &options);
    shared.send(0);
    let error = shared.peers[0].completion().success().unwrap_err();
    assert_eq!(error.status, WorkCompletionStatus::RNR_RETRY_COUNTER_EXCEEDED);
}

#[test]
fn the_sizes_are_at_least_those_asked_for_and_the_queue_can_be_resized() {
    let shared = Shared::new(4, 1, &options());
    let granted = || shared.srq.attributes().unwrap();
    assert!(granted().max_wr >= 4, "{:?}", granted());
    assert!(granted().max_sge >= 4, "{:?}", granted());
    shared.post_empty(0..4);
    shared.srq.resize(100).unwrap();
    assert!(granted().max_wr >= 100, "{:?}", granted());
    shared.post_empty(4..100);
    // What was posted before is still there.
    for id in 0..8 {
        shared.send(0);
        assert_eq!(completions(&shared.cq, 1)[0].success().unwrap().wr_id(), id);
        shared.peers[0].completion();
    }
    let limit = shared.context.device_attributes().unwrap().max_srq_work_requests();
    let error = shared.srq.resize(limit + 1).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}");
    assert!(error.to_string().ends_with(&format!("{} takes 1 to {limit} requests", device_name())), "{error}");
}

#[test]
fn a_queue_of_rxe_holds_the_next_power_of_two_less_one_and_tells_so_on_later_kernels() {
    if open().device_attributes().unwrap().vendor_id() != 0xff_ffff {
        return;
    }
    for (asked, holds) in [(4, 7), (8, 15)] {
        let shared = Shared::new(asked, 1, &options());
        let granted = shared.srq.attributes().unwrap().max_wr;
        let told = if kernel() >= LATER { [holds; 2] } else { [asked, holds] };
        assert!(told.contains(&granted), "{granted}");
        let mut chain: Vec<_> = (0..20).map(|id| ReceiveRequest::new(id, &[])).collect();
        let error = shared.srq.post_receive_chain(&mut chain).unwrap_err();
        assert_eq!((error.kind(), error.accepted()), (PostErrorKind::QueueFull, Some(holds as usize)));
        // Each that was taken serves a message, those beyond what was granted too.
        for id in 0..u64::from(holds) {
            shared.send(0);
            assert_eq!(completions(&shared.cq, 1)[0].success().unwrap().wr_id(), id);
            shared.peers[0].completion().success().unwrap();
        }
    }
}

#[test]
fn a_size_beyond_the_devices_limit_is_named() {
    let pd = open().create_protection_domain().unwrap();
    let device = pd.context().device_attributes().unwrap();
    let (limit, sge) = (device.max_srq_work_requests(), device.max_srq_sge());
    for max_wr in [0, limit + 1, u32::MAX] {
        let error = pd.create_shared_receive_queue(max_wr).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{error}");
        assert!(error.to_string().ends_with(&format!("{} takes 1 to {limit} requests", device_name())), "{error}");
    }
    let error = SharedReceiveQueueBuilder::new(&pd, 4).max_sge(sge + 1).build().unwrap_err();
    let expected = format!("{} takes at most {sge} scatter/gather entries a request", device_name());
    assert!(error.to_string().ends_with(&expected), "{error}");
}

#[test]
fn a_full_queue_tells_how_many_requests_it_took() {
    let shared = Shared::new(4, 0, &options());
    let mut chain: Vec<_> = (0..32).map(|id| ReceiveRequest::new(id, &[])).collect();
    let error = shared.srq.post_receive_chain(&mut chain).unwrap_err();
    assert_eq!((error.kind(), error.raw_os_error(), error.requests()), (PostErrorKind::QueueFull, libc::ENOMEM, 32));
    assert!((4..32).contains(&error.accepted().unwrap()), "{error}");
    let region = shared.pd.register(vec![0; 64], AccessFlags::LOCAL_WRITE).unwrap();
    let shared = Shared::new(4, 0, &options());
    let slices = [region.slice(..1).unwrap(); 40];
    let error = shared.srq.post_receive(&ReceiveRequest::new(1, &slices)).unwrap_err();
    assert_eq!((error.kind(), error.accepted()), (PostErrorKind::Invalid, Some(0)));
}

#[test]
fn a_queue_pair_on_a_shared_queue_has_no_receive_queue_of_its_own() {
    let shared = Shared::new(4, 1, &options());
    // Sizes of what it does not have are not looked at.
    let qp = shared.builder().max_recv_wr(1_000_000_000).max_recv_sge(1_000_000).build().unwrap();
    assert_eq!(qp.shared_receive_queue().map(SharedReceiveQueue::id), Some(shared.srq.id()));
    let error = shared.pairs[0].post_receive(&ReceiveRequest::new(1, &[])).unwrap_err();
    assert_eq!((error.raw_os_error(), error.accepted()), (libc::EINVAL, Some(0)));
    assert!(error.to_string().contains("the queue pair has a shared receive queue: post to that"), "{error}");
}

#[test]
fn requests_stay_when_a_queue_pair_ends_and_the_last_one_may_be_told() {
    let shared = Shared::new(8, 2, &options());
    shared.post_empty(0..3);
    let [failed, good] = &shared.pairs[..] else { unreachable!("two were made") };
    failed.move_to_error().unwrap();
    // Linux 6.1 tells nothing here; 6.12 does, as the specification says.
    let time = if kernel() >= LATER { LIMIT } else { Duration::from_millis(300) };
    if let Some(event) = shared.context.async_event(Some(time)).unwrap() {
        assert!(kernel() > (6, 1), "{event}");
        assert_eq!(event.event_type(), AsyncEventType::LAST_WORK_QUEUE_ELEMENT_REACHED, "{event}");
        assert_eq!(event.source(), AsyncEventSource::QueuePair { qp_num: failed.qp_num(), id: Some(failed.id()) });
        assert!(event.is_for(failed) && !event.is_for(good) && !event.is_for(&shared.srq));
    } else {
        assert!(kernel() < LATER, "no event came in {time:?}");
    }
    assert!(shared.cq.poll(&mut [WorkCompletion::default()]).unwrap().is_empty());
    for id in 0..3 {
        shared.send(1);
        let got = completions(&shared.cq, 1)[0];
        assert_eq!((got.success().unwrap().wr_id(), got.qp_num()), (id, good.qp_num()));
    }
}

#[test]
fn the_queue_lives_as_long_as_a_queue_pair_that_uses_it() {
    let Shared { srq, cq, pd, pairs, peers, context } = Shared::new(4, 1, &options());
    srq.post_receive(&ReceiveRequest::new(3, &[])).unwrap();
    drop((srq, pd, context));
    peers[0].qp.post_send(&SendRequest::send(1, &[])).unwrap();
    assert_eq!(completions(&cq, 1)[0].success().unwrap().wr_id(), 3);
    drop(pairs);
}

#[test]
fn a_device_without_numbers_for_its_queues_says_so() {
    match open().create_protection_domain().unwrap().create_shared_receive_queue(4).unwrap().number() {
        Ok(number) => assert!(number < 1 << 24, "{number}"),
        Err(error) => assert!(
            matches!(error, Error::Unsupported { verb: "ibv_get_srq_num", errno: libc::EOPNOTSUPP, .. }),
            "{error:?}"
        ),
    }
}

#[test]
fn an_extended_queue_pair_can_be_on_a_shared_queue_too() {
    let shared = Shared::new(4, 0, &options());
    let qp = shared.builder().require_extended().build().unwrap();
    let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
    // Connected to itself.
    qp.connect(&local, &local.endpoint, &options()).unwrap();
    shared.srq.post_receive(&ReceiveRequest::new(5, &[])).unwrap();
    qp.extended().unwrap().post_send(&SendRequest::send(6, &[]).signaled()).unwrap();
    let mut ids: Vec<u64> = completions(&shared.cq, 2).iter().map(|wc| wc.success().unwrap().wr_id()).collect();
    ids.sort_unstable();
    assert_eq!(ids, [5, 6]);
    assert_eq!(qp.post_receive(&ReceiveRequest::new(7, &[])).unwrap_err().raw_os_error(), libc::EINVAL);
}
