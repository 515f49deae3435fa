//! `ibv_wr_opcode_str`, which cannot be linked.
//!
//! Release 49 declared it in `verbs.h`, but the library exports it only under the version of its private symbols, which changes with
//! each internal ABI: a program that links it runs on the one rdma-core it was built with. So here is the function itself, for every release.

use std::ffi::{CStr, c_char};

use crate::ibv_wr_opcode;

/// The name of a work request's operation, such as `rdma-write-with-imm`; `unknown` for a value that has none.
pub fn ibv_wr_opcode_str(opcode: ibv_wr_opcode) -> *const c_char {
    name(opcode).as_ptr()
}

fn name(opcode: ibv_wr_opcode) -> &'static CStr {
    /// By number, since the older headers lack the newer ones' names.
    const FLUSH: u32 = 14;
    const ATOMIC_WRITE: u32 = 15;
    match opcode {
        ibv_wr_opcode::IBV_WR_RDMA_WRITE => c"rdma-write",
        ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM => c"rdma-write-with-imm",
        ibv_wr_opcode::IBV_WR_SEND => c"send",
        ibv_wr_opcode::IBV_WR_SEND_WITH_IMM => c"send-with-imm",
        ibv_wr_opcode::IBV_WR_RDMA_READ => c"rdma-read",
        ibv_wr_opcode::IBV_WR_ATOMIC_CMP_AND_SWP => c"atomic-cmp-and-swp",
        ibv_wr_opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => c"atomic-fetch-and-add",
        ibv_wr_opcode::IBV_WR_LOCAL_INV => c"local-inv",
        ibv_wr_opcode::IBV_WR_BIND_MW => c"bind-mw",
        ibv_wr_opcode::IBV_WR_SEND_WITH_INV => c"send-with-inv",
        ibv_wr_opcode::IBV_WR_TSO => c"tso",
        ibv_wr_opcode::IBV_WR_DRIVER1 => c"driver1",
        ibv_wr_opcode(FLUSH) => c"flush",
        ibv_wr_opcode(ATOMIC_WRITE) => c"atomic-write",
        _ => c"unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_operation_has_its_name_and_other_values_are_unknown() {
        assert_eq!(name(ibv_wr_opcode::IBV_WR_RDMA_WRITE_WITH_IMM), c"rdma-write-with-imm");
        assert_eq!(name(ibv_wr_opcode::IBV_WR_TSO), c"tso");
        assert_eq!(name(ibv_wr_opcode::IBV_WR_ATOMIC_WRITE), c"atomic-write");
        for unknown in [12, 13, 16, u32::MAX] {
            assert_eq!(name(ibv_wr_opcode(unknown)), c"unknown");
        }
    }
}
