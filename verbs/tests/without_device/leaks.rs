//! Buffers that count how often they come back, and the count of those that do not.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use verbs::*;

use crate::null_provider::{Fault, Kind};
use crate::{Bench, ERRNOS};

/// How often a buffer was given back.
pub(crate) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A buffer that counts how often it was given back.
#[derive(Debug)]
pub(crate) struct Counted {
    bytes: Box<[u8]>,
    given_back: Arc<AtomicUsize>,
}

impl Counted {
    pub(crate) fn new(length: usize) -> (Self, Count) {
        let given_back = Arc::new(AtomicUsize::new(0));
        (Self { bytes: vec![7; length].into(), given_back: given_back.clone() }, Count(given_back))
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

// SAFETY: a slice that was boxed stays where it is, and the parts make up the box.
unsafe impl Buffer for Counted {
    type Element = u8;
    type Rest = Arc<AtomicUsize>;
    const WRITABLE: bool = true;

    fn into_raw_parts(self) -> (NonNull<u8>, usize, Self::Rest) {
        let (data, length, ()) = self.bytes.into_raw_parts();
        (data, length, self.given_back)
    }

    unsafe fn from_raw_parts(data: NonNull<u8>, length: usize, given_back: Self::Rest) -> Self {
        given_back.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller passes the parts of the box.
        let bytes = unsafe { Box::from_raw_parts(data, length, ()) };
        Self { bytes, given_back }
    }
}

pub(crate) fn counted(pd: &ProtectionDomain, length: usize) -> (MemoryRegion<Counted>, Count) {
    let (buffer, given_back) = Counted::new(length);
    (pd.register(buffer, AccessFlags::LOCAL_WRITE).unwrap(), given_back)
}

/// Calls `with` with a bench that may have regions left at its end, and with how many bytes were leaked since.
pub(crate) fn leaking(with: impl FnOnce(&Bench, &dyn Fn() -> usize)) {
    // The count is the process's.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let before = leaked_bytes();
    let bench = Bench::new();
    with(&bench, &|| leaked_bytes() - before);
    // What is registered is still there, so its domain cannot be freed.
    let Bench { qp, region, cq, pd, context, provider } = bench;
    drop((qp, region, cq));
    drop((pd, context));
    assert!(provider.take_violations().iter().all(|violation| violation.contains("is used by")));
    provider.forget_what_is_left();
}

#[test]
fn a_region_that_cannot_be_deregistered_comes_back_and_keeps_its_buffer() {
    let bench = Bench::new();
    let (mut region, given_back) = counted(&bench.pd, 64);
    for errno in ERRNOS {
        bench.provider.fail("ibv_dereg_mr", errno);
        let (same, error) = region.deregister().map(drop).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno));
        assert!(error.to_string().contains("ibv_dereg_mr"), "{error}");
        assert_eq!(given_back.get(), 0);
        region = same;
    }
    assert_eq!(*region.deregister().unwrap().bytes, [7; 64]);
    assert_eq!(given_back.get(), 1);
}

#[test]
fn a_buffer_whose_region_is_dropped_and_cannot_be_deregistered_is_leaked_and_counted_and_not_freed() {
    leaking(|bench, leaked| {
        for fault in [Fault { errno: libc::EBUSY, returns: None }, Fault { errno: libc::EIO, returns: Some(-1) }] {
            let before = leaked();
            let (region, given_back) = counted(&bench.pd, 64);
            let address = region.as_ptr();
            bench.provider.fault("ibv_dereg_mr", fault);
            drop(region);
            assert_eq!((given_back.get(), leaked() - before), (0, 64));
            // SAFETY: the memory was leaked: nobody frees it, and nobody uses it.
            unsafe {
                assert_eq!(std::slice::from_raw_parts(address, 64), [7; 64]);
                drop(Box::from_raw(std::ptr::slice_from_raw_parts_mut(address, 64)));
            }
        }
        assert_eq!(bench.provider.live(Kind::Region), 3);
    });
}

#[test]
fn memory_that_is_registered_again_stays_if_that_region_cannot_be_deregistered() {
    leaking(|bench, leaked| {
        let (region, given_back) = counted(&bench.pd, 64);
        let again = region.register_again(&bench.pd, AccessFlags::empty()).unwrap();
        drop(region);
        bench.provider.fail("ibv_dereg_mr", libc::EBUSY);
        drop(again);
        assert_eq!((given_back.get(), leaked()), (0, 64));
        // Both are registered.
        assert_eq!(bench.provider.live(Kind::Region), 3);
    });
}

#[test]
fn what_is_no_buffer_is_not_counted() {
    leaking(|bench, leaked| {
        let null = bench.pd.create_null_memory_region().unwrap();
        bench.provider.fail("ibv_dereg_mr", libc::EBUSY);
        drop(null);
        assert_eq!((leaked(), bench.provider.live(Kind::Region)), (0, 2));
    });
}
