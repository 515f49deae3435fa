//! [`Transport`]: the service type of a queue pair, as a type.

use crate::ffi;
use crate::ffi::ibv_qp_create_send_ops_flags as Ops;

mod sealed {
    pub trait Sealed {}
}

/// The transport service of a queue pair. An operation that a transport does not have does not compile.
pub trait Transport: sealed::Sealed + 'static {
    /// The name by which the specification knows it.
    const NAME: &'static str;

    /// The type in libibverbs' terms.
    const TYPE: ffi::ibv_qp_type;

    /// The operations of its send queue, for the extended interface.
    #[doc(hidden)]
    const SEND_OPERATIONS: u64;
}

/// Reliable connection (RC): two queue pairs, each message delivered once and in order, with RDMA and atomics.
///
/// # References
///
/// InfiniBand Architecture Specification, volume 1, chapter 9.7.
#[doc(alias = "IBV_QPT_RC")]
#[derive(Clone, Copy, Debug)]
pub enum Rc {}

impl sealed::Sealed for Rc {}

impl Transport for Rc {
    const NAME: &'static str = "RC";
    const TYPE: ffi::ibv_qp_type = ffi::ibv_qp_type::IBV_QPT_RC;
    const SEND_OPERATIONS: u64 = {
        let connected = Ops::IBV_QP_EX_WITH_SEND.0
            | Ops::IBV_QP_EX_WITH_SEND_WITH_IMM.0
            | Ops::IBV_QP_EX_WITH_RDMA_WRITE.0
            | Ops::IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM.0;
        let reliable = Ops::IBV_QP_EX_WITH_RDMA_READ.0
            | Ops::IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP.0
            | Ops::IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD.0;
        (connected | reliable) as u64
    };
}
