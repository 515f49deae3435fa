use verbs::*;

use crate::Bench;
use crate::leaks::{Counted, counted, leaking};
use crate::null_provider::{Fault, Kind};

const RW: AccessFlags = AccessFlags::LOCAL_WRITE.union(AccessFlags::REMOTE_WRITE);

const INPUT: i32 = -1;
const DONT_FORK_NEW: i32 = -2;
const DO_FORK_OLD: i32 = -3;
const COMMAND: i32 = -4;
const COMMAND_AND_DO_FORK_NEW: i32 = -5;

fn fault(bench: &Bench, code: i32, errno: i32) {
    bench.provider.fault("ibv_rereg_mr", Fault { errno, returns: Some(code) });
}

#[test]
fn rights_domain_and_buffer_change_and_the_keys_with_them() {
    let bench = Bench::new();
    let region = bench.pd.register(vec![1; 64], AccessFlags::LOCAL_WRITE).unwrap();
    let lkey = region.lkey();
    let (region, old) = region.reregister(Reregistration::new().access(RW)).unwrap();
    assert!(old.is_none());
    assert_ne!(region.lkey(), lkey);
    assert_eq!((region.access(), bench.provider.access(region.lkey())), (RW, RW));
    let other = bench.context.create_protection_domain().unwrap();
    let (region, _) = region.reregister(Reregistration::new().protection_domain(&other)).unwrap();
    assert_eq!(region.protection_domain().as_raw(), other.as_raw());
    assert_eq!(region.access(), RW);
    let change =
        Reregistration::new().buffer(vec![2; 100]).access(AccessFlags::LOCAL_WRITE).protection_domain(&bench.pd);
    let (region, old) = region.reregister(change).unwrap();
    assert_eq!(old, Some(vec![1; 64]));
    assert_eq!((region.len(), region.as_ptr() as u64), (100, region.address()));
    assert_eq!(region.to_vec(..).unwrap(), [2; 100]);
    // The provider knows the region by what it is now.
    bench.qp.post_receive(&ReceiveRequest::new(1, &[region.slice(..).unwrap()])).unwrap();
    bench.provider.assert_no_violation();
    drop(other);
    assert_eq!(bench.provider.live(Kind::Domain), 1);
    assert_eq!(region.deregister().unwrap(), [2; 100]);
}

#[test]
fn what_cannot_be_changed_is_refused_before_the_call() {
    let bench = Bench::new();
    let mut region = bench.pd.register(Mapping::new(4096).unwrap(), RW).unwrap();
    let stranger = bench.provider.open().create_protection_domain().unwrap();
    let zero_based = RW | AccessFlags::ZERO_BASED;
    for (change, reason) in [
        (Reregistration::new(), "something has to change"),
        (Reregistration::new().access(AccessFlags::REMOTE_WRITE), "need LOCAL_WRITE too"),
        (Reregistration::new().access(zero_based), "cannot change"),
        (Reregistration::new().protection_domain(&stranger), "all objects must come from one `Context`"),
    ] {
        let error = region.reregister(change).unwrap_err();
        assert!(
            error.to_string().contains(reason) && error.to_string().ends_with("the region is what it was"),
            "{error}"
        );
        let ReregisterError::Unchanged { region: same, buffer: None, .. } = error else { panic!("{error}") };
        region = same;
    }
    let held = region.hold(..).unwrap();
    let error = region.reregister(Reregistration::new().access(RW)).unwrap_err();
    assert!(matches!(error.error(), Error::Busy { verb: "ibv_rereg_mr", .. }), "{error}");
    drop((error, held));
    let region = bench.pd.register_with_iova(Mapping::new(4096).unwrap(), RW, 0).unwrap();
    let error = region.reregister(Reregistration::new().buffer(Mapping::new(4096).unwrap())).unwrap_err();
    assert!(matches!(error.error(), Error::InvalidArgument { argument: "iova", .. }), "{error}");
    let constant = bench.pd.register(&b"constant"[..], AccessFlags::empty()).unwrap();
    let error = constant.reregister(Reregistration::new().access(RW)).unwrap_err();
    assert!(error.to_string().contains("the buffer is read-only"), "{error}");
}

#[test]
fn an_input_error_leaves_the_region_as_it_was() {
    let bench = Bench::new();
    let (mut region, old) = counted(&bench.pd, 64);
    for (code, errno) in
        [(INPUT, libc::EINVAL), (DONT_FORK_NEW, libc::ENOMEM), (COMMAND, libc::EOPNOTSUPP), (COMMAND, libc::ENOSYS)]
    {
        let (new, new_given_back) = Counted::new(100);
        fault(&bench, code, errno);
        let error = region.reregister(Reregistration::new().buffer(new)).unwrap_err();
        assert_eq!(error.error().raw_os_error(), Some(errno));
        assert_eq!(matches!(error.error(), Error::Unsupported { .. }), code == COMMAND);
        let ReregisterError::Unchanged { region: same, buffer: Some(buffer), .. } = error else { panic!("{error}") };
        assert_eq!((same.len(), buffer.len(), new_given_back.get(), old.get()), (64, 100, 1, 0));
        region = same;
    }
    bench.qp.post_receive(&ReceiveRequest::new(1, &[region.slice(..).unwrap()])).unwrap();
    bench.provider.assert_no_violation();
    // An empty buffer is libibverbs' to refuse.
    let error = region.reregister(Reregistration::new().buffer(Counted::new(0).0)).unwrap_err();
    let ReregisterError::Unchanged { region, buffer: Some(_), .. } = error else { panic!("{error}") };
    region.deregister().unwrap();
    assert_eq!(old.get(), 1);
}

#[test]
fn what_is_not_supported_in_part_may_have_changed_the_domain() {
    let bench = Bench::new();
    let other = bench.context.create_protection_domain().unwrap();
    // One at a time leaves the region as it was.
    let (mut region, old) = counted(&bench.pd, 64);
    let (new, _given_back) = Counted::new(100);
    for change in [
        Reregistration::new().protection_domain(&other),
        Reregistration::new().access(RW),
        Reregistration::new().access(RW).buffer(new),
    ] {
        fault(&bench, COMMAND, libc::EOPNOTSUPP);
        let error = region.reregister(change).unwrap_err();
        assert!(error.to_string().ends_with("the region is what it was"), "{error}");
        let ReregisterError::Unchanged { region: same, .. } = error else { panic!("{error}") };
        region = same;
    }
    // A domain that the region was perhaps moved to is not freed with the region in it: it is moved back, if it was moved.
    let both = || Reregistration::new().protection_domain(&other).access(RW);
    for back in [None, Some(libc::EOPNOTSUPP), Some(libc::ENOSYS)] {
        fault(&bench, COMMAND, libc::EOPNOTSUPP);
        back.into_iter().for_each(|errno| fault(&bench, COMMAND, errno));
        let error = region.reregister(both()).unwrap_err();
        let ReregisterError::Unchanged { region: same, error, .. } = error else { panic!("{error}") };
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        assert_eq!((same.protection_domain().as_raw(), same.access()), (bench.pd.as_raw(), AccessFlags::LOCAL_WRITE));
        bench.qp.post_receive(&ReceiveRequest::new(1, &[same.slice(..).unwrap()])).unwrap();
        region = same;
    }
    // If it cannot be moved back, nobody knows.
    fault(&bench, COMMAND, libc::EOPNOTSUPP);
    fault(&bench, COMMAND, libc::EIO);
    let error = region.reregister(both()).unwrap_err();
    let ReregisterError::Deregistered { old: buffer, new: None, error } = error else { panic!("{error}") };
    assert_eq!((buffer.len(), error.raw_os_error()), (64, Some(libc::EOPNOTSUPP)));
    assert_eq!((bench.provider.live(Kind::Region), old.get()), (1, 1));
    drop(other);
    bench.provider.assert_no_violation();
}

#[test]
fn a_fork_error_of_the_old_memory_leaves_the_region_changed() {
    let bench = Bench::new();
    let (region, old) = counted(&bench.pd, 64);
    let (new, new_given_back) = Counted::new(100);
    fault(&bench, DO_FORK_OLD, libc::ENOMEM);
    let error = region.reregister(Reregistration::new().buffer(new)).unwrap_err();
    assert!(error.to_string().contains("the region has changed"), "{error}");
    let ReregisterError::Changed { region, buffer: Some(buffer), .. } = error else { panic!("{error}") };
    assert_eq!((region.len(), buffer.len(), old.get(), new_given_back.get()), (100, 64, 1, 0));
    bench.qp.post_receive(&ReceiveRequest::new(1, &[region.slice(..).unwrap()])).unwrap();
    bench.provider.assert_no_violation();
}

#[test]
fn a_region_in_an_unknown_state_is_deregistered_and_both_buffers_come_back() {
    let bench = Bench::new();
    for code in [COMMAND, COMMAND_AND_DO_FORK_NEW, 7] {
        let (region, old) = counted(&bench.pd, 64);
        let (new, new_given_back) = Counted::new(100);
        fault(&bench, code, libc::EIO);
        let error = region.reregister(Reregistration::new().buffer(new)).unwrap_err();
        assert_eq!(bench.provider.live(Kind::Region), 1);
        let ReregisterError::Deregistered { old: buffer, new: Some(new), error } = error else { panic!("{error}") };
        assert_eq!((buffer.len(), new.len(), old.get(), new_given_back.get()), (64, 100, 1, 1));
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
    }
}

#[test]
fn a_region_in_an_unknown_state_that_cannot_be_deregistered_leaks_both_buffers() {
    leaking(|bench, leaked| {
        let (region, old) = counted(&bench.pd, 64);
        let (new, new_given_back) = Counted::new(100);
        fault(bench, COMMAND, libc::EIO);
        bench.provider.fail("ibv_dereg_mr", libc::EBUSY);
        let error = region.reregister(Reregistration::new().buffer(new)).unwrap_err();
        assert!(matches!(error, ReregisterError::Leaked { .. }), "{error}");
        assert!(error.to_string().ends_with("its memory is leaked"), "{error}");
        assert_eq!((old.get(), new_given_back.get(), leaked()), (0, 0, 164));
        assert_eq!(Error::from(error).raw_os_error(), Some(libc::EIO));
    });
}
