use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use verbs::*;

use crate::destruction::each_order;
use crate::null_provider::{BadWr, Kind, NullProvider, Refusal};
use crate::{Bench, ERRNOS, connect};

const BINDABLE: AccessFlags = AccessFlags::LOCAL_WRITE.union(AccessFlags::MW_BIND);

fn bindable(bench: &Bench) -> MemoryRegion<Vec<u8>> {
    bench.pd.register(vec![0; 4096], BINDABLE).unwrap()
}

fn request(region: &MemoryRegion<Vec<u8>>) -> BindRequest {
    BindRequest::new(5, region, 100..200, AccessFlags::REMOTE_WRITE).unwrap().signaled()
}

/// The opcode of the next completion, and its identifier.
fn completion(bench: &Bench) -> (u64, WorkCompletionOpcode) {
    let mut room = [WorkCompletion::default(); 1];
    let done = bench.cq.poll(&mut room).unwrap()[0].success().unwrap();
    (done.wr_id(), done.opcode())
}

fn a_window_is_bound_and_unbound<K: WindowType>() {
    let bench = Bench::new();
    let region = bindable(&bench);
    let mut window = bench.pd.create_memory_window::<K>().unwrap();
    let mut keys = vec![window.rkey()];
    for _ in 0..3 {
        let remote = bench.qp.post_bind(&mut window, &request(&region)).unwrap();
        assert_eq!(completion(&bench), (5, WorkCompletionOpcode::BIND_MEMORY_WINDOW));
        assert_eq!((remote.address(), remote.len(), remote.rkey()), (region.address() + 100, 100, window.rkey()));
        assert!(!keys.contains(&remote.rkey()));
        keys.push(remote.rkey());
        bench.qp.post_unbind(&mut window, &UnbindRequest::new(6).signaled()).unwrap();
        let opcode = completion(&bench);
        assert!(
            opcode == (6, WorkCompletionOpcode::BIND_MEMORY_WINDOW)
                || opcode == (6, WorkCompletionOpcode::LOCAL_INVALIDATE)
        );
    }
    window.release();
    assert_eq!(region.deregister().unwrap().len(), 4096);
    bench.provider.assert_no_violation();
    window.deallocate().unwrap();
}

#[test]
fn a_window_of_type_1_is_bound_and_unbound_with_a_new_key_each_time() {
    a_window_is_bound_and_unbound::<WindowType1>();
}

#[test]
fn a_window_of_type_2_is_bound_and_unbound_with_a_new_key_each_time() {
    a_window_is_bound_and_unbound::<WindowType2>();
}

#[test]
fn a_zero_based_window_begins_at_0_and_is_of_type_2() {
    let bench = Bench::new();
    let region = bindable(&bench);
    let access = AccessFlags::REMOTE_READ | AccessFlags::ZERO_BASED;
    let request = BindRequest::new(5, &region, 100..200, access).unwrap();
    let mut window = bench.pd.create_memory_window::<WindowType2>().unwrap();
    let remote = bench.qp.post_bind(&mut window, &request).unwrap();
    assert_eq!((remote.address(), remote.len()), (0, 100));
    let mut window = bench.pd.create_memory_window::<WindowType1>().unwrap();
    let error = bench.qp.post_bind(&mut window, &request).unwrap_err();
    assert!(error.to_string().contains("a window of type 1 cannot be zero-based"), "{error}");
}

#[test]
fn what_cannot_be_bound_is_refused_before_the_call() {
    let bench = Bench::new();
    let (region, plain) = (bindable(&bench), bench.pd.register(vec![0; 64], AccessFlags::LOCAL_WRITE).unwrap());
    let read_only = bench.pd.register(vec![0; 64], AccessFlags::MW_BIND).unwrap();
    let read = AccessFlags::REMOTE_READ;
    assert!(matches!(BindRequest::new(1, &region, 4000..4097, read), Err(Error::OutOfRange { length: 4096, .. })));
    for (request, reason) in [
        (BindRequest::new(1, &region, 7..7, read), "a window has at least one byte"),
        (BindRequest::new(1, &plain, .., read), "registered without MW_BIND"),
        (BindRequest::new(1, &region, .., AccessFlags::LOCAL_WRITE), "remote rights only"),
        (BindRequest::new(1, &read_only, .., AccessFlags::REMOTE_WRITE), "need a region with LOCAL_WRITE"),
    ] {
        let error = request.unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
    // Windows, regions and queue pairs of two contexts do not go together, even where the provider would not look.
    let context = bench.provider.open();
    let pd = context.create_protection_domain().unwrap();
    let mut stranger = pd.create_memory_window::<WindowType2>().unwrap();
    let error = bench.qp.post_bind(&mut stranger, &request(&region)).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "mw", .. }), "{error}");
    let error = bench.qp.post_unbind(&mut stranger, &UnbindRequest::new(1)).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "mw", .. }), "{error}");
    let strange_region = pd.register(vec![0; 4096], BINDABLE).unwrap();
    let mut window = bench.pd.create_memory_window::<WindowType2>().unwrap();
    let error = bench.qp.post_bind(&mut window, &request(&strange_region)).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "mr", .. }), "{error}");
    let mut unbound = bench.pd.create_memory_window::<WindowType1>().unwrap();
    let error = bench.qp.post_unbind(&mut unbound, &UnbindRequest::new(1)).unwrap_err();
    assert!(error.to_string().contains("there is nothing to unbind"), "{error}");
    // Of a window of type 1, libibverbs would look at the domain.
    let other = bench.context.create_protection_domain().unwrap();
    let mut window = other.create_memory_window::<WindowType1>().unwrap();
    let error = bench.qp.post_bind(&mut window, &request(&region)).unwrap_err();
    assert!(error.to_string().contains("must be of the same protection domain"), "{error}");
    // The window does not hold a region that was refused.
    region.deregister().unwrap();
}

#[test]
fn a_bind_that_is_refused_leaves_the_key() {
    let bench = Bench::new();
    let region = bindable(&bench);
    let mut one = bench.pd.create_memory_window::<WindowType1>().unwrap();
    let mut two = bench.pd.create_memory_window::<WindowType2>().unwrap();
    let keys = (one.rkey(), two.rkey());
    for errno in ERRNOS {
        bench.provider.fail("ibv_bind_mw", errno);
        let error = bench.qp.post_bind(&mut one, &request(&region)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno));
        bench.provider.refuse(Refusal { after: 0, errno, bad_wr: BadWr::Refused });
        let error = bench.qp.post_bind(&mut two, &request(&region)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno));
        assert!(matches!(error, Error::Post(post) if post.accepted() == Some(0)));
        assert_eq!((one.rkey(), two.rkey()), keys);
    }
    // Nothing was bound, so the window does not go with the queue pair.
    let Bench { qp, region: unused, cq, pd, context, provider } = bench;
    drop(qp);
    assert!(!two.is_freed());
    drop((one, two, region, unused, cq, pd, context));
    provider.assert_clean();
}

#[test]
fn a_bind_whose_completion_failed_gives_the_key_back() {
    let bench = Bench::new();
    let region = bindable(&bench);
    let mut window = bench.pd.create_memory_window::<WindowType2>().unwrap();
    let before = window.rkey();
    bench.qp.post_bind(&mut window, &request(&region)).unwrap();
    assert_ne!(window.rkey(), before);
    window.restore_rkey(before);
    assert_eq!(window.rkey(), before);
}

#[test]
fn a_window_that_the_device_does_not_have_is_unsupported() {
    let bench = Bench::new();
    for errno in ERRNOS {
        bench.provider.fail("ibv_alloc_mw", errno);
        let error = bench.pd.create_memory_window::<WindowType2>().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno));
        assert!(error.to_string().starts_with("ibv_alloc_mw(type 2, null0)"), "{error}");
    }
    let window = bench.pd.create_memory_window::<WindowType1>().unwrap();
    bench.provider.fail("ibv_dealloc_mw", libc::EIO);
    let (window, error) = window.deallocate().unwrap_err();
    assert_eq!((error.raw_os_error(), bench.provider.live(Kind::Window)), (Some(libc::EIO), 1));
    window.deallocate().unwrap();
    assert_eq!(bench.provider.live(Kind::Window), 0);
}

#[test]
fn a_region_with_a_bound_window_comes_back_from_the_window_and_from_the_device() {
    let bench = Bench::new();
    let region = bindable(&bench);
    let mut window = bench.pd.create_memory_window::<WindowType2>().unwrap();
    bench.qp.post_bind(&mut window, &request(&region)).unwrap();
    let (region, error) = region.deregister().unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    window.release();
    let (region, error) = region.deregister().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EBUSY));
    drop(window);
    region.deregister().unwrap();
}

#[test]
fn a_window_of_type_2_is_freed_before_the_queue_pair_that_it_is_bound_by() {
    let bench = Bench::new();
    let region = bindable(&bench);
    let windows: [_; 3] = std::array::from_fn(|_| bench.pd.create_memory_window::<WindowType2>().unwrap());
    let [mut bound, mut elsewhere, mut released] = windows;
    let other = QueuePair::<Rc>::builder(&bench.pd, &bench.cq, &bench.cq).build().unwrap();
    connect(&other);
    bench.qp.post_bind(&mut bound, &request(&region)).unwrap();
    for window in [&mut elsewhere, &mut released] {
        bench.qp.post_bind(window, &request(&region)).unwrap();
        bench.qp.post_unbind(window, &UnbindRequest::new(1)).unwrap();
    }
    other.post_bind(&mut elsewhere, &request(&region)).unwrap();
    released.release();
    let key = bound.rkey();
    let Bench { qp, region: unused, cq, pd, context, provider } = bench;
    drop(qp);
    assert_eq!((bound.is_freed(), elsewhere.is_freed(), released.is_freed()), (true, false, false));
    assert_eq!((bound.rkey(), bound.as_raw().is_null(), provider.live(Kind::Window)), (key, true, 2));
    for error in [
        other.post_bind(&mut bound, &request(&region)).map(drop).unwrap_err(),
        other.post_unbind(&mut bound, &UnbindRequest::new(1)).unwrap_err(),
    ] {
        assert!(error.to_string().contains("bound by a queue pair that is gone"), "{error}");
    }
    bound.deallocate().unwrap();
    drop((elsewhere, released, other, region, unused, cq, pd, context));
    provider.assert_clean();
}

#[test]
fn a_window_of_type_2_serves_another_queue_pair_only_once_it_was_unbound_or_released() {
    let bench = Bench::new();
    let region = bindable(&bench);
    let mut window = bench.pd.create_memory_window::<WindowType2>().unwrap();
    let other = QueuePair::<Rc>::builder(&bench.pd, &bench.cq, &bench.cq).build().unwrap();
    connect(&other);
    let refused = |window: &mut MemoryWindow<WindowType2>, qp: &QueuePair<Rc>| {
        let error = qp.post_bind(window, &request(&region)).unwrap_err();
        assert!(matches!(error, Error::InvalidArgument { argument: "mw", .. }), "{error:?}");
        assert!(error.to_string().contains("until it was unbound and released"), "{error}");
    };
    bench.qp.post_bind(&mut window, &request(&region)).unwrap();
    let key = window.rkey();
    refused(&mut window, &other);
    assert_eq!(window.rkey(), key);
    // A request to unbind it that is refused changes nothing.
    bench.provider.refuse(Refusal { after: 0, errno: libc::ENOMEM, bad_wr: BadWr::Refused });
    bench.qp.post_unbind(&mut window, &UnbindRequest::new(1)).unwrap_err();
    refused(&mut window, &other);
    // Nor does one that is posted elsewhere.
    other.post_unbind(&mut window, &UnbindRequest::new(1)).unwrap();
    refused(&mut window, &other);
    bench.qp.post_unbind(&mut window, &UnbindRequest::new(1)).unwrap();
    other.post_bind(&mut window, &request(&region)).unwrap();
    refused(&mut window, &bench.qp);
    // As if its peer had invalidated the key, and its message told of it.
    other.post_unbind(&mut window, &UnbindRequest::new(1)).unwrap();
    other.post_bind(&mut window, &request(&region)).unwrap();
    refused(&mut window, &bench.qp);
    window.release();
    other.post_send(&SendRequest::local_invalidate(1, window.rkey())).unwrap();
    bench.qp.post_bind(&mut window, &request(&region)).unwrap();
    let Bench { qp, region: unused, cq, pd, context, provider } = bench;
    drop(other);
    assert!(!window.is_freed());
    drop(qp);
    assert!(window.is_freed());
    drop((window, region, unused, cq, pd, context));
    provider.assert_clean();
}

#[test]
fn the_extended_interface_binds_windows_if_it_was_asked_for() {
    let bench = Bench::build(|builder| builder.require_extended().extended_memory_windows());
    let region = bindable(&bench);
    let mut window = bench.pd.create_memory_window::<WindowType2>().unwrap();
    let extended = bench.qp.extended().unwrap();
    for _ in 0..2 {
        let remote = extended.post_bind(&mut window, &request(&region)).unwrap();
        assert_eq!(completion(&bench), (5, WorkCompletionOpcode::BIND_MEMORY_WINDOW));
        assert_eq!((remote.address(), remote.rkey()), (region.address() + 100, window.rkey()));
        extended.post_unbind(&mut window, &UnbindRequest::new(6).signaled()).unwrap();
        assert_eq!(completion(&bench), (6, WorkCompletionOpcode::LOCAL_INVALIDATE));
    }
    let key = window.rkey();
    bench.provider.refuse(Refusal { after: 0, errno: libc::ENOMEM, bad_wr: BadWr::Refused });
    let error = extended.post_bind(&mut window, &request(&region)).unwrap_err();
    assert_eq!((error.raw_os_error(), window.rkey()), (Some(libc::ENOMEM), key));
    window.release();
    region.deregister().unwrap();
    bench.provider.assert_no_violation();
}

#[test]
fn an_extended_interface_without_windows_refuses_to_bind_them() {
    let bench = Bench::build(|builder| builder.require_extended());
    let region = bindable(&bench);
    let mut window = bench.pd.create_memory_window::<WindowType2>().unwrap();
    let extended = bench.qp.extended().unwrap();
    let error = extended.post_bind(&mut window, &request(&region)).unwrap_err();
    assert!(error.to_string().contains("made with `extended_memory_windows`"), "{error}");
    // The plain interface binds them, and any unbinds them.
    bench.qp.post_bind(&mut window, &request(&region)).unwrap();
    extended.post_unbind(&mut window, &UnbindRequest::new(1)).unwrap();
    window.release();
    region.deregister().unwrap();
}

/// A handle of each kind that memory can be in, bound and registered to and fro.
fn handles(provider: &NullProvider) -> Vec<Option<Box<dyn Any>>> {
    let context = provider.open();
    let pd = context.create_protection_domain().unwrap();
    let cq = context.create_completion_queue(8).unwrap();
    let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).build().unwrap();
    connect(&qp);
    let words: Arc<[AtomicU64]> = Arc::new([AtomicU64::new(0)]);
    let region = pd.register(words, BINDABLE).unwrap();
    let again = region.register_again(&pd, AccessFlags::MW_BIND).unwrap();
    let memory = context.allocate_device_memory(64, 0).unwrap();
    let on_device = pd.register_device_memory(&memory, .., BINDABLE).unwrap();
    let mut one = pd.create_memory_window::<WindowType1>().unwrap();
    let mut two = pd.create_memory_window::<WindowType2>().unwrap();
    let request = BindRequest::new(1, &again, .., AccessFlags::REMOTE_READ).unwrap();
    qp.post_bind(&mut one, &request).unwrap();
    qp.post_bind(&mut two, &BindRequest::new(1, &on_device, .., AccessFlags::REMOTE_WRITE).unwrap()).unwrap();
    drop((context, pd, cq));
    vec![
        Some(Box::new(qp) as Box<dyn Any>),
        Some(Box::new(region)),
        Some(Box::new(again)),
        Some(Box::new(memory)),
        Some(Box::new(on_device)),
        Some(Box::new(one)),
        Some(Box::new((two, request))),
    ]
}

#[test]
fn memory_and_windows_dropped_in_any_order_are_destroyed_in_the_right_one() {
    let mut orders = 0;
    each_order(7, &mut |order| {
        let provider = NullProvider::new();
        let mut handles = handles(&provider);
        for place in order {
            handles[*place] = None;
        }
        provider.assert_clean();
        orders += 1;
    });
    assert_eq!(orders, 5040);
}
