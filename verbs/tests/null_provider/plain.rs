//! The data path of a few instructions, to count those of the caller.
//!
//! # Safety
//!
//! Queues are the provider's own and used by one thread; requests are valid chains.

use std::ffi::c_int;

use verbs::ffi;
use verbs::ffi::ibv_wc_opcode as Opcode;

use super::control::{CompletionQueue, QueuePair};
use super::device::shared;
use super::srq::SharedReceiveQueue;

/// What a poll of a queue finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polls {
    /// The completions of what was posted.
    Posted,
    /// As many completions as there is room for.
    Full,
    /// Nothing.
    Empty,
    /// A completion each time that the queue was armed.
    Armed,
    /// A completion each time that the queue was armed and its channel has an event: it comes after the next poll.
    Told,
}

pub(super) fn install(ops: &mut ffi::ibv_context_ops, polls: Polls) {
    ops.post_send = Some(post_send);
    ops.post_recv = Some(post_recv);
    ops.post_srq_recv = Some(post_srq_recv);
    ops.req_notify_cq = Some(match polls {
        Polls::Posted | Polls::Full | Polls::Empty => arm_nothing,
        Polls::Armed => arm,
        Polls::Told => arm_and_tell,
    });
    ops.poll_cq = Some(match polls {
        Polls::Posted => poll_posted,
        Polls::Full => poll_full,
        Polls::Empty => poll_empty,
        Polls::Armed | Polls::Told => poll_armed,
    });
}

/// What completes each operation, by the operation's number.
pub(super) const COMPLETION_OF: [u32; 16] = {
    use ffi::ibv_wr_opcode as Request;
    let mut table = [0; 16];
    table[Request::IBV_WR_RDMA_WRITE.0 as usize] = Opcode::IBV_WC_RDMA_WRITE.0;
    table[Request::IBV_WR_RDMA_WRITE_WITH_IMM.0 as usize] = Opcode::IBV_WC_RDMA_WRITE.0;
    table[Request::IBV_WR_SEND.0 as usize] = Opcode::IBV_WC_SEND.0;
    table[Request::IBV_WR_SEND_WITH_IMM.0 as usize] = Opcode::IBV_WC_SEND.0;
    table[Request::IBV_WR_BIND_MW.0 as usize] = Opcode::IBV_WC_BIND_MW.0;
    table[Request::IBV_WR_RDMA_READ.0 as usize] = Opcode::IBV_WC_RDMA_READ.0;
    table[Request::IBV_WR_ATOMIC_CMP_AND_SWP.0 as usize] = Opcode::IBV_WC_COMP_SWAP.0;
    table[Request::IBV_WR_ATOMIC_FETCH_AND_ADD.0 as usize] = Opcode::IBV_WC_FETCH_ADD.0;
    table[Request::IBV_WR_SEND_WITH_INV.0 as usize] = Opcode::IBV_WC_SEND.0;
    table[Request::IBV_WR_LOCAL_INV.0 as usize] = Opcode::IBV_WC_LOCAL_INV.0;
    table
};

static COMPLETIONS: [u32; 16] = COMPLETION_OF;

/// The number of each queue pair.
pub(super) const QP_NUM: u32 = 1;

/// A power of two: what can wait in a queue.
const ROOM: usize = 64;

#[derive(Clone, Copy, Default)]
pub(super) struct Entry {
    pub(super) wr_id: u64,
    pub(super) opcode: u32,
    pub(super) length: u32,
}

/// What was posted and not yet polled.
pub(super) struct Ring {
    head: u32,
    pub(super) tail: u32,
    entries: [Entry; ROOM],
}

impl Default for Ring {
    fn default() -> Self {
        Self { head: 0, tail: 0, entries: [Entry::default(); ROOM] }
    }
}

impl Ring {
    #[inline(always)]
    pub(super) fn push(&mut self, entry: Entry) {
        self.entries[self.tail as usize % ROOM] = entry;
        self.tail = self.tail.wrapping_add(1);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Takes the oldest entry.
    #[inline(always)]
    pub(super) fn take(&mut self) -> Entry {
        self.head = self.head.wrapping_add(1);
        self.taken()
    }

    /// What was taken last.
    #[inline(always)]
    pub(super) fn taken(&self) -> Entry {
        self.entries[self.head.wrapping_sub(1) as usize % ROOM]
    }

    #[inline(always)]
    fn pop_into(&mut self, completion: *mut ffi::ibv_wc) {
        let entry = &self.entries[self.head as usize % ROOM];
        self.head = self.head.wrapping_add(1);
        let filled = ffi::ibv_wc {
            wr_id: entry.wr_id,
            status: ffi::ibv_wc_status::IBV_WC_SUCCESS,
            opcode: ffi::ibv_wc_opcode(entry.opcode),
            vendor_err: 0,
            byte_len: entry.length,
            __bindgen_anon_1: ffi::ibv_wc__bindgen_ty_1 { imm_data: 0 },
            qp_num: QP_NUM,
            src_qp: QP_NUM,
            wc_flags: 0,
            pkey_index: 0,
            slid: 0,
            sl: 0,
            dlid_path_bits: 0,
        };
        // SAFETY: the caller has room for the completion.
        unsafe { completion.write(filled) };
    }
}

unsafe extern "C" fn post_send(
    qp: *mut ffi::ibv_qp,
    mut wr: *mut ffi::ibv_send_wr,
    _bad_wr: *mut *mut ffi::ibv_send_wr,
) -> c_int {
    // SAFETY: as the file says.
    unsafe {
        let signal_all = (*qp.cast::<QueuePair>()).signal_all;
        let ring = &mut (*(*qp).send_cq.cast::<CompletionQueue>()).ring;
        while !wr.is_null() {
            let length = if (*wr).num_sge > 0 { (*(*wr).sg_list).length } else { 0 };
            if (*wr).send_flags & ffi::ibv_send_flags::IBV_SEND_SIGNALED.0 != 0 || signal_all {
                let opcode = COMPLETIONS[((*wr).opcode.0 & 15) as usize];
                ring.push(Entry { wr_id: (*wr).wr_id, opcode, length });
            }
            wr = (*wr).next;
        }
    }
    0
}

unsafe extern "C" fn post_recv(
    qp: *mut ffi::ibv_qp,
    mut wr: *mut ffi::ibv_recv_wr,
    _bad_wr: *mut *mut ffi::ibv_recv_wr,
) -> c_int {
    // SAFETY: as the file says.
    unsafe {
        let ring = &mut (*(*qp).recv_cq.cast::<CompletionQueue>()).ring;
        while !wr.is_null() {
            let length = if (*wr).num_sge > 0 { (*(*wr).sg_list).length } else { 0 };
            ring.push(Entry { wr_id: (*wr).wr_id, opcode: Opcode::IBV_WC_RECV.0, length });
            wr = (*wr).next;
        }
    }
    0
}

/// Keeps the requests for nobody: there are no messages that could take them.
unsafe extern "C" fn post_srq_recv(
    srq: *mut ffi::ibv_srq,
    mut wr: *mut ffi::ibv_recv_wr,
    _bad_wr: *mut *mut ffi::ibv_recv_wr,
) -> c_int {
    // SAFETY: as the file says.
    unsafe {
        let ring = &mut (*srq.cast::<SharedReceiveQueue>()).ring;
        while !wr.is_null() {
            let length = if (*wr).num_sge > 0 { (*(*wr).sg_list).length } else { 0 };
            ring.push(Entry { wr_id: (*wr).wr_id, opcode: Opcode::IBV_WC_RECV.0, length });
            wr = (*wr).next;
        }
    }
    0
}

unsafe extern "C" fn poll_posted(cq: *mut ffi::ibv_cq, room: c_int, into: *mut ffi::ibv_wc) -> c_int {
    // SAFETY: as the file says, and the caller's array has room for `room` completions.
    unsafe {
        let ring = &mut (*cq.cast::<CompletionQueue>()).ring;
        let mut count = 0;
        while count < room && ring.head != ring.tail {
            ring.pop_into(into.add(count as usize));
            count += 1;
        }
        count
    }
}

unsafe extern "C" fn poll_full(cq: *mut ffi::ibv_cq, room: c_int, into: *mut ffi::ibv_wc) -> c_int {
    // SAFETY: as the file says, and the caller's array has room for `room` completions.
    unsafe {
        let ring = &mut (*cq.cast::<CompletionQueue>()).ring;
        for index in 0..room {
            ring.pop_into(into.add(index as usize));
        }
    }
    room
}

unsafe extern "C" fn poll_empty(_cq: *mut ffi::ibv_cq, _room: c_int, _into: *mut ffi::ibv_wc) -> c_int {
    0
}

unsafe extern "C" fn arm_nothing(_cq: *mut ffi::ibv_cq, _solicited_only: c_int) -> c_int {
    0
}

/// How far a queue is that has completions only when it was armed.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Idle,
    /// The poll after the next one finds a completion.
    Told,
    /// The next poll finds a completion.
    Ready,
}

unsafe extern "C" fn arm(cq: *mut ffi::ibv_cq, _solicited_only: c_int) -> c_int {
    // SAFETY: as the file says.
    unsafe { (*cq.cast::<CompletionQueue>()).stage = Stage::Ready };
    0
}

unsafe extern "C" fn arm_and_tell(cq: *mut ffi::ibv_cq, _solicited_only: c_int) -> c_int {
    // SAFETY: as the file says.
    unsafe {
        (*cq.cast::<CompletionQueue>()).stage = Stage::Told;
        shared((*cq).context).lock().tell(cq as usize);
    }
    0
}

unsafe extern "C" fn poll_armed(cq: *mut ffi::ibv_cq, _room: c_int, into: *mut ffi::ibv_wc) -> c_int {
    // SAFETY: as the file says, and the caller's array has room for a completion.
    unsafe {
        let cq = cq.cast::<CompletionQueue>();
        match (*cq).stage {
            Stage::Idle => 0,
            Stage::Told => {
                (*cq).stage = Stage::Ready;
                0
            }
            Stage::Ready => {
                (*cq).stage = Stage::Idle;
                (*cq).ring.pop_into(into);
                1
            }
        }
    }
}
