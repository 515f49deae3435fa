//! SEND with invalidate and local invalidate, on a memory window that is made with the raw bindings.

use std::ptr;

use verbs::*;

use crate::harness::*;

/// A type 2 memory window on a region, bound through a queue pair. Its key is what peers use.
struct Window {
    mw: *mut ffi::ibv_mw,
    rkey: u32,
}

impl Window {
    fn bind(side: &Side, region: &MemoryRegion<Vec<u8>>) -> Self {
        // SAFETY: the domain, the queue pair and the region are alive; the request is one of the operation, and the window is of the
        // queue pair's domain.
        unsafe {
            let mw = ffi::ibv_alloc_mw(side.pd.as_raw(), ffi::ibv_mw_type::IBV_MW_TYPE_2);
            assert!(!mw.is_null(), "ibv_alloc_mw: {}", std::io::Error::last_os_error());
            let rkey = ffi::ibv_inc_rkey((*mw).rkey);
            let mut wr: ffi::ibv_send_wr = std::mem::zeroed();
            wr.wr_id = 77;
            wr.opcode = ffi::ibv_wr_opcode::IBV_WR_BIND_MW;
            wr.send_flags = ffi::ibv_send_flags::IBV_SEND_SIGNALED.0;
            // The names of the structures in the union differ from release to release.
            let bind = &mut wr.__bindgen_anon_2.bind_mw;
            (bind.mw, bind.rkey) = (mw, rkey);
            (bind.bind_info.mr, bind.bind_info.addr) = (region.as_raw(), region.as_ptr() as u64);
            bind.bind_info.length = region.len() as u64;
            bind.bind_info.mw_access_flags = AccessFlags::REMOTE_WRITE.bits();
            let mut bad = ptr::null_mut();
            assert_eq!(ffi::ibv_post_send(side.qp.as_raw(), &mut wr, &mut bad), 0);
            let completion = side.completion();
            assert_eq!(completion.success().unwrap().opcode(), WorkCompletionOpcode::BIND_MEMORY_WINDOW);
            Self { mw, rkey }
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the window was allocated, and is freed only here.
        unsafe { ffi::ibv_dealloc_mw(self.mw) };
    }
}

/// Two connected sides, a region of the first one that windows can be bound to, and a window on it.
fn with_window() -> (Side, Side, MemoryRegion<Vec<u8>>, Window) {
    let (a, b) = pair();
    let region = a.region(64, RW | AccessFlags::MW_BIND);
    let window = Window::bind(&a, &region);
    (a, b, region, window)
}

/// Two connected sides with the extended interface, and the same.
fn with_extended_window() -> (Side, Side, MemoryRegion<Vec<u8>>, Window) {
    let context = open();
    let extended = |builder: QueuePairBuilder<Rc>| builder.require_extended();
    let (a, b) = (Side::build(context.clone(), extended), Side::build(context, extended));
    connect(&a, &b, &options());
    let region = a.region(64, RW | AccessFlags::MW_BIND);
    let window = Window::bind(&a, &region);
    (a, b, region, window)
}

/// What becomes of a write by `b` through the window.
fn write(b: &Side, region: &MemoryRegion<Vec<u8>>, window: &Window) -> Result<(), WorkCompletionStatus> {
    let source = b.region(8, RW);
    let remote = RemoteSlice::new(region.as_ptr() as u64, 64, window.rkey).unwrap();
    b.qp.post_send(&SendRequest::rdma_write(1, &[source.slice(..).unwrap()], remote).signaled()).unwrap();
    b.completion().success().map(drop).map_err(|error| error.status)
}

#[test]
fn a_send_with_invalidate_takes_the_peers_key_back() {
    let (a, b, region, window) = with_window();
    write(&b, &region, &window).unwrap();
    let target = a.region(64, RW);
    a.qp.post_receive(&ReceiveRequest::new(5, &[target.slice(..).unwrap()])).unwrap();
    let mut source = b.region(8, RW);
    source.write_at(0, b"finished").unwrap();
    let slices = [source.slice(..).unwrap()];
    b.qp.post_send(&SendRequest::send_with_invalidate(6, &slices, window.rkey).signaled()).unwrap();
    assert_eq!(b.completion().success().unwrap().opcode(), WorkCompletionOpcode::SEND);
    let completion = a.completion();
    let success = completion.success().unwrap();
    assert_eq!((success.wr_id(), success.byte_len(), success.imm_data()), (5, Some(8), None));
    // rxe's kernel reports it by a flag that means something else to libibverbs.
    assert!([None, Some(window.rkey)].contains(&success.invalidated_rkey()), "{success:?}");
    assert_eq!(target.to_vec(..8).unwrap(), b"finished");
    assert_eq!(write(&b, &region, &window), Err(WorkCompletionStatus::REMOTE_ACCESS_ERROR));
}

#[test]
fn a_local_invalidate_takes_the_own_key_back() {
    let (a, b, region, window) = with_window();
    write(&b, &region, &window).unwrap();
    a.qp.post_send(&SendRequest::local_invalidate(9, window.rkey).signaled()).unwrap();
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
    a.qp.extended().unwrap().post_send(&SendRequest::local_invalidate(9, window.rkey).signaled()).unwrap();
    assert_eq!(a.completion().success().unwrap().opcode(), WorkCompletionOpcode::LOCAL_INVALIDATE);
    assert_eq!(write(&b, &region, &window), Err(WorkCompletionStatus::REMOTE_ACCESS_ERROR));

    let (a, b, region, window) = with_extended_window();
    let (target, source) = (a.region(64, RW), b.region(8, RW));
    a.qp.post_receive(&ReceiveRequest::new(5, &[target.slice(..).unwrap()])).unwrap();
    let slices = [source.slice(..).unwrap()];
    let request = SendRequest::send_with_invalidate(6, &slices, window.rkey).signaled();
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
    assert_eq!((error.wr_id, a.qp.state().unwrap()), (1, QueuePairState::ERROR));
}

#[test]
fn a_key_that_cannot_be_invalidated_here_fails_the_request() {
    let (a, _b) = pair();
    a.qp.post_send(&SendRequest::local_invalidate(3, 0x00de_ad00)).unwrap();
    let error = a.completion().success().unwrap_err();
    // Linux 6.12 reports local faults as flushed.
    let known = [WorkCompletionStatus::LOCAL_QUEUE_PAIR_OPERATION_ERROR, WorkCompletionStatus::WORK_REQUEST_FLUSHED];
    assert!(known.contains(&error.status), "{error}");
    assert_eq!((error.wr_id, a.qp.state().unwrap()), (3, QueuePairState::ERROR));
}
