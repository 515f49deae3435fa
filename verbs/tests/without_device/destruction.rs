use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use verbs::*;

use crate::null_provider::{Kind, NullProvider};
use crate::{Bench, connect, take_event};

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
pub(crate) fn each_order(count: usize, with: &mut impl FnMut(&[usize])) {
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
