//! [`Datagram`]: what a UD queue pair received, and [`ReceivedDatagram`], which asks an extended queue for it.
//!
//! # Safety
//!
//! A [`ReceivedDatagram`] is read as the tuple of fields that it stands for.
#![allow(unsafe_code)]

use std::ops::Range;
use std::{fmt, mem};

use crate::buffer::Buffer;
use crate::completion_fields::completion_field::{
    ByteLen, DestinationPathBits, HasGrh, Opcode, ServiceLevel, SourceLid, SourceQueuePair,
};
use crate::completion_fields::sealed::{Field, Fields};
use crate::error::Result;
use crate::ffi;
use crate::grh::Grh;
use crate::memory_region::MemoryRegion;
use crate::work_completion::Success;

/// A datagram that a UD queue pair received: who sent it, and where in the receive its payload is. Made by
/// [`Success::datagram`], and by an extended queue that has [`ReceivedDatagram`] among its fields.
///
/// The payload comes after the 40 bytes that are reserved for a [`Grh`], whether or not there is one. Nothing is borrowed: what has
/// arrived is copied out of the region.
///
/// # Examples
///
/// An answer to whoever sent the datagram of a receive into `slot`, a range of the region:
///
/// ```no_run
/// # use verbs::*;
/// # fn example(qp: &QueuePair<Ud>, completion: &WorkCompletion, region: &MemoryRegion<Vec<u8>>, qkey: u32) -> verbs::Result<()> {
/// # let slot = 0..1064;
/// let datagram = completion.success()?.datagram().expect("a receive of a UD queue pair");
/// let message = region.to_vec(datagram.payload_at(slot.start))?;
/// let grh = datagram.grh(region, slot.start)?;
/// let ah = qp.protection_domain().create_address_handle_from_completion(1, &datagram, grh.as_ref())?;
/// let answer = [InlineSlice::new(b"got it")];
/// qp.post_send(&SendRequest::send_to_inline(7, &answer, &ah, datagram.source_qp_num(), qkey).signaled())?;
/// # Ok(()) }
/// ```
///
/// # References
///
/// [ibv_poll_cq(3)](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html); InfiniBand Architecture Specification, volume 1,
/// chapter 11.4.2.1.
#[derive(Clone, Copy)]
pub struct Datagram {
    byte_len: u32,
    src_qp: u32,
    slid: u16,
    pkey_index: u16,
    has_grh: bool,
    sl: u8,
    dlid_path_bits: u8,
}

impl Success<'_> {
    /// The completion as that of a receive of a UD queue pair, for which alone the fields of a [`Datagram`] are defined; whether
    /// the queue pair is one is for the program to know. `None`: it is no receive, or one of too few bytes to be a datagram.
    #[inline]
    pub fn datagram(&self) -> Option<Datagram> {
        let length = self.byte_len()? as usize;
        let ffi::ibv_wc { byte_len, src_qp, slid, pkey_index, wc_flags, sl, dlid_path_bits, .. } = *self.as_raw();
        let has_grh = wc_flags & ffi::ibv_wc_flags::IBV_WC_GRH.0 != 0;
        let datagram = Datagram { byte_len, src_qp, slid, pkey_index, has_grh, sl, dlid_path_bits };
        (self.opcode().is_receive() && length >= Grh::LEN).then_some(datagram)
    }
}

/// The [`Datagram`] of a completion of a UD queue pair on an [`ExtendedCompletionQueue`](crate::ExtendedCompletionQueue); `None`: it is no
/// receive, or one of too few bytes to be a datagram. Its [`pkey_index`](Datagram::pkey_index) is 0: such queues do not tell it.
#[derive(Clone, Copy, Debug)]
pub enum ReceivedDatagram {}

type Parts = (Opcode, ByteLen, SourceQueuePair, HasGrh, SourceLid, ServiceLevel, DestinationPathBits);

// SAFETY: as the tuple's fields.
unsafe impl Field for ReceivedDatagram {
    type Value = Option<Datagram>;
    const FLAGS: u64 = Parts::FLAGS;

    fn is_readable(cq: &ffi::ibv_cq_ex) -> bool {
        Parts::are_readable(cq)
    }

    #[inline]
    unsafe fn read(cq: *mut ffi::ibv_cq_ex) -> Option<Datagram> {
        // SAFETY: as the caller says.
        let (opcode, byte_len, src_qp, has_grh, slid, sl, dlid_path_bits) = unsafe { Parts::read(cq) };
        // A LID has 16 bits, and C's plain completion keeps no more.
        let slid = slid as u16;
        (opcode.is_receive() && byte_len as usize >= Grh::LEN).then_some(Datagram {
            byte_len,
            src_qp,
            slid,
            pkey_index: 0,
            has_grh,
            sl,
            dlid_path_bits,
        })
    }
}

impl Datagram {
    /// The number of the queue pair that sent it, 24 bits.
    #[doc(alias = "src_qp")]
    #[inline]
    pub fn source_qp_num(&self) -> u32 {
        self.src_qp
    }

    /// Whether the 40 bytes before the payload hold a header: always on RoCE.
    #[doc(alias = "IBV_WC_GRH")]
    #[inline]
    pub fn has_grh(&self) -> bool {
        self.has_grh
    }

    /// The header in front of the payload, copied out of `region`; `offset` is where in the region the receive begins. `None`: there
    /// is none.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`](crate::Error::OutOfRange): no 40 bytes of the region begin at `offset`.
    pub fn grh<B: Buffer<Element = u8>>(&self, region: &MemoryRegion<B>, offset: usize) -> Result<Option<Grh>> {
        if !self.has_grh() {
            return Ok(None);
        }
        let mut bytes = [0; Grh::LEN];
        region.read_at(offset, &mut bytes)?;
        Ok(Some(Grh::from_bytes(bytes)))
    }

    /// How many bytes the payload has.
    #[inline]
    pub fn payload_len(&self) -> usize {
        // Whoever made it has looked.
        self.byte_len as usize - Grh::LEN
    }

    /// Where the payload is, if the receive begins at `offset` and is of one piece.
    #[inline]
    pub fn payload_at(&self, offset: usize) -> Range<usize> {
        let start = offset.saturating_add(Grh::LEN);
        start..start.saturating_add(self.payload_len())
    }

    /// The LID of the sender's port; 0 on RoCE.
    #[doc(alias = "slid")]
    pub fn source_lid(&self) -> u16 {
        self.slid
    }

    /// The service level that it came with.
    #[doc(alias = "sl")]
    pub fn service_level(&self) -> u8 {
        self.sl
    }

    /// The lower bits of the local LID that it was sent to (LMC).
    #[doc(alias = "dlid_path_bits")]
    pub fn destination_path_bits(&self) -> u8 {
        self.dlid_path_bits
    }

    /// The index of its partition key in the port's table; for queue pair 1.
    pub fn pkey_index(&self) -> u16 {
        self.pkey_index
    }

    /// What libibverbs looks at to find the sender.
    pub(crate) fn to_raw(self) -> ffi::ibv_wc {
        // SAFETY: all zeroes are a valid structure.
        let mut wc: ffi::ibv_wc = unsafe { mem::zeroed() };
        wc.opcode = ffi::ibv_wc_opcode::IBV_WC_RECV;
        wc.wc_flags = if self.has_grh { ffi::ibv_wc_flags::IBV_WC_GRH.0 } else { 0 };
        let Self { byte_len, src_qp, slid, pkey_index, sl, dlid_path_bits, .. } = self;
        (wc.byte_len, wc.src_qp, wc.slid, wc.pkey_index) = (byte_len, src_qp, slid, pkey_index);
        (wc.sl, wc.dlid_path_bits) = (sl, dlid_path_bits);
        wc
    }
}

impl fmt::Display for Datagram {
    /// Such as `24 bytes from queue pair 0x11`, with the sender's LID where there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes from queue pair {:#x}", self.payload_len(), self.source_qp_num())?;
        match self.source_lid() {
            0 => Ok(()),
            lid => write!(f, " at LID {lid:#x}"),
        }
    }
}

impl fmt::Debug for Datagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datagram")
            .field("source_qp_num", &format_args!("{:#x}", self.source_qp_num()))
            .field("has_grh", &self.has_grh())
            .field("payload_len", &self.payload_len())
            .field("source_lid", &self.source_lid())
            .finish()
    }
}
