use verbs::*;

use crate::Bench;

#[test]
fn inline_data_needs_no_region_and_may_be_in_pieces() {
    let bench = Bench::build(|builder| builder.max_inline_data(64).max_send_sge(3));
    let bytes = vec![1; 64];
    let pieces = [InlineSlice::new(&bytes[..60]), InlineSlice::from(b"four"), InlineSlice::new(&[])];
    let remote = RemoteSlice::new(0x1000, 64, 7).unwrap();
    bench.qp.post_send(&SendRequest::send_inline(1, &[InlineSlice::new(&bytes)]).signaled()).unwrap();
    bench.qp.post_send(&SendRequest::send_inline_with_imm(2, &pieces, 5).signaled()).unwrap();
    bench.qp.post_send(&SendRequest::rdma_write_inline(3, &pieces, remote).signaled()).unwrap();
    bench.qp.post_send(&SendRequest::rdma_write_inline_with_imm(4, &pieces, remote, 5).signaled()).unwrap();
    assert_eq!(bench.polled(), [1, 2, 3, 4]);
    // The provider looks at each slice that is not inline.
    bench.provider.assert_no_violation();
}

#[test]
fn too_much_inline_data_is_refused_before_the_provider_sees_it() {
    let bench = Bench::build(|builder| builder.max_inline_data(64).max_send_sge(2));
    let bytes = [0; 65];
    let whole = [InlineSlice::new(&bytes)];
    let pieces = [InlineSlice::new(&bytes[..33]), InlineSlice::new(&bytes[..32])];
    for slices in [&whole[..], &pieces[..]] {
        let error = bench.qp.post_send(&SendRequest::send_inline(1, slices)).unwrap_err();
        assert_eq!((error.kind(), error.accepted()), (PostErrorKind::Invalid, Some(0)));
        assert_eq!(error.raw_os_error(), libc::EINVAL);
        let message = error.to_string();
        assert!(message.contains("has 65 bytes of inline data, and the queue pair takes 64"), "{message}");
    }
    assert_eq!(bench.polled(), []);
}

#[test]
fn a_chain_is_posted_up_to_the_request_with_too_much_inline_data() {
    let bench = Bench::build(|builder| builder.max_inline_data(8));
    let (short, long) = ([InlineSlice::new(&[0; 8])], [InlineSlice::new(&[0; 9])]);
    for bad in 0..4 {
        let slices = |index| if index == bad { &long } else { &short };
        let mut chain: [_; 4] =
            std::array::from_fn(|index| SendRequest::send_inline(index as u64, slices(index)).signaled());
        let error = bench.qp.post_send_chain(&mut chain).unwrap_err();
        assert_eq!((error.kind(), error.accepted(), error.requests()), (PostErrorKind::Invalid, Some(bad), 4));
        assert_eq!(bench.polled(), (0..bad as u64).collect::<Vec<_>>());
    }
}
