//! [`QueuePair`] from what C made.
//!
//! # Safety
//!
//! The caller says that the queue pair is alive, and until when.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use crate::completion_queue::CompletionQueue;
use crate::error::{Error, Result};
use crate::ffi;
use crate::ffi::ibv_qp_attr_mask as M;
use crate::lender::Lender;
use crate::protection_domain::ProtectionDomain;
use crate::queue_pair::{Datagrams, QueuePair, QueuePairBuilder};
use crate::returns::zero_or_errno;
use crate::shared_receive_queue::SharedReceiveQueue;
use crate::transport::Transport;

/// The verb that would have made the queue pair.
const VERB: &str = "ibv_create_qp";

impl<T: Transport> QueuePair<T> {
    /// Takes over a queue pair that was made by other means, such as a provider's own call. Dropping the handle destroys it.
    ///
    /// What the builder of this crate could have been told is taken from the queue pair. It has no
    /// [extended interface](Self::extended).
    ///
    /// # Safety
    ///
    /// * `qp` is alive, and nobody else destroys it.
    /// * Memory that requests name which were posted by other means stays valid until they have completed, or the queue pair is gone.
    /// * Multicast groups that it was attached to by other means are left before the handle is dropped.
    /// * If it was made for one thread only, no two threads use it at the same time.
    ///
    /// # Errors
    ///
    /// The queue pair then still belongs to the caller.
    ///
    /// * [`Error::InvalidArgument`]: it is of another transport, or was made with another domain or other queues.
    /// * The error of `ibv_query_qp`, or for UD of `ibv_query_port`.
    pub unsafe fn from_raw(
        qp: NonNull<ffi::ibv_qp>,
        pd: &ProtectionDomain,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        srq: Option<&SharedReceiveQueue>,
    ) -> Result<Self> {
        // SAFETY: as the caller says.
        unsafe { Self::foreign(qp, pd, send_cq, recv_cq, srq) }
    }

    /// A handle to a queue pair that belongs to another library, such as one made by `rdma_create_qp`. It is never destroyed by this
    /// crate.
    ///
    /// `lender` is dropped when the handle is, and may then have the queue pair destroyed. The domain and the queues are let go after
    /// that, which may have them destroyed too.
    ///
    /// # Safety
    ///
    /// * `qp` is alive as long as `lender` lives.
    /// * Memory that requests name which were posted by other means stays valid until they have completed, or the queue pair is gone.
    /// * If it was made for one thread only, no two threads use it at the same time.
    ///
    /// # Errors
    ///
    /// As those of [`from_raw`](Self::from_raw). `lender` is then dropped.
    pub unsafe fn lent(
        qp: NonNull<ffi::ibv_qp>,
        pd: &ProtectionDomain,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        srq: Option<&SharedReceiveQueue>,
        lender: impl Send + Sync + 'static,
    ) -> Result<Self> {
        // SAFETY: as the caller says.
        let mut queue_pair = unsafe { Self::foreign(qp, pd, send_cq, recv_cq, srq) }?;
        queue_pair.lender = Some(Lender::new(lender));
        Ok(queue_pair)
    }

    /// # Safety
    ///
    /// The queue pair is alive. Nobody else destroys it, or it gets a lender.
    unsafe fn foreign(
        qp: NonNull<ffi::ibv_qp>,
        pd: &ProtectionDomain,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        srq: Option<&SharedReceiveQueue>,
    ) -> Result<Self> {
        let raw_srq = srq.map_or(ptr::null_mut(), SharedReceiveQueue::as_raw);
        // SAFETY: the queue pair is alive, and these fields do not change.
        let (qp_type, made_of) = unsafe {
            let qp = qp.as_ref();
            let made_of = [
                ("pd", qp.pd == pd.as_raw()),
                ("send_cq", qp.send_cq == send_cq.as_raw()),
                ("recv_cq", qp.recv_cq == recv_cq.as_raw()),
                ("srq", qp.srq == raw_srq),
            ];
            (qp.qp_type, made_of)
        };
        if qp_type != T::TYPE {
            return Err(Error::invalid(VERB, "qp_type", qp_type.0, format!("{} is {}", T::NAME, T::TYPE.0)));
        }
        if let Some((argument, _)) = made_of.into_iter().find(|(_, same)| !same) {
            let rule = "a queue pair keeps the domain and the queues that it was made with";
            return Err(Error::invalid(VERB, argument, "another one", rule));
        }
        let (mut attributes, mut initial) = (MaybeUninit::zeroed(), MaybeUninit::<ffi::ibv_qp_init_attr>::zeroed());
        let mask = (M::IBV_QP_CAP.0 | M::IBV_QP_STATE.0 | M::IBV_QP_PORT.0) as i32;
        // SAFETY: the queue pair is alive, and both structures have room for what is written.
        let code = unsafe { ffi::ibv_query_qp(qp.as_ptr(), attributes.as_mut_ptr(), mask, initial.as_mut_ptr()) };
        zero_or_errno(code).map_err(|errno| errno.of("ibv_query_qp", pd.context().device().name()))?;
        // SAFETY: all zeroes are valid structures, and libibverbs wrote valid fields over them.
        let (attributes, cap): (ffi::ibv_qp_attr, _) = unsafe { (attributes.assume_init(), initial.assume_init().cap) };
        let mut builder = QueuePairBuilder::new(pd, send_cq, recv_cq);
        if let Some(srq) = srq {
            builder = builder.shared_receive_queue(srq);
        }
        // Before the handle is made, which would destroy the queue pair.
        let datagrams = match attributes.qp_state {
            ffi::ibv_qp_state::IBV_QPS_RESET => None,
            _ if !T::DATAGRAM => None,
            _ => Some(Datagrams::through(pd.context(), attributes.port_num)?),
        };
        let queue_pair = builder.finish(qp, cap, None);
        if let Some(datagrams) = datagrams {
            queue_pair.datagrams.set(datagrams);
        }
        Ok(queue_pair)
    }
}
