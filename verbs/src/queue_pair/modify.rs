//! `ibv_modify_qp`: from one state to another.
//!
//! # Safety
//!
//! `ibv_modify_qp` is given a queue pair that is alive and attributes that are all initialised.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::ffi;
use crate::ffi::ibv_qp_attr_mask as M;
use crate::port::Mtu;
use crate::queue_pair::datagrams::Datagrams;
use crate::queue_pair::{QueuePair, QueuePairModification, QueuePairState};
use crate::returns::zero_or_errno;
use crate::transport::Transport;

pub(super) const VERB: &str = "ibv_modify_qp";

impl<T: Transport> QueuePair<T> {
    /// `ibv_modify_qp`: changes the state, or attributes, or both.
    ///
    /// A modification that fails has changed nothing; it can be made again with other values.
    ///
    /// How long a message of UD may be, the active MTU of its port, is asked of the port each time, but for modifications to RESET and to
    /// ERROR. A later change is seen with the next modification, which may be one from RTS to RTS.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): a value does not fit its field, or the path MTU is above the port's
    ///   active one.
    /// * `EINVAL`: there is no such transition, an attribute is missing or does not belong to it, or a value is beyond the device's
    ///   limit. The kernel says only `EINVAL`; the message says what was found to be wrong.
    /// * `EPERM`: the Q_Key is a privileged one.
    /// * Those of [`Context::port`](crate::Context::port), for UD.
    /// * `ETIMEDOUT`: nobody answers at the remote GID.
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html); InfiniBand Architecture Specification,
    /// volume 1, chapter 11.2.4.2.
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&self, modification: &QueuePairModification) -> Result<()> {
        modification.check()?;
        self.check_path_mtu(modification)?;
        let datagrams = self.datagrams_after(modification)?;
        let mut attributes = *modification.attributes();
        // SAFETY: the queue pair is alive and `attributes` outlives the call.
        let code = unsafe { ffi::ibv_modify_qp(self.as_raw(), &mut attributes, modification.mask() as i32) };
        zero_or_errno(code).map_err(|errno| {
            let remedy = self.diagnose(errno, modification);
            match modification.target() {
                Some(state) => errno.with_remedy(VERB, format_args!("{self:?} to {state}"), remedy),
                None => errno.with_remedy(VERB, format_args!("{self:?}, {modification:?}"), remedy),
            }
        })?;
        if let Some(datagrams) = datagrams {
            self.datagrams.set(datagrams);
        }
        Ok(())
    }

    /// Not every device looks at the path MTU. With one that is above the port's, each message that is longer would get lost.
    fn check_path_mtu(&self, modification: &QueuePairModification) -> Result<()> {
        if !modification.has(M::IBV_QP_PATH_MTU) || !modification.has(M::IBV_QP_AV) {
            return Ok(());
        }
        let attributes = modification.attributes();
        let mtu = Mtu::from_raw(attributes.path_mtu.0);
        // What is wrong with the port is found out after the call.
        match self.protection_domain().context().port(attributes.ah_attr.port_num) {
            Ok(port) if mtu > port.active_mtu() => {
                Err(Error::invalid(VERB, "path_mtu", mtu, format!("the port's active MTU is {}", port.active_mtu())))
            }
            _ => Ok(()),
        }
    }

    /// UD: the port that a modification leads to, or leaves as it is, and how many bytes a message through it has at most. It is found out
    /// before the call, so that a modification that fails has changed nothing.
    fn datagrams_after(&self, modification: &QueuePairModification) -> Result<Option<(u8, u32)>> {
        if !T::DATAGRAM || matches!(modification.target(), Some(QueuePairState::RESET | QueuePairState::ERROR)) {
            return Ok(None);
        }
        let given = modification.has(M::IBV_QP_PORT).then(|| modification.attributes().port_num);
        match given.or(self.datagrams.port()) {
            Some(port) => Datagrams::through(self.protection_domain().context(), port).map(Some),
            None => Ok(None),
        }
    }

    /// `ibv_modify_qp` to RESET: forgets all requests and the connection; the queue pair can be connected again.
    ///
    /// # Errors
    ///
    /// `EIO` or `ENODEV`: the device is gone. Other numbers are the provider's.
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
    #[doc(alias = "ibv_modify_qp")]
    pub fn reset(&self) -> Result<()> {
        self.modify(&QueuePairModification::to(QueuePairState::RESET))
    }

    /// `ibv_modify_qp` to ERROR: every request that has not finished completes as
    /// [flushed](crate::WorkCompletionStatus::WORK_REQUEST_FLUSHED).
    ///
    /// # Errors
    ///
    /// `EINVAL`: the queue pair is in RESET.
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
    #[doc(alias = "ibv_modify_qp")]
    pub fn move_to_error(&self) -> Result<()> {
        self.modify(&QueuePairModification::to(QueuePairState::ERROR))
    }

    /// `ibv_modify_qp` from RTS to SQD: the send queue finishes what has begun, and keeps what is posted from now on until
    /// [`resume`](Self::resume). Attributes that must not change under way can then be changed.
    ///
    /// It does not wait: once [`QueuePairAttributes::is_draining`](crate::QueuePairAttributes::is_draining) says no, the queue is
    /// drained. An asynchronous event tells of it too, if the modification asks for
    /// [`notify_drained`](QueuePairModification::notify_drained).
    ///
    /// # Errors
    ///
    /// `EINVAL`: the queue pair is in another state.
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html); InfiniBand Architecture Specification,
    /// volume 1, chapter 10.3.1.5.
    #[doc(alias = "SQD")]
    pub fn drain(&self) -> Result<()> {
        self.modify(&QueuePairModification::to(QueuePairState::SEND_QUEUE_DRAIN))
    }

    /// `ibv_modify_qp` from SQD, or from SQE, to RTS: the send queue goes on.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the queue pair is in another state, or not drained yet.
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
    #[doc(alias = "ibv_modify_qp")]
    pub fn resume(&self) -> Result<()> {
        self.modify(&QueuePairModification::to(QueuePairState::READY_TO_SEND))
    }
}
