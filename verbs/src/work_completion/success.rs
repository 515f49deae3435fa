//! [`Success`]: the fields of a completion that are defined.
//!
//! # Safety
//!
//! As in the parent module.
#![allow(unsafe_code)]

use std::fmt;

use crate::ffi;
use crate::work_completion::WorkCompletionOpcode;

/// The completion of a request that succeeded.
#[derive(Clone, Copy)]
pub struct Success<'a>(pub(super) &'a ffi::ibv_wc);

impl<'a> Success<'a> {
    /// The identifier that the program gave the request.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        self.0.wr_id
    }

    /// What the request did.
    #[inline]
    pub fn opcode(&self) -> WorkCompletionOpcode {
        WorkCompletionOpcode::from_raw(self.0.opcode.0)
    }

    /// The local queue pair's number, 24 bits.
    #[inline]
    pub fn qp_num(&self) -> u32 {
        self.0.qp_num
    }

    /// How many bytes arrived: by a receive, an RDMA READ or an atomic operation. `None` for the others, for which the
    /// specification leaves it undefined.
    #[inline]
    pub fn byte_len(&self) -> Option<u32> {
        let opcode = self.opcode();
        let defined = opcode.is_receive()
            || matches!(
                opcode,
                WorkCompletionOpcode::RDMA_READ
                    | WorkCompletionOpcode::COMPARE_AND_SWAP
                    | WorkCompletionOpcode::FETCH_AND_ADD
            );
        defined.then_some(self.0.byte_len)
    }

    /// The immediate data that arrived with the message, in host byte order. `None` where the message had none, and for
    /// what is not a receive.
    #[inline]
    pub fn imm_data(&self) -> Option<u32> {
        let with_imm = self.0.wc_flags & ffi::ibv_wc_flags::IBV_WC_WITH_IMM.0 != 0;
        // SAFETY: both members of the union are integers of 32 bits, and libibverbs filled the structure in.
        (with_imm && self.opcode().is_receive()).then(|| u32::from_be(unsafe { self.0.__bindgen_anon_1.imm_data }))
    }

    /// The key that the message invalidated (SEND with invalidate), for a receive. (`None` on rxe, whose kernel sets a flag for it that
    /// means something else here; [`MemoryWindow::release`](crate::MemoryWindow::release) knows it.)
    #[inline]
    pub fn invalidated_rkey(&self) -> Option<u32> {
        let with_inv = self.0.wc_flags & ffi::ibv_wc_flags::IBV_WC_WITH_INV.0 != 0;
        (with_inv && self.opcode().is_receive()).then_some(self.union_as_rkey())
    }

    /// What would be the key that the message invalidated, whatever it is.
    pub(crate) fn union_as_rkey(&self) -> u32 {
        // SAFETY: as in `imm_data`.
        unsafe { self.0.__bindgen_anon_1.invalidated_rkey }
    }

    pub(crate) fn as_raw(&self) -> &'a ffi::ibv_wc {
        self.0
    }
}

impl fmt::Display for Success<'_> {
    /// Such as `request 7: receive, 64 bytes`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}: {}", self.wr_id(), self.opcode())?;
        if let Some(length) = self.byte_len() {
            write!(f, ", {length} bytes")?;
        }
        match self.imm_data() {
            Some(imm_data) => write!(f, ", immediate {imm_data:#x}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Success<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Success")
            .field("wr_id", &self.wr_id())
            .field("opcode", &self.opcode())
            .field("byte_len", &self.byte_len())
            .field("imm_data", &self.imm_data())
            .finish()
    }
}
