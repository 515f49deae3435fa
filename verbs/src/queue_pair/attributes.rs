//! [`QueuePairAttributes`]: what a queue pair was told.
//!
//! # Safety
//!
//! `ibv_query_qp` is given a queue pair that is alive, and structures of integers and pointers, of which all zeroes are valid ones.
#![allow(unsafe_code)]

use std::fmt;

use crate::access_flags::AccessFlags;
use crate::address_handle_attributes::AddressHandleAttributes;
use crate::error::Result;
use crate::ffi;
use crate::ffi::ibv_qp_attr_mask as M;
use crate::open_enum::open_enum;
use crate::port::Mtu;
use crate::queue_pair::transition;
use crate::queue_pair::{QueuePair, QueuePairCapabilities, QueuePairState};
use crate::returns::zero_or_errno;
use crate::timers::{AckTimeout, RnrTimer};
use crate::transport::Transport;

open_enum! {
    /// `enum ibv_mig_state`: how far a connection is with the migration to its alternate path.
    #[doc(alias = "ibv_mig_state")]
    PathMigrationState(u32) {
        /// There is nothing to migrate to, or it has been done.
        MIGRATED = ffi::ibv_mig_state::IBV_MIG_MIGRATED.0, "migrated";
        /// The ends are about to agree on an alternate path.
        REARM = ffi::ibv_mig_state::IBV_MIG_REARM.0, "rearm";
        /// Both ends are ready to migrate.
        ARMED = ffi::ibv_mig_state::IBV_MIG_ARMED.0, "armed";
    }
}

/// The path that a connection migrates to when the first one fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlternatePath {
    /// The path, and the local port that it begins at.
    pub address: AddressHandleAttributes,
    /// The index of the partition key in that port's table.
    pub pkey_index: u16,
    /// How long to wait for an acknowledgement.
    pub ack_timeout: AckTimeout,
}

/// `struct ibv_qp_attr`: the attributes of a queue pair, as [`QueuePair::query`] found them. `None`: its transport has no such
/// attribute. One that was not set yet is what the provider makes of it, usually 0.
#[doc(alias = "ibv_qp_attr")]
#[derive(Clone, Copy)]
pub struct QueuePairAttributes {
    attributes: ffi::ibv_qp_attr,
    signal_all: bool,
    /// What the transport has.
    mask: u32,
}

impl<T: Transport> QueuePair<T> {
    /// `ibv_query_qp`: the attributes of the queue pair.
    ///
    /// # Errors
    ///
    /// `EIO` or `ENODEV`: the device is gone. Other numbers are the provider's.
    ///
    /// # References
    ///
    /// [ibv_query_qp(3)](https://man7.org/linux/man-pages/man3/ibv_query_qp.3.html); InfiniBand Architecture Specification, volume 1,
    /// chapter 11.2.4.3.
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QueuePairAttributes> {
        let required = transition::required(T::TYPE);
        let optional = if T::DATAGRAM { 0 } else { M::IBV_QP_ALT_PATH.0 | M::IBV_QP_PATH_MIG_STATE.0 };
        let mask = required | optional | M::IBV_QP_STATE.0 | M::IBV_QP_CAP.0;
        let (attributes, initial) = self.query_raw(mask)?;
        Ok(QueuePairAttributes { attributes, signal_all: initial.sq_sig_all != 0, mask })
    }

    /// `ibv_query_qp`: the state that the queue pair is in. It may fall into [`ERROR`](QueuePairState::ERROR) by itself.
    ///
    /// # Errors
    ///
    /// `EIO` or `ENODEV`: the device is gone. Other numbers are the provider's.
    ///
    /// # References
    ///
    /// [ibv_query_qp(3)](https://man7.org/linux/man-pages/man3/ibv_query_qp.3.html)
    #[doc(alias = "ibv_query_qp")]
    pub fn state(&self) -> Result<QueuePairState> {
        Ok(QueuePairState::from_raw(self.query_raw(M::IBV_QP_STATE.0)?.0.qp_state.0))
    }

    fn query_raw(&self, mask: u32) -> Result<(ffi::ibv_qp_attr, ffi::ibv_qp_init_attr)> {
        // SAFETY: all zeroes are valid structures; the queue pair is alive and both outlive the call.
        let (attributes, initial, code) = unsafe {
            let (mut attributes, mut initial) = (std::mem::zeroed(), std::mem::zeroed());
            let code = ffi::ibv_query_qp(self.as_raw(), &mut attributes, mask as i32, &mut initial);
            (attributes, initial, code)
        };
        zero_or_errno(code).map_err(|errno| errno.of("ibv_query_qp", format_args!("{self:?}")))?;
        Ok((attributes, initial))
    }
}

impl QueuePairAttributes {
    fn get<V>(&self, bit: M, value: impl FnOnce(&ffi::ibv_qp_attr) -> V) -> Option<V> {
        (self.mask & bit.0 != 0).then(|| value(&self.attributes))
    }

    /// The state.
    pub fn state(&self) -> QueuePairState {
        QueuePairState::from_raw(self.attributes.qp_state.0)
    }

    /// Whether, in state [`SEND_QUEUE_DRAIN`](QueuePairState::SEND_QUEUE_DRAIN), requests that have begun are still under way.
    #[doc(alias = "sq_draining")]
    pub fn is_draining(&self) -> bool {
        self.attributes.sq_draining != 0
    }

    /// How many requests and scatter/gather entries the queues hold.
    pub fn capabilities(&self) -> QueuePairCapabilities {
        self.attributes.cap.into()
    }

    /// Whether each request of the send queue has a completion.
    #[doc(alias = "sq_sig_all")]
    pub fn signal_all(&self) -> bool {
        self.signal_all
    }

    /// The port, from 1.
    pub fn port(&self) -> u8 {
        self.attributes.port_num
    }

    /// The index of the partition key in the port's table, from 0.
    pub fn pkey_index(&self) -> u16 {
        self.attributes.pkey_index
    }

    /// The first packet sequence number that the queue pair sends, or the next one: that is up to the device.
    pub fn sq_psn(&self) -> u32 {
        self.attributes.sq_psn
    }

    /// UD: the Q_Key that a datagram has to carry to be received.
    pub fn qkey(&self) -> Option<u32> {
        self.get(M::IBV_QP_QKEY, |attributes| attributes.qkey)
    }

    /// RC, UC: what the peer may do through the queue pair.
    pub fn access(&self) -> Option<AccessFlags> {
        self.get(M::IBV_QP_ACCESS_FLAGS, |attributes| AccessFlags::from_bits_retain(attributes.qp_access_flags))
    }

    /// RC, UC: the path to the peer.
    pub fn address(&self) -> Option<AddressHandleAttributes> {
        self.get(M::IBV_QP_AV, |attributes| AddressHandleAttributes::from_raw(&attributes.ah_attr))
    }

    /// RC, UC: how many bytes of payload a packet carries at most.
    pub fn path_mtu(&self) -> Option<Mtu> {
        self.get(M::IBV_QP_PATH_MTU, |attributes| Mtu::from_raw(attributes.path_mtu.0))
    }

    /// RC, UC: the number of the peer's queue pair, 24 bits.
    pub fn dest_qp_num(&self) -> Option<u32> {
        self.get(M::IBV_QP_DEST_QPN, |attributes| attributes.dest_qp_num)
    }

    /// RC, UC: the first packet sequence number that the peer sends, or the next one: that is up to the device.
    pub fn rq_psn(&self) -> Option<u32> {
        self.get(M::IBV_QP_RQ_PSN, |attributes| attributes.rq_psn)
    }

    /// RC: how long to wait for an acknowledgement.
    pub fn ack_timeout(&self) -> Option<AckTimeout> {
        self.get(M::IBV_QP_TIMEOUT, |attributes| AckTimeout::from_code(attributes.timeout).ok())?
    }

    /// RC: how often to send again when no acknowledgement came.
    pub fn retry_count(&self) -> Option<u8> {
        self.get(M::IBV_QP_RETRY_CNT, |attributes| attributes.retry_cnt)
    }

    /// RC: how often to send again to a peer that has no receive posted; 7 means without end.
    pub fn rnr_retry_count(&self) -> Option<u8> {
        self.get(M::IBV_QP_RNR_RETRY, |attributes| attributes.rnr_retry)
    }

    /// RC: how long the peer has to wait before it sends again to us, when we have no receive posted.
    pub fn min_rnr_timer(&self) -> Option<RnrTimer> {
        self.get(M::IBV_QP_MIN_RNR_TIMER, |attributes| RnrTimer::from_code(attributes.min_rnr_timer).ok())?
    }

    /// RC: how many RDMA READs and atomics to have under way. The device may have rounded it up.
    pub fn max_rd_atomic(&self) -> Option<u8> {
        self.get(M::IBV_QP_MAX_QP_RD_ATOMIC, |attributes| attributes.max_rd_atomic)
    }

    /// RC: how many RDMA READs and atomics of the peer to serve at once. The device may have rounded it up.
    pub fn max_dest_rd_atomic(&self) -> Option<u8> {
        self.get(M::IBV_QP_MAX_DEST_RD_ATOMIC, |attributes| attributes.max_dest_rd_atomic)
    }

    /// RC, UC: the path to migrate to when the first one fails.
    pub fn alternate_path(&self) -> Option<AlternatePath> {
        self.get(M::IBV_QP_ALT_PATH, |attributes| {
            let address = AddressHandleAttributes::from_raw(&attributes.alt_ah_attr);
            let ack_timeout = AckTimeout::from_code(attributes.alt_timeout).ok()?;
            (attributes.alt_port_num != 0).then_some(AlternatePath {
                address: AddressHandleAttributes { port: attributes.alt_port_num, ..address },
                pkey_index: attributes.alt_pkey_index,
                ack_timeout,
            })
        })?
    }

    /// RC, UC: how far the migration is.
    pub fn path_migration_state(&self) -> Option<PathMigrationState> {
        self.get(M::IBV_QP_PATH_MIG_STATE, |attributes| PathMigrationState::from_raw(attributes.path_mig_state.0))
    }

    /// The attributes in libibverbs' terms.
    pub fn as_raw(&self) -> &ffi::ibv_qp_attr {
        &self.attributes
    }
}

impl fmt::Display for AlternatePath {
    /// Such as `port 2, LID 0x17, P_Key index 0, timeout 67.108864ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, pkey_index, ack_timeout } = self;
        write!(f, "{address}, P_Key index {pkey_index}, timeout {ack_timeout}")
    }
}

impl fmt::Display for QueuePairAttributes {
    /// The state, and what the transport has; beyond INIT the peer of a connection and the path to it. Such as
    /// `RTS (ready to send), port 1, P_Key index 0, access REMOTE_WRITE, peer 0x12 by way of port 1, LID 0x17, path MTU 1024`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.state())?;
        if matches!(self.state(), QueuePairState::RESET) {
            return Ok(());
        }
        write!(f, ", port {}, P_Key index {}", self.port(), self.pkey_index())?;
        if let Some(qkey) = self.qkey() {
            write!(f, ", Q_Key {qkey:#x}")?;
        }
        if let Some(access) = self.access() {
            write!(f, ", access {access}")?;
        }
        if matches!(self.state(), QueuePairState::INIT) {
            return Ok(());
        }
        if let (Some(peer), Some(address), Some(mtu)) = (self.dest_qp_num(), self.address(), self.path_mtu()) {
            write!(f, ", peer {peer:#x} by way of {address}, path MTU {mtu}")?;
        }
        if let (Some(timeout), Some(retries), Some(rnr)) =
            (self.ack_timeout(), self.retry_count(), self.rnr_retry_count())
        {
            write!(f, ", timeout {timeout}, {retries} retries, {rnr} RNR retries")?;
        }
        if let (Some(own), Some(peers)) = (self.max_rd_atomic(), self.max_dest_rd_atomic()) {
            write!(f, ", {own} READs and atomics of its own, {peers} of the peer's")?;
        }
        match self.alternate_path() {
            Some(path) => write!(f, ", alternate path {path}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for QueuePairAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePairAttributes")
            .field("state", &self.state())
            .field("port", &self.port())
            .field("pkey_index", &self.pkey_index())
            .field("sq_psn", &self.sq_psn())
            .field("qkey", &self.qkey())
            .field("access", &self.access())
            .field("address", &self.address())
            .field("path_mtu", &self.path_mtu())
            .field("dest_qp_num", &self.dest_qp_num())
            .field("rq_psn", &self.rq_psn())
            .field("capabilities", &self.capabilities())
            .finish_non_exhaustive()
    }
}
