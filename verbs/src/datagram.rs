//! [`Datagram`]: what a UD queue pair received.

use std::fmt;
use std::ops::Range;

use crate::buffer::Buffer;
use crate::error::Result;
use crate::ffi;
use crate::grh::Grh;
use crate::memory_region::MemoryRegion;
use crate::work_completion::Success;

/// A datagram that a UD queue pair received: who sent it, and where in the receive its payload is. Made by
/// [`Success::datagram`].
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
pub struct Datagram<'a>(&'a ffi::ibv_wc);

impl<'a> Success<'a> {
    /// The completion as that of a receive of a UD queue pair, for which alone the fields of a [`Datagram`] are defined; whether
    /// the queue pair is one is for the program to know. `None`: it is no receive, or one of too few bytes to be a datagram.
    #[inline]
    pub fn datagram(&self) -> Option<Datagram<'a>> {
        let length = self.byte_len()? as usize;
        (self.opcode().is_receive() && length >= Grh::LEN).then_some(Datagram(self.as_raw()))
    }
}

impl Datagram<'_> {
    /// The number of the queue pair that sent it, 24 bits.
    #[doc(alias = "src_qp")]
    #[inline]
    pub fn source_qp_num(&self) -> u32 {
        self.0.src_qp
    }

    /// Whether the 40 bytes before the payload hold a header: always on RoCE.
    #[doc(alias = "IBV_WC_GRH")]
    #[inline]
    pub fn has_grh(&self) -> bool {
        self.0.wc_flags & ffi::ibv_wc_flags::IBV_WC_GRH.0 != 0
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
        // `Success::datagram` has looked.
        self.0.byte_len as usize - Grh::LEN
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
        self.0.slid
    }

    /// The service level that it came with.
    #[doc(alias = "sl")]
    pub fn service_level(&self) -> u8 {
        self.0.sl
    }

    /// The lower bits of the local LID that it was sent to (LMC).
    #[doc(alias = "dlid_path_bits")]
    pub fn destination_path_bits(&self) -> u8 {
        self.0.dlid_path_bits
    }

    /// The index of its partition key in the port's table; for queue pair 1.
    pub fn pkey_index(&self) -> u16 {
        self.0.pkey_index
    }

    pub(crate) fn as_raw(&self) -> &ffi::ibv_wc {
        self.0
    }
}

impl fmt::Display for Datagram<'_> {
    /// Such as `24 bytes from queue pair 0x11`, with the sender's LID where there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes from queue pair {:#x}", self.payload_len(), self.source_qp_num())?;
        match self.source_lid() {
            0 => Ok(()),
            lid => write!(f, " at LID {lid:#x}"),
        }
    }
}

impl fmt::Debug for Datagram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datagram")
            .field("source_qp_num", &format_args!("{:#x}", self.source_qp_num()))
            .field("has_grh", &self.has_grh())
            .field("payload_len", &self.payload_len())
            .field("source_lid", &self.source_lid())
            .finish()
    }
}
