use verbs::*;

use crate::null_provider::Kind;
use crate::{Bench, ERRNOS};

#[test]
fn what_is_copied_in_is_copied_out() {
    let bench = Bench::new();
    let mut memory = bench.context.allocate_device_memory(64, 2).unwrap();
    assert_eq!(memory.len(), 64);
    memory.write_at(8, b"on the device...").unwrap();
    let mut bytes = [0; 24];
    memory.read_at(4, &mut bytes).unwrap();
    assert_eq!(&bytes, b"\0\0\0\0on the device...\0\0\0\0");
    let out_of_range = |result: Result<()>| matches!(result, Err(Error::OutOfRange { length: 64, .. }));
    assert!(out_of_range(memory.write_at(60, &[0; 8])));
    assert!(out_of_range(memory.write_at(usize::MAX, &[0; 8])));
    assert!(out_of_range(memory.read_at(65, &mut [])));
    let error = memory.write_at(0, &[1, 2, 3]).unwrap_err();
    assert!(error.to_string().contains("multiples of 4"), "{error}");
    for errno in ERRNOS {
        bench.provider.fail("ibv_memcpy_to_dm", errno);
        assert_eq!(memory.write_at(0, &[0; 4]).unwrap_err().raw_os_error(), Some(errno));
        bench.provider.fail("ibv_memcpy_from_dm", errno);
        assert_eq!(memory.read_at(0, &mut [0; 4]).unwrap_err().raw_os_error(), Some(errno));
    }
}

#[test]
fn a_region_of_device_memory_is_zero_based_and_keeps_the_memory() {
    let bench = Bench::new();
    let memory = bench.context.allocate_device_memory(4096, 0).unwrap();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_ATOMIC;
    let region = bench.pd.register_device_memory(&memory, 1024..2048, access).unwrap();
    assert_eq!((region.address(), region.len(), region.access()), (0, 1024, access | AccessFlags::ZERO_BASED));
    assert_eq!(region.remote_slice(8..16).unwrap().address(), 8);
    bench.qp.post_receive(&ReceiveRequest::new(1, &[region.slice(..).unwrap()])).unwrap();
    bench.provider.assert_no_violation();
    drop(memory);
    assert_eq!(bench.provider.live(Kind::DeviceMemory), 1);
    assert_eq!(region.deregister().unwrap().range(), 1024..2048);
    assert_eq!(bench.provider.live(Kind::DeviceMemory), 0);
}

#[test]
fn what_the_device_does_not_have_is_an_error() {
    let bench = Bench::new();
    assert!(matches!(bench.context.allocate_device_memory(0, 0), Err(Error::InvalidArgument { .. })));
    let error = bench.context.allocate_device_memory(1 << 20, 0).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
    assert!(error.to_string().contains("see `max_dm_size`"), "{error}");
    bench.provider.fail("ibv_alloc_dm", libc::EOPNOTSUPP);
    let error = bench.context.allocate_device_memory(64, 0).unwrap_err();
    assert!(matches!(error, Error::Unsupported { verb: "ibv_alloc_dm", .. }), "{error}");
    let memory = bench.context.allocate_device_memory(64, 0).unwrap();
    let register = |range: std::ops::Range<usize>, access| bench.pd.register_device_memory(&memory, range, access);
    assert!(matches!(register(0..65, AccessFlags::empty()), Err(Error::OutOfRange { length: 64, .. })));
    assert!(matches!(register(8..8, AccessFlags::empty()), Err(Error::InvalidArgument { .. })));
    assert!(matches!(register(0..8, AccessFlags::REMOTE_WRITE), Err(Error::InvalidArgument { .. })));
    bench.provider.fail("ibv_reg_dm_mr", libc::ENOMEM);
    assert_eq!(register(0..8, AccessFlags::empty()).unwrap_err().raw_os_error(), Some(libc::ENOMEM));
    let stranger = bench.provider.open().create_protection_domain().unwrap();
    let error = stranger.register_device_memory(&memory, .., AccessFlags::empty()).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "dm", .. }), "{error}");
}
