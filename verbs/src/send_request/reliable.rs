//! The operations that only RC has, one constructor each.
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
    /// SEND with invalidate: a SEND that also takes back `rkey`, the key of a memory window or region of the peer's. The peer finds
    /// the key in its completion: [`Success::invalidated_rkey`](crate::Success::invalidated_rkey).
    ///
    /// A key that the peer's device cannot invalidate fails the peer's receive, and its queue pair goes to ERROR; the sender need not be
    /// told.
    #[doc(alias = "IBV_WR_SEND_WITH_INV")]
    #[inline]
    pub fn send_with_invalidate(wr_id: u64, slices: &'a [LocalSlice<'a>], rkey: u32) -> Self {
        Self::new(wr_id, slices, Opcode::IBV_WR_SEND_WITH_INV).with_invalidated_rkey(rkey)
    }

    /// [`send_with_invalidate`](Self::send_with_invalidate) of inline data.
    #[inline]
    pub fn send_inline_with_invalidate(wr_id: u64, slices: &'a [InlineSlice<'a>], rkey: u32) -> Self {
        Self::new_inline(wr_id, slices, Opcode::IBV_WR_SEND_WITH_INV).with_invalidated_rkey(rkey)
    }

    /// RDMA READ: reads the peer's memory from the beginning of `remote` on, and scatters it to `slices`, whose regions need
    /// [`LOCAL_WRITE`](crate::AccessFlags::LOCAL_WRITE).
    #[doc(alias = "IBV_WR_RDMA_READ")]
    #[inline]
    pub fn rdma_read(wr_id: u64, slices: &'a [LocalSlice<'a>], remote: RemoteSlice) -> Self {
        Self::new(wr_id, slices, Opcode::IBV_WR_RDMA_READ).with_remote(remote)
    }

    /// Atomic compare-and-swap: if the 8 bytes at the beginning of `remote` are `compare`, they become `swap`. What they
    /// were before arrives in `slices`, 8 bytes in host byte order. A queue refuses the request if they are not 8 bytes, or the peer's
    /// address is not a multiple of 8.
    ///
    /// The peer's memory needs [`REMOTE_ATOMIC`](crate::AccessFlags::REMOTE_ATOMIC);
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
                self.put_operands(compare_add, swap);
                Ok(())
            }
            opcode => Err(lacks(opcode, "operands", "only atomics have them")),
        }
    }

    /// For atomic operations.
    #[inline]
    pub(crate) fn put_operands(&mut self, compare_add: u64, swap: u64) {
        let raw = self.wr.get_mut().as_mut_ptr();
        // SAFETY: `raw` points to memory for the structure.
        unsafe {
            (&raw mut (*raw).wr.atomic.compare_add).write(compare_add);
            (&raw mut (*raw).wr.atomic.swap).write(swap);
        }
    }
}
