use verbs::*;

use crate::Bench;
use crate::null_provider::{BadWr, Refusal};

#[test]
fn a_batch_is_filled_and_posted_again_and_again() {
    let mut bench = Bench::build(|builder| builder.max_send_sge(2).max_inline_data(8));
    // Smaller than what it will have to hold.
    let mut batch = SendBatch::with_capacity(2);
    for round in 0..4 {
        bench.region.write_at(0, &[round]).unwrap();
        let inline = [InlineSlice::new(b"12345678")];
        let own = [bench.region.slice(100..200).unwrap()];
        let mut chain = batch.begin();
        assert!(chain.is_empty());
        for index in 0..20 {
            let slices = [bench.region.slice(index..2 * index).unwrap(), bench.region.slice(4096 - index..).unwrap()];
            chain.push_with(SendRequest::send(index as u64, &[]).signaled(), &slices[..index % 3]);
        }
        chain.push(SendRequest::send_inline(20, &inline).signaled());
        chain.push(SendRequest::send(21, &own).signaled());
        assert_eq!(chain.len(), 22);
        bench.qp.post_send_chain(&mut chain).unwrap();
        assert_eq!(bench.polled(), (0..22).collect::<Vec<_>>());
        // Again, as it is.
        bench.qp.post_send_chain(&mut chain).unwrap();
        assert_eq!(bench.polled(), (0..22).collect::<Vec<_>>());
    }
    bench.provider.assert_no_violation();
}

#[test]
fn a_request_of_inline_data_that_is_given_slices_sends_those_and_reads_no_memory_at_their_addresses() {
    let bench = Bench::build(|builder| builder.max_inline_data(64).prefer_extended());
    // Where the device finds the region, the program has nothing.
    let region = bench.pd.register_with_iova(Mapping::new(4096).unwrap(), AccessFlags::LOCAL_WRITE, 0x1000).unwrap();
    let zero_based = AccessFlags::LOCAL_WRITE | AccessFlags::ZERO_BASED;
    let at_0 = bench.pd.register(Mapping::new(4096).unwrap(), zero_based).unwrap();
    let slices = [region.slice(..8).unwrap(), at_0.slice(..8).unwrap()];
    let remote = RemoteSlice::new(0x1000, 8, 7).unwrap();
    let data = [InlineSlice::new(b"inline data")];
    for slice in slices {
        let mut batch = SendBatch::with_capacity(0);
        let mut chain = batch.begin();
        for data in [&[][..], &data[..]] {
            for request in [
                SendRequest::send_inline(0, data),
                SendRequest::send_inline_with_imm(0, data, 1),
                SendRequest::send_inline_with_invalidate(0, data, 1),
                SendRequest::rdma_write_inline(0, data, remote),
                SendRequest::rdma_write_inline_with_imm(0, data, remote, 1),
            ] {
                chain.push_with(request.signaled(), &[slice]);
            }
        }
        bench.qp.post_send_chain(&mut chain).unwrap();
        let lengths: Vec<_> = bench.completions().iter().map(|completion| completion.as_raw().byte_len).collect();
        assert_eq!(lengths, [8; 10]);
    }
    bench.provider.assert_no_violation();
}

#[test]
fn what_a_queue_refused_of_a_batch_can_be_posted_later() {
    let bench = Bench::new();
    let mut batch = SendBatch::with_capacity(8);
    let mut chain = batch.begin();
    for wr_id in 0..8 {
        chain.push(SendRequest::send(wr_id, &[]).signaled());
    }
    bench.provider.refuse(Refusal { after: 5, errno: libc::ENOMEM, bad_wr: BadWr::Refused });
    let error = bench.qp.post_send_chain(&mut chain).unwrap_err();
    assert_eq!(bench.polled(), [0, 1, 2, 3, 4]);
    chain.skip(error.accepted().unwrap());
    assert_eq!(chain.len(), 3);
    bench.qp.post_send_chain(&mut chain).unwrap();
    assert_eq!(bench.polled(), [5, 6, 7]);
    chain.skip(usize::MAX);
    assert!(chain.is_empty());
    bench.qp.post_send_chain(&mut chain).unwrap();
    assert_eq!(bench.polled(), []);
}

#[test]
fn a_batch_that_was_begun_and_not_posted_is_empty_when_it_is_begun_again() {
    let bench = Bench::new();
    let mut batch = SendBatch::with_capacity(1);
    {
        let region = bench.pd.register(vec![0; 64], AccessFlags::LOCAL_WRITE).unwrap();
        let mut chain = batch.begin();
        chain.push_with(SendRequest::send(1, &[]).signaled(), &[region.slice(..).unwrap()]);
    }
    let mut chain = batch.begin();
    assert!(chain.is_empty());
    chain.push(SendRequest::send(2, &[]).signaled());
    bench.qp.post_send_chain(&mut chain).unwrap();
    assert_eq!(bench.polled(), [2]);
    bench.provider.assert_no_violation();
}
