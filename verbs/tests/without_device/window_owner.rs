//! To which queue pair a memory window belongs, and what proves that it belongs to none.

use verbs::completion_field::{InvalidatedRkey, Opcode, QueuePairNumber};
use verbs::*;

use crate::memory_window::{bindable, completion, request, unbind};
use crate::null_provider::{BadWr, Kind, NullProvider, Refusal};
use crate::{Bench, connect};

const WITH_INV: u32 = ffi::ibv_wc_flags::IBV_WC_WITH_INV.0;
/// By which rxe's kernel says the same.
const IP_CSUM_OK: u32 = ffi::ibv_wc_flags::IBV_WC_IP_CSUM_OK.0;
const RXE_VENDOR_ID: u32 = 0xff_ffff;

fn another_pair(bench: &Bench) -> QueuePair<Rc> {
    let qp = QueuePair::<Rc>::builder(&bench.pd, &bench.cq, &bench.cq).build().unwrap();
    connect(&qp);
    qp
}

fn window_of_type_2(bench: &Bench) -> MemoryWindow<WindowType2> {
    bench.pd.create_memory_window().unwrap()
}

/// The next completion, whatever its status is.
fn polled(bench: &Bench) -> WorkCompletion {
    let mut room = [WorkCompletion::default(); 1];
    bench.cq.poll(&mut room).unwrap()[0]
}

#[track_caller]
fn is_unproven<K: WindowType>(window: &mut MemoryWindow<K>, completion: &impl Completion, why: &str) {
    let error = window.release(completion).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "completion", .. }), "{error:?}");
    assert!(error.to_string().contains(why), "{error}");
}

#[track_caller]
fn belongs_to_another(window: &mut MemoryWindow<WindowType2>, qp: &QueuePair<Rc>, region: &MemoryRegion<Vec<u8>>) {
    let key = window.rkey();
    for error in [
        qp.post_bind(window, &request(region)).map(drop).unwrap_err(),
        qp.post_unbind(window, &UnbindRequest::new(1)).unwrap_err(),
    ] {
        assert!(matches!(error, Error::InvalidArgument { argument: "mw", .. }), "{error:?}");
        assert!(error.to_string().contains("until it is unbound and released"), "{error}");
    }
    assert_eq!(window.rkey(), key);
}

#[test]
fn a_window_that_was_not_released_is_freed_before_the_queue_pair_that_it_was_bound_by() {
    let bench = Bench::new();
    let region = bindable(&bench);
    let windows: [_; 4] = std::array::from_fn(|_| window_of_type_2(&bench));
    let [mut bound, mut unbound, mut elsewhere, mut released] = windows;
    let other = another_pair(&bench);
    for window in [&mut bound, &mut unbound, &mut elsewhere, &mut released] {
        bench.qp.post_bind(window, &request(&region)).unwrap();
        completion(&bench);
    }
    bench.qp.post_unbind(&mut unbound, &UnbindRequest::new(1)).unwrap();
    for window in [&mut elsewhere, &mut released] {
        unbind(&bench, window);
    }
    other.post_bind(&mut elsewhere, &request(&region)).unwrap();
    let key = bound.rkey();
    let Bench { qp, region: unused, cq, pd, context, provider } = bench;
    drop(qp);
    let freed = [&bound, &unbound, &elsewhere, &released].map(MemoryWindow::is_freed);
    assert_eq!(freed, [true, true, false, false]);
    assert_eq!((bound.rkey(), bound.as_raw().is_null(), provider.live(Kind::Window)), (key, true, 2));
    for error in [
        other.post_bind(&mut bound, &request(&region)).map(drop).unwrap_err(),
        other.post_unbind(&mut bound, &UnbindRequest::new(1)).unwrap_err(),
        bound.release(&WorkCompletion::default()).unwrap_err(),
    ] {
        assert!(error.to_string().contains("bound by a queue pair that is gone"), "{error}");
    }
    bound.deallocate().unwrap();
    drop((unbound, elsewhere, released, other, region, unused, cq, pd, context));
    provider.assert_clean();
}

#[test]
fn a_window_whose_unbinding_was_flushed_goes_with_the_queue_pair_that_failed() {
    let bench = Bench::new();
    let region = bindable(&bench);
    let mut window = window_of_type_2(&bench);
    let other = another_pair(&bench);
    bench.qp.post_bind(&mut window, &request(&region)).unwrap();
    completion(&bench);
    bench.qp.move_to_error().unwrap();
    bench.qp.post_unbind(&mut window, &UnbindRequest::new(6).signaled()).unwrap();
    let flushed = polled(&bench);
    assert_eq!((flushed.wr_id(), flushed.status()), (6, WorkCompletionStatus::WORK_REQUEST_FLUSHED));
    is_unproven(&mut window, &flushed, "the window may still be bound");
    belongs_to_another(&mut window, &other, &region);
    let Bench { qp, region: unused, cq, pd, context, provider } = bench;
    drop(qp);
    assert!(window.is_freed());
    drop((window, other, region, unused, cq, pd, context));
    provider.assert_clean();
}

#[test]
fn a_window_of_a_queue_pair_that_failed_is_unbound_once_that_one_is_connected_again() {
    let bench = Bench::new();
    let region = bindable(&bench);
    let mut window = window_of_type_2(&bench);
    bench.qp.post_bind(&mut window, &request(&region)).unwrap();
    completion(&bench);
    bench.qp.move_to_error().unwrap();
    bench.qp.post_unbind(&mut window, &UnbindRequest::new(6)).unwrap();
    polled(&bench);
    bench.qp.reset().unwrap();
    connect(&bench.qp);
    unbind(&bench, &mut window);
    assert_eq!(region.deregister().unwrap().len(), 4096);
}

#[test]
fn a_window_of_a_pool_serves_one_queue_pair_after_the_other() {
    let bench = Bench::new();
    let region = bindable(&bench);
    let mut window = window_of_type_2(&bench);
    for _ in 0..3 {
        let qp = another_pair(&bench);
        qp.post_bind(&mut window, &request(&region)).unwrap();
        completion(&bench);
        belongs_to_another(&mut window, &bench.qp, &region);
        qp.post_unbind(&mut window, &UnbindRequest::new(6).signaled()).unwrap();
        belongs_to_another(&mut window, &bench.qp, &region);
        window.release(&completion(&bench).0).unwrap();
        drop(qp);
        assert!(!window.is_freed());
    }
    bench.qp.post_bind(&mut window, &request(&region)).unwrap();
    completion(&bench);
    unbind(&bench, &mut window);
    assert_eq!(region.deregister().unwrap().len(), 4096);
}

#[test]
fn only_the_completion_of_the_last_unbinding_proves_it() {
    let bench = Bench::new();
    let region = bindable(&bench);
    let (mut window, mut neighbour) = (window_of_type_2(&bench), window_of_type_2(&bench));
    let other = another_pair(&bench);
    is_unproven(&mut window, &WorkCompletion::default(), "no request to unbind the window was posted");
    for window in [&mut window, &mut neighbour] {
        bench.qp.post_bind(window, &request(&region)).unwrap();
    }
    let bound = completion(&bench).0;
    completion(&bench);
    is_unproven(&mut window, &bound, "no request to unbind the window was posted");
    // One that is refused is none.
    bench.provider.refuse(Refusal { after: 0, errno: libc::ENOMEM, bad_wr: BadWr::Refused });
    bench.qp.post_unbind(&mut window, &UnbindRequest::new(10)).unwrap_err();
    bench.qp.post_send(&SendRequest::local_invalidate(10, neighbour.rkey()).signaled()).unwrap();
    is_unproven(&mut window, &completion(&bench).0, "no request to unbind the window was posted");
    // An old one, a bind, another request, one of another queue pair with the same identifier.
    bench.qp.post_unbind(&mut window, &UnbindRequest::new(10).signaled()).unwrap();
    let old = completion(&bench).0;
    bench.qp.post_bind(&mut window, &request(&region)).unwrap();
    is_unproven(&mut window, &completion(&bench).0, "no request to unbind the window was posted");
    is_unproven(&mut window, &old, "no request to unbind the window was posted");
    bench.qp.post_unbind(&mut window, &UnbindRequest::new(11).signaled()).unwrap();
    let unbound = completion(&bench).0;
    bench.qp.post_send(&SendRequest::send(11, &[]).signaled()).unwrap();
    let sent = completion(&bench).0;
    other.post_send(&SendRequest::local_invalidate(11, 0x00de_ad00).signaled()).unwrap();
    let elsewhere = completion(&bench).0;
    for completion in [old, bound, sent, elsewhere] {
        is_unproven(&mut window, &completion, "not that of the last request to unbind");
        belongs_to_another(&mut window, &other, &region);
    }
    window.release(&unbound).unwrap();
    is_unproven(&mut window, &unbound, "no request to unbind the window was posted");
    other.post_bind(&mut window, &request(&region)).unwrap();
    bench.provider.assert_no_violation();
}

#[test]
fn a_window_of_type_1_is_released_by_the_completion_of_its_last_unbinding_only() {
    let bench = Bench::new();
    let region = bindable(&bench);
    let mut window = bench.pd.create_memory_window::<WindowType1>().unwrap();
    bench.qp.post_bind(&mut window, &request(&region)).unwrap();
    let bound = completion(&bench).0;
    is_unproven(&mut window, &bound, "no request to unbind the window was posted");
    bench.qp.post_unbind(&mut window, &UnbindRequest::new(6).signaled()).unwrap();
    let unbound = completion(&bench).0;
    bench.qp.post_send(&SendRequest::local_invalidate(6, 0x00de_ad00).signaled()).unwrap();
    for completion in [bound, completion(&bench).0] {
        is_unproven(&mut window, &completion, "not that of the last request to unbind");
    }
    // Peers do not invalidate keys of type 1.
    bench.provider.complete_with_flags(WITH_INV, window.rkey());
    bench.qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
    is_unproven(&mut window, &polled(&bench), "of a window of type 1");
    let (region, error) = region.deregister().unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    window.release(&unbound).unwrap();
    assert_eq!(region.deregister().unwrap().len(), 4096);
}

/// A receive whose message has invalidated a key, and told of it by a flag.
fn received(bench: &Bench, qp: &QueuePair<Rc>, flag: u32, rkey: u32) -> WorkCompletion {
    bench.provider.complete_with_flags(flag, rkey);
    qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
    polled(bench)
}

#[test]
fn a_receive_that_invalidated_the_key_proves_that_the_window_is_unbound() {
    let bench = Bench::new();
    let region = bindable(&bench);
    let mut window = window_of_type_2(&bench);
    let other = another_pair(&bench);
    let before = window.rkey();
    let early = received(&bench, &bench.qp, WITH_INV, before);
    is_unproven(&mut window, &early, "the window is not bound");
    bench.qp.post_bind(&mut window, &request(&region)).unwrap();
    completion(&bench);
    let key = window.rkey();
    let another = received(&bench, &bench.qp, WITH_INV, 0x00de_ad00);
    let none = received(&bench, &bench.qp, 0, key);
    // What another device says by this flag.
    let unrelated = received(&bench, &bench.qp, IP_CSUM_OK, key);
    for (completion, why) in [
        (early, "has not invalidated the key of the last binding"),
        (another, "has not invalidated the key of the last binding"),
        (none, "has invalidated no key"),
        (unrelated, "has invalidated no key"),
    ] {
        is_unproven(&mut window, &completion, why);
        belongs_to_another(&mut window, &other, &region);
    }
    let elsewhere = received(&bench, &other, WITH_INV, 0x00de_ad00);
    is_unproven(&mut window, &elsewhere, "of another queue pair");
    // A key that the program has told tells nothing.
    window.restore_rkey(before).unwrap();
    is_unproven(&mut window, &early, "has not invalidated the key of the last binding");
    window.restore_rkey(key).unwrap();
    unbind(&bench, &mut window);
    bench.qp.post_bind(&mut window, &request(&region)).unwrap();
    completion(&bench);
    let invalidated = received(&bench, &bench.qp, WITH_INV, window.rkey());
    window.release(&invalidated).unwrap();
    other.post_bind(&mut window, &request(&region)).unwrap();
    let Bench { qp, region: unused, cq, pd, context, provider } = bench;
    drop(qp);
    assert!(!window.is_freed());
    drop((other, window, region, unused, cq, pd, context));
    provider.assert_clean();
}

#[test]
fn a_receive_of_rxe_tells_of_the_key_by_a_flag_of_its_own() {
    let bench = Bench::new();
    let region = bindable(&bench);
    let mut window = window_of_type_2(&bench);
    bench.provider.lie_about_device(|device| device.vendor_id = RXE_VENDOR_ID);
    bench.qp.post_bind(&mut window, &request(&region)).unwrap();
    completion(&bench);
    let other = received(&bench, &bench.qp, IP_CSUM_OK, window.rkey() ^ 1);
    is_unproven(&mut window, &other, "has not invalidated the key of the last binding");
    let invalidated = received(&bench, &bench.qp, IP_CSUM_OK, window.rkey());
    bench.provider.invalidate(window.rkey());
    assert_eq!(invalidated.success().unwrap().invalidated_rkey(), None);
    window.release(&invalidated).unwrap();
    assert_eq!(region.deregister().unwrap().len(), 4096);
}

/// A window that is bound through a queue pair on an extended queue, whose completions have the fields `F`.
struct OnExtended<F: CompletionFields> {
    qp: QueuePair<Rc>,
    window: MemoryWindow<WindowType2>,
    cq: ExtendedCompletionQueue<F>,
    provider: NullProvider,
}

impl<F: CompletionFields> OnExtended<F> {
    fn new() -> Self {
        let provider = NullProvider::new();
        let context = provider.open();
        let pd = context.create_protection_domain().unwrap();
        let cq = CompletionQueueBuilder::new(&context, 8).build_extended::<F>().unwrap();
        let qp = QueuePair::<Rc>::builder(&pd, cq.as_completion_queue(), cq.as_completion_queue()).build().unwrap();
        connect(&qp);
        let region = pd.register(vec![0; 4096], AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND).unwrap();
        let mut window = pd.create_memory_window().unwrap();
        qp.post_bind(&mut window, &request(&region)).unwrap();
        cq.poll().unwrap().unwrap();
        Self { qp, window, cq, provider }
    }

    /// What is posted, and its completion.
    fn completed(
        &mut self,
        post: impl FnOnce(&QueuePair<Rc>, &mut MemoryWindow<WindowType2>),
    ) -> ExtendedCompletion<F> {
        post(&self.qp, &mut self.window);
        self.cq.poll().unwrap().unwrap()
    }

    fn unbound(&mut self) -> ExtendedCompletion<F> {
        self.completed(|qp, window| qp.post_unbind(window, &UnbindRequest::new(9).signaled()).unwrap())
    }

    fn received(&mut self, flags: u32) -> ExtendedCompletion<F> {
        self.provider.complete_with_flags(flags, self.window.rkey());
        self.completed(|qp, _| qp.post_receive(&ReceiveRequest::new(9, &[])).unwrap())
    }
}

#[test]
fn completions_of_an_extended_queue_prove_it_if_they_have_the_fields() {
    let mut on = OnExtended::<(Opcode, QueuePairNumber, InvalidatedRkey)>::new();
    let send = |qp: &QueuePair<Rc>| qp.post_send(&SendRequest::send(9, &[]).signaled()).unwrap();
    let sent = on.completed(|qp, _| send(qp));
    is_unproven(&mut on.window, &sent, "no request to unbind the window was posted");
    let unbound = on.unbound();
    is_unproven(&mut on.window, &sent, "not that of the last request to unbind");
    let received = on.received(0);
    is_unproven(&mut on.window, &received, "has invalidated no key");
    on.qp.move_to_error().unwrap();
    let flushed = on.completed(|qp, _| send(qp));
    is_unproven(&mut on.window, &flushed, "the window may still be bound");
    on.window.release(&unbound).unwrap();

    let mut on = OnExtended::<(InvalidatedRkey, Opcode, QueuePairNumber)>::new();
    let received = on.received(WITH_INV);
    on.window.release(&received).unwrap();

    let mut on = OnExtended::<(QueuePairNumber, Opcode)>::new();
    let received = on.received(WITH_INV);
    is_unproven(&mut on.window, &received, "make the queue with the field `InvalidatedRkey`");
}

fn proves_nothing<F: CompletionFields>() {
    let mut on = OnExtended::<F>::new();
    let unbound = on.unbound();
    is_unproven(&mut on.window, &unbound, "make the queue with the fields `Opcode` and `QueuePairNumber`");
}

#[test]
fn completions_of_an_extended_queue_without_the_fields_prove_nothing() {
    proves_nothing::<()>();
    proves_nothing::<(Opcode,)>();
    proves_nothing::<(InvalidatedRkey, QueuePairNumber)>();
    let mut on = OnExtended::<(QueuePairNumber, Opcode)>::new();
    let unbound = on.unbound();
    on.window.release(&unbound).unwrap();
}
