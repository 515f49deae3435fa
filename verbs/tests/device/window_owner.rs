//! To which queue pair a memory window of type 2 belongs, and what a window leaves behind.

use std::time::Instant;

use verbs::completion_field::{Opcode, QueuePairNumber};
use verbs::*;

use crate::harness::*;
use crate::memory_window::{BINDABLE, NOT_HANGING, WINDOW, bind, unbind, write};

/// Another queue pair in the domain of a side, connected to a peer of its own.
fn another(side: &Side) -> (Side, Side) {
    let qp = QueuePair::<Rc>::builder(&side.pd, &side.cq, &side.cq).build().unwrap();
    let near = Side { context: side.context.clone(), pd: side.pd.clone(), cq: side.cq.clone(), qp };
    let far = Side::on(side.context.clone());
    connect(&near, &far, &options());
    (near, far)
}

fn is_refused(window: &mut MemoryWindow<WindowType2>, side: &Side, region: &MemoryRegion<Vec<u8>>) {
    let request = BindRequest::new(7, region, .., WINDOW).unwrap();
    let error = side.qp.post_bind(window, &request).unwrap_err();
    assert!(error.to_string().contains("until it is unbound and released"), "{error}");
}

#[test]
fn a_window_whose_unbinding_was_flushed_goes_with_the_queue_pair_that_failed() {
    let (_peer, a) = pair();
    let (b, b_peer) = another(&a);
    let region = a.region(64, BINDABLE);
    let mut window = a.pd.create_memory_window::<WindowType2>().unwrap();
    bind(&a, &mut window, &region, .., WINDOW);
    a.qp.move_to_error().unwrap();
    a.qp.post_unbind(&mut window, &UnbindRequest::new(8).signaled()).unwrap();
    let flushed = a.completion();
    assert_eq!((flushed.wr_id(), flushed.status()), (8, WorkCompletionStatus::WORK_REQUEST_FLUSHED));
    let error = window.release(&flushed).unwrap_err();
    assert!(error.to_string().contains("the window may still be bound"), "{error}");
    is_refused(&mut window, &b, &region);
    let begin = Instant::now();
    drop(a);
    assert!(begin.elapsed() < NOT_HANGING, "{:?}", begin.elapsed());
    assert!(window.is_freed());
    // Another window takes its place.
    let mut window = b.pd.create_memory_window::<WindowType2>().unwrap();
    let remote = bind(&b, &mut window, &region, .., WINDOW);
    assert_eq!(write(&b_peer, b"over there", remote), WorkCompletionStatus::SUCCESS);
    assert_eq!(region.to_vec(..10).unwrap(), b"over there");
}

#[test]
fn a_window_is_not_released_while_it_is_bound() {
    let (peer, a) = pair();
    let region = a.region(64, BINDABLE);
    let mut window = a.pd.create_memory_window::<WindowType2>().unwrap();
    let remote = bind(&a, &mut window, &region, .., WINDOW);
    peer.qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
    a.qp.post_send(&SendRequest::send(8, &[]).signaled()).unwrap();
    let sent = a.completion();
    sent.success().unwrap();
    assert_eq!(peer.completion().wr_id(), 1);
    window.release(&sent).unwrap_err();
    assert_eq!(write(&peer, b"still open", remote), WorkCompletionStatus::SUCCESS);
    let (region, error) = region.deregister().unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    let Side { qp, .. } = a;
    let begin = Instant::now();
    drop(qp);
    assert!(begin.elapsed() < NOT_HANGING, "{:?}", begin.elapsed());
    drop(window);
    assert_eq!(&region.deregister().unwrap()[..10], b"still open");
}

#[test]
fn a_window_of_a_pool_serves_one_queue_pair_after_the_other() {
    let (a_peer, a) = pair();
    let (b, b_peer) = another(&a);
    let region = a.region(64, BINDABLE);
    let mut window = a.pd.create_memory_window::<WindowType2>().unwrap();
    let remote = bind(&a, &mut window, &region, ..32, WINDOW);
    assert_eq!(write(&a_peer, b"first", remote), WorkCompletionStatus::SUCCESS);
    is_refused(&mut window, &b, &region);
    unbind(&a, &mut window);
    let begin = Instant::now();
    let Side { qp, .. } = a;
    drop(qp);
    assert!(begin.elapsed() < NOT_HANGING, "{:?}", begin.elapsed());
    let remote = bind(&b, &mut window, &region, 32.., WINDOW);
    assert_eq!(write(&b_peer, b"second", remote), WorkCompletionStatus::SUCCESS);
    assert_eq!((region.to_vec(..5).unwrap(), region.to_vec(32..38).unwrap()), (b"first".to_vec(), b"second".to_vec()));
    unbind(&b, &mut window);
    assert_eq!(region.deregister().unwrap().len(), 64);
}

#[test]
fn one_queue_pair_binds_a_window_again_without_waiting_until_it_is_unbound() {
    let (peer, a) = pair();
    let region = a.region(64, BINDABLE);
    let mut window = a.pd.create_memory_window::<WindowType2>().unwrap();
    let mut remote = bind(&a, &mut window, &region, .., WINDOW);
    for round in 0..3 {
        a.qp.post_unbind(&mut window, &UnbindRequest::new(round)).unwrap();
        remote =
            a.qp.post_bind(&mut window, &BindRequest::new(round, &region, .., WINDOW).unwrap().signaled()).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(a.completion().success().unwrap().opcode(), WorkCompletionOpcode::BIND_MEMORY_WINDOW);
    }
    assert_eq!(write(&peer, b"the last one", remote), WorkCompletionStatus::SUCCESS);
    assert_eq!(region.to_vec(..12).unwrap(), b"the last one");
    unbind(&a, &mut window);
    assert_eq!(region.deregister().unwrap().len(), 64);
}

#[test]
fn a_completion_of_an_extended_queue_releases_a_window() {
    let peer = Side::new();
    let context = peer.context.clone();
    let pd = context.create_protection_domain().unwrap();
    let extended = CompletionQueueBuilder::new(&context, 16).build_extended::<(Opcode, QueuePairNumber)>().unwrap();
    let cq = extended.as_completion_queue().clone();
    let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).build().unwrap();
    let a = Side { context, pd, cq, qp };
    connect(&a, &peer, &options());
    let region = a.region(64, BINDABLE);
    let mut window = a.pd.create_memory_window::<WindowType2>().unwrap();
    a.qp.post_bind(&mut window, &BindRequest::new(1, &region, .., WINDOW).unwrap().signaled()).unwrap();
    let next = || {
        let deadline = Instant::now() + NOT_HANGING;
        loop {
            match extended.poll().unwrap() {
                Some(completion) => return completion,
                None => assert!(Instant::now() < deadline, "no completion came"),
            }
            std::thread::yield_now();
        }
    };
    let bound = next();
    window.release(&bound).unwrap_err();
    a.qp.post_unbind(&mut window, &UnbindRequest::new(2).signaled()).unwrap();
    window.release(&bound).unwrap_err();
    window.release(&next()).unwrap();
    assert_eq!(region.deregister().unwrap().len(), 64);
}

/// A window that is gone opens nothing, and the memory is as it was.
fn a_window_that_is_gone_opens_nothing<K: WindowType>(end: impl FnOnce(MemoryWindow<K>)) {
    let (a, b) = pair();
    let region = b.region(64, BINDABLE);
    let mut window = b.pd.create_memory_window::<K>().unwrap();
    let remote = bind(&b, &mut window, &region, .., WINDOW);
    assert_eq!(write(&a, b"open", remote), WorkCompletionStatus::SUCCESS);
    end(window);
    assert_eq!(write(&a, b"shut", remote), WorkCompletionStatus::REMOTE_ACCESS_ERROR);
    let mut left = region.deregister().unwrap();
    assert_eq!((left.drain(..4).collect::<Vec<_>>(), left), (b"open".to_vec(), vec![0; 60]));
}

#[test]
fn a_window_of_type_1_that_is_gone_opens_nothing() {
    a_window_that_is_gone_opens_nothing::<WindowType1>(|window| window.deallocate().unwrap());
    a_window_that_is_gone_opens_nothing::<WindowType1>(drop);
}

#[test]
fn a_window_of_type_2_that_is_gone_opens_nothing() {
    a_window_that_is_gone_opens_nothing::<WindowType2>(|window| window.deallocate().unwrap());
    a_window_that_is_gone_opens_nothing::<WindowType2>(drop);
}

#[test]
fn a_window_of_type_2_is_not_bound_through_a_queue_pair_of_another_domain() {
    let (_a, b) = pair();
    let elsewhere = b.context.create_protection_domain().unwrap();
    let region = elsewhere.register(vec![0; 64], BINDABLE).unwrap();
    let request = BindRequest::new(7, &region, .., WINDOW).unwrap().signaled();
    // rxe would bind a window to a region of another domain.
    let mut own = b.pd.create_memory_window::<WindowType2>().unwrap();
    let error = b.qp.post_bind(&mut own, &request).unwrap_err();
    assert!(error.to_string().contains("must be of the same protection domain"), "{error}");
    assert_eq!(b.qp.state().unwrap(), QueuePairState::READY_TO_SEND);
    // This is the device's to see.
    let mut window = elsewhere.create_memory_window::<WindowType2>().unwrap();
    let key = window.rkey();
    b.qp.post_bind(&mut window, &request).unwrap();
    let status = b.completion().status();
    // The latter on kernel 6.12.
    let statuses = [WorkCompletionStatus::MEMORY_WINDOW_BIND_ERROR, WorkCompletionStatus::WORK_REQUEST_FLUSHED];
    assert!(statuses.contains(&status), "{status}");
    becomes(&b.qp, QueuePairState::ERROR);
    window.restore_rkey(key).unwrap();
    let begin = Instant::now();
    let Side { qp, .. } = b;
    drop(qp);
    assert!(begin.elapsed() < NOT_HANGING, "{:?}", begin.elapsed());
    // Whether it was bound is not known.
    assert!(window.is_freed());
    drop((window, request));
    assert_eq!(region.deregister().unwrap(), [0; 64]);
}
