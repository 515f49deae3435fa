//! [`QueuePairState`].

use crate::ffi::ibv_qp_state as S;
use crate::open_enum::open_enum;

open_enum! {
    /// `enum ibv_qp_state`: what a queue pair can do at present.
    ///
    /// # References
    ///
    /// InfiniBand Architecture Specification, volume 1, chapter 10.3.1.
    #[doc(alias = "ibv_qp_state")]
    QueuePairState(u32) {
        /// New: nothing can be posted.
        RESET = S::IBV_QPS_RESET.0, "RESET";
        /// Receives can be posted; nothing arrives yet.
        INIT = S::IBV_QPS_INIT.0, "INIT";
        /// Messages arrive.
        READY_TO_RECEIVE = S::IBV_QPS_RTR.0, "RTR (ready to receive)";
        /// Messages arrive and can be sent.
        READY_TO_SEND = S::IBV_QPS_RTS.0, "RTS (ready to send)";
        /// The send queue finishes what has begun and begins nothing new.
        SEND_QUEUE_DRAIN = S::IBV_QPS_SQD.0, "SQD (send queue drain)";
        /// A send failed on a transport other than RC; messages still arrive.
        SEND_QUEUE_ERROR = S::IBV_QPS_SQE.0, "SQE (send queue error)";
        /// A request failed; all others are flushed.
        ERROR = S::IBV_QPS_ERR.0, "ERROR";
        /// Not told.
        UNKNOWN = S::IBV_QPS_UNKNOWN.0, "unknown to the provider";
    }
}
