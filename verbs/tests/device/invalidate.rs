//! SEND with invalidate and local invalidate, on a memory window.

use verbs::*;

use crate::harness::*;

/// A window on a region, bound through a queue pair. Its key is what peers use.
fn bound(side: &Side, region: &MemoryRegion<Vec<u8>>) -> MemoryWindow<WindowType2> {
    let mut window = side.pd.create_memory_window().unwrap();
    let request = BindRequest::new(77, region, .., AccessFlags::REMOTE_WRITE).unwrap().signaled();
    side.qp.post_bind(&mut window, &request).unwrap();
    assert_eq!(side.completion().success().unwrap().opcode(), WorkCompletionOpcode::BIND_MEMORY_WINDOW);
    window
}

/// Two connected sides, a region of the first one that windows can be bound to, and a window on it.
fn with_window() -> (Side, Side, MemoryRegion<Vec<u8>>, MemoryWindow<WindowType2>) {
    let (a, b) = pair();
    let region = a.region(64, RW | AccessFlags::MW_BIND);
    let window = bound(&a, &region);
    (a, b, region, window)
}

/// Two connected sides with the extended interface, and the same.
fn with_extended_window() -> (Side, Side, MemoryRegion<Vec<u8>>, MemoryWindow<WindowType2>) {
    let context = open();
    let extended = |builder: QueuePairBuilder<Rc>| builder.require_extended();
    let (a, b) = (Side::build(context.clone(), extended), Side::build(context, extended));
    connect(&a, &b, &options());
    let region = a.region(64, RW | AccessFlags::MW_BIND);
    let window = bound(&a, &region);
    (a, b, region, window)
}

/// What becomes of a write by `b` through the window.
fn write(
    b: &Side,
    region: &MemoryRegion<Vec<u8>>,
    window: &MemoryWindow<WindowType2>,
) -> Result<(), WorkCompletionStatus> {
    let source = b.region(8, RW);
    let remote = RemoteSlice::new(region.address(), 64, window.rkey()).unwrap();
    b.qp.post_send(&SendRequest::rdma_write(1, &[source.slice(..).unwrap()], remote).signaled()).unwrap();
    b.completion().success().map(drop).map_err(|error| error.status)
}

#[test]
fn a_send_with_invalidate_takes_the_peers_key_back() {
    let (a, b, region, mut window) = with_window();
    write(&b, &region, &window).unwrap();
    let target = a.region(64, RW);
    a.qp.post_receive(&ReceiveRequest::new(5, &[target.slice(..).unwrap()])).unwrap();
    let mut source = b.region(8, RW);
    source.write_at(0, b"finished").unwrap();
    let slices = [source.slice(..).unwrap()];
    b.qp.post_send(&SendRequest::send_with_invalidate(6, &slices, window.rkey()).signaled()).unwrap();
    assert_eq!(b.completion().success().unwrap().opcode(), WorkCompletionOpcode::SEND);
    let completion = a.completion();
    let success = completion.success().unwrap();
    assert_eq!((success.wr_id(), success.byte_len(), success.imm_data()), (5, Some(8), None));
    // rxe's kernel reports it by a flag that means something else to libibverbs.
    assert!([None, Some(window.rkey())].contains(&success.invalidated_rkey()), "{success:?}");
    assert_eq!(target.to_vec(..8).unwrap(), b"finished");
    assert_eq!(write(&b, &region, &window), Err(WorkCompletionStatus::REMOTE_ACCESS_ERROR));
    // Nothing is bound to the region any more.
    window.release(&completion).unwrap();
    assert_eq!(region.deregister().unwrap().len(), 64);
}

#[test]
fn a_local_invalidate_takes_the_own_key_back() {
    let (a, b, region, window) = with_window();
    write(&b, &region, &window).unwrap();
    a.qp.post_send(&SendRequest::local_invalidate(9, window.rkey()).signaled()).unwrap();
    let completion = a.completion();
    assert_eq!(
        (completion.wr_id(), completion.success().unwrap().opcode()),
        (9, WorkCompletionOpcode::LOCAL_INVALIDATE)
    );
    assert_eq!(write(&b, &region, &window), Err(WorkCompletionStatus::REMOTE_ACCESS_ERROR));
}

#[test]
fn keys_are_taken_back_through_the_extended_interface_too() {
    let (a, b, region, window) = with_extended_window();
    write(&b, &region, &window).unwrap();
    a.qp.extended().unwrap().post_send(&SendRequest::local_invalidate(9, window.rkey()).signaled()).unwrap();
    assert_eq!(a.completion().success().unwrap().opcode(), WorkCompletionOpcode::LOCAL_INVALIDATE);
    assert_eq!(write(&b, &region, &window), Err(WorkCompletionStatus::REMOTE_ACCESS_ERROR));

    let (a, b, region, window) = with_extended_window();
    let (target, source) = (a.region(64, RW), b.region(8, RW));
    a.qp.post_receive(&ReceiveRequest::new(5, &[target.slice(..).unwrap()])).unwrap();
    let slices = [source.slice(..).unwrap()];
    let request = SendRequest::send_with_invalidate(6, &slices, window.rkey()).signaled();
    b.qp.extended().unwrap().post_send(&request).unwrap();
    b.completion().success().unwrap();
    assert_eq!(a.completion().success().unwrap().byte_len(), Some(8));
    assert_eq!(write(&b, &region, &window), Err(WorkCompletionStatus::REMOTE_ACCESS_ERROR));
}

#[test]
fn a_key_that_cannot_be_invalidated_fails_the_peers_receive() {
    let (a, b) = pair();
    let (target, source) = (a.region(64, RW), b.region(8, RW));
    a.qp.post_receive(&ReceiveRequest::new(1, &[target.slice(..).unwrap()])).unwrap();
    // A key that names nothing.
    let rkey = 0x00de_ad00;
    b.qp.post_send(&SendRequest::send_with_invalidate(2, &[source.slice(..).unwrap()], rkey)).unwrap();
    let error = a.completion().success().unwrap_err();
    // The specification's is a local operation error, of the queue pair.
    let known = [WorkCompletionStatus::REMOTE_INVALID_REQUEST, WorkCompletionStatus::LOCAL_QUEUE_PAIR_OPERATION_ERROR];
    assert!(known.contains(&error.status), "{error}");
    assert_eq!(error.wr_id, 1);
    becomes(&a.qp, QueuePairState::ERROR);
}

#[test]
fn a_key_that_cannot_be_invalidated_here_fails_the_request() {
    let (a, _b) = pair();
    a.qp.post_send(&SendRequest::local_invalidate(3, 0x00de_ad00)).unwrap();
    let error = a.completion().success().unwrap_err();
    // Linux 6.12 reports local faults as flushed.
    let known = [WorkCompletionStatus::LOCAL_QUEUE_PAIR_OPERATION_ERROR, WorkCompletionStatus::WORK_REQUEST_FLUSHED];
    assert!(known[..if kernel() == (6, 1) { 1 } else { 2 }].contains(&error.status), "{error}");
    assert_eq!(error.wr_id, 3);
    becomes(&a.qp, QueuePairState::ERROR);
}
