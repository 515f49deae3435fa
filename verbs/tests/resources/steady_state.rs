//! The data path allocates nothing: neither where it succeeds nor where it fails.

use std::time::Duration;

use verbs::*;

use crate::null_provider::{DataPath, NullProvider, Polls};
use crate::{allocator, one_at_a_time};

/// What requests are posted to.
struct Objects {
    // Declared before the provider, which looks for what is left behind.
    rc: QueuePair<Rc>,
    uc: QueuePair<Uc>,
    ud: QueuePair<Ud>,
    extended: QueuePair<Rc>,
    extended_cq: ExtendedCompletionQueue<()>,
    srq: SharedReceiveQueue,
    ah: AddressHandle,
    cq: CompletionQueue,
    region: MemoryRegion<Vec<u8>>,
    provider: NullProvider,
}

impl Objects {
    fn new(polls: Polls) -> Self {
        let provider = NullProvider::new();
        let context = provider.open_with(DataPath::Plain(polls));
        let pd = context.create_protection_domain().unwrap();
        let channel = context.create_completion_channel().unwrap();
        let cq = CompletionQueueBuilder::new(&context, 64).channel(&channel).build().unwrap();
        let extended_cq = CompletionQueueBuilder::new(&context, 64).build_extended().unwrap();
        let queue = extended_cq.as_completion_queue();
        let ud = QueuePair::<Ud>::builder(&pd, &cq, &cq).max_send_wr(64).build().unwrap();
        let local = ud.local_endpoint(1, &GidFilter::default()).unwrap();
        ud.activate(&local, 0x11).unwrap();
        Self {
            rc: QueuePair::builder(&pd, &cq, &cq).max_send_wr(64).max_inline_data(64).build().unwrap(),
            uc: QueuePair::builder(&pd, &cq, &cq).max_send_wr(64).build().unwrap(),
            extended: QueuePair::builder(&pd, queue, queue).max_send_wr(64).require_extended().build().unwrap(),
            extended_cq,
            srq: pd.create_shared_receive_queue(64).unwrap(),
            ah: pd.create_address_handle_to(&local, &local.endpoint).unwrap(),
            region: pd.register(vec![0; 4096], AccessFlags::LOCAL_WRITE).unwrap(),
            ud,
            cq,
            provider,
        }
    }

    fn poll(&self) -> usize {
        let mut room = [WorkCompletion::default(); 16];
        self.cq.poll(&mut room).unwrap().len()
    }
}

/// Calls `with` often: after the first calls, nothing is allocated any more, nor freed.
fn allocates_nothing(what: &str, mut with: impl FnMut(u64)) {
    (0..100).for_each(&mut with);
    let before = (allocator::allocated(), allocator::live());
    (100..1100).for_each(&mut with);
    assert_eq!((allocator::allocated(), allocator::live()), before, "{what}");
}

const REMOTE: fn() -> RemoteSlice = || RemoteSlice::new(0x1000, 64, 7).unwrap();

#[test]
fn nothing_is_allocated_to_post_and_to_poll() {
    let _alone = one_at_a_time();
    let objects = Objects::new(Polls::Posted);
    let Objects { rc, uc, region, .. } = &objects;
    let inline = [InlineSlice::new(b"0123456789")];
    allocates_nothing("one request of each kind", |wr_id| {
        let slices = [region.slice(..64).unwrap()];
        rc.post_send(&SendRequest::send(wr_id, &slices).signaled()).unwrap();
        rc.post_send(&SendRequest::rdma_write(wr_id, &slices, REMOTE()).signaled()).unwrap();
        rc.post_send(&SendRequest::rdma_read(wr_id, &slices, REMOTE()).signaled()).unwrap();
        rc.post_send(&SendRequest::send_inline(wr_id, &inline).signaled()).unwrap();
        uc.post_send(&SendRequest::send(wr_id, &slices).signaled()).unwrap();
        rc.post_receive(&ReceiveRequest::new(wr_id, &slices)).unwrap();
        assert_eq!(objects.poll(), 6);
        assert_eq!(objects.poll(), 0);
    });
    allocates_nothing("chains", |wr_id| {
        let slices = [region.slice(..64).unwrap()];
        let mut sends: [_; 8] = std::array::from_fn(|_| SendRequest::send(wr_id, &slices).signaled());
        rc.post_send_chain(&mut sends).unwrap();
        let mut receives: [_; 8] = std::array::from_fn(|_| ReceiveRequest::new(wr_id, &slices));
        rc.post_receive_chain(&mut receives).unwrap();
        assert_eq!(objects.poll(), 16);
    });
    let mut batch = SendBatch::with_capacity(4);
    allocates_nothing("a batch, once it has grown", |wr_id| {
        let mut chain = batch.begin();
        for index in 0..16 {
            chain.push_with(SendRequest::send(wr_id, &[]).signaled(), &[region.slice(index..index + 8).unwrap()]);
        }
        rc.post_send_chain(&mut chain).unwrap();
        assert_eq!(objects.poll(), 16);
    });
    let mut sends = SelectiveSignaling::new(rc, 4, 0);
    allocates_nothing("counted sends", |_| {
        sends.post(rc, &mut SendRequest::send(0, &[])).unwrap();
        let mut chain: [_; 3] = std::array::from_fn(|_| SendRequest::send(0, &[]));
        sends.post_chain(rc, &mut chain).unwrap();
        let mut room = [WorkCompletion::default(); 4];
        let done: u32 = objects.cq.poll(&mut room).unwrap().iter().map(|completion| sends.retire(completion)).sum();
        assert_eq!(done, 4);
    });
}

#[test]
fn nothing_is_allocated_for_requests_that_are_prepared_and_for_slots() {
    let _alone = one_at_a_time();
    let objects = Objects::new(Polls::Posted);
    let Objects { rc, ud, srq, region, ah, .. } = &objects;
    let mut write = PreparedSend::rdma_write(0, [region.hold(..64).unwrap()], REMOTE()).signaled();
    let mut datagram = PreparedSend::send_to(0, [region.hold(..64).unwrap()], ah, 1, 2).signaled();
    let mut receive = PreparedReceive::new(0, [region.hold(..64).unwrap()]);
    let held = region.hold(64..128).unwrap();
    allocates_nothing("prepared requests", |wr_id| {
        write.set_wr_id(wr_id);
        write.set_range(0, ..(wr_id % 64) as usize).unwrap();
        write.set_slice(0, held.clone()).unwrap();
        rc.post_prepared_send(&write).unwrap();
        datagram.set_destination(ah, 3, 4);
        ud.post_prepared_send(&datagram).unwrap();
        receive.set_wr_id(wr_id);
        rc.post_prepared_receive(&receive).unwrap();
        srq.post_prepared_receive(&receive).unwrap();
        assert_eq!(objects.poll(), 3);
    });
    let mut receives = ReceiveSlots::new(region.hold(..512).unwrap(), 32, 0).unwrap();
    allocates_nothing("slots", |_| {
        receives.refill(rc).unwrap();
        let mut room = [WorkCompletion::default(); 16];
        for completion in objects.cq.poll(&mut room).unwrap() {
            receives.take(completion).unwrap();
            receives.release(completion.wr_id()).unwrap();
        }
    });
}

#[test]
fn nothing_is_allocated_for_datagrams_shared_queues_and_the_extended_interface() {
    let _alone = one_at_a_time();
    let objects = Objects::new(Polls::Posted);
    let Objects { ud, srq, region, ah, extended, extended_cq, .. } = &objects;
    allocates_nothing("datagrams", |wr_id| {
        let slices = [region.slice(..64).unwrap()];
        ud.post_send(&SendRequest::send_to(wr_id, &slices, ah, 1, 2).signaled()).unwrap();
        let mut chain: [_; 4] = std::array::from_fn(|_| SendRequest::send_to(wr_id, &slices, ah, 1, 2).signaled());
        ud.post_send_chain(&mut chain).unwrap();
        ud.post_receive(&ReceiveRequest::new(wr_id, &slices)).unwrap();
        let mut receives: [_; 4] = std::array::from_fn(|_| ReceiveRequest::new(wr_id, &slices));
        ud.post_receive_chain(&mut receives).unwrap();
        assert_eq!(objects.poll(), 10);
    });
    allocates_nothing("a shared receive queue", |wr_id| {
        let slices = [region.slice(..64).unwrap()];
        srq.post_receive(&ReceiveRequest::new(wr_id, &slices)).unwrap();
        let mut receives: [_; 4] = std::array::from_fn(|_| ReceiveRequest::new(wr_id, &slices));
        srq.post_receive_chain(&mut receives).unwrap();
    });
    let sends = extended.extended().unwrap();
    allocates_nothing("the extended interface", |wr_id| {
        let slices = [region.slice(..64).unwrap()];
        sends.post_send(&SendRequest::rdma_write(wr_id, &slices, REMOTE()).signaled()).unwrap();
        let mut chain: [_; 4] = std::array::from_fn(|_| SendRequest::send(wr_id, &slices).signaled());
        sends.post_send_chain(&mut chain).unwrap();
        let mut polled = 0;
        while let Some(completion) = extended_cq.poll().unwrap() {
            completion.success().unwrap();
            polled += 1;
        }
        assert_eq!(polled, 5);
    });
}

#[test]
fn nothing_is_allocated_to_wait() {
    let _alone = one_at_a_time();
    for polls in [Polls::Armed, Polls::Told] {
        let objects = Objects::new(polls);
        let mut room = [WorkCompletion::default(); 4];
        allocates_nothing("a wait", |_| {
            assert_eq!(objects.cq.wait(&mut room, Some(Duration::from_secs(60))).unwrap().len(), 1);
        });
        allocates_nothing("an event that is not there", |_| {
            let _ = objects.cq.take_event().unwrap();
        });
    }
}

#[test]
fn nothing_is_allocated_to_be_refused() {
    let _alone = one_at_a_time();
    let objects = Objects::new(Polls::Posted);
    let Objects { rc, ud, ah, region, .. } = &objects;
    let bytes = [0; 100];
    let inline = [InlineSlice::new(&bytes)];
    let mut receives = ReceiveSlots::new(region.hold(..32).unwrap(), 16, 0).unwrap();
    allocates_nothing("what is refused", |wr_id| {
        let slices = [region.slice(..4096).unwrap(), region.slice(..16).unwrap()];
        assert!(rc.post_send(&SendRequest::send_inline(wr_id, &inline)).is_err());
        // More than the port's MTU, and no room for a header.
        assert!(ud.post_send(&SendRequest::send_to(wr_id, &slices[..1], ah, 1, 2)).is_err());
        assert!(ud.post_receive(&ReceiveRequest::new(wr_id, &slices[1..])).is_err());
        assert!(receives.refill(ud).is_err());
    });
    objects.provider.assert_no_violation();
}

#[test]
fn nothing_is_allocated_to_copy_and_to_slice() {
    let _alone = one_at_a_time();
    let mut objects = Objects::new(Polls::Posted);
    let region = &mut objects.region;
    let mut bytes = [0; 64];
    allocates_nothing("copies and slices", |number| {
        let offset = number as usize % 4000;
        region.write_at(offset, &[1; 64]).unwrap();
        region.read_at(offset, &mut bytes).unwrap();
        let (mut front, back) = region.as_local_mut().split_at_mut(offset).unwrap();
        front.fill(0);
        assert_eq!(back.slice(..16).unwrap().slice(4..).unwrap().len(), 12);
        assert!(region.slice(..5000).is_err());
    });
}
