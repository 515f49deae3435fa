use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use verbs::*;

use crate::harness::resources::used;
use crate::harness::*;

/// How long the threads work.
const TIME: Duration = Duration::from_secs(60);

/// What all threads share.
struct Shared {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    srq: SharedReceiveQueue,
    /// Its messages go to the other one, which takes receives from the shared queue.
    qp: QueuePair<Rc>,
    _peer: QueuePair<Rc>,
    region: MemoryRegion<Vec<u8>>,
    stop: AtomicBool,
    /// How many requests were posted, and the sum of their identifiers.
    sends: Sum,
    sends_done: Sum,
    receives: Sum,
    receives_done: Sum,
    next: AtomicU64,
}

#[derive(Default)]
pub(crate) struct Sum {
    count: AtomicU64,
    identifiers: AtomicU64,
}

impl Sum {
    pub(crate) fn add(&self, wr_id: u64) {
        self.count.fetch_add(1, Relaxed);
        self.identifiers.fetch_add(wr_id, Relaxed);
    }

    pub(crate) fn get(&self) -> (u64, u64) {
        (self.count.load(Relaxed), self.identifiers.load(Relaxed))
    }
}

const RECEIVES: u32 = 256;

impl Shared {
    fn new() -> Self {
        let context = open();
        let pd = context.create_protection_domain().unwrap();
        let channel = context.create_completion_channel().unwrap();
        let cq = CompletionQueueBuilder::new(&context, 1024).channel(&channel).build().unwrap();
        let srq = pd.create_shared_receive_queue(RECEIVES).unwrap();
        let qp = QueuePair::builder(&pd, &cq, &cq).max_send_wr(64).signal_all(true).build().unwrap();
        let peer = QueuePair::builder(&pd, &cq, &cq).shared_receive_queue(&srq).build().unwrap();
        let [here, there] = [&qp, &peer].map(|qp| qp.local_endpoint(1, &GidFilter::default()).unwrap());
        qp.connect(&here, &there.endpoint, &options()).unwrap();
        peer.connect(&there, &here.endpoint, &options()).unwrap();
        let region = pd.register(vec![0; 4096], RW).unwrap();
        Self {
            context,
            pd,
            cq,
            srq,
            qp,
            _peer: peer,
            region,
            stop: AtomicBool::new(false),
            sends: Sum::default(),
            sends_done: Sum::default(),
            receives: Sum::default(),
            receives_done: Sum::default(),
            next: AtomicU64::new(1),
        }
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Relaxed)
    }

    /// How many messages have a completion to come, at either end.
    fn under_way(&self) -> u64 {
        let done = self.sends_done.get().0.min(self.receives_done.get().0);
        self.sends.get().0.saturating_sub(done)
    }

    /// Posts requests in chains, as many as the queue takes.
    fn post_sends(&self) {
        let slices = [self.region.slice(..64).unwrap()];
        while self.goes_on() {
            // rxe frees the slot of a request before its completion is polled, so the send queue does not keep the completion queue from
            // overflowing.
            if self.under_way() > 256 {
                thread::yield_now();
                continue;
            }
            let ids: [u64; 4] = std::array::from_fn(|_| self.next.fetch_add(1, Relaxed));
            let mut chain = ids.map(|wr_id| SendRequest::send(wr_id, &slices));
            let accepted = match self.qp.post_send_chain(&mut chain) {
                Ok(()) => ids.len(),
                Err(error) => {
                    assert_eq!(error.kind(), PostErrorKind::QueueFull, "{error}");
                    thread::yield_now();
                    error.accepted().unwrap()
                }
            };
            ids[..accepted].iter().for_each(|wr_id| self.sends.add(*wr_id));
        }
    }

    /// Keeps receives in the shared queue.
    fn post_receives(&self) {
        let slices = [self.region.slice(1024..2048).unwrap()];
        while self.goes_on() {
            let wr_id = self.next.fetch_add(1, Relaxed);
            match self.srq.post_receive(&ReceiveRequest::new(wr_id, &slices)) {
                Ok(()) => self.receives.add(wr_id),
                Err(error) => {
                    assert_eq!((error.kind(), error.accepted()), (PostErrorKind::QueueFull, Some(0)), "{error}");
                    thread::yield_now();
                }
            }
        }
    }

    fn note(&self, completions: &[WorkCompletion]) {
        for completion in completions {
            let success = completion.success().unwrap();
            let sum = if success.opcode().is_receive() { &self.receives_done } else { &self.sends_done };
            sum.add(completion.wr_id());
        }
    }

    fn poll(&self) {
        let mut room = [WorkCompletion::default(); 8];
        while self.goes_on() {
            self.note(self.cq.poll(&mut room).unwrap());
            thread::yield_now();
        }
    }

    fn wait(&self) {
        let mut room = [WorkCompletion::default(); 8];
        while self.goes_on() {
            self.note(self.cq.wait(&mut room, Some(Duration::from_millis(50))).unwrap());
        }
    }

    /// Asks whatever can be asked.
    fn query(&self) {
        while self.goes_on() {
            assert_eq!(self.qp.state().unwrap(), QueuePairState::READY_TO_SEND);
            assert!(self.srq.attributes().unwrap().max_wr >= RECEIVES);
            assert!(self.cq.capacity() >= 1024);
            assert!(!self.context.gid_table(1).unwrap().is_empty());
            // An overflow of the completion queue, for example.
            assert_eq!(self.context.try_async_event().unwrap(), None);
            let _ = self.cq.take_event().unwrap();
        }
    }

    /// Makes objects, which another thread drops.
    fn make(&self, made: &SyncSender<Box<dyn Any + Send>>) {
        while self.goes_on() {
            let region = self.pd.register(vec![7; 512], RW).unwrap();
            let held = region.hold(..).unwrap();
            let cq = self.context.create_completion_queue(16).unwrap();
            let qp = QueuePair::<Ud>::builder(&self.pd, &cq, &cq).build().unwrap();
            let local = qp.local_endpoint(1, &GidFilter::default()).unwrap();
            let ah = self.pd.create_address_handle_to(&local, &local.endpoint).unwrap();
            let window = self.pd.create_memory_window::<WindowType2>().unwrap();
            for object in
                [Box::new(region) as Box<dyn Any + Send>, Box::new(held), Box::new((cq, ah)), Box::new((qp, window))]
            {
                // The other thread has stopped first.
                let _ = made.send(object);
            }
        }
    }

    fn drop_what_is_made(&self, made: &Receiver<Box<dyn Any + Send>>) {
        while let Ok(object) = made.recv() {
            drop(object);
        }
    }

    /// Takes what is still under way.
    fn drain(&self) {
        let deadline = Instant::now() + LIMIT;
        let mut room = [WorkCompletion::default(); 8];
        let missing =
            || self.sends_done.get().0 < self.sends.get().0 || self.receives_done.get().0 < self.sends.get().0;
        // Messages that have no receive yet get one.
        while missing() {
            assert!(Instant::now() < deadline, "{:?} of {:?}", self.sends_done.get(), self.sends.get());
            let wr_id = self.next.fetch_add(1, Relaxed);
            if self.srq.post_receive(&ReceiveRequest::new(wr_id, &[self.region.slice(2048..3072).unwrap()])).is_ok() {
                self.receives.add(wr_id);
            }
            self.note(self.cq.wait(&mut room, Some(Duration::from_millis(50))).unwrap());
        }
    }
}

#[test]
fn eight_threads_share_all_objects_and_each_request_completes_once() {
    let before = used();
    in_time("eight threads", TIME + 3 * LIMIT, || {
        let shared = Arc::new(Shared::new());
        let (sender, receiver) = sync_channel(16);
        let spawn = |work: Box<dyn FnOnce(&Shared) + Send>| -> JoinHandle<()> {
            let shared = shared.clone();
            thread::spawn(move || work(&shared))
        };
        let threads = [
            spawn(Box::new(Shared::post_sends)),
            spawn(Box::new(Shared::post_sends)),
            spawn(Box::new(Shared::post_receives)),
            spawn(Box::new(Shared::poll)),
            spawn(Box::new(Shared::wait)),
            spawn(Box::new(Shared::query)),
            spawn(Box::new(move |shared| shared.make(&sender))),
            spawn(Box::new(move |shared| shared.drop_what_is_made(&receiver))),
        ];
        thread::sleep(TIME);
        shared.stop.store(true, Relaxed);
        for thread in threads {
            thread.join().unwrap();
        }
        shared.drain();
        println!("{} messages", shared.sends.get().0);
        assert_eq!(shared.sends_done.get(), shared.sends.get());
        assert_eq!(shared.receives_done.get().0, shared.sends.get().0);
        assert!(shared.sends.get().0 > 1000, "{:?}", shared.sends.get());
        // The last handle is dropped on another thread than all was made on.
        thread::spawn(move || drop(shared)).join().unwrap();
    });
    assert_eq!(used().objects(), before.objects());
}
