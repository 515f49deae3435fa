//! Making a UD queue pair ready: RESET to INIT to RTR to RTS.

use crate::endpoint::LocalEndpoint;
use crate::error::Result;
use crate::queue_pair::{QueuePair, QueuePairModification, QueuePairState};
use crate::transport::Ud;

impl QueuePair<Ud> {
    /// `ibv_modify_qp` from RESET to INIT: from now on, receives can be posted. The partition key is the one at index 0; with another
    /// one, use [`modify`](Self::modify).
    ///
    /// `qkey` is what a datagram has to carry to be received. One with the highest bit set is for privileged programs. From now on, a
    /// datagram that is longer than the port's active MTU is refused when it is posted: no device would send it, and few would say so. (A
    /// later change of the MTU is seen with the next [`modify`](Self::modify).)
    ///
    /// # Errors
    ///
    /// * `EINVAL`: the queue pair is in another state, or the port does not exist.
    /// * Those of [`Context::port`](crate::Context::port): the MTU cannot be found out.
    /// * `EPERM`: the Q_Key is a privileged one.
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html); InfiniBand Architecture Specification,
    /// volume 1, chapters 10.2.5 and 10.3.1.
    #[doc(alias = "ibv_modify_qp")]
    pub fn init(&self, local: &LocalEndpoint, qkey: u32) -> Result<()> {
        self.modify(&QueuePairModification::to(QueuePairState::INIT).port(local.port).pkey_index(0).qkey(qkey))
    }

    /// `ibv_modify_qp` from INIT to RTR: from now on, datagrams arrive.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the queue pair is in another state.
    ///
    /// # References
    ///
    /// As those of [`init`](Self::init).
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_receive(&self) -> Result<()> {
        self.modify(&QueuePairModification::to(QueuePairState::READY_TO_RECEIVE))
    }

    /// `ibv_modify_qp` from RTR to RTS: from now on, datagrams can be sent.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): the first packet sequence number has more than 24 bits.
    /// * `EINVAL`: the queue pair is in another state.
    ///
    /// # References
    ///
    /// As those of [`init`](Self::init).
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_send(&self, local: &LocalEndpoint) -> Result<()> {
        self.modify(&QueuePairModification::to(QueuePairState::READY_TO_SEND).sq_psn(local.endpoint.psn))
    }

    /// Makes the three transitions of `ibv_modify_qp`, to INIT, RTR and RTS, after which datagrams arrive and can be sent. The first
    /// one is left out if it was made before, so that receives can be posted before anybody sends.
    ///
    /// # Errors
    ///
    /// As those of [`init`](Self::init), [`ready_to_receive`](Self::ready_to_receive) and
    /// [`ready_to_send`](Self::ready_to_send). A failed transition changes nothing; it can be made again with other values.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use verbs::{GidFilter, QueuePair, Ud};
    ///
    /// # fn main() -> verbs::Result<()> {
    /// let context = verbs::devices()?.find(None)?.open()?;
    /// let pd = context.create_protection_domain()?;
    /// let cq = context.create_completion_queue(64)?;
    /// let qp = QueuePair::<Ud>::builder(&pd, &cq, &cq).build()?;
    /// let local = qp.local_endpoint(1, &GidFilter::default())?;
    /// qp.activate(&local, 0x1111_1111)?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_modify_qp")]
    pub fn activate(&self, local: &LocalEndpoint, qkey: u32) -> Result<()> {
        if self.state()? != QueuePairState::INIT {
            self.init(local, qkey)?;
        }
        // Once more, since the first transition may have been made with another one.
        self.modify(&QueuePairModification::to(QueuePairState::READY_TO_RECEIVE).qkey(qkey))?;
        self.ready_to_send(local)
    }
}
