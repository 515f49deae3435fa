//! That the provider sees what it is there to see.

use verbs::*;

use crate::null_provider::{BadWr, NullProvider, Refusal};
use crate::{Bench, ERRNOS, take_event};

/// Does something to a connected queue pair and its like, and returns what the provider says of it.
fn violations(wrong: impl FnOnce(&Bench)) -> String {
    let bench = Bench::new();
    wrong(&bench);
    let Bench { qp, region, cq, pd, context, provider } = bench;
    let violations = provider.take_violations();
    // The handles would destroy again what was destroyed behind their backs.
    std::mem::forget((qp, region, cq, pd, context));
    provider.forget_what_is_left();
    violations.join("\n")
}

#[test]
fn an_object_that_is_destroyed_twice_is_noticed() {
    let said = violations(|bench| {
        // SAFETY: the null provider keeps the memory of what is destroyed.
        unsafe {
            ffi::ibv_destroy_qp(bench.qp.as_raw());
            ffi::ibv_destroy_qp(bench.qp.as_raw());
        }
    });
    assert_eq!(said, "ibv_destroy_qp: the QueuePair was destroyed before");
}

#[test]
fn an_object_that_is_destroyed_before_its_users_is_noticed() {
    // SAFETY: the null provider keeps the memory of what is destroyed.
    let said = violations(|bench| unsafe {
        assert_eq!(ffi::ibv_destroy_cq(bench.cq.as_raw()), libc::EBUSY);
        assert_eq!(ffi::ibv_dealloc_pd(bench.pd.as_raw()), libc::EBUSY);
        assert_eq!(ffi::ibv_close_device(bench.context.as_raw()), -1);
    });
    assert!(said.contains("ibv_destroy_cq: the CompletionQueue is used by 2 others"), "{said}");
    assert!(said.contains("ibv_dealloc_pd: the Domain is used by 2 others"), "{said}");
    assert!(said.contains("ibv_close_device: the Context is used by 3 others"), "{said}");
}

#[test]
fn an_object_that_is_used_after_it_was_destroyed_is_noticed() {
    let said = violations(|bench| {
        // SAFETY: the null provider keeps the memory of what is destroyed.
        unsafe { ffi::ibv_destroy_qp(bench.qp.as_raw()) };
        bench.qp.post_send(&SendRequest::send(1, &[])).unwrap_err();
    });
    assert_eq!(said, "ibv_post_send: the QueuePair was destroyed before");
}

#[test]
fn memory_that_is_not_registered_is_noticed() {
    let said = violations(|bench| {
        let slices = [bench.region.slice(..).unwrap()];
        // SAFETY: the null provider keeps the memory of what is destroyed.
        unsafe { ffi::ibv_dereg_mr(bench.region.as_raw()) };
        bench.qp.post_receive(&ReceiveRequest::new(1, &slices)).unwrap();
    });
    assert!(said.contains("ibv_post_recv") && said.contains("is not registered"), "{said}");
}

#[test]
fn an_event_that_is_not_acked_is_noticed() {
    let said = violations(|bench| {
        take_event(&bench.provider, &bench.cq, || {
            bench.qp.post_send(&SendRequest::send(1, &[]).signaled()).unwrap();
        });
        // SAFETY: the null provider keeps the memory of what is destroyed.
        unsafe {
            ffi::ibv_destroy_qp(bench.qp.as_raw());
            ffi::ibv_destroy_cq(bench.cq.as_raw());
        }
    });
    assert_eq!(said, "ibv_destroy_cq: it would wait for ever for 1 events to be acked");
}

#[test]
fn an_asynchronous_event_that_is_not_acked_is_noticed() {
    let said = violations(|bench| {
        bench.provider.raise(&bench.context, AsyncEventType::QUEUE_PAIR_FATAL, bench.qp.as_raw() as usize);
        // SAFETY: the context is open, all zeroes are a valid structure, and the null provider keeps the memory of what is
        // destroyed.
        unsafe {
            let mut event = std::mem::zeroed();
            assert_eq!(ffi::ibv_get_async_event(bench.context.as_raw(), &mut event), 0);
            ffi::ibv_destroy_qp(bench.qp.as_raw());
        }
    });
    assert_eq!(said, "ibv_destroy_qp: it would wait for ever for 1 asynchronous events to be acked");
}

#[test]
#[should_panic(expected = "left behind")]
fn an_object_that_is_left_is_noticed() {
    let provider = NullProvider::new();
    std::mem::forget(provider.open());
}

#[test]
fn the_data_path_does_what_libibverbs_own_functions_do() {
    let bench = Bench::new();
    let slices = [bench.region.slice(..64).unwrap()];
    let (send, receive) = (SendRequest::send(1, &slices).signaled(), ReceiveRequest::new(2, &slices));
    let mut room = [WorkCompletion::default(); 4];
    let text = |completions: &[WorkCompletion]| format!("{completions:?}");
    bench.qp.post_send(&send).unwrap();
    bench.qp.post_receive(&receive).unwrap();
    let ours = text(bench.cq.poll(&mut room).unwrap());
    assert!(ours.contains("wr_id: 1") && ours.contains("wr_id: 2"), "{ours}");
    let (qp, cq) = (bench.qp.as_raw(), bench.cq.as_raw());
    let (mut bad_send, mut bad_receive) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: the objects and the requests are alive, and a completion is an `ibv_wc`.
    unsafe {
        assert_eq!(ffi::ibv_post_send(qp, send.as_raw(), &mut bad_send), 0);
        assert_eq!(ffi::ibv_post_recv(qp, receive.as_raw(), &mut bad_receive), 0);
        assert_eq!(ffi::ibv_poll_cq(cq, 4, room.as_mut_ptr().cast()), 2);
    }
    assert_eq!(text(&room[..2]), ours);
    // And each refusal is theirs.
    for errno in ERRNOS {
        let refuse = || bench.provider.refuse(Refusal { after: 0, errno, bad_wr: BadWr::Refused });
        refuse();
        assert_eq!(bench.qp.post_send(&send).unwrap_err().raw_os_error(), errno);
        refuse();
        // SAFETY: as above.
        assert_eq!(unsafe { ffi::ibv_post_send(qp, send.as_raw(), &mut bad_send) }, errno);
        assert_eq!(bad_send, send.as_raw());
    }
}
