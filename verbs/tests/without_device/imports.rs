//! What another process has open, made and registered.

use std::os::fd::AsRawFd;

use verbs::*;

use crate::null_provider::Kind;
use crate::{Bench, ERRNOS, connect};

fn imported(bench: &Bench) -> Context {
    // SAFETY: the descriptor is that of an open context.
    unsafe { Context::import(bench.context.command_fd()) }.unwrap()
}

#[test]
fn an_imported_device_has_a_descriptor_of_its_own() {
    let bench = Bench::new();
    let context = imported(&bench);
    assert_eq!(context.device().name(), "null0");
    assert_ne!(context.command_fd().as_raw_fd(), bench.context.command_fd().as_raw_fd());
    assert_eq!(bench.provider.live(Kind::Context), 2);
    let pd = context.create_protection_domain().unwrap();
    drop(context);
    assert_eq!(bench.provider.live(Kind::Context), 2);
    drop(pd);
    assert_eq!(bench.provider.live(Kind::Context), 1);
    bench.provider.assert_no_violation();
}

#[test]
fn imported_memory_is_used_in_its_domain_and_let_go_of_but_never_destroyed() {
    let bench = Bench::new();
    let context = imported(&bench);
    let pd = context.import_protection_domain(bench.pd.handle()).unwrap();
    let (address, access) = (bench.region.address(), bench.region.access());
    let region = pd.import_memory_region(bench.region.handle(), address, access).unwrap();
    assert_eq!((region.len(), region.lkey(), region.address()), (4096, bench.region.lkey(), address));
    let cq = context.create_completion_queue(4).unwrap();
    let qp = QueuePair::<Rc>::builder(&pd, &cq, &cq).build().unwrap();
    connect(&qp);
    qp.post_receive(&ReceiveRequest::new(1, &[region.slice(64..).unwrap()])).unwrap();
    assert_eq!(cq.poll(&mut [WorkCompletion::default(); 1]).unwrap().len(), 1);
    bench.provider.assert_no_violation();
    drop((context, pd, cq, qp));
    assert_eq!((bench.provider.live(Kind::Context), bench.provider.live(Kind::Domain)), (2, 2));
    region.deregister().unwrap();
    assert_eq!((bench.provider.live(Kind::Context), bench.provider.live(Kind::Domain)), (1, 1));
    assert_eq!(bench.provider.live(Kind::Region), 1);
    bench.provider.assert_no_violation();
}

#[test]
fn imported_device_memory_is_the_same_memory() {
    let bench = Bench::new();
    let mut memory = bench.context.allocate_device_memory(64, 0).unwrap();
    let context = imported(&bench);
    // SAFETY: the memory has 64 bytes, and is freed later.
    let other = unsafe { context.import_device_memory(memory.handle().unwrap(), 64) }.unwrap();
    memory.write_at(8, b"both see").unwrap();
    let mut bytes = [0; 8];
    other.read_at(8, &mut bytes).unwrap();
    assert_eq!(&bytes, b"both see");
    assert_eq!(bench.provider.live(Kind::DeviceMemory), 2);
    drop((context, other));
    assert_eq!((bench.provider.live(Kind::DeviceMemory), bench.provider.live(Kind::Context)), (1, 1));
    bench.provider.assert_no_violation();
}

#[test]
fn what_cannot_be_imported_is_an_error_of_its_verb() {
    let bench = Bench::new();
    let context = imported(&bench);
    let pd = context.import_protection_domain(bench.pd.handle()).unwrap();
    let handle = bench.region.handle();
    for errno in ERRNOS {
        bench.provider.fail("ibv_import_device", errno);
        // SAFETY: the descriptor is that of an open context.
        let error = unsafe { Context::import(bench.context.command_fd()) }.unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno));
        bench.provider.fail("ibv_import_pd", errno);
        assert_eq!(context.import_protection_domain(1).unwrap_err().raw_os_error(), Some(errno));
        bench.provider.fail("ibv_import_mr", errno);
        let error = pd.import_memory_region(handle, 0, AccessFlags::empty()).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno));
        bench.provider.fail("ibv_import_dm", errno);
        // SAFETY: the call fails.
        assert_eq!(unsafe { context.import_device_memory(1, 8) }.unwrap_err().raw_os_error(), Some(errno));
    }
    assert_eq!(context.import_protection_domain(9999).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    let error = pd.import_memory_region(handle, u64::MAX - 4094, AccessFlags::empty()).unwrap_err();
    assert!(matches!(error, Error::InvalidArgument { argument: "iova", .. }), "{error}");
    assert_eq!(bench.provider.live(Kind::Region), 1);
    bench.provider.assert_no_violation();
}
