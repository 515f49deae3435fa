use verbs::*;

use crate::null_provider::{BadWr, Refusal};
use crate::{Bench, ERRNOS};

/// The identifiers of a chain of this many.
fn ids(count: u64) -> Vec<u64> {
    (0..count).collect()
}

fn sends<'a>(slices: &'a [LocalSlice<'a>], count: u64) -> Vec<SendRequest<'a>> {
    ids(count).into_iter().map(|wr_id| SendRequest::send(wr_id, slices).signaled()).collect()
}

fn receives<'a>(slices: &'a [LocalSlice<'a>], count: u64) -> Vec<ReceiveRequest<'a>> {
    ids(count).into_iter().map(|wr_id| ReceiveRequest::new(wr_id, slices)).collect()
}

#[test]
fn a_chain_of_any_length_is_posted_in_its_order() {
    let bench = Bench::new();
    let slices = [bench.region.slice(..64).unwrap()];
    for count in [0, 1, 2, 16, 64] {
        bench.qp.post_send_chain(&mut sends(&slices, count)).unwrap();
        assert_eq!(bench.polled(), ids(count));
        bench.qp.post_receive_chain(&mut receives(&slices, count)).unwrap();
        assert_eq!(bench.polled(), ids(count));
    }
}

#[test]
fn a_refused_chain_tells_how_many_were_taken_and_those_complete() {
    let bench = Bench::new();
    let slices = [bench.region.slice(..64).unwrap()];
    for errno in ERRNOS {
        for after in [0, 1, 7, 15] {
            bench.provider.refuse(Refusal { after, errno, bad_wr: BadWr::Refused });
            let error = bench.qp.post_send_chain(&mut sends(&slices, 16)).unwrap_err();
            assert_eq!((error.accepted(), error.requests(), error.raw_os_error()), (Some(after), 16, errno));
            assert_eq!(bench.polled(), ids(after as u64));

            bench.provider.refuse(Refusal { after, errno, bad_wr: BadWr::Refused });
            let error = bench.qp.post_receive_chain(&mut receives(&slices, 16)).unwrap_err();
            assert_eq!((error.accepted(), error.requests(), error.raw_os_error()), (Some(after), 16, errno));
            assert_eq!(bench.polled(), ids(after as u64));
        }
    }
}

#[test]
fn a_bad_request_that_points_nowhere_leaves_it_unknown_how_many_were_taken() {
    let bench = Bench::new();
    let slices = [bench.region.slice(..64).unwrap()];
    let send = size_of::<ffi::ibv_send_wr>() as isize;
    let receive = size_of::<ffi::ibv_recv_wr>() as isize;
    // Null, nothing, before the chain, behind it, inside a request, far away.
    let nowhere = |size: isize| {
        let places = [-size, -1, 1, size / 2, size + 8, 4 * size, 5 * size, isize::MIN, isize::MAX];
        [BadWr::Null, BadWr::Untouched].into_iter().chain(places.map(BadWr::AtBytes))
    };
    for bad_wr in nowhere(send) {
        bench.provider.refuse(Refusal { after: 2, errno: libc::ENOMEM, bad_wr });
        let error = bench.qp.post_send_chain(&mut sends(&slices, 4)).unwrap_err();
        assert_eq!((error.accepted(), error.kind()), (None, PostErrorKind::QueueFull), "{bad_wr:?}");
        bench.provider.refuse(Refusal { after: 0, errno: libc::EINVAL, bad_wr });
        let error = bench.qp.post_send(&SendRequest::send(1, &slices)).unwrap_err();
        assert_eq!((error.accepted(), error.kind()), (None, PostErrorKind::Invalid), "{bad_wr:?}");
    }
    for bad_wr in nowhere(receive) {
        bench.provider.refuse(Refusal { after: 2, errno: libc::ENOMEM, bad_wr });
        let error = bench.qp.post_receive_chain(&mut receives(&slices, 4)).unwrap_err();
        assert_eq!((error.accepted(), error.kind()), (None, PostErrorKind::QueueFull), "{bad_wr:?}");
        bench.provider.refuse(Refusal { after: 0, errno: libc::EIO, bad_wr });
        let error = bench.qp.post_receive(&ReceiveRequest::new(1, &slices)).unwrap_err();
        assert_eq!((error.accepted(), error.kind()), (None, PostErrorKind::Other), "{bad_wr:?}");
    }
}

#[test]
fn a_bad_request_in_the_chain_is_believed() {
    let bench = Bench::new();
    let slices = [bench.region.slice(..64).unwrap()];
    for index in 0..4 {
        let bad_wr = BadWr::AtBytes(index * size_of::<ffi::ibv_send_wr>() as isize);
        bench.provider.refuse(Refusal { after: 3, errno: libc::ENOMEM, bad_wr });
        let error = bench.qp.post_send_chain(&mut sends(&slices, 4)).unwrap_err();
        assert_eq!(error.accepted(), Some(index as usize));
    }
}

#[test]
fn a_full_queue_takes_again_when_a_signaled_request_was_polled() {
    let bench = Bench::build(|builder| builder.max_send_wr(4).max_recv_wr(2));
    let unsignaled = SendRequest::send(1, &[]);
    for _ in 0..3 {
        bench.qp.post_send(&unsignaled).unwrap();
    }
    bench.qp.post_send(&SendRequest::send(2, &[]).signaled()).unwrap();
    let error = bench.qp.post_send(&unsignaled).unwrap_err();
    assert_eq!((error.kind(), error.accepted()), (PostErrorKind::QueueFull, Some(0)));
    assert_eq!(bench.polled(), [2]);
    let mut chain = sends(&[], 6);
    let error = bench.qp.post_send_chain(&mut chain).unwrap_err();
    assert_eq!((error.kind(), error.accepted()), (PostErrorKind::QueueFull, Some(4)));
    let error = bench.qp.post_receive_chain(&mut receives(&[], 3)).unwrap_err();
    assert_eq!((error.kind(), error.accepted()), (PostErrorKind::QueueFull, Some(2)));
}

#[test]
fn a_request_with_too_many_slices_is_refused() {
    let bench = Bench::build(|builder| builder.max_send_sge(2).max_recv_sge(2));
    let slices = [bench.region.slice(..8).unwrap(); 3];
    bench.qp.post_send(&SendRequest::send(1, &slices[..2])).unwrap();
    assert_eq!(bench.qp.post_send(&SendRequest::send(1, &slices)).unwrap_err().kind(), PostErrorKind::Invalid);
    let error = bench.qp.post_receive(&ReceiveRequest::new(1, &slices)).unwrap_err();
    assert_eq!((error.kind(), error.accepted()), (PostErrorKind::Invalid, Some(0)));
}

#[test]
fn a_queue_pair_that_is_not_connected_takes_no_sends_and_in_reset_no_receives() {
    let bench = Bench::new();
    bench.qp.reset().unwrap();
    let error = bench.qp.post_send(&SendRequest::send(1, &[])).unwrap_err();
    assert_eq!((error.kind(), error.accepted()), (PostErrorKind::Invalid, Some(0)));
    assert_eq!(bench.qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap_err().kind(), PostErrorKind::Invalid);
    bench.qp.init(&bench.qp.local_endpoint(1, &GidFilter::default()).unwrap(), &ConnectOptions::default()).unwrap();
    bench.qp.post_receive(&ReceiveRequest::new(1, &[])).unwrap();
}

#[test]
fn old_ways_to_refuse_a_request_are_understood() {
    let bench = Bench::new();
    for (returned, errno) in [(-libc::ENOMEM, libc::ENOMEM), (i32::MIN, i32::MAX)] {
        bench.provider.refuse(Refusal { after: 0, errno: returned, bad_wr: BadWr::Refused });
        let error = bench.qp.post_send(&SendRequest::send(1, &[])).unwrap_err();
        assert_eq!((error.raw_os_error(), error.accepted()), (errno, Some(0)));
    }
}

#[test]
fn slices_of_a_region_lie_in_it_whatever_the_range() {
    let bench = Bench::build(|builder| builder.max_send_sge(4));
    let region = &bench.region;
    let whole = region.slice(..).unwrap();
    let slices = [whole, region.slice(4096..).unwrap(), region.slice(1..=4095).unwrap(), whole.slice(4000..).unwrap()];
    bench.qp.post_send(&SendRequest::send(1, &slices).signaled()).unwrap();
    for range in [0..4097, 4097..4097, usize::MAX..usize::MAX, 0..usize::MAX] {
        assert!(region.slice(range.clone()).is_err());
        assert!(whole.slice(range).is_err());
    }
    // The provider looks at each slice that is posted.
    bench.provider.assert_no_violation();
}

#[test]
fn an_atomic_on_something_else_than_a_word_is_refused_before_the_provider_sees_it() {
    let bench = Bench::build(|builder| builder.max_send_sge(4));
    let slice = |length| bench.region.slice(..length).unwrap();
    let remote = |address| RemoteSlice::new(address, 64, 7).unwrap();
    let lists = [vec![], vec![slice(0)], vec![slice(7)], vec![slice(9)], vec![slice(16)], vec![slice(8), slice(1)]];
    let good = [slice(8)];
    let bad = lists.iter().map(|list| (&list[..], remote(0x1000)));
    let askew = [1, 4, 7].map(|offset| (&good[..], remote(0x1000 + offset)));
    for (list, remote) in bad.chain(askew) {
        let (good, send) = (&good[..], |wr_id| SendRequest::send(wr_id, &[]).signaled());
        for bad in 0..3 {
            let mut chain = [send(0), send(1), send(2)];
            chain[bad] = SendRequest::fetch_and_add(bad as u64, list, remote, 1).signaled();
            let error = bench.qp.post_send_chain(&mut chain).unwrap_err();
            assert_eq!((error.kind(), error.accepted()), (PostErrorKind::Invalid, Some(bad)), "{error}");
            assert_eq!(bench.polled(), ids(bad as u64));
        }
        let error = bench.qp.post_send(&SendRequest::compare_and_swap(1, list, remote, 1, 2)).unwrap_err();
        let words = format!(
            "an atomic operation that is not on a word: its slices have 8 bytes in all, and the peer's address, {:#x},",
            remote.address()
        );
        assert!(error.to_string().contains(&words), "{error}");
        bench
            .qp
            .post_send(
                &SendRequest::compare_and_swap(3, good, RemoteSlice::new(0x1000, 8, 7).unwrap(), 1, 2).signaled(),
            )
            .unwrap();
        assert_eq!(bench.polled(), [3]);
    }
}
