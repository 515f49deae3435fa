//! Eight more threads, with what those of `threads` do not use: the extended interface, datagrams, events of the device, queues that are
//! resized and queue pairs that are modified under way, windows.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use verbs::*;

use crate::harness::resources::used;
use crate::harness::*;
use crate::threads::Sum;

/// How long the threads work.
const TIME: Duration = Duration::from_secs(30);

const QKEY: u32 = 0x1111_1111;
/// How many datagrams have a receive.
const RECEIVES: usize = 64;
const SLOT: usize = Grh::LEN + 8;
/// The identifiers of receives; those of sends are below.
const FIRST_RECEIVE: u64 = 1 << 48;
const AHEAD: u64 = 32;

/// What all threads share.
struct Shared {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    /// Writes to the other one through the extended interface.
    qp: QueuePair<Rc>,
    _peer: QueuePair<Rc>,
    /// Sends datagrams to itself.
    ud: QueuePair<Ud>,
    ah: AddressHandle,
    local: LocalEndpoint,
    words: MemoryRegion<Vec<u8>>,
    target: MemoryRegion<Vec<u8>>,
    slots: MemoryRegion<Vec<u8>>,
    stop: AtomicBool,
    writes: Sum,
    writes_done: Sum,
    datagrams: Sum,
    datagrams_done: Sum,
    /// Their identifiers are what they say.
    received: Sum,
    next: AtomicU64,
    /// How often each thread went round.
    rounds: [AtomicU64; 8],
}

impl Shared {
    fn new() -> Self {
        let context = open();
        let pd = context.create_protection_domain().unwrap();
        let channel = context.create_completion_channel().unwrap();
        let cq = CompletionQueueBuilder::new(&context, 1024).channel(&channel).build().unwrap();
        let make = || QueuePair::<Rc>::builder(&pd, &cq, &cq).max_send_wr(64).require_extended().build().unwrap();
        let (qp, peer) = (make(), make());
        let [here, there] = [&qp, &peer].map(|qp| qp.local_endpoint(1, &GidFilter::default()).unwrap());
        qp.connect(&here, &there.endpoint, &options()).unwrap();
        peer.connect(&there, &here.endpoint, &options()).unwrap();
        let builder = QueuePair::<Ud>::builder(&pd, &cq, &cq).max_send_wr(64).max_recv_wr(RECEIVES as u32);
        let ud = builder.max_inline_data(16).build().unwrap();
        let local = ud.local_endpoint(1, &GidFilter::default()).unwrap();
        ud.activate(&local, QKEY).unwrap();
        let ah = pd.create_address_handle_to(&local, &local.endpoint).unwrap();
        let region = |length| pd.register(vec![7; length], RW).unwrap();
        let (words, target, slots) = (region(64), region(64), region(RECEIVES * SLOT));
        let shared = Self {
            context,
            cq,
            qp,
            _peer: peer,
            ud,
            ah,
            local,
            words,
            target,
            slots,
            pd,
            stop: AtomicBool::new(false),
            writes: Sum::default(),
            writes_done: Sum::default(),
            datagrams: Sum::default(),
            datagrams_done: Sum::default(),
            received: Sum::default(),
            next: AtomicU64::new(1),
            rounds: Default::default(),
        };
        (0..RECEIVES).for_each(|slot| shared.receive_into(slot));
        shared
    }

    fn receive_into(&self, slot: usize) {
        let slices = [self.slots.slice(slot * SLOT..(slot + 1) * SLOT).unwrap()];
        self.ud.post_receive(&ReceiveRequest::new(FIRST_RECEIVE + slot as u64, &slices)).unwrap();
    }

    /// Posts chains of writes and reads through the extended interface.
    fn post_extended(&self) {
        let slices = [self.words.slice(..).unwrap()];
        let remote = self.target.remote_slice(..).unwrap();
        if self.writes.get().0 > self.writes_done.get().0 + AHEAD {
            return thread::yield_now();
        }
        let mut batch = SendBatch::with_capacity(2);
        let mut chain = batch.begin();
        let ids: [u64; 2] = std::array::from_fn(|_| self.next.fetch_add(1, Relaxed));
        chain.push(SendRequest::rdma_write(ids[0], &slices, remote).signaled());
        chain.push(SendRequest::rdma_read(ids[1], &slices, remote).signaled());
        match self.qp.extended().unwrap().post_send_chain(&mut chain) {
            Ok(()) => ids.iter().for_each(|wr_id| self.writes.add(*wr_id)),
            Err(error) => {
                // All or none: nothing of a chain that does not fit is sent.
                assert_eq!((error.kind(), error.accepted()), (PostErrorKind::QueueFull, Some(0)), "{error}");
                thread::yield_now();
            }
        }
    }

    /// Sends datagrams, each of which has a receive.
    fn post_datagram(&self) {
        if self.datagrams.get().0 >= self.received.get().0 + AHEAD {
            return thread::yield_now();
        }
        let wr_id = self.next.fetch_add(1, Relaxed);
        let bytes = wr_id.to_ne_bytes();
        let inline = [InlineSlice::new(&bytes)];
        let request = SendRequest::send_to_inline(wr_id, &inline, &self.ah, self.ud.qp_num(), QKEY);
        self.datagrams.add(wr_id);
        self.ud.post_send(&request.signaled()).unwrap();
    }

    fn note(&self, completions: &[WorkCompletion]) {
        for completion in completions {
            let success = completion.success().unwrap();
            let wr_id = completion.wr_id();
            if let Some(slot) = wr_id.checked_sub(FIRST_RECEIVE) {
                let datagram = success.datagram().unwrap();
                assert_eq!((datagram.source_qp_num(), datagram.payload_len()), (self.ud.qp_num(), 8));
                let bytes = self.slots.to_vec(datagram.payload_at(slot as usize * SLOT)).unwrap();
                self.received.add(u64::from_ne_bytes(bytes.try_into().unwrap()));
                self.receive_into(slot as usize);
            } else if completion.qp_num() == self.ud.qp_num() {
                self.datagrams_done.add(wr_id);
            } else {
                self.writes_done.add(wr_id);
            }
        }
    }

    fn wait(&self) {
        let mut room = [WorkCompletion::default(); 8];
        self.note(self.cq.wait(&mut room, Some(Duration::from_millis(20))).unwrap());
    }

    fn wait_for_an_event(&self) {
        // An overflow, for example.
        assert_eq!(self.context.async_event(Some(Duration::from_millis(20))).unwrap(), None);
    }

    fn resize(&self) {
        for entries in [1024, 2048, 1500] {
            self.cq.resize(entries).unwrap();
            assert!(self.cq.capacity() >= entries, "{} of {entries}", self.cq.capacity());
        }
        thread::sleep(Duration::from_millis(1));
    }

    fn modify(&self) {
        for timer in [12, 14] {
            let timer = RnrTimer::from_code(timer).unwrap();
            self.qp.modify(&QueuePairModification::in_place().min_rnr_timer(timer).access(RW)).unwrap();
            let found = self.qp.query().unwrap();
            assert_eq!((found.state(), found.access()), (QueuePairState::READY_TO_SEND, Some(RW)));
            self.ud.modify(&QueuePairModification::in_place().qkey(QKEY)).unwrap();
            assert_eq!(self.ud.query().unwrap().qkey(), Some(QKEY));
        }
    }

    /// Makes address handles and windows, and drops them.
    fn make(&self) {
        let ah = self.pd.create_address_handle_to(&self.local, &self.local.endpoint).unwrap();
        let windows = [(); 3].map(|()| self.pd.create_memory_window::<WindowType2>().unwrap());
        assert!(windows.iter().all(|window| window.protection_domain().as_raw() == self.pd.as_raw()));
        drop(ah);
    }

    /// Whether all that was sent is done.
    fn is_done(&self) -> bool {
        let done = [(&self.writes, &self.writes_done), (&self.datagrams, &self.datagrams_done)];
        done.iter().all(|(posted, done)| posted.get().0 == done.get().0)
            && self.received.get().0 == self.datagrams.get().0
    }
}

#[test]
fn eight_threads_share_extended_and_datagram_queue_pairs_that_are_modified_and_a_queue_that_is_resized() {
    let before = used();
    in_time("eight threads", TIME + 4 * LIMIT, || {
        let shared = Arc::new(Shared::new());
        let work: [fn(&Shared); 8] = [
            Shared::post_extended,
            Shared::post_datagram,
            Shared::wait,
            Shared::wait,
            Shared::wait_for_an_event,
            Shared::resize,
            Shared::modify,
            Shared::make,
        ];
        let threads: Vec<_> = (0..work.len())
            .map(|index| {
                let shared = shared.clone();
                thread::spawn(move || {
                    while !shared.stop.load(Relaxed) {
                        work[index](&shared);
                        shared.rounds[index].fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        let start = Instant::now();
        // Each goes round a few times, on however slow a machine.
        let is_enough =
            || shared.rounds.iter().all(|rounds| rounds.load(Relaxed) > 10) || start.elapsed() > TIME + LIMIT;
        while !(start.elapsed() > TIME && is_enough()) && threads.iter().all(|thread| !thread.is_finished()) {
            thread::sleep(Duration::from_millis(100));
        }
        shared.stop.store(true, Relaxed);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        until("all is done", || {
            shared.wait();
            shared.is_done()
        });
        println!(
            "{:?} rounds, {:?} writes and reads, {:?} datagrams",
            shared.rounds,
            shared.writes.get().0,
            shared.datagrams.get().0
        );
        assert_eq!(shared.writes_done.get(), shared.writes.get());
        assert_eq!(shared.datagrams_done.get(), shared.datagrams.get());
        // Each came once, and said what was sent.
        assert_eq!(shared.received.get(), shared.datagrams.get());
        assert!(shared.rounds.iter().all(|rounds| rounds.load(Relaxed) > 10), "{:?}", shared.rounds);
        thread::spawn(move || drop(shared)).join().unwrap();
    });
    assert_eq!(used().objects(), before.objects());
}
