//! [`Extended`]: the functions of an `ibv_qp_ex`.
//!
//! # Safety
//!
//! An [`Extended`] is made of a queue pair that was created with the operations of its transport, and only if each function that is called
//! for them is there.
#![allow(unsafe_code)]

use std::ptr::NonNull;

use crate::device_attributes::DeviceAttributes;
use crate::ffi;
use crate::ffi::ibv_qp_create_send_ops_flags as Ops;
use crate::transport::Transport;

/// Operations that a queue pair has only if it was made with them: not every provider of the extended interface does.
pub(crate) mod optional {
    use super::Ops;

    /// Binding memory windows.
    pub(crate) const BIND_MW: u64 = Ops::IBV_QP_EX_WITH_BIND_MW.0 as u64;
    /// Atomic write.
    pub(crate) const ATOMIC_WRITE: u64 = Ops::IBV_QP_EX_WITH_ATOMIC_WRITE.0 as u64;
    /// Flush.
    #[cfg(rdma_core_45)]
    pub(crate) const FLUSH: u64 = Ops::IBV_QP_EX_WITH_FLUSH.0 as u64;
}

/// The `ibv_qp_ex` of a queue pair.
#[derive(Clone, Copy)]
pub(super) struct Extended {
    pub(super) qp: NonNull<ffi::ibv_qp_ex>,
    /// Which of the [`optional`] operations it has.
    pub(super) optional: u64,
    /// Whether the provider sends lists of more than one entry as they are. That of rxe takes the first length for each, and of inline
    /// data nothing (until rdma-core 64; which one runs here cannot be told).
    pub(super) lists: bool,
}

// SAFETY: a provider holds the queue pair's lock from `wr_start` to `wr_complete`, in which the fields are written that builders read; the
// table itself does not change.
unsafe impl Send for Extended {}
// SAFETY: as above.
unsafe impl Sync for Extended {}

impl Extended {
    /// The `ibv_qp_ex` of a queue pair of transport `T`. `None`: the provider lacks some of what it promised.
    ///
    /// # Safety
    ///
    /// The queue pair was created with the operations of `T` and with these optional ones, and is alive.
    pub(super) unsafe fn new<T: Transport>(
        qp: NonNull<ffi::ibv_qp>,
        optional: u64,
        device: &DeviceAttributes,
    ) -> Option<Self> {
        // SAFETY: as the caller says.
        let qp = NonNull::new(unsafe { ffi::ibv_qp_to_qp_ex(qp.as_ptr()) })?;
        // SAFETY: as above.
        let table = unsafe { qp.as_ref() };
        let asked = T::SEND_OPERATIONS | optional;
        let has = |operation: Ops, present: bool| asked & u64::from(operation.0) == 0 || present;
        let complete = has(Ops::IBV_QP_EX_WITH_SEND, table.wr_send.is_some())
            && has(Ops::IBV_QP_EX_WITH_SEND_WITH_IMM, table.wr_send_imm.is_some())
            && has(Ops::IBV_QP_EX_WITH_RDMA_WRITE, table.wr_rdma_write.is_some())
            && has(Ops::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, table.wr_rdma_write_imm.is_some())
            && has(Ops::IBV_QP_EX_WITH_RDMA_READ, table.wr_rdma_read.is_some())
            && has(Ops::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, table.wr_atomic_cmp_swp.is_some())
            && has(Ops::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, table.wr_atomic_fetch_add.is_some())
            && has(Ops::IBV_QP_EX_WITH_SEND_WITH_INV, table.wr_send_inv.is_some())
            && has(Ops::IBV_QP_EX_WITH_LOCAL_INV, table.wr_local_inv.is_some())
            && (!T::DATAGRAM || table.wr_set_ud_addr.is_some())
            && has(Ops::IBV_QP_EX_WITH_BIND_MW, table.wr_bind_mw.is_some())
            && table.wr_set_sge.is_some()
            && table.wr_set_sge_list.is_some()
            && table.wr_set_inline_data.is_some()
            && table.wr_set_inline_data_list.is_some()
            && table.wr_start.is_some()
            && table.wr_complete.is_some();
        // A library that is older than the header has no such entries: they are looked at only if the operation was asked for.
        let complete = complete && (asked & optional::ATOMIC_WRITE == 0 || table.wr_atomic_write.is_some());
        #[cfg(rdma_core_45)]
        let complete = complete && (asked & optional::FLUSH == 0 || table.wr_flush.is_some());
        complete.then(|| Self { qp, optional, lists: !device.is_rxe() })
    }
}
