//! The operations that both connected transports have, one constructor each.
//!
//! # Safety
//!
//! As in the parent module: each constructor initialises the fields that its operation has.
#![allow(unsafe_code)]

use super::{Opcode, SendRequest};
use crate::inline_slice::InlineSlice;
use crate::local_slice::LocalSlice;
use crate::remote_slice::RemoteSlice;
use crate::transport::Connected;

impl<'a, T: Connected> SendRequest<'a, T> {
    /// SEND: a message into a receive that the peer has posted.
    #[doc(alias = "IBV_WR_SEND")]
    #[inline]
    pub fn send(wr_id: u64, slices: &'a [LocalSlice<'a>]) -> Self {
        Self::new(wr_id, slices, Opcode::IBV_WR_SEND)
    }

    /// SEND with 32 bits of immediate data, which the peer finds in its completion. In host byte order.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    #[inline]
    pub fn send_with_imm(wr_id: u64, slices: &'a [LocalSlice<'a>], imm_data: u32) -> Self {
        Self::new(wr_id, slices, Opcode::IBV_WR_SEND_WITH_IMM).with_imm(imm_data)
    }

    /// RDMA WRITE: writes into the peer's memory from the beginning of `remote` on; the peer is not told. The peer's device
    /// checks the range against its region, not against the length of `remote`.
    #[doc(alias = "IBV_WR_RDMA_WRITE")]
    #[inline]
    pub fn rdma_write(wr_id: u64, slices: &'a [LocalSlice<'a>], remote: RemoteSlice) -> Self {
        Self::new(wr_id, slices, Opcode::IBV_WR_RDMA_WRITE).with_remote(remote)
    }

    /// RDMA WRITE with 32 bits of immediate data, which use up a receive of the peer and are found in its completion. In
    /// host byte order.
    #[doc(alias = "IBV_WR_RDMA_WRITE_WITH_IMM")]
    #[inline]
    pub fn rdma_write_with_imm(wr_id: u64, slices: &'a [LocalSlice<'a>], remote: RemoteSlice, imm_data: u32) -> Self {
        Self::new(wr_id, slices, Opcode::IBV_WR_RDMA_WRITE_WITH_IMM).with_remote(remote).with_imm(imm_data)
    }

    /// SEND of inline data, which is copied while the request is posted. At most as many bytes as the queue pair's
    /// [`max_inline_data`](crate::QueuePairCapabilities::max_inline_data).
    #[inline]
    pub fn send_inline(wr_id: u64, slices: &'a [InlineSlice<'a>]) -> Self {
        Self::new_inline(wr_id, slices, Opcode::IBV_WR_SEND)
    }

    /// [`send_inline`](Self::send_inline) with 32 bits of immediate data, in host byte order.
    #[inline]
    pub fn send_inline_with_imm(wr_id: u64, slices: &'a [InlineSlice<'a>], imm_data: u32) -> Self {
        Self::new_inline(wr_id, slices, Opcode::IBV_WR_SEND_WITH_IMM).with_imm(imm_data)
    }

    /// RDMA WRITE of inline data, which is copied while the request is posted. At most as many bytes as the queue pair's
    /// [`max_inline_data`](crate::QueuePairCapabilities::max_inline_data).
    #[inline]
    pub fn rdma_write_inline(wr_id: u64, slices: &'a [InlineSlice<'a>], remote: RemoteSlice) -> Self {
        Self::new_inline(wr_id, slices, Opcode::IBV_WR_RDMA_WRITE).with_remote(remote)
    }

    /// [`rdma_write_inline`](Self::rdma_write_inline) with 32 bits of immediate data, in host byte order.
    #[inline]
    pub fn rdma_write_inline_with_imm(
        wr_id: u64,
        slices: &'a [InlineSlice<'a>],
        remote: RemoteSlice,
        imm_data: u32,
    ) -> Self {
        Self::new_inline(wr_id, slices, Opcode::IBV_WR_RDMA_WRITE_WITH_IMM).with_remote(remote).with_imm(imm_data)
    }

    /// Local invalidate: takes back the rkey of a memory window, so that the peer can no longer use it. Requests that are posted
    /// later begin after it.
    ///
    /// It transfers nothing; a device that cannot invalidate what the key names, such as a whole memory region, fails it.
    #[doc(alias = "IBV_WR_LOCAL_INV")]
    #[inline]
    pub fn local_invalidate(wr_id: u64, rkey: u32) -> Self {
        Self::new(wr_id, &[], Opcode::IBV_WR_LOCAL_INV).with_invalidated_rkey(rkey)
    }
}
