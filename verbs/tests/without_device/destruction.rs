use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use verbs::*;

use crate::null_provider::{Fault, Kind, NullProvider};
use crate::{Bench, ERRNOS, connect, take_event};

/// A handle of each kind, with what a program would leave behind: completions, an event that nobody has taken, and one that
/// was taken and not acked, and an asynchronous one.
fn handles(provider: &NullProvider) -> Vec<Option<Box<dyn Any>>> {
    let list = devices().unwrap();
    let context = list.get(0).unwrap().open().unwrap();
    let pd = context.create_protection_domain().unwrap();
    let region = pd.register(vec![0u8; 64], AccessFlags::LOCAL_WRITE).unwrap();
    let channel = context.create_completion_channel().unwrap();
    let cq = CompletionQueueBuilder::new(&context, 8).channel(&channel).build().unwrap();
    let srq = pd.create_shared_receive_queue(8).unwrap();
    let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).shared_receive_queue(&srq).build().unwrap();
    connect(&qp);
    let receive = |wr_id| {
        srq.post_receive(&ReceiveRequest::new(wr_id, &[region.slice(..).unwrap()])).unwrap();
        assert!(provider.deliver(&qp));
    };
    take_event(provider, &cq, || receive(1));
    assert_eq!(provider.unacked(&cq), 1);
    cq.arm(Notify::Any).unwrap();
    receive(2);
    provider.raise(&context, AsyncEventType::QUEUE_PAIR_FATAL, qp.as_raw() as usize);
    let ud = QueuePair::<Ud>::builder(&pd, &cq, &cq).build().unwrap();
    let local = ud.local_endpoint(1, &GidFilter::default()).unwrap();
    let ah = pd.create_address_handle_to(&local, &local.endpoint).unwrap();
    let attachment = ud.attach_multicast("239.1.2.3".parse().unwrap(), 0).unwrap();
    // In pairs where a place of its own would multiply the orders.
    vec![
        Some(Box::new(context) as Box<dyn Any>),
        Some(Box::new(pd)),
        Some(Box::new((region, attachment))),
        Some(Box::new(channel)),
        Some(Box::new(cq)),
        Some(Box::new((qp, ud))),
        Some(Box::new((srq, ah))),
        Some(Box::new(list)),
    ]
}

/// Calls `with` with each order of the numbers below `count`.
fn each_order(count: usize, with: &mut impl FnMut(&[usize])) {
    fn extend(order: &mut Vec<usize>, count: usize, with: &mut impl FnMut(&[usize])) {
        if order.len() == count {
            return with(order);
        }
        for next in 0..count {
            if !order.contains(&next) {
                order.push(next);
                extend(order, count, with);
                order.pop();
            }
        }
    }
    extend(&mut Vec::new(), count, with);
}

#[test]
fn handles_dropped_in_any_order_are_destroyed_in_the_right_one() {
    let mut orders = 0;
    each_order(8, &mut |order| {
        let provider = NullProvider::new();
        let mut handles = handles(&provider);
        for place in order {
            handles[*place] = None;
        }
        provider.assert_clean();
        orders += 1;
    });
    assert_eq!(orders, 40_320);
}

#[test]
fn handles_dropped_in_a_panic_are_destroyed_too() {
    let provider = NullProvider::new();
    let result = catch_unwind(AssertUnwindSafe(|| {
        let _handles = handles(&provider);
        panic!("on purpose");
    }));
    assert!(result.is_err());
}

#[test]
fn handles_dropped_on_other_threads_are_destroyed_too() {
    let bench = Bench::new();
    let Bench { qp, region, cq, pd, context, provider } = bench;
    std::thread::scope(|scope| {
        scope.spawn(move || drop(context));
        scope.spawn(move || drop(cq));
        scope.spawn(move || drop(pd));
        scope.spawn(move || drop(qp));
        scope.spawn(move || drop(region));
    });
    provider.assert_clean();
}

#[test]
fn what_was_dropped_is_gone_as_soon_as_nothing_needs_it() {
    let Bench { qp, region, cq, pd, context, provider } = Bench::new();
    drop((context, pd, cq));
    assert_eq!((provider.live(Kind::CompletionQueue), provider.live(Kind::Channel)), (1, 1));
    drop(qp);
    assert_eq!((provider.live(Kind::QueuePair), provider.live(Kind::CompletionQueue)), (0, 0));
    assert_eq!((provider.live(Kind::Channel), provider.live(Kind::Domain)), (0, 1));
    drop(region);
    provider.assert_clean();
}

/// A buffer that counts how often it was given back.
struct Counted {
    bytes: Box<[u8]>,
    given_back: Arc<AtomicUsize>,
}

// SAFETY: a slice that was boxed stays where it is, and the parts make up the box.
unsafe impl Buffer for Counted {
    type Element = u8;
    type Rest = Arc<AtomicUsize>;
    const WRITABLE: bool = true;

    fn into_raw_parts(self) -> (NonNull<u8>, usize, Self::Rest) {
        let (data, length, ()) = self.bytes.into_raw_parts();
        (data, length, self.given_back)
    }

    unsafe fn from_raw_parts(data: NonNull<u8>, length: usize, given_back: Self::Rest) -> Self {
        given_back.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller passes the parts of the box.
        let bytes = unsafe { Box::from_raw_parts(data, length, ()) };
        Self { bytes, given_back }
    }
}

fn counted(pd: &ProtectionDomain) -> (MemoryRegion<Counted>, Arc<AtomicUsize>) {
    let given_back = Arc::new(AtomicUsize::new(0));
    let buffer = Counted { bytes: vec![7; 64].into(), given_back: given_back.clone() };
    (pd.register(buffer, AccessFlags::LOCAL_WRITE).unwrap(), given_back)
}

#[test]
fn a_region_that_cannot_be_deregistered_comes_back_and_keeps_its_buffer() {
    let bench = Bench::new();
    let (mut region, given_back) = counted(&bench.pd);
    for errno in ERRNOS {
        bench.provider.fail("ibv_dereg_mr", errno);
        let (same, error) = region.deregister().map(drop).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno));
        assert!(error.to_string().contains("ibv_dereg_mr"), "{error}");
        assert_eq!(given_back.load(Ordering::Relaxed), 0);
        region = same;
    }
    assert_eq!(*region.deregister().unwrap().bytes, [7; 64]);
    assert_eq!(given_back.load(Ordering::Relaxed), 1);
}

#[test]
fn a_buffer_whose_region_is_dropped_and_cannot_be_deregistered_is_leaked_and_not_freed() {
    let bench = Bench::new();
    for fault in [Fault { errno: libc::EBUSY, returns: None }, Fault { errno: libc::EIO, returns: Some(-1) }] {
        let (region, given_back) = counted(&bench.pd);
        let address = region.as_ptr();
        bench.provider.fault("ibv_dereg_mr", fault);
        drop(region);
        assert_eq!(given_back.load(Ordering::Relaxed), 0);
        // SAFETY: the memory was leaked: nobody frees it, and nobody uses it.
        unsafe {
            assert_eq!(std::slice::from_raw_parts(address, 64), [7; 64]);
            drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(address, 64)));
        }
    }
    // The two registrations are still there, so the domain cannot be freed.
    assert_eq!(bench.provider.live(Kind::Region), 3);
    let Bench { qp, region, cq, pd, context, provider } = bench;
    drop((qp, region, cq));
    drop((pd, context));
    assert!(provider.take_violations().iter().all(|violation| violation.contains("is used by")));
    provider.forget_what_is_left();
}

#[test]
fn a_queue_pair_that_cannot_be_destroyed_is_left_where_it_is() {
    let bench = Bench::new();
    bench.provider.fail("ibv_destroy_qp", libc::EIO);
    let Bench { qp, region, cq, pd, context, provider } = bench;
    drop(qp);
    assert_eq!(provider.live(Kind::QueuePair), 1);
    drop(region);
    drop(cq);
    drop((pd, context));
    assert!(provider.take_violations().iter().all(|violation| violation.contains("is used by")));
    provider.forget_what_is_left();
}
