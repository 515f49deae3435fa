//! The operations of UD, one constructor each.
//!
//! # Safety
//!
//! As in the parent module: each constructor initialises the fields that its operation has.
#![allow(unsafe_code)]

use super::{Opcode, SendRequest};
use crate::address_handle::AddressHandle;
use crate::inline_slice::InlineSlice;
use crate::local_slice::LocalSlice;
use crate::transport::Ud;

impl<'a> SendRequest<'a, Ud> {
    /// SEND to the queue pair `remote_qpn` at the end of the path `ah`, if its Q_Key is `remote_qkey`. To a multicast group:
    /// [`MULTICAST_QPN`](crate::MULTICAST_QPN).
    ///
    /// The message is one packet: it has at most as many bytes as the port's active MTU. If `remote_qkey` has its highest bit set,
    /// the Q_Key of the sending queue pair is sent in its place (not by rxe).
    #[doc(alias = "IBV_WR_SEND")]
    #[doc(alias = "remote_qkey")]
    #[inline]
    pub fn send_to(
        wr_id: u64,
        slices: &'a [LocalSlice<'a>],
        ah: &'a AddressHandle,
        remote_qpn: u32,
        remote_qkey: u32,
    ) -> Self {
        Self::new(wr_id, slices, Opcode::IBV_WR_SEND).with_destination(ah, remote_qpn, remote_qkey)
    }

    /// [`send_to`](Self::send_to) with 32 bits of immediate data, which the receiver finds in its completion. In host byte order.
    #[doc(alias = "IBV_WR_SEND_WITH_IMM")]
    #[inline]
    pub fn send_to_with_imm(
        wr_id: u64,
        slices: &'a [LocalSlice<'a>],
        ah: &'a AddressHandle,
        remote_qpn: u32,
        remote_qkey: u32,
        imm_data: u32,
    ) -> Self {
        let request = Self::new(wr_id, slices, Opcode::IBV_WR_SEND_WITH_IMM);
        request.with_destination(ah, remote_qpn, remote_qkey).with_imm(imm_data)
    }

    /// [`send_to`](Self::send_to) of inline data, which is copied while the request is posted. At most as many bytes as the queue
    /// pair's [`max_inline_data`](crate::QueuePairCapabilities::max_inline_data).
    #[inline]
    pub fn send_to_inline(
        wr_id: u64,
        slices: &'a [InlineSlice<'a>],
        ah: &'a AddressHandle,
        remote_qpn: u32,
        remote_qkey: u32,
    ) -> Self {
        Self::new_inline(wr_id, slices, Opcode::IBV_WR_SEND).with_destination(ah, remote_qpn, remote_qkey)
    }

    /// [`send_to_inline`](Self::send_to_inline) with 32 bits of immediate data, in host byte order.
    #[inline]
    pub fn send_to_inline_with_imm(
        wr_id: u64,
        slices: &'a [InlineSlice<'a>],
        ah: &'a AddressHandle,
        remote_qpn: u32,
        remote_qkey: u32,
        imm_data: u32,
    ) -> Self {
        let request = Self::new_inline(wr_id, slices, Opcode::IBV_WR_SEND_WITH_IMM);
        request.with_destination(ah, remote_qpn, remote_qkey).with_imm(imm_data)
    }

    /// Sets the destination.
    #[inline]
    pub fn set_destination(&mut self, ah: &'a AddressHandle, remote_qpn: u32, remote_qkey: u32) {
        let raw = self.wr.get_mut().as_mut_ptr();
        // SAFETY: `raw` points to memory for the structure.
        unsafe {
            (&raw mut (*raw).wr.ud.ah).write(ah.as_raw());
            (&raw mut (*raw).wr.ud.remote_qpn).write(remote_qpn);
            (&raw mut (*raw).wr.ud.remote_qkey).write(remote_qkey);
        }
    }

    #[inline]
    fn with_destination(mut self, ah: &'a AddressHandle, remote_qpn: u32, remote_qkey: u32) -> Self {
        self.set_destination(ah, remote_qpn, remote_qkey);
        self
    }
}
