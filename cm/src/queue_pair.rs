//! The transitions of a queue pair whose connection librdmacm makes.
//!
//! # Safety
//!
//! As in `id.rs`. `ibv_qp_attr` is made of integers, and all zeroes are a valid one.
#![allow(unsafe_code)]

use std::mem;

use verbs::{AccessFlags, Connected, LinkLayer, QueuePair, QueuePairModification, QueuePairState, RnrTimer, Ud};

use crate::error::{Error, Result};
use crate::ffi;
use crate::id::Id;

/// Bits of the mask that old kernels set, to hand RoCE's Ethernet addresses (`IBV_QP_SMAC` and the like, which libibverbs does not have any
/// more) to the driver, for InfiniBand as well, where drivers refuse them.
const OLD_ROCE_BITS: u32 = 0xe0_0000;

/// What a transition to RTR or RTS sets other than librdmacm would.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TransitionOptions {
    /// What the peer may do through the queue pair; `None`: RDMA WRITE, and RDMA READ and atomics if the depths are not 0.
    pub access: Option<AccessFlags>,
    /// How long the peer waits before it sends a message again for which there was no receive; `None`: 655 ms.
    pub min_rnr_timer: Option<RnrTimer>,
    /// How many RDMA READs and atomics of the peer the queue pair answers at once; `None`: what the two ends agreed on. Give it when
    /// accepting: librdmacm does not know it yet.
    pub responder_resources: Option<u8>,
    /// How many RDMA READs and atomics the queue pair has under way at once; `None` as above.
    pub initiator_depth: Option<u8>,
}

impl Id {
    /// `rdma_init_qp_attr`: what [`QueuePair::modify`] has to set to bring the id's queue pair into `state`: INIT once an address is
    /// resolved or a request has come, RTR and RTS once the peer is known.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the id is not that far, or `state` is another one.
    ///
    /// # References
    ///
    /// [rdma_init_qp_attr(3)](https://man7.org/linux/man-pages/man3/rdma_init_qp_attr.3.html)
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn queue_pair_modification(&self, state: QueuePairState) -> Result<QueuePairModification> {
        let (attributes, mask) = self.transition(state)?;
        Ok(QueuePairModification::from_raw(&attributes, mask))
    }

    fn transition(&self, state: QueuePairState) -> Result<(verbs::ffi::ibv_qp_attr, u32)> {
        // SAFETY: all zeroes are a valid structure.
        let mut attributes: verbs::ffi::ibv_qp_attr = unsafe { mem::zeroed() };
        attributes.qp_state = verbs::ffi::ibv_qp_state(state.as_raw());
        let mut mask = 0;
        self.raw()
            // SAFETY: the id is alive, and what is written outlives the call.
            .call(|id| unsafe { ffi::rdma_init_qp_attr(id, &mut attributes, &mut mask) })
            .map_err(|errno| errno.of("rdma_init_qp_attr", format_args!("{self:?}, {state}")))?;
        Ok((attributes, mask as u32))
    }

    /// Moves a queue pair to INIT: from then on, receives can be posted. Post them before connecting or accepting.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: the queue pair is of another [context](Self::context).
    /// * As those of [`queue_pair_modification`](Self::queue_pair_modification) and of [`QueuePair::modify`].
    pub fn init_queue_pair<T: Connected>(&self, qp: &QueuePair<T>) -> Result<()> {
        self.check_context("rdma_init_qp_attr", qp)?;
        Ok(qp.modify(&self.queue_pair_modification(QueuePairState::INIT)?)?)
    }

    /// Moves a queue pair from INIT to RTR and RTS, with the values for the peer: before [`accept`](Self::accept), and between
    /// [`ConnectResponse`](crate::EventKind::ConnectResponse) and [`establish`](Self::establish).
    ///
    /// # Errors
    ///
    /// As those of [`init_queue_pair`](Self::init_queue_pair).
    pub fn connect_queue_pair<T: Connected>(&self, qp: &QueuePair<T>, options: &TransitionOptions) -> Result<()> {
        self.check_context("rdma_init_qp_attr", qp)?;
        // Once more, since the rights depend on what the two ends have agreed on.
        let mut init = self.queue_pair_modification(QueuePairState::INIT)?;
        if let Some(access) = options.access {
            init = init.access(access);
        }
        qp.modify(&init)?;

        let (attributes, mut mask) = self.transition(QueuePairState::READY_TO_RECEIVE)?;
        if self.context()?.port(self.port())?.link_layer() == LinkLayer::INFINIBAND {
            mask &= !OLD_ROCE_BITS;
        }
        let mut receive = QueuePairModification::from_raw(&attributes, mask);
        if let Some(timer) = options.min_rnr_timer {
            receive = receive.min_rnr_timer(timer);
        }
        if let Some(count) = options.responder_resources {
            receive = receive.max_dest_rd_atomic(count);
        }
        qp.modify(&receive)?;

        let mut send = self.queue_pair_modification(QueuePairState::READY_TO_SEND)?;
        if let Some(count) = options.initiator_depth {
            send = send.max_rd_atomic(count);
        }
        Ok(qp.modify(&send)?)
    }

    /// Moves a UD queue pair to INIT, RTR and RTS, with the port and the Q_Key of the id. Datagrams then arrive and can be sent.
    ///
    /// # Errors
    ///
    /// As those of [`init_queue_pair`](Self::init_queue_pair).
    pub fn activate_queue_pair(&self, qp: &QueuePair<Ud>) -> Result<()> {
        self.check_context("rdma_init_qp_attr", qp)?;
        qp.modify(&self.queue_pair_modification(QueuePairState::INIT)?)?;
        qp.modify(&QueuePairModification::to(QueuePairState::READY_TO_RECEIVE))?;
        Ok(qp.modify(&QueuePairModification::to(QueuePairState::READY_TO_SEND).sq_psn(0))?)
    }

    /// Refuses a queue pair that was made of another context: the kernel would say only `EINVAL`, if anything.
    pub(crate) fn check_context<T: verbs::Transport>(&self, call: &'static str, qp: &QueuePair<T>) -> Result<()> {
        let own = self.context()?;
        let context = qp.protection_domain().context();
        if own.as_raw() == context.as_raw() {
            return Ok(());
        }
        Err(Error::invalid(
            call,
            "the queue pair",
            format!("of another context of {}", context.device().name()),
            format!(
                "it has to be made of the id's context (Id::context), which librdmacm opened for {}",
                own.device().name()
            ),
        ))
    }
}
