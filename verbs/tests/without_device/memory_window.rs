use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use verbs::*;

use crate::destruction::each_order;
use crate::null_provider::{BadWr, Kind, NullProvider, Refusal};
use crate::{Bench, ERRNOS, connect};

const BINDABLE: AccessFlags = AccessFlags::LOCAL_WRITE.union(AccessFlags::MW_BIND);

pub(crate) fn bindable(bench: &Bench) -> MemoryRegion<Vec<u8>> {
    bench.pd.register(vec![0; 4096], BINDABLE).unwrap()
}

pub(crate) fn request(region: &MemoryRegion<Vec<u8>>) -> BindRequest {
    BindRequest::new(5, region, 100..200, AccessFlags::REMOTE_WRITE).unwrap().signaled()
}

/// The next completion, with its identifier and opcode.
pub(crate) fn completion(bench: &Bench) -> (WorkCompletion, (u64, WorkCompletionOpcode)) {
    let mut room = [WorkCompletion::default(); 1];
    let completion = bench.cq.poll(&mut room).unwrap()[0];
    let done = completion.success().unwrap();
    (completion, (done.wr_id(), done.opcode()))
}

/// Unbinds a window, and releases it.
pub(crate) fn unbind<K: WindowType>(bench: &Bench, window: &mut MemoryWindow<K>) {
    bench.qp.post_unbind(window, &UnbindRequest::new(6).signaled()).unwrap();
    window.release(&completion(bench).0).unwrap();
}

fn a_window_is_bound_and_unbound<K: WindowType>(unbound_by: WorkCompletionOpcode) {
    let bench = Bench::new();
    let region = bindable(&bench);
    let mut window = bench.pd.create_memory_window::<K>().unwrap();
    let mut keys = vec![window.rkey()];
    let mut last = None;
    for _ in 0..3 {
        let remote = bench.qp.post_bind(&mut window, &request(&region)).unwrap();
        assert_eq!(completion(&bench).1, (5, WorkCompletionOpcode::BIND_MEMORY_WINDOW));
        assert_eq!((remote.address(), remote.len(), remote.rkey()), (region.address() + 100, 100, window.rkey()));
        assert!(!keys.contains(&remote.rkey()));
        keys.push(remote.rkey());
        bench.qp.post_unbind(&mut window, &UnbindRequest::new(6).signaled()).unwrap();
        let (unbound, what) = completion(&bench);
        assert_eq!(what, (6, unbound_by));
        last = Some(unbound);
    }
    // In between, there was no need for it: the requests of a queue pair are carried out in their order.
    window.release(&last.unwrap()).unwrap();
    assert_eq!(region.deregister().unwrap().len(), 4096);
    bench.provider.assert_no_violation();
    window.deallocate().unwrap();
}

#[test]
fn a_window_of_type_1_is_bound_and_unbound_with_a_new_key_each_time() {
    a_window_is_bound_and_unbound::<WindowType1>(WorkCompletionOpcode::BIND_MEMORY_WINDOW);
}

#[test]
fn a_window_of_type_2_is_bound_and_unbound_with_a_new_key_each_time() {
    a_window_is_bound_and_unbound::<WindowType2>(WorkCompletionOpcode::LOCAL_INVALIDATE);
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
    let mut one = bench.pd.create_memory_window::<WindowType1>().unwrap();
    let mut two = bench.pd.create_memory_window::<WindowType2>().unwrap();
    for error in [
        bench.qp.post_unbind(&mut one, &UnbindRequest::new(1)).unwrap_err(),
        bench.qp.post_unbind(&mut two, &UnbindRequest::new(1)).unwrap_err(),
    ] {
        assert!(error.to_string().contains("there is nothing to unbind"), "{error}");
    }
    // Of a window of type 1, libibverbs would look at the domain; of type 2, rxe does not.
    let other = bench.context.create_protection_domain().unwrap();
    let mut one = other.create_memory_window::<WindowType1>().unwrap();
    let mut two = other.create_memory_window::<WindowType2>().unwrap();
    for error in [
        bench.qp.post_bind(&mut one, &request(&region)).unwrap_err(),
        bench.qp.post_bind(&mut two, &request(&region)).unwrap_err(),
    ] {
        assert!(error.to_string().contains("must be of the same protection domain"), "{error}");
    }
    // A parent domain is the same domain.
    let parent = bench.pd.create_parent_domain().unwrap();
    let mut two = parent.create_memory_window::<WindowType2>().unwrap();
    bench.qp.post_bind(&mut two, &request(&region)).unwrap();
    drop(two);
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
    window.restore_rkey(before).unwrap();
    assert_eq!(window.rkey(), before);
    // That of another window would unbind that one.
    let other = bench.pd.create_memory_window::<WindowType2>().unwrap();
    let error = window.restore_rkey(other.rkey()).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "rkey", .. }), "{error:?}");
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
fn a_region_with_a_bound_window_comes_back_as_long_as_the_window_holds_it() {
    let bench = Bench::new();
    let region = bindable(&bench);
    let mut window = bench.pd.create_memory_window::<WindowType2>().unwrap();
    bench.qp.post_bind(&mut window, &request(&region)).unwrap();
    let (region, error) = region.deregister().unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    drop(window);
    region.deregister().unwrap();
}

#[test]
fn the_extended_interface_binds_windows_if_it_was_asked_for() {
    let bench = Bench::build(|builder| builder.require_extended().extended_memory_windows());
    let region = bindable(&bench);
    let mut window = bench.pd.create_memory_window::<WindowType2>().unwrap();
    let extended = bench.qp.extended().unwrap();
    for _ in 0..2 {
        let remote = extended.post_bind(&mut window, &request(&region)).unwrap();
        assert_eq!(completion(&bench).1, (5, WorkCompletionOpcode::BIND_MEMORY_WINDOW));
        assert_eq!((remote.address(), remote.rkey()), (region.address() + 100, window.rkey()));
        extended.post_unbind(&mut window, &UnbindRequest::new(6).signaled()).unwrap();
        let (unbound, what) = completion(&bench);
        assert_eq!(what, (6, WorkCompletionOpcode::LOCAL_INVALIDATE));
        window.release(&unbound).unwrap();
        let error = extended.post_unbind(&mut window, &UnbindRequest::new(6).signaled()).unwrap_err();
        assert!(error.to_string().contains("there is nothing to unbind"), "{error}");
    }
    let key = window.rkey();
    bench.provider.refuse(Refusal { after: 0, errno: libc::ENOMEM, bad_wr: BadWr::Refused });
    let error = extended.post_bind(&mut window, &request(&region)).unwrap_err();
    assert_eq!((error.raw_os_error(), window.rkey()), (Some(libc::ENOMEM), key));
    drop(window);
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
    completion(&bench);
    extended.post_unbind(&mut window, &UnbindRequest::new(1).signaled()).unwrap();
    window.release(&completion(&bench).0).unwrap();
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
