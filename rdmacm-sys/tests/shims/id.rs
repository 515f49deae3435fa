//! An id with a queue pair and completion queues whose operations note what they were given.

use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::ptr;

use ibverbs_sys::{
    ibv_comp_channel, ibv_context, ibv_cq, ibv_mr, ibv_pd, ibv_qp, ibv_recv_wr, ibv_send_wr, ibv_sge, ibv_srq, ibv_wc,
};
use rdmacm_sys::rdma_cm_id;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Call {
    Register { pd: *mut ibv_pd, addr: usize, length: usize, access: c_int },
    Deregister(*mut ibv_mr),
    Send(*mut ibv_qp, Posted),
    Receive(*mut ibv_qp, Posted),
    ReceiveShared(*mut ibv_srq, Posted),
    Poll(*mut ibv_cq),
    RequestNotification(*mut ibv_cq, c_int),
    GetEvent(*mut ibv_comp_channel),
    Acknowledge(*mut ibv_cq, u32),
}

/// A request: its id, its first element, how many there are, operation and flags, and the rest of what the operation needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Posted {
    pub(crate) id: u64,
    pub(crate) first: (u64, u32, u32),
    pub(crate) count: c_int,
    pub(crate) operation: Option<(u32, u32)>,
    pub(crate) target: [u64; 3],
}

thread_local! {
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
    static ANSWERS: RefCell<Vec<c_int>> = const { RefCell::new(Vec::new()) };
    static EVENT: Cell<(*mut ibv_cq, *mut c_void)> = const { Cell::new((ptr::null_mut(), ptr::null_mut())) };
}

/// The calls since the last time it was asked.
pub(crate) fn calls() -> Vec<Call> {
    CALLS.take()
}

/// What the functions that are called next return, in this order; after that, 0.
pub(crate) fn answer_with(answers: &[c_int]) {
    ANSWERS.set(answers.iter().rev().copied().collect());
}

fn record(call: Call) -> c_int {
    CALLS.with_borrow_mut(|calls| calls.push(call));
    ANSWERS.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// What `ibv_reg_mr` returns.
pub(crate) const REGION: usize = 0x40;

// The library's functions that the shims call: these are linked in their place.

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr {
    record(Call::Register { pd, addr: addr.addr(), length, access });
    ptr::without_provenance_mut(REGION)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
    record(Call::Deregister(mr))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the shim passes pointers to its own variables.
    unsafe { (*cq, *context) = EVENT.get() };
    record(Call::GetEvent(channel))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_cq_events(cq: *mut ibv_cq, count: u32) {
    record(Call::Acknowledge(cq, count));
}

unsafe extern "C" fn post_send(qp: *mut ibv_qp, wr: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> c_int {
    // SAFETY: the shim passes a request of its own, with an element, and a place for the bad one.
    let posted = unsafe {
        assert!((*wr).next.is_null() && !bad.is_null());
        let sge: ibv_sge = *(*wr).sg_list;
        let rdma = (*wr).wr.rdma;
        let ud = (*wr).wr.ud;
        let is_rdma = (*wr).opcode != ibverbs_sys::ibv_wr_opcode::IBV_WR_SEND;
        let target = if is_rdma {
            [rdma.remote_addr, u64::from(rdma.rkey), 0]
        } else {
            [ud.ah.addr() as u64, u64::from(ud.remote_qpn), u64::from(ud.remote_qkey)]
        };
        Posted {
            id: (*wr).wr_id,
            first: (sge.addr, sge.length, sge.lkey),
            count: (*wr).num_sge,
            operation: Some(((*wr).opcode.0, (*wr).send_flags)),
            target,
        }
    };
    record(Call::Send(qp, posted))
}

/// # Safety
///
/// `wr` is a request with an element.
unsafe fn received(wr: *mut ibv_recv_wr) -> Posted {
    // SAFETY: the caller says so.
    unsafe {
        assert!((*wr).next.is_null());
        let sge = *(*wr).sg_list;
        let first = (sge.addr, sge.length, sge.lkey);
        Posted { id: (*wr).wr_id, first, count: (*wr).num_sge, operation: None, target: [0; 3] }
    }
}

unsafe extern "C" fn post_recv(qp: *mut ibv_qp, wr: *mut ibv_recv_wr, _: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: the shim passes a request of its own.
    record(Call::Receive(qp, unsafe { received(wr) }))
}

unsafe extern "C" fn post_srq_recv(srq: *mut ibv_srq, wr: *mut ibv_recv_wr, _: *mut *mut ibv_recv_wr) -> c_int {
    // SAFETY: the shim passes a request of its own.
    record(Call::ReceiveShared(srq, unsafe { received(wr) }))
}

unsafe extern "C" fn poll_cq(cq: *mut ibv_cq, count: c_int, wc: *mut ibv_wc) -> c_int {
    assert!(count == 1 && !wc.is_null());
    record(Call::Poll(cq))
}

unsafe extern "C" fn req_notify_cq(cq: *mut ibv_cq, solicited: c_int) -> c_int {
    record(Call::RequestNotification(cq, solicited))
}

/// An id and all that it points to.
pub(crate) struct Id {
    pub(crate) id: *mut rdma_cm_id,
    pub(crate) qp: *mut ibv_qp,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) region: *mut ibv_mr,
    context: *mut ibv_context,
}

pub(crate) const SEND_CHANNEL: usize = 0x100;
pub(crate) const RECEIVE_CHANNEL: usize = 0x200;
pub(crate) const DOMAIN: usize = 0x300;

impl Id {
    pub(crate) fn new() -> Self {
        let made = Self {
            id: zeroed(),
            qp: zeroed(),
            srq: zeroed(),
            send_cq: zeroed(),
            recv_cq: zeroed(),
            region: zeroed(),
            context: zeroed(),
        };
        // SAFETY: all objects have just been made.
        unsafe {
            let ops = &mut (*made.context).ops;
            ops.post_send = Some(post_send);
            ops.post_recv = Some(post_recv);
            ops.post_srq_recv = Some(post_srq_recv);
            ops.poll_cq = Some(poll_cq);
            ops.req_notify_cq = Some(req_notify_cq);
            (*made.qp).context = made.context;
            (*made.srq).context = made.context;
            (*made.send_cq).context = made.context;
            (*made.recv_cq).context = made.context;
            (*made.id).qp = made.qp;
            (*made.id).send_cq = made.send_cq;
            (*made.id).recv_cq = made.recv_cq;
            (*made.id).pd = ptr::without_provenance_mut(DOMAIN);
            (*made.id).send_cq_channel = ptr::without_provenance_mut(SEND_CHANNEL);
            (*made.id).recv_cq_channel = ptr::without_provenance_mut(RECEIVE_CHANNEL);
            (*made.region).addr = ptr::without_provenance_mut(0x1000);
            (*made.region).length = 0x1000;
            (*made.region).lkey = 77;
        }
        made
    }

    /// Lets `ibv_get_cq_event` tell of `cq`, as a channel that `rdma_create_qp` made does.
    pub(crate) fn tell_event_of(&self, cq: *mut ibv_cq) {
        EVENT.set((cq, self.id.cast()));
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: each came from `zeroed`, and the shims free nothing.
        unsafe {
            drop(Box::from_raw(self.id));
            drop(Box::from_raw(self.qp));
            drop(Box::from_raw(self.srq));
            drop(Box::from_raw(self.send_cq));
            drop(Box::from_raw(self.recv_cq));
            drop(Box::from_raw(self.region));
            drop(Box::from_raw(self.context));
        }
    }
}

/// A `T` of zeros, which `Box::from_raw` frees.
fn zeroed<T>() -> *mut T {
    // SAFETY: `T` is a struct of the bindings, and zeros are valid for all of those.
    Box::into_raw(Box::new(unsafe { std::mem::zeroed() }))
}

pub(crate) fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or_default()
}
