use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use verbs::*;

use crate::harness::*;

/// The rights of a region that windows can be bound to.
pub(crate) const BINDABLE: AccessFlags = AccessFlags::LOCAL_WRITE.union(AccessFlags::MW_BIND);

/// What peers may do through a window.
pub(crate) const WINDOW: AccessFlags = AccessFlags::REMOTE_WRITE.union(AccessFlags::REMOTE_READ);

/// How long rxe never takes to destroy a queue pair, unless a window is bound by it: then it takes a minute.
pub(crate) const NOT_HANGING: Duration = Duration::from_secs(30);

/// Binds a window to a range of a region, and waits until it is bound.
pub(crate) fn bind<T: Connected, K: WindowType>(
    side: &Side<T>,
    window: &mut MemoryWindow<K>,
    region: &MemoryRegion<Vec<u8>>,
    range: impl std::ops::RangeBounds<usize>,
    access: AccessFlags,
) -> RemoteSlice {
    let request = BindRequest::new(7, region, range, access).unwrap().signaled();
    let remote = side.qp.post_bind(window, &request).unwrap();
    let completion = side.completion();
    assert_eq!((completion.wr_id(), completion.status()), (7, WorkCompletionStatus::SUCCESS));
    assert_eq!(completion.success().unwrap().opcode(), WorkCompletionOpcode::BIND_MEMORY_WINDOW);
    remote
}

pub(crate) fn unbind<T: Connected, K: WindowType>(side: &Side<T>, window: &mut MemoryWindow<K>) {
    side.qp.post_unbind(window, &UnbindRequest::new(8).signaled()).unwrap();
    let completion = side.completion();
    assert_eq!((completion.wr_id(), completion.status()), (8, WorkCompletionStatus::SUCCESS));
    window.release(&completion).unwrap();
}

/// Writes into the memory of a peer; how that ended.
pub(crate) fn write(side: &Side, text: &[u8], remote: RemoteSlice) -> WorkCompletionStatus {
    let mut source = side.region(text.len(), RW);
    source.write_at(0, text).unwrap();
    side.qp.post_send(&SendRequest::rdma_write(1, &[source.slice(..).unwrap()], remote).signaled()).unwrap();
    side.completion().status()
}

fn a_peer_reaches_the_window<K: WindowType>() {
    let (a, b) = pair();
    let region = b.region(4096, BINDABLE);
    let mut window = b.pd.create_memory_window::<K>().unwrap();
    let remote = bind(&b, &mut window, &region, 1000..2000, WINDOW);
    assert_eq!((remote.address(), remote.len()), (region.address() + 1000, 1000));
    assert_eq!(remote.rkey(), window.rkey());
    assert_eq!(write(&a, b"through the window", remote.slice(500..).unwrap()), WorkCompletionStatus::SUCCESS);
    assert_eq!(region.to_vec(1500..1518).unwrap(), b"through the window");
    // A device has to refuse what is beside the window; rxe refuses only what is beside the region.
    let beside = RemoteSlice::new(region.address() + 4092, 8, window.rkey()).unwrap();
    assert_eq!(write(&a, b"the wall", beside), WorkCompletionStatus::REMOTE_ACCESS_ERROR);
    assert_eq!(region.to_vec(4092..).unwrap(), [0; 4]);
}

#[test]
fn a_peer_reaches_a_window_of_type_1_and_nothing_beside_its_region() {
    a_peer_reaches_the_window::<WindowType1>();
}

#[test]
fn a_peer_reaches_a_window_of_type_2_and_nothing_beside_its_region() {
    a_peer_reaches_the_window::<WindowType2>();
}

fn a_window_gives_its_own_rights_only<K: WindowType>() {
    let (a, b) = pair();
    let region = b.region(4096, BINDABLE | RW);
    let mut window = b.pd.create_memory_window::<K>().unwrap();
    let remote = bind(&b, &mut window, &region, .., AccessFlags::REMOTE_READ);
    let target = a.region(64, RW);
    a.qp.post_send(&SendRequest::rdma_read(1, &[target.slice(..).unwrap()], remote).signaled()).unwrap();
    a.completion().success().unwrap();
    assert_eq!(write(&a, b"refused", remote), WorkCompletionStatus::REMOTE_ACCESS_ERROR);
    assert_eq!(region.to_vec(..7).unwrap(), [0; 7]);
}

#[test]
fn a_window_of_type_1_gives_its_own_rights_only() {
    a_window_gives_its_own_rights_only::<WindowType1>();
}

#[test]
fn a_window_of_type_2_gives_its_own_rights_only() {
    a_window_gives_its_own_rights_only::<WindowType2>();
}

/// Two queue pairs of UC, and what arrives in a window of the second one.
fn over_uc<K: WindowType>(end: impl FnOnce(&Side<Uc>, MemoryWindow<K>)) {
    let context = open();
    let [a, b] = [context.clone(), context].map(|context| Side::<Uc>::of(context, |builder| builder));
    connect(&a, &b, &options());
    let region = b.region(64, BINDABLE);
    let mut window = b.pd.create_memory_window::<K>().unwrap();
    let remote = bind(&b, &mut window, &region, .., WINDOW);
    let mut source = a.region(2, RW);
    source.write_at(0, b"uc").unwrap();
    // The peer's receive says that the bytes are there.
    b.qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
    a.qp.post_send(&SendRequest::rdma_write_with_imm(2, &[source.slice(..).unwrap()], remote, 3)).unwrap();
    assert_eq!(b.completion().success().unwrap().imm_data(), Some(3));
    assert_eq!(region.to_vec(..2).unwrap(), b"uc");
    end(&b, window);
    region.deregister().unwrap();
}

#[test]
fn a_queue_pair_of_uc_binds_windows_too() {
    over_uc::<WindowType1>(|side, mut window| unbind(side, &mut window));
    // rxe does not invalidate a key through a queue pair of UC.
    over_uc::<WindowType2>(|_, window| window.deallocate().unwrap());
}

#[test]
fn the_addresses_of_a_zero_based_window_begin_at_0() {
    let (a, b) = pair();
    let region = b.region(4096, BINDABLE);
    let mut window = b.pd.create_memory_window::<WindowType2>().unwrap();
    let remote = bind(&b, &mut window, &region, 1000..2000, WINDOW | AccessFlags::ZERO_BASED);
    assert_eq!((remote.address(), remote.len()), (0, 1000));
    assert_eq!(write(&a, b"at the beginning", remote), WorkCompletionStatus::SUCCESS);
    assert_eq!(region.to_vec(1000..1016).unwrap(), b"at the beginning");
}

#[test]
fn a_window_of_type_1_is_bound_again_and_a_new_key_opens_it() {
    let (a, b) = pair();
    let (first, second) = (b.region(64, BINDABLE), b.region(64, BINDABLE));
    let mut window = b.pd.create_memory_window::<WindowType1>().unwrap();
    let before = bind(&b, &mut window, &first, .., WINDOW);
    let after = bind(&b, &mut window, &second, .., WINDOW);
    assert_ne!(before.rkey(), after.rkey());
    assert_eq!(write(&a, b"second", after), WorkCompletionStatus::SUCCESS);
    assert_eq!((first.to_vec(..6).unwrap(), second.to_vec(..6).unwrap()), (vec![0; 6], b"second".to_vec()));
    assert_eq!(write(&a, b"first", before), WorkCompletionStatus::REMOTE_ACCESS_ERROR);
}

#[test]
fn a_window_of_type_2_is_bound_again_once_it_is_unbound() {
    let (a, b) = pair();
    let region = b.region(4096, BINDABLE);
    let mut window = b.pd.create_memory_window::<WindowType2>().unwrap();
    for round in 0..3 {
        let remote = bind(&b, &mut window, &region, round * 64..round * 64 + 64, WINDOW);
        assert_eq!(write(&a, b"again", remote), WorkCompletionStatus::SUCCESS);
        assert_eq!(region.to_vec(round * 64..round * 64 + 5).unwrap(), b"again");
        unbind(&b, &mut window);
    }
    // Bound twice, it is an error of the request, and of the queue pair.
    bind(&b, &mut window, &region, .., WINDOW);
    let key = window.rkey();
    b.qp.post_bind(&mut window, &BindRequest::new(9, &region, .., WINDOW).unwrap().signaled()).unwrap();
    assert_ne!(window.rkey(), key);
    let status = b.completion().status();
    // The latter on kernel 6.12.
    let statuses = [WorkCompletionStatus::MEMORY_WINDOW_BIND_ERROR, WorkCompletionStatus::WORK_REQUEST_FLUSHED];
    assert!(statuses.contains(&status), "{status}");
    window.restore_rkey(key).unwrap();
    assert_eq!(window.rkey(), key);
    becomes(&b.qp, QueuePairState::ERROR);
}

fn a_region_with_a_bound_window_comes_back<K: WindowType>() {
    let (a, b) = pair();
    let region = b.region(64, BINDABLE);
    let mut window = b.pd.create_memory_window::<K>().unwrap();
    let remote = bind(&b, &mut window, &region, .., WINDOW);
    // The window holds it.
    let (region, error) = region.deregister().unwrap_err();
    assert!(matches!(error, Error::Busy { verb: "ibv_dereg_mr", .. }), "{error}");
    assert_eq!(write(&a, b"still open", remote), WorkCompletionStatus::SUCCESS);
    assert_eq!(region.to_vec(..10).unwrap(), b"still open");
    window.deallocate().unwrap();
    assert_eq!(region.deregister().unwrap().len(), 64);
}

#[test]
fn a_region_with_a_bound_window_of_type_1_comes_back_when_it_is_deregistered() {
    a_region_with_a_bound_window_comes_back::<WindowType1>();
}

#[test]
fn a_region_with_a_bound_window_of_type_2_comes_back_when_it_is_deregistered() {
    a_region_with_a_bound_window_comes_back::<WindowType2>();
}

#[test]
fn the_extended_interface_binds_and_unbinds_a_window() {
    let context = open();
    let b = Side::build(context.clone(), |builder| builder.require_extended().extended_memory_windows());
    let a = Side::on(context);
    connect(&a, &b, &options());
    let region = b.region(4096, BINDABLE);
    let mut window = b.pd.create_memory_window::<WindowType2>().unwrap();
    let extended = b.qp.extended().unwrap();
    let request = BindRequest::new(7, &region, 64.., WINDOW).unwrap().signaled();
    let remote = extended.post_bind(&mut window, &request).unwrap();
    let completion = b.completion();
    assert_eq!((completion.wr_id(), completion.status()), (7, WorkCompletionStatus::SUCCESS));
    assert_eq!(write(&a, b"extended", remote), WorkCompletionStatus::SUCCESS);
    assert_eq!(region.to_vec(64..72).unwrap(), b"extended");
    extended.post_unbind(&mut window, &UnbindRequest::new(8).signaled()).unwrap();
    let completion = b.completion();
    assert_eq!((completion.wr_id(), completion.status()), (8, WorkCompletionStatus::SUCCESS));
    assert_eq!(write(&a, b"shut", remote), WorkCompletionStatus::REMOTE_ACCESS_ERROR);
}

#[test]
fn a_region_that_is_dropped_stays_as_long_as_its_window() {
    let (a, b) = pair();
    let flags: Arc<[AtomicU64]> = Arc::new([AtomicU64::new(0)]);
    let region = b.pd.register(flags.clone(), BINDABLE).unwrap();
    let mut window = b.pd.create_memory_window::<WindowType1>().unwrap();
    let request = BindRequest::new(7, &region, .., WINDOW).unwrap().signaled();
    let remote = b.qp.post_bind(&mut window, &request).unwrap();
    b.completion().success().unwrap();
    drop((region, request));
    assert_eq!(write(&a, &5u64.to_ne_bytes(), remote), WorkCompletionStatus::SUCCESS);
    assert_eq!(flags[0].load(Ordering::Acquire), 5);
    assert_eq!(Arc::strong_count(&flags), 2);
    drop(window);
    assert_eq!(Arc::strong_count(&flags), 1);
}

#[test]
fn a_window_of_type_2_goes_with_the_queue_pair_that_it_is_bound_by() {
    let (_a, b) = pair();
    let region = b.region(64, BINDABLE);
    let mut bound = b.pd.create_memory_window::<WindowType2>().unwrap();
    let mut unbound = b.pd.create_memory_window::<WindowType2>().unwrap();
    for window in [&mut bound, &mut unbound] {
        bind(&b, window, &region, .., WINDOW);
    }
    unbind(&b, &mut unbound);
    let other = QueuePair::<Rc>::builder(&b.pd, &b.cq, &b.cq).build().unwrap();
    let local = other.local_endpoint(1, &GidFilter::default()).unwrap();
    other.connect(&local, &local.endpoint, &options()).unwrap();
    let begin = Instant::now();
    let Side { qp, context, pd, cq } = b;
    drop(qp);
    let b = Side { qp: other, context, pd, cq };
    assert!(begin.elapsed() < NOT_HANGING, "{:?}", begin.elapsed());
    assert!(bound.is_freed() && !unbound.is_freed());
    let request = BindRequest::new(7, &region, .., WINDOW).unwrap();
    let error = b.qp.post_bind(&mut bound, &request).unwrap_err();
    assert!(error.to_string().contains("bound by a queue pair that is gone"), "{error}");
    drop(request);
    bind(&b, &mut unbound, &region, .., WINDOW);
    drop(bound);
    unbind(&b, &mut unbound);
    assert_eq!(region.deregister().unwrap().len(), 64);
}

fn a_window_that_is_unbound_opens_nothing<K: WindowType>() {
    let (a, b) = pair();
    let region = b.region(4096, BINDABLE);
    let mut window = b.pd.create_memory_window::<K>().unwrap();
    let remote = bind(&b, &mut window, &region, ..64, WINDOW);
    assert_eq!(write(&a, b"open", remote), WorkCompletionStatus::SUCCESS);
    unbind(&b, &mut window);
    assert_eq!(write(&a, b"shut", remote), WorkCompletionStatus::REMOTE_ACCESS_ERROR);
    assert_eq!(region.to_vec(..4).unwrap(), b"open");
    // Nothing holds the region any more, and nothing is bound to it.
    region.deregister().unwrap();
}

#[test]
fn a_window_of_type_1_that_is_unbound_opens_nothing() {
    a_window_that_is_unbound_opens_nothing::<WindowType1>();
}

#[test]
fn a_window_of_type_2_that_is_unbound_opens_nothing() {
    a_window_that_is_unbound_opens_nothing::<WindowType2>();
}
