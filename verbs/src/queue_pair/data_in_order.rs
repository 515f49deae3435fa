//! [`DataOrder`]: whether the last byte of a message comes last.
//!
//! # Safety
//!
//! The queue pair is alive.
#![allow(unsafe_code)]

use std::fmt;

use crate::ffi;
use crate::ffi::ibv_wr_opcode as Opcode;
use crate::queue_pair::QueuePair;
use crate::transport::Transport;

bitflags::bitflags! {
    /// `enum ibv_query_qp_data_in_order_caps`: in which order a device writes the data of one message. (`verbs.h` names these from release
    /// 46 of rdma-core on; before, only the whole message is told of.)
    #[doc(alias = "ibv_query_qp_data_in_order_caps")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct DataOrder: u32 {
        /// The whole message is written from its first byte to its last.
        #[doc(alias = "IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG")]
        const WHOLE_MESSAGE = 1;
        /// Each block of 128 bytes, at a multiple of 128, is written from its first byte to its last.
        #[doc(alias = "IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES")]
        const ALIGNED_128_BYTES = 1 << 1;
    }
}

/// The operations whose order can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OrderedOperation {
    /// SENDs of the peer, which arrive here.
    Send,
    /// RDMA WRITEs of the peer, which arrive here.
    RdmaWrite,
    /// RDMA READs of this queue pair, whose data arrives here.
    RdmaRead,
}

impl fmt::Display for OrderedOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Send => "SEND",
            Self::RdmaWrite => "RDMA WRITE",
            Self::RdmaRead => "RDMA READ",
        })
    }
}

impl<T: Transport> QueuePair<T> {
    /// `ibv_query_qp_data_in_order`: in which order the data of one message arrives, of those of this kind. With
    /// [`DataOrder::WHOLE_MESSAGE`], a program may poll the last byte of a message, and need not wait for a completion. (Not where the region
    /// has [`RELAXED_ORDERING`](crate::AccessFlags::RELAXED_ORDERING).) Of the order of messages it says nothing.
    ///
    /// A provider that does not know promises nothing: rxe, for example.
    ///
    /// # References
    ///
    /// [ibv_query_qp_data_in_order(3)](https://man7.org/linux/man-pages/man3/ibv_query_qp_data_in_order.3.html)
    #[doc(alias = "ibv_query_qp_data_in_order")]
    pub fn data_order(&self, operation: OrderedOperation) -> DataOrder {
        let opcode = match operation {
            OrderedOperation::Send => Opcode::IBV_WR_SEND,
            OrderedOperation::RdmaWrite => Opcode::IBV_WR_RDMA_WRITE,
            OrderedOperation::RdmaRead => Opcode::IBV_WR_RDMA_READ,
        };
        // SAFETY: the queue pair is alive.
        let ask = |flags| unsafe { ffi::ibv_query_qp_data_in_order(self.as_raw(), opcode, flags) };
        // An older library than the header knows no flags, and then promises nothing.
        #[cfg(rdma_core_46)]
        if let Ok(bits @ 1..) =
            u32::try_from(ask(ffi::ibv_query_qp_data_in_order_flags::IBV_QUERY_QP_DATA_IN_ORDER_RETURN_CAPS.0))
        {
            return DataOrder::from_bits_retain(bits);
        }
        if ask(0) > 0 { DataOrder::WHOLE_MESSAGE } else { DataOrder::empty() }
    }
}

#[cfg(all(test, rdma_core_46))]
mod tests {
    use super::*;
    use crate::ffi::ibv_query_qp_data_in_order_caps as C;

    #[test]
    fn the_bits_are_those_of_the_header() {
        assert_eq!(DataOrder::WHOLE_MESSAGE.bits(), C::IBV_QUERY_QP_DATA_IN_ORDER_WHOLE_MSG.0);
        assert_eq!(DataOrder::ALIGNED_128_BYTES.bits(), C::IBV_QUERY_QP_DATA_IN_ORDER_ALIGNED_128_BYTES.0);
    }
}
