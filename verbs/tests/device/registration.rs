use std::fs;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use verbs::*;

use crate::harness::*;

/// Writes into a peer's memory, and waits until it is there.
fn write(side: &Side, text: &[u8], remote: RemoteSlice) {
    let mut source = side.region(text.len(), RW);
    source.write_at(0, text).unwrap();
    side.qp.post_send(&SendRequest::rdma_write(1, &[source.slice(..).unwrap()], remote).signaled()).unwrap();
    side.completion().success().unwrap();
}

/// Sends a slice of a region of one side into a region of the other, and gives back what arrived.
fn sent(a: &Side, b: &Side, slice: LocalSlice<'_>, into: LocalSlice<'_>) -> u32 {
    b.qp.post_receive(&ReceiveRequest::new(1, &[into])).unwrap();
    a.qp.post_send(&SendRequest::send(2, &[slice]).signaled()).unwrap();
    a.completion().success().unwrap();
    b.completion().success().unwrap().byte_len().unwrap()
}

#[test]
fn a_region_with_an_iova_is_used_by_its_own_addresses_locally_and_by_peers() {
    let (a, b) = pair();
    let iova = 0x1234_5000;
    let mut source = a.pd.register_with_iova(Mapping::new(8192).unwrap(), RW, iova).unwrap();
    let target = b.pd.register_with_iova(Mapping::new(8192).unwrap(), RW, iova + 0x1_0000).unwrap();
    source.write_at(4090, b"across a page").unwrap();
    assert_eq!(sent(&a, &b, source.slice(4090..4103).unwrap(), target.slice(4000..).unwrap()), 13);
    assert_eq!(target.to_vec(4000..4013).unwrap(), b"across a page");
    let remote = target.remote_slice(100..).unwrap();
    assert_eq!(remote.address(), iova + 0x1_0000 + 100);
    write(&a, b"by the peer", remote);
    assert_eq!(target.to_vec(100..111).unwrap(), b"by the peer");
    assert_eq!(&target.deregister().unwrap()[100..111], b"by the peer");
}

#[test]
fn a_request_of_inline_data_that_is_given_slices_of_such_a_region_sends_those() {
    let ends = || Side::build(open(), |builder| builder.max_inline_data(64));
    let (a, b) = (ends(), ends());
    connect(&a, &b, &options());
    let mut source = a.pd.register_with_iova(Mapping::new(4096).unwrap(), RW, 0x1000).unwrap();
    source.write_at(0, b"slices").unwrap();
    let target = b.region(64, RW);
    let mut batch = SendBatch::with_capacity(2);
    let mut chain = batch.begin();
    let inline = [InlineSlice::new(b"inline")];
    for (wr_id, data) in [(1, &[][..]), (2, &inline[..])] {
        let remote = target.remote_slice(wr_id * 8..).unwrap();
        let request = SendRequest::rdma_write_inline(wr_id as u64, data, remote);
        chain.push_with(request.signaled(), &[source.slice(..6).unwrap()]);
    }
    a.qp.post_send_chain(&mut chain).unwrap();
    for wr_id in [1, 2] {
        assert_eq!(a.completion().success().unwrap().wr_id(), wr_id);
    }
    assert_eq!(target.to_vec(..24).unwrap(), b"\0\0\0\0\0\0\0\0slices\0\0slices\0\0");
}

#[test]
fn the_addresses_of_a_zero_based_region_begin_at_0() {
    let (a, b) = pair();
    let target = b.pd.register(Mapping::new(4096).unwrap(), RW | AccessFlags::ZERO_BASED).unwrap();
    let remote = target.remote_slice(..).unwrap();
    assert_eq!((target.address(), remote.address(), remote.len()), (0, 0, 4096));
    write(&a, b"at 8", remote.slice(8..).unwrap());
    assert_eq!(target.to_vec(..12).unwrap(), b"\0\0\0\0\0\0\0\0at 8");
}

#[test]
fn an_iova_at_another_offset_in_its_page_is_an_error_with_the_reason() {
    let side = Side::new();
    let error = side.pd.register_with_iova(Mapping::new(4096).unwrap(), RW, 0x1001).unwrap_err();
    assert_eq!((error.buffer.len(), error.error.raw_os_error()), (4096, Some(libc::EINVAL)));
    assert!(error.to_string().contains("must lie at the same offset in their pages"), "{error}");
}

#[test]
fn relaxed_ordering_may_be_asked_for_anywhere() {
    let (a, b) = pair();
    let target = b.region(64, RW | AccessFlags::RELAXED_ORDERING);
    write(&a, b"relaxed", target.remote_slice(..).unwrap());
    assert_eq!(target.to_vec(..7).unwrap(), b"relaxed");
}

#[test]
fn huge_pages_carry_data_once_they_are_reserved() {
    let file = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    let before = fs::read_to_string(file).unwrap();
    fs::write(file, "0").unwrap();
    let error = Mapping::in_huge_pages(4096, HugePageSize::MIB_2).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
    let advice = format!(
        "0 pages of 2 MiB are reserved, of which 0 are free, and 1 are needed: reserve more, as root, with `echo 1 > {file}`"
    );
    assert!(error.to_string().contains(&advice), "{error}");
    // ENOMEM if there are such pages and none is reserved, EINVAL if the processor has none.
    let error = Mapping::in_huge_pages(4096, HugePageSize::GIB_1).unwrap_err();
    assert!(matches!(error.raw_os_error(), Some(libc::ENOMEM | libc::EINVAL)), "{error}");
    assert!(error.to_string().contains("1 GiB"), "{error}");
    fs::write(file, "2").unwrap();
    let (a, b) = pair();
    let buffer = Mapping::in_huge_pages((2 << 20) + 1, HugePageSize::MIB_2).unwrap();
    assert_eq!((buffer.len(), buffer.as_ptr() as usize % (2 << 20)), (4 << 20, 0));
    let target = b.pd.register(buffer, RW).unwrap();
    write(&a, b"huge", target.remote_slice((2 << 20) - 2..).unwrap());
    assert_eq!(target.to_vec((2 << 20) - 2..(2 << 20) + 2).unwrap(), b"huge");
    drop(target.deregister().unwrap());
    // They are free again, so they can be given back.
    fs::write(file, before.trim()).unwrap();
    assert_eq!(fs::read_to_string(file).unwrap(), before);
}

#[test]
fn a_raw_range_of_shared_memory_is_registered() {
    let (a, b) = pair();
    let mut bytes = vec![0u8; 4096].into_boxed_slice();
    let data = std::ptr::NonNull::from(&mut *bytes).cast::<u8>();
    // SAFETY: the box stays until the region is deregistered, and nobody uses it meanwhile.
    let target = b.pd.register(unsafe { RawBuffer::new(data, 4096) }, RW).unwrap();
    write(&a, b"raw", target.remote_slice(100..).unwrap());
    target.deregister().unwrap();
    assert_eq!(&bytes[99..104], b"\0raw\0");
}

#[test]
fn memory_that_is_registered_twice_is_reached_by_both_keys_with_their_own_rights() {
    let (a, b) = pair();
    let first = b.region(64, RW);
    let second = first.register_again(&b.pd, AccessFlags::REMOTE_READ).unwrap();
    write(&a, b"first", first.remote_slice(..).unwrap());
    let target = a.region(64, RW);
    let remote = second.remote_slice(..5).unwrap();
    a.qp.post_send(&SendRequest::rdma_read(1, &[target.slice(..5).unwrap()], remote).signaled()).unwrap();
    a.completion().success().unwrap();
    assert_eq!(target.to_vec(..5).unwrap(), b"first");
    a.qp.post_send(&SendRequest::rdma_write(2, &[target.slice(..5).unwrap()], remote).signaled()).unwrap();
    assert_eq!(a.completion().status(), WorkCompletionStatus::REMOTE_ACCESS_ERROR);
    let (first, error) = first.deregister().unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    second.deregister().unwrap();
    first.deregister().unwrap();
}

#[test]
fn one_buffer_is_registered_in_two_domains_and_serves_both() {
    let (a, b) = pair();
    let words: Arc<[AtomicU64]> = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let (of_a, of_b) = (a.pd.register(words.clone(), RW).unwrap(), b.pd.register(words.clone(), RW).unwrap());
    words[0].store(42, Ordering::Release);
    // From the one word to the other, by way of the wire.
    let remote = of_b.remote_slice(8..).unwrap();
    a.qp.post_send(&SendRequest::rdma_write(1, &[of_a.slice(..8).unwrap()], remote).signaled()).unwrap();
    a.completion().success().unwrap();
    assert_eq!(words[1].load(Ordering::Acquire), 42);
    drop((of_a, of_b));
    assert_eq!(Arc::strong_count(&words), 1);
}

#[test]
fn one_buffer_is_registered_with_two_devices() {
    let open = |name: &str| devices().unwrap().find(Some(name)).unwrap().open().unwrap();
    let (a, b) = (Side::new(), Side::on(open(&setting("RDMA_TEST_PEER_DEVICE"))));
    connect(&a, &b, &options());
    let mut buffer = a.region(128, RW);
    let again = buffer.register_again(&b.pd, RW).unwrap();
    buffer.write_at(0, b"by way of the other device").unwrap();
    let remote = again.remote_slice(64..).unwrap();
    a.qp.post_send(&SendRequest::rdma_write(1, &[buffer.slice(..26).unwrap()], remote).signaled()).unwrap();
    a.completion().success().unwrap();
    assert_eq!(buffer.to_vec(64..90).unwrap(), b"by way of the other device");
    drop(buffer);
    // The second region holds the buffer.
    let source = a.region(8, RW);
    a.qp.post_send(&SendRequest::rdma_write(2, &[source.slice(..).unwrap()], remote).signaled()).unwrap();
    a.completion().success().unwrap();
}

fn is_unsupported<T>(result: Result<T>, wanted: &str) -> bool {
    matches!(result, Err(Error::Unsupported { verb, .. }) if verb == wanted)
}

#[test]
fn what_the_device_cannot_do_with_memory_is_unsupported_and_named() {
    let side = Side::new();
    assert!(is_unsupported(side.pd.create_null_memory_region(), "ibv_alloc_null_mr"));
    assert!(is_unsupported(side.context.allocate_device_memory(4096, 0), "ibv_alloc_dm"));
    let region = side.region(4096, RW);
    for advice in [Advice::PREFETCH, Advice::PREFETCH_WRITE, Advice::PREFETCH_NO_FAULT] {
        assert!(is_unsupported(side.pd.advise(advice, &[region.slice(..).unwrap()]), "ibv_advise_mr"));
        assert!(is_unsupported(side.pd.advise_and_wait(advice, &[]), "ibv_advise_mr"));
    }
}

#[test]
fn on_demand_paging_is_refused_by_a_device_that_does_not_have_it() {
    let side = Side::new();
    // EINVAL on kernel 6.1, EOPNOTSUPP on 6.12.
    let refused = |errno| matches!(errno, Some(libc::EINVAL | libc::EOPNOTSUPP));
    for access in [AccessFlags::ON_DEMAND, AccessFlags::ON_DEMAND | AccessFlags::HUGETLB | RW] {
        let error = side.pd.register(vec![0; 4096], access).unwrap_err();
        assert!(refused(error.error.raw_os_error()), "{error}");
        assert_eq!(error.buffer.len(), 4096);
    }
    // SAFETY: no request names the region.
    let error = unsafe { side.pd.register_address_space(AccessFlags::LOCAL_WRITE) }.unwrap_err();
    assert!(refused(error.raw_os_error()), "{error}");
    assert!(error.to_string().starts_with("ibv_reg_mr(the address space, "), "{error}");
}

#[test]
fn a_dma_buffer_is_registered_or_refused_by_name() {
    let side = Side::new();
    // SAFETY: the call has no preconditions, and nobody else has the descriptor that it returns.
    let memory = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"memory".as_ptr(), 0)) };
    let error = side.pd.register_dma_buf(memory.as_fd(), 0, 4096, 0, RW).unwrap_err();
    println!("{error}");
    assert!(is_unsupported::<()>(Err(error), "ibv_reg_dmabuf_mr"));
}

#[test]
fn a_region_that_cannot_be_reregistered_is_what_it_was() {
    let (a, b) = pair();
    let region = b.region(64, RW);
    let other = b.context.create_protection_domain().unwrap();
    let (lkey, address) = (region.lkey(), region.address());
    let change = Reregistration::new().access(AccessFlags::LOCAL_WRITE).protection_domain(&other).buffer(vec![7; 100]);
    let error = region.reregister(change).unwrap_err();
    assert!(matches!(error.error(), Error::Unsupported { verb: "ibv_rereg_mr", .. }), "{error}");
    let ReregisterError::Unchanged { region, buffer, .. } = error else { panic!("{error}") };
    assert_eq!(buffer, Some(vec![7; 100]));
    assert_eq!((region.lkey(), region.address(), region.len(), region.access()), (lkey, address, 64, RW));
    write(&a, b"as before", region.remote_slice(..).unwrap());
    assert_eq!(&region.deregister().unwrap()[..9], b"as before");
}
