//! The operations of a send queue, one constructor each.
//!
//! # Safety
//!
//! As in the parent module: each constructor initialises the fields that its operation has.
#![allow(unsafe_code)]

use super::{Opcode, SendRequest, lacks};
use crate::error::Result;
use crate::inline_slice::InlineSlice;
use crate::local_slice::LocalSlice;
use crate::remote_slice::RemoteSlice;
use crate::transport::Rc;

impl<'a> SendRequest<'a, Rc> {
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

    /// RDMA READ: reads the peer's memory from the beginning of `remote` on, and scatters it to `slices`, whose regions need
    /// [`LOCAL_WRITE`](crate::AccessFlags::LOCAL_WRITE).
    #[doc(alias = "IBV_WR_RDMA_READ")]
    #[inline]
    pub fn rdma_read(wr_id: u64, slices: &'a [LocalSlice<'a>], remote: RemoteSlice) -> Self {
        Self::new(wr_id, slices, Opcode::IBV_WR_RDMA_READ).with_remote(remote)
    }

    /// Atomic compare-and-swap: if the 8 bytes at the beginning of `remote` are `compare`, they become `swap`. What they
    /// were before arrives in `slices`, 8 bytes in host byte order.
    ///
    /// The peer's memory needs [`REMOTE_ATOMIC`](crate::AccessFlags::REMOTE_ATOMIC) and an address that is a multiple of 8;
    /// `slices` need [`LOCAL_WRITE`](crate::AccessFlags::LOCAL_WRITE). Whether the operation is atomic for the peer's
    /// processor as well depends on the peer's device.
    #[doc(alias = "IBV_WR_ATOMIC_CMP_AND_SWP")]
    #[inline]
    pub fn compare_and_swap(
        wr_id: u64,
        slices: &'a [LocalSlice<'a>],
        remote: RemoteSlice,
        compare: u64,
        swap: u64,
    ) -> Self {
        Self::new(wr_id, slices, Opcode::IBV_WR_ATOMIC_CMP_AND_SWP).with_atomic(remote, compare, swap)
    }

    /// Atomic fetch-and-add: adds `add`, wrapping around, to the 8 bytes at the beginning of `remote`. The rest is as for
    /// [`compare_and_swap`](Self::compare_and_swap).
    #[doc(alias = "IBV_WR_ATOMIC_FETCH_AND_ADD")]
    #[inline]
    pub fn fetch_and_add(wr_id: u64, slices: &'a [LocalSlice<'a>], remote: RemoteSlice, add: u64) -> Self {
        Self::new(wr_id, slices, Opcode::IBV_WR_ATOMIC_FETCH_AND_ADD).with_atomic(remote, add, 0)
    }

    /// Sets the values of an atomic operation: what to compare with, or to add; and what to swap in, which fetch-and-add
    /// has not.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument): the operation is no atomic one.
    #[inline]
    pub fn set_operands(&mut self, compare_add: u64, swap: u64) -> Result<()> {
        match self.opcode() {
            Opcode::IBV_WR_ATOMIC_CMP_AND_SWP | Opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => {
                let raw = self.wr.get_mut().as_mut_ptr();
                // SAFETY: `with_atomic` has initialised the fields.
                unsafe {
                    (*raw).wr.atomic.compare_add = compare_add;
                    (*raw).wr.atomic.swap = swap;
                }
                Ok(())
            }
            opcode => Err(lacks(opcode, "operands", "only atomics have them")),
        }
    }
}
