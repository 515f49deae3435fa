//! [`Transport`]: the service type of a queue pair, as a type.

use crate::ffi;

mod sealed {
    pub trait Sealed {}
}

/// The transport service of a queue pair. An operation that a transport does not have does not compile.
pub trait Transport: sealed::Sealed + 'static {
    /// The name by which the specification knows it.
    const NAME: &'static str;

    /// The type in libibverbs' terms.
    const TYPE: ffi::ibv_qp_type;
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
}
