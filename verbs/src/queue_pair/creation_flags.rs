//! [`QueuePairCreationFlags`]: what a queue pair is made to do that others do not.
#![allow(unsafe_code, reason = "a function is unsafe to call")]

use crate::ffi::ibv_qp_create_flags as F;
use crate::queue_pair::QueuePairBuilder;
use crate::transport::{Transport, Ud};

bitflags::bitflags! {
    /// `enum ibv_qp_create_flags`: what a queue pair does with what it sends or receives, if the device can.
    ///
    /// Those of [`QueuePair`](crate::QueuePair) are asked for by the methods of its builder, those of
    /// [`RawPacketQueuePair`](crate::RawPacketQueuePair) when it is made.
    ///
    /// # References
    ///
    /// [ibv_create_qp_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html)
    #[doc(alias = "ibv_qp_create_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct QueuePairCreationFlags: u32 {
        /// Does not receive what it sends to a multicast group that it is in.
        const BLOCK_SELF_MULTICAST_LOOPBACK = F::IBV_QP_CREATE_BLOCK_SELF_MCAST_LB.0;
        /// Raw packets: writes the frame check sequence too.
        const SCATTER_FCS = F::IBV_QP_CREATE_SCATTER_FCS.0;
        /// Raw packets: takes off the customer's VLAN tag.
        const CVLAN_STRIPPING = F::IBV_QP_CREATE_CVLAN_STRIPPING.0;
        /// Pads what it writes to whole cache lines.
        const PCI_WRITE_END_PADDING = F::IBV_QP_CREATE_PCI_WRITE_END_PADDING.0;
    }
}

impl<T: Transport> QueuePairBuilder<T> {
    /// `ibv_create_qp_ex`: the device is to pad the end of what each packet writes to memory to a whole cache line, which spares some hosts
    /// to read the line first. Default: no. Where the device cannot, [`build`](Self::build) says
    /// [`Unsupported`](crate::Error::Unsupported).
    ///
    /// # Safety
    ///
    /// Nobody says what the padding is, nor that it ends with the memory that was posted or registered. So each range that the device writes
    /// to through the queue pair, for receives, for peers and for what was read from them, ends with a cache line, or is followed by bytes
    /// that nobody uses.
    ///
    /// # References
    ///
    /// [ibv_create_qp_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html)
    #[doc(alias = "IBV_QP_CREATE_PCI_WRITE_END_PADDING")]
    pub unsafe fn pci_write_end_padding(mut self) -> Self {
        self.flags |= QueuePairCreationFlags::PCI_WRITE_END_PADDING;
        self
    }
}

impl QueuePairBuilder<Ud> {
    /// `ibv_create_qp_ex`: the queue pair is not to receive what it sends itself to a multicast group that it is in. Default: it does. Few
    /// devices can; where this one cannot, [`build`](Self::build) says [`Unsupported`](crate::Error::Unsupported).
    ///
    /// ```no_run
    /// # fn example(pd: &verbs::ProtectionDomain, cq: &verbs::CompletionQueue) -> verbs::Result<()> {
    /// use verbs::{Error, QueuePair, Ud};
    ///
    /// let (qp, hears_itself) = match QueuePair::<Ud>::builder(pd, cq, cq).block_self_multicast_loopback().build() {
    ///     Ok(qp) => (qp, false),
    ///     Err(Error::Unsupported { .. }) => (QueuePair::builder(pd, cq, cq).build()?, true),
    ///     Err(error) => return Err(error),
    /// };
    /// # Ok(()) }
    /// ```
    ///
    /// One that is connected is in no group:
    ///
    /// ```compile_fail,E0599
    /// # fn example(pd: &verbs::ProtectionDomain, cq: &verbs::CompletionQueue) -> verbs::Result<()> {
    /// let qp = verbs::QueuePair::<verbs::Rc>::builder(pd, cq, cq).block_self_multicast_loopback().build()?;
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    ///
    /// [ibv_create_qp_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html)
    #[doc(alias = "IBV_QP_CREATE_BLOCK_SELF_MCAST_LB")]
    pub fn block_self_multicast_loopback(mut self) -> Self {
        self.flags |= QueuePairCreationFlags::BLOCK_SELF_MULTICAST_LOOPBACK;
        self
    }
}
