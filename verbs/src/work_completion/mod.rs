//! [`WorkCompletion`]: what became of a work request.
//!
//! # Safety
//!
//! [`WorkCompletion`] is `ibv_wc` and nothing more, and each of its bit patterns is valid: its enums are open integers and
//! the two members of its union are both integers of 32 bits.
#![allow(unsafe_code)]

mod success;

use std::fmt;

use crate::completion_error::CompletionError;
use crate::ffi;
use crate::ffi::{ibv_wc_opcode as C, ibv_wc_status as S};
use crate::open_enum::open_enum;

pub use success::Success;

open_enum! {
    /// `enum ibv_wc_status`: how a work request ended.
    #[doc(alias = "ibv_wc_status")]
    WorkCompletionStatus(u32) {
        /// The request did what it was asked to.
        SUCCESS = S::IBV_WC_SUCCESS.0, "success";
        /// A receive was too small for its message, or a send larger than the port's limit.
        LOCAL_LENGTH_ERROR = S::IBV_WC_LOC_LEN_ERR.0, "local length error";
        /// The local queue pair could not carry the request out.
        LOCAL_QUEUE_PAIR_OPERATION_ERROR = S::IBV_WC_LOC_QP_OP_ERR.0, "local queue pair operation error";
        /// The local end-to-end context (RD) could not carry the request out.
        LOCAL_EE_CONTEXT_OPERATION_ERROR = S::IBV_WC_LOC_EEC_OP_ERR.0, "local end-to-end context operation error";
        /// A local buffer is not registered for the operation.
        LOCAL_PROTECTION_ERROR = S::IBV_WC_LOC_PROT_ERR.0, "local protection error";
        /// The queue pair went to ERROR before the request was carried out.
        WORK_REQUEST_FLUSHED = S::IBV_WC_WR_FLUSH_ERR.0, "work request flushed";
        /// A memory window could not be bound.
        MEMORY_WINDOW_BIND_ERROR = S::IBV_WC_MW_BIND_ERR.0, "memory window bind error";
        /// The peer answered with what makes no sense.
        BAD_RESPONSE = S::IBV_WC_BAD_RESP_ERR.0, "bad response";
        /// An arriving request was refused by a local buffer's rights.
        LOCAL_ACCESS_ERROR = S::IBV_WC_LOC_ACCESS_ERR.0, "local access error";
        /// The peer refused the request as invalid.
        REMOTE_INVALID_REQUEST = S::IBV_WC_REM_INV_REQ_ERR.0, "remote invalid request";
        /// The peer's memory does not grant the access.
        REMOTE_ACCESS_ERROR = S::IBV_WC_REM_ACCESS_ERR.0, "remote access error";
        /// The peer could not carry the request out.
        REMOTE_OPERATION_ERROR = S::IBV_WC_REM_OP_ERR.0, "remote operation error";
        /// The peer did not answer.
        RETRY_COUNTER_EXCEEDED = S::IBV_WC_RETRY_EXC_ERR.0, "transport retry counter exceeded";
        /// The peer had no receive posted.
        RNR_RETRY_COUNTER_EXCEEDED = S::IBV_WC_RNR_RETRY_EXC_ERR.0, "receiver-not-ready retry counter exceeded";
        /// A violation of a reliable datagram domain.
        LOCAL_RDD_VIOLATION = S::IBV_WC_LOC_RDD_VIOL_ERR.0, "local reliable datagram domain violation";
        /// The peer refused an RD request.
        REMOTE_INVALID_RD_REQUEST = S::IBV_WC_REM_INV_RD_REQ_ERR.0, "remote invalid reliable datagram request";
        /// The peer ended the operation.
        REMOTE_ABORTED = S::IBV_WC_REM_ABORT_ERR.0, "remote aborted";
        /// An invalid end-to-end context number.
        INVALID_EE_CONTEXT_NUMBER = S::IBV_WC_INV_EECN_ERR.0, "invalid end-to-end context number";
        /// An end-to-end context in a state that does not allow the request.
        INVALID_EE_CONTEXT_STATE = S::IBV_WC_INV_EEC_STATE_ERR.0, "invalid end-to-end context state";
        /// The device failed.
        FATAL_ERROR = S::IBV_WC_FATAL_ERR.0, "fatal error";
        /// A response came too late.
        RESPONSE_TIMEOUT = S::IBV_WC_RESP_TIMEOUT_ERR.0, "response timeout";
        /// An error that has no other name.
        GENERAL_ERROR = S::IBV_WC_GENERAL_ERR.0, "general error";
        /// A tag matching error.
        TAG_MATCHING_ERROR = S::IBV_WC_TM_ERR.0, "tag matching error";
        /// A tag matching rendezvous that software has to finish.
        TAG_MATCHING_RENDEZVOUS_INCOMPLETE = S::IBV_WC_TM_RNDV_INCOMPLETE.0, "tag matching rendezvous incomplete";
    }
}

impl WorkCompletionStatus {
    /// What the status usually means, and what to look at.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::SUCCESS => "nothing is wrong",
            Self::LOCAL_LENGTH_ERROR => "the posted receive was smaller than the message",
            Self::LOCAL_QUEUE_PAIR_OPERATION_ERROR | Self::LOCAL_PROTECTION_ERROR => {
                "look at the local buffers of the request: their region, its protection domain, its right to be written, \
                 and whether a receive is as large as the message"
            }
            Self::WORK_REQUEST_FLUSHED => {
                "the queue pair was in ERROR; the cause is in an earlier completion of either queue, and where there is \
                 none, the queue pair was moved to ERROR by the program or by a fault in a local buffer"
            }
            Self::REMOTE_INVALID_REQUEST => {
                "the peer's queue pair does not allow the operation (its access flags), or the peer's receive was smaller \
                 than the message"
            }
            Self::REMOTE_ACCESS_ERROR => {
                "the rkey, the range or the rights of the peer's region do not allow the access"
            }
            Self::REMOTE_OPERATION_ERROR => "the peer could not use the receive that it had posted",
            Self::RETRY_COUNTER_EXCEEDED => {
                "the peer did not answer: its queue pair may be gone, or the numbers, PSNs, path MTU or GIDs of both ends \
                 do not agree"
            }
            Self::RNR_RETRY_COUNTER_EXCEEDED => {
                "the peer had no receive posted: post it first, or raise the RNR retry count"
            }
            _ => "see the InfiniBand specification, volume 1, chapter 11.6.2",
        }
    }
}

open_enum! {
    /// `enum ibv_wc_opcode`: what a work request did.
    #[doc(alias = "ibv_wc_opcode")]
    WorkCompletionOpcode(u32) {
        /// A SEND.
        SEND = C::IBV_WC_SEND.0, "SEND";
        /// An RDMA WRITE.
        RDMA_WRITE = C::IBV_WC_RDMA_WRITE.0, "RDMA WRITE";
        /// An RDMA READ.
        RDMA_READ = C::IBV_WC_RDMA_READ.0, "RDMA READ";
        /// An atomic compare-and-swap.
        COMPARE_AND_SWAP = C::IBV_WC_COMP_SWAP.0, "compare and swap";
        /// An atomic fetch-and-add.
        FETCH_AND_ADD = C::IBV_WC_FETCH_ADD.0, "fetch and add";
        /// A memory window was bound.
        BIND_MEMORY_WINDOW = C::IBV_WC_BIND_MW.0, "bind memory window";
        /// A key was invalidated.
        LOCAL_INVALIDATE = C::IBV_WC_LOCAL_INV.0, "local invalidate";
        /// A flush. (Its value; `verbs.h` has a name for it from release 45 of rdma-core on.)
        FLUSH = 8, "flush";
        /// An atomic write.
        ATOMIC_WRITE = C::IBV_WC_ATOMIC_WRITE.0, "atomic write";
        /// A SEND cut into segments by the device.
        SEGMENTED_SEND = C::IBV_WC_TSO.0, "segmented SEND";
        /// A receive of a SEND.
        RECEIVE = C::IBV_WC_RECV.0, "receive";
        /// A receive of the immediate data of an RDMA WRITE.
        RECEIVE_RDMA_WITH_IMMEDIATE = C::IBV_WC_RECV_RDMA_WITH_IMM.0, "receive of RDMA WRITE with immediate";
    }
}

impl WorkCompletionOpcode {
    /// Whether the request was a receive.
    pub const fn is_receive(self) -> bool {
        self.as_raw() & C::IBV_WC_RECV.0 != 0
    }
}

/// `struct ibv_wc`: what became of one work request.
///
/// Most fields are undefined after a failure, so they are reached through [`success`](Self::success) only.
///
/// # References
///
/// [ibv_poll_cq(3)](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html); InfiniBand Architecture Specification,
/// volume 1, chapter 11.4.2.1.
#[doc(alias = "ibv_wc")]
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct WorkCompletion(ffi::ibv_wc);

impl WorkCompletion {
    /// The completion in libibverbs' terms. Of one that failed, most fields mean nothing.
    pub fn as_raw(&self) -> &ffi::ibv_wc {
        &self.0
    }

    /// The identifier that the program gave the request.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        self.0.wr_id
    }

    /// How the request ended.
    #[inline]
    pub fn status(&self) -> WorkCompletionStatus {
        WorkCompletionStatus::from_raw(self.0.status.0)
    }

    /// The local queue pair's number, 24 bits.
    #[inline]
    pub fn qp_num(&self) -> u32 {
        self.0.qp_num
    }

    /// The provider's own error code; 0 on success, or where it has none.
    #[inline]
    pub fn vendor_error(&self) -> u32 {
        self.0.vendor_err
    }

    /// The rest of the completion, if the request succeeded.
    ///
    /// # Errors
    ///
    /// [`CompletionError`], with the status and what it usually means.
    #[inline]
    pub fn success(&self) -> Result<Success<'_>, CompletionError> {
        if self.0.status.0 == S::IBV_WC_SUCCESS.0 { Ok(Success(&self.0)) } else { Err(self.failure()) }
    }

    #[cold]
    fn failure(&self) -> CompletionError {
        CompletionError {
            wr_id: self.wr_id(),
            status: self.status(),
            vendor_error: self.vendor_error(),
            qp_num: self.qp_num(),
        }
    }
}

impl Default for WorkCompletion {
    /// An entry for [`poll`](crate::CompletionQueue::poll) to fill in.
    fn default() -> Self {
        // SAFETY: all zeroes are a valid `ibv_wc`, as the file's invariant says.
        Self(unsafe { std::mem::zeroed() })
    }
}

impl fmt::Display for WorkCompletion {
    /// Such as `request 7: send, success`, or `request 7: remote access error (vendor error 0x88)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}: ", self.wr_id())?;
        match self.success() {
            Ok(success) => write!(f, "{}, {}", success.opcode(), self.status()),
            Err(_) => write!(f, "{} (vendor error {:#x})", self.status(), self.vendor_error()),
        }
    }
}

impl fmt::Debug for WorkCompletion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("WorkCompletion");
        out.field("wr_id", &self.wr_id()).field("status", &self.status()).field("qp_num", &self.qp_num());
        match self.success() {
            Ok(success) => out
                .field("opcode", &success.opcode())
                .field("byte_len", &success.byte_len())
                .field("imm_data", &success.imm_data()),
            Err(_) => out.field("vendor_error", &self.vendor_error()),
        }
        .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(fill: impl FnOnce(&mut ffi::ibv_wc)) -> WorkCompletion {
        let mut completion = WorkCompletion::default();
        fill(&mut completion.0);
        completion
    }

    #[test]
    fn a_failed_completion_gives_away_only_what_is_defined() {
        let flushed = completion(|wc| {
            wc.wr_id = 7;
            wc.status = S::IBV_WC_WR_FLUSH_ERR;
            wc.qp_num = 0x11;
        });
        let error = flushed.success().unwrap_err();
        assert_eq!((error.wr_id, error.qp_num), (7, 0x11));
        assert_eq!(error.status, WorkCompletionStatus::WORK_REQUEST_FLUSHED);
        assert!(error.to_string().starts_with("work request 7 on queue pair 0x11 failed: work request flushed"));
    }

    #[test]
    fn immediate_data_is_in_host_order_and_only_of_a_receive() {
        let fill = |opcode: C, flags: u32| {
            completion(|wc| {
                wc.opcode = opcode;
                wc.wc_flags = flags;
                wc.__bindgen_anon_1.imm_data = 0x89ab_cdef_u32.to_be();
            })
        };
        let with_imm = ffi::ibv_wc_flags::IBV_WC_WITH_IMM.0;
        let grh = ffi::ibv_wc_flags::IBV_WC_GRH.0;
        let imm = |wc: WorkCompletion| wc.success().unwrap().imm_data();
        assert_eq!(imm(fill(C::IBV_WC_RECV, with_imm | grh)), Some(0x89ab_cdef));
        assert_eq!(imm(fill(C::IBV_WC_RECV_RDMA_WITH_IMM, with_imm)), Some(0x89ab_cdef));
        assert_eq!(imm(fill(C::IBV_WC_RECV, grh)), None);
        assert_eq!(imm(fill(C::IBV_WC_RDMA_WRITE, with_imm)), None);
    }

    #[cfg(rdma_core_45)]
    #[test]
    fn flush_completes_with_the_opcode_of_the_header() {
        assert_eq!(WorkCompletionOpcode::FLUSH.as_raw(), C::IBV_WC_FLUSH.0);
    }

    #[test]
    fn unknown_statuses_and_opcodes_are_kept() {
        let odd = completion(|wc| wc.status = ffi::ibv_wc_status(99));
        assert_eq!(odd.success().unwrap_err().status.to_string(), "unknown (99)");
        let odd = completion(|wc| wc.opcode = ffi::ibv_wc_opcode(0x77));
        assert_eq!(format!("{:?}", odd.success().unwrap().opcode()), "WorkCompletionOpcode(119)");
        assert_eq!(odd.success().unwrap().byte_len(), None);
    }

    #[test]
    fn a_success_prints_what_is_defined() {
        let text = |opcode: C, flags: ffi::ibv_wc_flags| {
            let completion = completion(|wc| {
                (wc.wr_id, wc.opcode, wc.byte_len, wc.wc_flags) = (7, opcode, 64, flags.0);
                wc.__bindgen_anon_1.imm_data = 0x15_u32.to_be();
            });
            completion.success().unwrap().to_string()
        };
        let (imm, none) = (ffi::ibv_wc_flags::IBV_WC_WITH_IMM, ffi::ibv_wc_flags(0));
        assert_eq!(text(C::IBV_WC_RECV, imm), "request 7: receive, 64 bytes, immediate 0x15");
        assert_eq!(text(C::IBV_WC_RECV, none), "request 7: receive, 64 bytes");
        assert_eq!(text(C::IBV_WC_SEND, none), "request 7: SEND");
    }

    #[test]
    fn the_length_is_told_where_it_is_defined() {
        let length = |opcode: C| {
            completion(|wc| {
                wc.opcode = opcode;
                wc.byte_len = 64;
            })
            .success()
            .unwrap()
            .byte_len()
        };
        assert_eq!(length(C::IBV_WC_RECV), Some(64));
        assert_eq!(length(C::IBV_WC_RDMA_READ), Some(64));
        assert_eq!(length(C::IBV_WC_SEND), None);
        assert_eq!(length(C::IBV_WC_RDMA_WRITE), None);
    }
}
