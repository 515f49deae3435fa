use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use verbs::*;

use crate::null_provider::Kind;
use crate::{Bench, ERRNOS, connect};

const RW: AccessFlags = AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE);

/// Posts a receive into a slice, which the provider checks against what is registered.
fn receive(bench: &Bench, slice: LocalSlice<'_>) {
    bench.qp.post_receive(&ReceiveRequest::new(1, &[slice])).unwrap();
    assert_eq!(bench.polled(), [1]);
    bench.provider.assert_no_violation();
}

#[test]
fn the_slices_of_a_region_with_an_iova_carry_the_devices_addresses() {
    let bench = Bench::new();
    let mut region = bench.pd.register_with_iova(Mapping::new(8192).unwrap(), RW, 0x70_0000).unwrap();
    assert_eq!((region.address(), region.len()), (0x70_0000, 8192));
    region.write_at(4000, b"offsets are offsets").unwrap();
    assert_eq!(region.to_vec(4000..4007).unwrap(), b"offsets");
    assert_eq!(region.remote_slice(4000..).unwrap().address(), 0x70_0000 + 4000);
    receive(&bench, region.slice(4000..).unwrap());
    receive(&bench, region.slice(4000..).unwrap().slice(1..2).unwrap());
    let (_, back) = region.as_local_mut().split_at_mut(5000).unwrap();
    receive(&bench, back.slice(3192..).unwrap());
    let mut prepared = PreparedReceive::new(1, [region.hold(..10).unwrap()]);
    prepared.set_range(0, 8000..8192).unwrap();
    bench.qp.post_prepared_receive(&prepared).unwrap();
    assert_eq!(bench.polled(), [1]);
    bench.provider.assert_no_violation();
    drop(prepared);
    assert_eq!(&region.deregister().unwrap()[4000..4007], b"offsets");
}

#[test]
fn the_addresses_of_a_zero_based_region_begin_at_0() {
    let bench = Bench::new();
    let access = RW | AccessFlags::ZERO_BASED;
    let region = bench.pd.register(Mapping::new(4096).unwrap(), access).unwrap();
    assert_eq!(bench.provider.access(region.lkey()), access);
    assert_eq!((region.address(), region.remote_slice(8..16).unwrap().address()), (0, 8));
    receive(&bench, region.slice(..).unwrap());
    // A device that does not know the flag is told by the iova only.
    for errno in [libc::EOPNOTSUPP, libc::EINVAL] {
        bench.provider.fail("ibv_reg_mr", errno);
        let region = bench.pd.register(Mapping::new(4096).unwrap(), access).unwrap();
        assert_eq!((bench.provider.access(region.lkey()), region.access(), region.address()), (RW, access, 0));
        receive(&bench, region.slice(..).unwrap());
    }
}

#[test]
fn an_iova_that_no_device_takes_is_refused_before_the_call_or_explained_after_it() {
    let bench = Bench::new();
    let error = |iova, access| {
        let error = bench.pd.register_with_iova(Mapping::new(4096).unwrap(), access, iova).unwrap_err();
        assert_eq!(error.buffer.len(), 4096);
        error.error
    };
    assert!(matches!(error(u64::MAX - 4094, RW), Error::InvalidArgument { argument: "iova", .. }));
    assert!(matches!(error(4096, RW | AccessFlags::ZERO_BASED), Error::InvalidArgument { argument: "iova", .. }));
    assert!(matches!(error(4096, AccessFlags::REMOTE_WRITE), Error::InvalidArgument { argument: "access", .. }));
    let unaligned = error(4097, RW);
    assert_eq!(unaligned.raw_os_error(), Some(libc::EINVAL));
    assert!(unaligned.to_string().contains("must lie at the same offset in their pages"), "{unaligned}");
    assert!(unaligned.to_string().starts_with("ibv_reg_mr_iova(4096 bytes, "), "{unaligned}");
}

#[test]
fn flags_reach_the_provider_as_they_are() {
    let bench = Bench::new();
    for access in [
        AccessFlags::ON_DEMAND,
        AccessFlags::ON_DEMAND | AccessFlags::HUGETLB,
        AccessFlags::RELAXED_ORDERING,
        RW | AccessFlags::MW_BIND,
    ] {
        let region = bench.pd.register(vec![0; 64], access).unwrap();
        assert_eq!((bench.provider.access(region.lkey()), region.access()), (access, access));
    }
}

#[test]
fn a_region_has_a_key_for_peers_if_it_gives_them_any_right() {
    let bench = Bench::new();
    let rkey = |access| bench.pd.register(vec![0; 64], access).unwrap().rkey();
    for access in [AccessFlags::empty(), AccessFlags::LOCAL_WRITE, AccessFlags::ON_DEMAND] {
        assert_eq!(rkey(access), None, "{access:?}");
    }
    for access in [
        AccessFlags::REMOTE_READ,
        AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE,
        AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_ATOMIC,
        AccessFlags::MW_BIND,
        AccessFlags::FLUSH_GLOBAL,
        AccessFlags::FLUSH_PERSISTENT,
    ] {
        assert!(rkey(access).is_some(), "{access:?}");
    }
}

#[test]
fn a_raw_range_is_given_back_as_it_was() {
    let bench = Bench::new();
    let mut bytes = vec![7u8; 64].into_boxed_slice();
    let data = std::ptr::NonNull::from(&mut *bytes).cast::<u8>();
    // SAFETY: the box stays until the region is deregistered, and nobody uses it meanwhile.
    let mut region = bench.pd.register(unsafe { RawBuffer::new(data, 64) }, RW).unwrap();
    region.write_at(1, b"raw").unwrap();
    receive(&bench, region.slice(..).unwrap());
    let buffer = region.deregister().unwrap();
    assert_eq!((buffer.as_ptr(), buffer.len()), (data.as_ptr(), 64));
    assert_eq!(bytes[..5], *b"\x07raw\x07");
    let words = Box::<[AtomicU64]>::from([AtomicU64::new(1), AtomicU64::new(2)]);
    let data = std::ptr::NonNull::from(&*words).cast::<AtomicU64>();
    // SAFETY: the box stays until the region is deregistered, and is used through references to atomics.
    let region = bench.pd.register(unsafe { RawBuffer::new(data, 2) }, RW).unwrap();
    region.as_atomics()[1].store(5, Ordering::Relaxed);
    assert_eq!((words[1].load(Ordering::Relaxed), region.len()), (5, 16));
}

#[test]
fn shared_atomics_are_registered_in_two_domains_at_once() {
    let bench = Bench::new();
    let other = bench.context.create_protection_domain().unwrap();
    let words: Arc<[AtomicU64]> = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let one = bench.pd.register(words.clone(), RW).unwrap();
    let two = other.register(words.clone(), RW).unwrap();
    assert_eq!(one.as_ptr(), two.as_ptr());
    assert_ne!(one.lkey(), two.lkey());
    one.as_atomics()[1].store(3, Ordering::Relaxed);
    assert_eq!((two.as_atomics()[1].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed)), (3, 3));
    drop(one);
    assert_eq!(Arc::strong_count(&two.deregister().unwrap()), 2);
}

#[test]
fn a_second_region_of_the_same_memory_keeps_the_first() {
    let bench = Bench::new();
    let other = bench.context.create_protection_domain().unwrap();
    let mut first = bench.pd.register(vec![0; 64], RW).unwrap();
    let second = first.register_again(&other, AccessFlags::empty()).unwrap();
    assert_eq!((second.address(), second.len(), second.rkey()), (first.address(), 64, None));
    assert_ne!(first.lkey(), second.lkey());
    first.write_at(0, b"both see it").unwrap();
    let qp = QueuePair::<Rc>::builder(&other, &bench.cq, &bench.cq).build().unwrap();
    connect(&qp);
    qp.post_send(&SendRequest::send(2, &[second.slice(..11).unwrap()]).signaled()).unwrap();
    assert_eq!(bench.polled(), [2]);
    bench.provider.assert_no_violation();
    let (first, error) = first.deregister().unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    drop(first);
    assert_eq!(bench.provider.live(Kind::Region), 3);
    second.deregister().unwrap();
    assert_eq!(bench.provider.live(Kind::Region), 1);
}

#[test]
fn read_only_memory_is_not_registered_again_for_writing() {
    let bench = Bench::new();
    let region = bench.pd.register(&b"constant"[..], AccessFlags::empty()).unwrap();
    let error = region.register_again(&bench.pd, RW).unwrap_err();
    assert!(error.to_string().contains("the buffer is read-only"), "{error}");
    region.register_again(&bench.pd, AccessFlags::REMOTE_READ).unwrap();
    for errno in ERRNOS {
        bench.provider.fail("ibv_reg_mr", errno);
        let error = region.register_again(&bench.pd, AccessFlags::empty()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno));
    }
    region.deregister().unwrap();
}

#[test]
fn any_slice_of_a_null_region_is_registered_and_none_is_for_peers() {
    let bench = Bench::new();
    let null = bench.pd.create_null_memory_region().unwrap();
    receive(&bench, null.slice(..64).unwrap());
    receive(&bench, null.slice(1 << 40..(1 << 40) + 7).unwrap());
    assert_eq!((null.rkey(), null.access()), (None, AccessFlags::LOCAL_WRITE));
    assert!(null.remote_slice(..8).is_err());
    assert_eq!(null.deregister().unwrap(), NullMemory);
    for errno in ERRNOS {
        bench.provider.fail("ibv_alloc_null_mr", errno);
        let error = bench.pd.create_null_memory_region().unwrap_err();
        assert_eq!((error.raw_os_error(), error.to_string().contains("ibv_alloc_null_mr(null0)")), (Some(errno), true));
    }
}

#[test]
fn a_dma_buffer_is_registered_by_its_descriptor() {
    let bench = Bench::new();
    // The provider takes any descriptor for that of a DMA buffer.
    let file = std::fs::File::open("/dev/null").unwrap();
    let region = bench.pd.register_dma_buf(file.as_fd(), 4096, 8192, 0x10_0000, RW).unwrap();
    drop(file);
    assert_eq!((region.address(), region.len(), region.access()), (0x10_0000, 8192, RW));
    receive(&bench, region.slice(8000..).unwrap());
    assert_eq!(region.remote_slice(8..16).unwrap().address(), 0x10_0008);
    region.deregister().unwrap();
}

#[test]
fn a_dma_buffer_that_cannot_be_registered_says_why() {
    let bench = Bench::new();
    let file = std::fs::File::open("/dev/null").unwrap();
    let error = |offset, length, iova, access| {
        bench.pd.register_dma_buf(file.as_fd(), offset, length, iova, access).unwrap_err()
    };
    assert!(matches!(error(0, 0, 0, RW), Error::InvalidArgument { argument: "length", .. }));
    assert!(matches!(error(0, 64, u64::MAX - 62, RW), Error::InvalidArgument { argument: "iova", .. }));
    assert!(matches!(error(0, 64, 0, AccessFlags::REMOTE_WRITE), Error::InvalidArgument { argument: "access", .. }));
    let unaligned = error(4, 64, 0, RW);
    assert!(unaligned.to_string().contains("the offset and the iova at the same offset"), "{unaligned}");
    bench.provider.fail("ibv_reg_dmabuf_mr", libc::EOPNOTSUPP);
    let unsupported = error(0, 64, 0, RW);
    assert!(matches!(unsupported, Error::Unsupported { verb: "ibv_reg_dmabuf_mr", .. }), "{unsupported}");
}

#[test]
fn the_address_space_is_registered_on_demand() {
    let bench = Bench::new();
    let mut bytes = [0u8; 64];
    let address = bytes.as_mut_ptr().expose_provenance();
    // SAFETY: no request writes to memory that is in use.
    let all = unsafe { bench.pd.register_address_space(AccessFlags::LOCAL_WRITE) }.unwrap();
    assert_eq!(all.access(), AccessFlags::LOCAL_WRITE | AccessFlags::ON_DEMAND);
    assert_eq!(bench.provider.access(all.lkey()), all.access());
    receive(&bench, all.slice(address..address + 64).unwrap());
    bench.provider.fail("ibv_reg_mr", libc::EOPNOTSUPP);
    // SAFETY: as above.
    let error = unsafe { bench.pd.register_address_space(AccessFlags::empty()) }.unwrap_err();
    assert!(matches!(error, Error::Unsupported { verb: "ibv_reg_mr", .. }), "{error}");
}

#[test]
fn advice_names_its_slices() {
    let bench = Bench::new();
    let region = bench.pd.register(vec![0; 4096], AccessFlags::ON_DEMAND).unwrap();
    let slices = [region.slice(..1000).unwrap(), region.slice(2000..2500).unwrap()];
    bench.pd.advise(Advice::PREFETCH, &slices).unwrap();
    assert_eq!(bench.provider.advice(), Some((0, 0, 1500)));
    bench.pd.advise_and_wait(Advice::PREFETCH_WRITE, &slices[1..]).unwrap();
    assert_eq!(bench.provider.advice(), Some((1, 1, 500)));
    bench.pd.advise(Advice::PREFETCH_NO_FAULT, &[]).unwrap();
    assert_eq!(bench.provider.advice(), Some((2, 0, 0)));
    bench.provider.assert_no_violation();
    for errno in [libc::EFAULT, libc::EPERM, libc::EOPNOTSUPP] {
        bench.provider.fail("ibv_advise_mr", errno);
        let error = bench.pd.advise(Advice::PREFETCH, &slices).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno));
        assert_eq!(error.to_string().contains("registered with ON_DEMAND"), errno != libc::EOPNOTSUPP, "{error}");
    }
}
