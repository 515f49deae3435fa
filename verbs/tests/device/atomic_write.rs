//! Atomic write and flush, which rxe has on newer kernels only.

use std::sync::atomic::{AtomicU64, Ordering};

use verbs::*;

use crate::harness::*;

fn capabilities() -> DeviceCapabilities {
    open().extended_device_attributes().unwrap().capabilities()
}

/// Two connected queue pairs, the first one with the operations that `configure` asks for. `None`: the device does not have them, and that
/// is what making the queue pair says.
fn pair_with_operation(
    capability: DeviceCapabilities,
    access: AccessFlags,
    configure: fn(QueuePairBuilder<Rc>) -> QueuePairBuilder<Rc>,
) -> Option<(Side, Side)> {
    if !capabilities().contains(capability) {
        let Side { pd, cq, .. } = Side::new();
        let error = configure(QueuePair::builder(&pd, &cq, &cq)).require_extended().build().unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
        return None;
    }
    let context = open();
    let a = Side::build(context.clone(), |builder| configure(builder).require_extended());
    let b = Side::build(context, |builder| builder);
    let mut options = options();
    options.access |= access;
    connect(&a, &b, &options);
    Some((a, b))
}

#[test]
fn an_atomic_write_arrives_or_is_unsupported() {
    let operation = QueuePairBuilder::extended_atomic_write;
    let capability = DeviceCapabilities::ATOMIC_WRITE;
    let Some((a, b)) = pair_with_operation(capability, AccessFlags::empty(), operation) else { return };
    let words = Box::<[AtomicU64]>::from([AtomicU64::new(1), AtomicU64::new(2), AtomicU64::new(3)]);
    let target = b.pd.register(words, RW).unwrap();
    let extended = a.qp.extended().unwrap();
    let value = 0x0102_0304_0506_0708_u64;
    let remote = target.remote_slice(8..16).unwrap();
    extended.post_atomic_write(&AtomicWriteRequest::new(5, remote, value.to_ne_bytes()).signaled()).unwrap();
    let completion = a.completion();
    let done = completion.success().unwrap();
    assert_eq!((done.wr_id(), done.opcode()), (5, WorkCompletionOpcode::ATOMIC_WRITE));
    let found: Vec<u64> = target.as_atomics().iter().map(|word| word.load(Ordering::Acquire)).collect();
    assert_eq!(found, [1, value, 3]);
}

#[test]
fn an_atomic_write_without_a_right_is_a_remote_access_error() {
    let operation = QueuePairBuilder::extended_atomic_write;
    let capability = DeviceCapabilities::ATOMIC_WRITE;
    let Some((a, b)) = pair_with_operation(capability, AccessFlags::empty(), operation) else { return };
    let target = b.region(8, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ);
    let request = AtomicWriteRequest::new(6, target.remote_slice(..).unwrap(), [7; 8]);
    a.qp.extended().unwrap().post_atomic_write(&request).unwrap();
    let error = a.completion().success().unwrap_err();
    assert_eq!((error.wr_id, error.status), (6, WorkCompletionStatus::REMOTE_ACCESS_ERROR));
    assert_eq!(target.to_vec(..).unwrap(), [0; 8]);
}

#[cfg(rdma_core_45)]
mod flush {
    use super::*;

    const GLOBAL: AccessFlags = AccessFlags::FLUSH_GLOBAL;

    fn pair() -> Option<(Side, Side)> {
        pair_with_operation(DeviceCapabilities::FLUSH_GLOBAL, GLOBAL, QueuePairBuilder::extended_flush)
    }

    #[test]
    fn a_flush_completes_after_the_write_before_it() {
        let Some((a, b)) = pair() else { return };
        let mut source = a.region(100, RW);
        source.write_at(0, &pattern(100)).unwrap();
        let target = b.region(100, RW | GLOBAL);
        let remote = target.remote_slice(..).unwrap();
        let extended = a.qp.extended().unwrap();
        for (wr_id, level) in [(1, SelectivityLevel::RANGE), (2, SelectivityLevel::MEMORY_REGION)] {
            extended.post_send(&SendRequest::rdma_write(0, &[source.slice(..).unwrap()], remote)).unwrap();
            extended.post_flush(&FlushRequest::new(wr_id, remote, PlacementType::GLOBAL, level).signaled()).unwrap();
            let completion = a.completion();
            let done = completion.success().unwrap();
            assert_eq!((done.wr_id(), done.opcode()), (wr_id, WorkCompletionOpcode::FLUSH));
            assert_eq!(target.to_vec(..).unwrap(), pattern(100));
        }
    }

    #[test]
    fn a_flush_without_a_right_is_a_remote_access_error() {
        let Some((a, b)) = pair() else { return };
        let target = b.region(100, RW);
        let remote = target.remote_slice(..).unwrap();
        let request = FlushRequest::new(7, remote, PlacementType::GLOBAL, SelectivityLevel::RANGE);
        a.qp.extended().unwrap().post_flush(&request).unwrap();
        let error = a.completion().success().unwrap_err();
        assert_eq!((error.wr_id, error.status), (7, WorkCompletionStatus::REMOTE_ACCESS_ERROR));
    }

    #[test]
    fn memory_that_does_not_persist_is_not_registered_for_it() {
        let Some((_, b)) = pair() else { return };
        let error = b.pd.register(vec![0_u8; 4096], RW | AccessFlags::FLUSH_PERSISTENT).unwrap_err();
        assert_eq!(error.error.raw_os_error(), Some(libc::EINVAL), "{}", error.error);
    }
}
