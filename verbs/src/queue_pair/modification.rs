//! [`QueuePairModification`]: what to change of a queue pair.
//!
//! # Safety
//!
//! `ibv_qp_attr` is made of integers, and all zeroes are a valid one; all of its fields are always initialised.
#![allow(unsafe_code)]

use std::fmt;

use crate::access_flags::AccessFlags;
use crate::address_handle_attributes::AddressHandleAttributes;
use crate::endpoint::MAX_24_BITS;
use crate::error::{Error, Result};
use crate::ffi;
use crate::ffi::ibv_qp_attr_mask as M;
use crate::port::Mtu;
use crate::queue_pair::modify::VERB;
use crate::queue_pair::transition::names;
use crate::queue_pair::{AlternatePath, PathMigrationState, QueuePairState};
use crate::timers::{AckTimeout, RnrTimer};

/// The attributes that [`QueuePair::modify`](crate::QueuePair::modify) is to change: `struct ibv_qp_attr` with its mask.
///
/// Which ones a transition must and may have depends on the transport. `connect` and `activate` of a queue pair make the usual
/// transitions; this is for the others.
///
/// | from, to | RC | UC | UD |
/// |---|---|---|---|
/// | RESET to INIT | `pkey_index`, `port`, `access` | the same | `pkey_index`, `port`, `qkey` |
/// | INIT to INIT | (`pkey_index`, `port`, `access`) | the same | (`pkey_index`, `port`, `qkey`) |
/// | INIT to RTR | `address`, `path_mtu`, `dest_qp_num`, `rq_psn`, `max_dest_rd_atomic`, `min_rnr_timer` (`alternate_path`, `access`, `pkey_index`) | `address`, `path_mtu`, `dest_qp_num`, `rq_psn` (`alternate_path`, `access`, `pkey_index`) | (`pkey_index`, `qkey`) |
/// | RTR to RTS | `sq_psn`, `ack_timeout`, `retry_count`, `rnr_retry_count`, `max_rd_atomic` (`current_state`, `alternate_path`, `access`, `min_rnr_timer`, `path_migration_state`) | `sq_psn` (`current_state`, `alternate_path`, `access`, `path_migration_state`) | `sq_psn` (`current_state`, `qkey`) |
/// | RTS to RTS, SQD to RTS | (`current_state`, `alternate_path`, `access`, `min_rnr_timer`, `path_migration_state`) | (the same without `min_rnr_timer`) | (`current_state`, `qkey`) |
/// | SQE to RTS | | (`current_state`, `access`) | (`current_state`, `qkey`) |
/// | RTS to SQD | (`notify_drained`) | the same | the same |
/// | SQD to SQD | (`port`, `address`, `pkey_index`, `access`, `alternate_path`, `path_migration_state`, all timers and counts) | (`address`, `pkey_index`, `access`, `alternate_path`, `path_migration_state`) | (`pkey_index`, `qkey`) |
/// | any to RESET; any but RESET to ERROR | | | |
///
/// What is in brackets may be there, the rest must.
///
/// # Examples
///
/// A receiver that gives its peer the right to write only after some time:
///
/// ```no_run
/// use verbs::{AccessFlags, QueuePair, QueuePairModification, Rc};
///
/// # fn example(qp: &QueuePair<Rc>) -> verbs::Result<()> {
/// qp.modify(&QueuePairModification::in_place().access(AccessFlags::REMOTE_WRITE))?;
/// # Ok(()) }
/// ```
///
/// # References
///
/// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html); InfiniBand Architecture Specification, volume 1,
/// chapter 11.2.5.2, table 91.
#[doc(alias = "ibv_qp_attr")]
#[doc(alias = "ibv_qp_attr_mask")]
#[derive(Clone, Copy)]
#[must_use = "a modification changes nothing before it is passed to `QueuePair::modify`"]
pub struct QueuePairModification {
    attributes: ffi::ibv_qp_attr,
    mask: u32,
}

impl QueuePairModification {
    /// A transition to another state, or to the same one.
    #[doc(alias = "IBV_QP_STATE")]
    pub fn to(state: QueuePairState) -> Self {
        let mut this = Self::in_place();
        this.attributes.qp_state = ffi::ibv_qp_state(state.as_raw());
        this.with(M::IBV_QP_STATE)
    }

    /// A change of attributes in whatever state the queue pair is.
    pub fn in_place() -> Self {
        // SAFETY: all zeroes are a valid structure.
        Self { attributes: unsafe { std::mem::zeroed() }, mask: 0 }
    }

    /// What another library has prepared, such as `rdma_init_qp_attr`. `mask` has bits of `IBV_QP_…`; a field whose bit is not set
    /// means nothing.
    pub fn from_raw(attributes: &ffi::ibv_qp_attr, mask: u32) -> Self {
        Self { attributes: *attributes, mask }
    }

    fn with(mut self, bit: M) -> Self {
        self.mask |= bit.0;
        self
    }

    /// The state that the queue pair is in, for a device that cannot tell RTR from RTS, or RTS from SQE.
    #[doc(alias = "IBV_QP_CUR_STATE")]
    pub fn current_state(mut self, state: QueuePairState) -> Self {
        self.attributes.cur_qp_state = ffi::ibv_qp_state(state.as_raw());
        self.with(M::IBV_QP_CUR_STATE)
    }

    /// What the peer may do through the queue pair.
    #[doc(alias = "IBV_QP_ACCESS_FLAGS")]
    pub fn access(mut self, access: AccessFlags) -> Self {
        self.attributes.qp_access_flags = access.bits();
        self.with(M::IBV_QP_ACCESS_FLAGS)
    }

    /// The index of the partition key in the port's table, from 0.
    #[doc(alias = "IBV_QP_PKEY_INDEX")]
    pub fn pkey_index(mut self, index: u16) -> Self {
        self.attributes.pkey_index = index;
        self.with(M::IBV_QP_PKEY_INDEX)
    }

    /// The port, from 1.
    #[doc(alias = "IBV_QP_PORT")]
    pub fn port(mut self, port: u8) -> Self {
        self.attributes.port_num = port;
        self.with(M::IBV_QP_PORT)
    }

    /// The Q_Key that a datagram has to carry to be received. One with the highest bit set is for privileged programs.
    #[doc(alias = "IBV_QP_QKEY")]
    pub fn qkey(mut self, qkey: u32) -> Self {
        self.attributes.qkey = qkey;
        self.with(M::IBV_QP_QKEY)
    }

    /// The path to the peer. Its port has to be named on RoCE too.
    #[doc(alias = "IBV_QP_AV")]
    pub fn address(mut self, address: &AddressHandleAttributes) -> Self {
        self.attributes.ah_attr = address.to_raw();
        self.with(M::IBV_QP_AV)
    }

    /// How many bytes of payload a packet carries at most.
    #[doc(alias = "IBV_QP_PATH_MTU")]
    pub fn path_mtu(mut self, mtu: Mtu) -> Self {
        self.attributes.path_mtu = ffi::ibv_mtu(mtu.as_raw());
        self.with(M::IBV_QP_PATH_MTU)
    }

    /// The number of the peer's queue pair, 24 bits.
    #[doc(alias = "IBV_QP_DEST_QPN")]
    pub fn dest_qp_num(mut self, qp_num: u32) -> Self {
        self.attributes.dest_qp_num = qp_num;
        self.with(M::IBV_QP_DEST_QPN)
    }

    /// The first packet sequence number that the peer sends, 24 bits.
    #[doc(alias = "IBV_QP_RQ_PSN")]
    pub fn rq_psn(mut self, psn: u32) -> Self {
        self.attributes.rq_psn = psn;
        self.with(M::IBV_QP_RQ_PSN)
    }

    /// The first packet sequence number to send, 24 bits.
    #[doc(alias = "IBV_QP_SQ_PSN")]
    pub fn sq_psn(mut self, psn: u32) -> Self {
        self.attributes.sq_psn = psn;
        self.with(M::IBV_QP_SQ_PSN)
    }

    /// How long to wait for an acknowledgement.
    #[doc(alias = "IBV_QP_TIMEOUT")]
    pub fn ack_timeout(mut self, timeout: AckTimeout) -> Self {
        self.attributes.timeout = timeout.code();
        self.with(M::IBV_QP_TIMEOUT)
    }

    /// How often to send again when no acknowledgement came, 0 to 7.
    #[doc(alias = "IBV_QP_RETRY_CNT")]
    pub fn retry_count(mut self, count: u8) -> Self {
        self.attributes.retry_cnt = count;
        self.with(M::IBV_QP_RETRY_CNT)
    }

    /// How often to send again to a peer that has no receive posted, 0 to 7; 7 means without end.
    #[doc(alias = "IBV_QP_RNR_RETRY")]
    pub fn rnr_retry_count(mut self, count: u8) -> Self {
        self.attributes.rnr_retry = count;
        self.with(M::IBV_QP_RNR_RETRY)
    }

    /// How long the peer has to wait before it sends again to us, when we have no receive posted.
    #[doc(alias = "IBV_QP_MIN_RNR_TIMER")]
    pub fn min_rnr_timer(mut self, timer: RnrTimer) -> Self {
        self.attributes.min_rnr_timer = timer.code();
        self.with(M::IBV_QP_MIN_RNR_TIMER)
    }

    /// How many RDMA READs and atomics to have under way.
    #[doc(alias = "IBV_QP_MAX_QP_RD_ATOMIC")]
    pub fn max_rd_atomic(mut self, count: u8) -> Self {
        self.attributes.max_rd_atomic = count;
        self.with(M::IBV_QP_MAX_QP_RD_ATOMIC)
    }

    /// How many RDMA READs and atomics of the peer to serve at once.
    #[doc(alias = "IBV_QP_MAX_DEST_RD_ATOMIC")]
    pub fn max_dest_rd_atomic(mut self, count: u8) -> Self {
        self.attributes.max_dest_rd_atomic = count;
        self.with(M::IBV_QP_MAX_DEST_RD_ATOMIC)
    }

    /// The path to migrate to when the first one fails.
    #[doc(alias = "IBV_QP_ALT_PATH")]
    pub fn alternate_path(mut self, path: &AlternatePath) -> Self {
        self.attributes.alt_ah_attr = path.address.to_raw();
        self.attributes.alt_port_num = path.address.port;
        self.attributes.alt_pkey_index = path.pkey_index;
        self.attributes.alt_timeout = path.ack_timeout.code();
        self.with(M::IBV_QP_ALT_PATH)
    }

    /// Whether the queue pair is to migrate.
    #[doc(alias = "IBV_QP_PATH_MIG_STATE")]
    pub fn path_migration_state(mut self, state: PathMigrationState) -> Self {
        self.attributes.path_mig_state = ffi::ibv_mig_state(state.as_raw());
        self.with(M::IBV_QP_PATH_MIG_STATE)
    }

    /// Whether an asynchronous event is to tell that the send queue is drained.
    #[doc(alias = "IBV_QP_EN_SQD_ASYNC_NOTIFY")]
    pub fn notify_drained(mut self, notify: bool) -> Self {
        self.attributes.en_sqd_async_notify = notify.into();
        self.with(M::IBV_QP_EN_SQD_ASYNC_NOTIFY)
    }

    pub(super) fn has(&self, bit: M) -> bool {
        self.mask & bit.0 != 0
    }

    /// The attributes that are named, as C has them.
    pub(super) fn mask(&self) -> u32 {
        self.mask
    }

    pub(super) fn attributes(&self) -> &ffi::ibv_qp_attr {
        &self.attributes
    }

    /// The state to go to; `None`: the same.
    pub(super) fn target(&self) -> Option<QueuePairState> {
        self.has(M::IBV_QP_STATE).then(|| QueuePairState::from_raw(self.attributes.qp_state.0))
    }

    /// Values that do not fit the fields of the wire. The device would cut some of them off.
    pub(super) fn check(&self) -> Result<()> {
        let attributes = &self.attributes;
        for (bit, argument, value) in [
            (M::IBV_QP_DEST_QPN, "dest_qp_num", attributes.dest_qp_num),
            (M::IBV_QP_RQ_PSN, "rq_psn", attributes.rq_psn),
            (M::IBV_QP_SQ_PSN, "sq_psn", attributes.sq_psn),
        ] {
            if self.has(bit) && value > MAX_24_BITS {
                return Err(Error::invalid(VERB, argument, format!("{value:#x}"), "it has 24 bits"));
            }
        }
        for (bit, argument, value) in [
            (M::IBV_QP_RETRY_CNT, "retry_cnt", attributes.retry_cnt),
            (M::IBV_QP_RNR_RETRY, "rnr_retry", attributes.rnr_retry),
        ] {
            if self.has(bit) && value > 7 {
                return Err(Error::invalid(VERB, argument, value, "it is 0 to 7"));
            }
        }
        let mtu = Mtu::from_raw(attributes.path_mtu.0);
        if self.has(M::IBV_QP_PATH_MTU) && mtu.bytes().is_none() {
            return Err(Error::invalid(VERB, "path_mtu", mtu, "an MTU is 256, 512, 1024, 2048 or 4096 bytes"));
        }
        for (bit, address) in [(M::IBV_QP_AV, &attributes.ah_attr), (M::IBV_QP_ALT_PATH, &attributes.alt_ah_attr)] {
            if self.has(bit) {
                AddressHandleAttributes::from_raw(address).check(VERB)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for QueuePairModification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.target() {
            Some(state) => write!(f, "QueuePairModification(to {state}, ")?,
            None => f.write_str("QueuePairModification(")?,
        }
        write!(f, "{})", names(self.mask))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_in_the_mask_and_nothing_else() {
        let modification = QueuePairModification::to(QueuePairState::INIT).port(2).pkey_index(3).qkey(0x1111_1111);
        assert_eq!(modification.mask(), (M::IBV_QP_STATE | M::IBV_QP_PORT | M::IBV_QP_PKEY_INDEX | M::IBV_QP_QKEY).0);
        let attributes = modification.attributes();
        assert_eq!((attributes.port_num, attributes.pkey_index, attributes.qkey), (2, 3, 0x1111_1111));
        assert_eq!(modification.target(), Some(QueuePairState::INIT));
        let text = format!("{modification:?}");
        assert!(text.starts_with("QueuePairModification(to INIT, ") && text.contains("IBV_QP_QKEY"), "{text}");
        assert_eq!(QueuePairModification::in_place().target(), None);
    }

    #[test]
    fn values_that_the_wire_has_no_room_for_are_refused() {
        let refused = |modification: QueuePairModification| modification.check().unwrap_err().to_string();
        let change = QueuePairModification::in_place;
        assert_eq!(refused(change().sq_psn(1 << 24)), "ibv_modify_qp: sq_psn is 0x1000000, but it has 24 bits");
        assert_eq!(refused(change().rq_psn(u32::MAX)), "ibv_modify_qp: rq_psn is 0xffffffff, but it has 24 bits");
        assert!(refused(change().dest_qp_num(1 << 24)).contains("dest_qp_num"));
        assert!(refused(change().retry_count(8)).contains("retry_cnt is 8, but it is 0 to 7"));
        assert!(refused(change().rnr_retry_count(8)).contains("rnr_retry is 8, but it is 0 to 7"));
        let mut address = AddressHandleAttributes::to_lid(1, 1);
        address.service_level = 16;
        assert!(refused(change().address(&address)).contains("service_level is 16"));
        let path = AlternatePath { address, pkey_index: 0, ack_timeout: AckTimeout::default() };
        assert!(refused(change().alternate_path(&path)).contains("service_level is 16"));
        change().sq_psn(MAX_24_BITS).retry_count(7).rnr_retry_count(7).check().unwrap();
    }
}
