//! Connecting: RESET to INIT to RTR to RTS.
//!
//! # Safety
//!
//! `ibv_modify_qp` is given a queue pair that is alive and attributes that are all initialised.
#![allow(unsafe_code)]

use std::hash::{BuildHasher, RandomState};

use crate::access_flags::AccessFlags;
use crate::endpoint::{Endpoint, LocalEndpoint, MAX_24_BITS};
use crate::error::{Error, Result};
use crate::ffi;
use crate::ffi::ibv_qp_attr_mask as M;
use crate::gid_table::{GidEntry, GidFilter};
use crate::port::{Mtu, PortAttributes};
use crate::queue_pair::{QueuePair, QueuePairState};
use crate::returns::zero_or_errno;
use crate::timers::{AckTimeout, RnrTimer};
use crate::transport::{Rc, Transport};

const VERB: &str = "ibv_modify_qp";

/// How two RC queue pairs are connected. The defaults suit most programs; both ends must agree on the path MTU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// What the peer may do through this queue pair; the rights of the region count too. Default: all of it.
    pub access: AccessFlags,
    /// The index of the partition key in the port's table. Default: 0.
    pub pkey_index: u16,
    /// The path MTU. Default: the smaller one of both ends' active MTUs, or of the local end's alone where the remote one is
    /// not known.
    pub path_mtu: Option<Mtu>,
    /// The service level, 0 to 15. Default: 0.
    pub service_level: u8,
    /// The lower bits of the local LID (LMC). Default: 0.
    pub source_path_bits: u8,
    /// How many routers a packet may cross. Default: 64.
    pub hop_limit: u8,
    /// The traffic class (on RoCE v2 the DSCP and ECN bits). Default: 0.
    pub traffic_class: u8,
    /// The flow label, 20 bits. Default: 0.
    pub flow_label: u32,
    /// How long to wait for an acknowledgement. Default: code 14, 67 ms.
    pub ack_timeout: AckTimeout,
    /// How often to send again when no acknowledgement came, 0 to 7. Default: 7. (On rxe, 7 means without end.)
    pub retry_count: u8,
    /// How often to send again to a peer that has no receive posted, 0 to 7; 7 means without end. Default: 7.
    pub rnr_retry_count: u8,
    /// How long the peer has to wait before it sends again to us, when we have no receive posted. Default: code 12, 0.64 ms.
    pub min_rnr_timer: RnrTimer,
    /// How many RDMA READs and atomics to have under way. Default: 1; not more than the peer's `max_dest_rd_atomic`.
    pub max_rd_atomic: u8,
    /// How many RDMA READs and atomics of the peer to serve at once. Default: 1.
    pub max_dest_rd_atomic: u8,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            access: AccessFlags::REMOTE,
            pkey_index: 0,
            path_mtu: None,
            service_level: 0,
            source_path_bits: 0,
            hop_limit: 64,
            traffic_class: 0,
            flow_label: 0,
            ack_timeout: AckTimeout::default(),
            retry_count: 7,
            rnr_retry_count: 7,
            min_rnr_timer: RnrTimer::default(),
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
        }
    }
}

impl ConnectOptions {
    /// Values that do not fit the fields of the wire. The device would cut some of them off.
    fn check(&self) -> Result<()> {
        let limits = [
            ("service_level", u32::from(self.service_level), 15),
            ("flow_label", self.flow_label, 0xf_ffff),
            ("retry_cnt", u32::from(self.retry_count), 7),
            ("rnr_retry", u32::from(self.rnr_retry_count), 7),
        ];
        match limits.into_iter().find(|(_, value, limit)| value > limit) {
            Some((argument, value, limit)) => Err(invalid(argument, value, format!("it is 0 to {limit}"))),
            None => Ok(()),
        }
    }

    /// The path MTU to use between two ends.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: the MTU asked for is above one of the ends' active MTUs. Not every device refuses it, and
    /// then each message that is longer gets lost.
    pub fn path_mtu_between(&self, local: &LocalEndpoint, remote: &Endpoint) -> Result<Mtu> {
        let active = local.port_attributes.active_mtu();
        let smallest = remote.mtu.map_or(active, |mtu| mtu.min(active));
        match self.path_mtu {
            Some(mtu) if mtu > smallest => {
                let whose = if mtu > active { "the local port's" } else { "the peer's port's" };
                Err(invalid("path_mtu", mtu, format!("{whose} active MTU is {smallest}")))
            }
            Some(mtu) => Ok(mtu),
            None => Ok(smallest),
        }
    }
}

fn invalid(argument: &'static str, value: impl ToString, rule: impl Into<String>) -> Error {
    Error::invalid(VERB, argument, value, rule)
}

fn check_24_bits(argument: &'static str, value: u32) -> Result<()> {
    if value <= MAX_24_BITS { Ok(()) } else { Err(invalid(argument, format!("{value:#x}"), "it has 24 bits")) }
}

impl<T: Transport> QueuePair<T> {
    /// The local end of a connection through `port` (from 1): the queue pair's number, a random first PSN, the port's LID and
    /// MTU, and the GID that [`Context::choose_gid`](crate::Context::choose_gid) chooses with `filter`.
    ///
    /// # Errors
    ///
    /// * `EINVAL`: there is no such port.
    /// * [`Error::InvalidArgument`]: no GID matches `filter`.
    pub fn local_endpoint(&self, port: u8, filter: &GidFilter) -> Result<LocalEndpoint> {
        let context = self.protection_domain().context();
        let attributes = context.port(port)?;
        let gid = match context.choose_gid(port, filter) {
            Ok(entry) => Some(entry),
            // Within a subnet of InfiniBand, the LID is enough.
            Err(_) if !attributes.requires_grh() && *filter == GidFilter::default() => None,
            Err(error) => return Err(error),
        };
        Ok(self.local_endpoint_of(port, attributes, gid))
    }

    /// The local end of a connection through `port` (from 1) with the GID at `gid_index` (from 0).
    ///
    /// # Errors
    ///
    /// * `EINVAL`: there is no such port, or its table is shorter.
    /// * [`Error::InvalidArgument`]: the entry is empty.
    pub fn local_endpoint_with_gid_index(&self, port: u8, gid_index: u32) -> Result<LocalEndpoint> {
        let context = self.protection_domain().context();
        let attributes = context.port(port)?;
        match context.gid(port, gid_index)? {
            Some(entry) => Ok(self.local_endpoint_of(port, attributes, Some(entry))),
            None => {
                let table = context.gid_table(port)?;
                let filled: Vec<String> =
                    table.iter().map(|entry| format!("{} ({})", entry.index, entry.gid)).collect();
                let filled = if filled.is_empty() { "none".to_owned() } else { filled.join(", ") };
                let rule = format!("the entry is empty; the entries of port {port} that hold an address: {filled}");
                Err(invalid("sgid_index", gid_index, rule))
            }
        }
    }

    fn local_endpoint_of(&self, port: u8, port_attributes: PortAttributes, gid: Option<GidEntry>) -> LocalEndpoint {
        // The standard library's hasher keys are random, and a first PSN needs no more than to differ from the last one.
        let psn = RandomState::new().hash_one(self.qp_num()) as u32 & MAX_24_BITS;
        let mut endpoint = Endpoint::new(self.qp_num(), psn);
        endpoint.lid = port_attributes.lid();
        endpoint.gid = gid.map(|entry| entry.gid);
        endpoint.mtu = Some(port_attributes.active_mtu());
        LocalEndpoint { endpoint, port, port_attributes, gid }
    }

    /// Calls `ibv_modify_qp`, and says what is wrong if it fails.
    fn modify(&self, to: QueuePairState, attributes: &mut ffi::ibv_qp_attr, mask: M) -> Result<()> {
        attributes.qp_state = ffi::ibv_qp_state(to.as_raw());
        let with_state = (mask | M::IBV_QP_STATE).0;
        // SAFETY: the queue pair is alive and `attributes` outlives the call.
        let code = unsafe { ffi::ibv_modify_qp(self.as_raw(), attributes, with_state as i32) };
        zero_or_errno(code).map_err(|errno| {
            let remedy = self.diagnose(errno, to, attributes, mask.0);
            errno.with_remedy(VERB, format_args!("{self:?} to {to}"), remedy)
        })
    }

    /// `ibv_modify_qp` to RESET: forgets all requests and the connection; the queue pair can be connected again.
    ///
    /// # Errors
    ///
    /// The provider's error.
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
    pub fn reset(&self) -> Result<()> {
        self.modify(QueuePairState::RESET, &mut no_attributes(), M(0))
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
    pub fn move_to_error(&self) -> Result<()> {
        self.modify(QueuePairState::ERROR, &mut no_attributes(), M(0))
    }
}

fn no_attributes() -> ffi::ibv_qp_attr {
    // SAFETY: all zeroes are a valid structure.
    unsafe { std::mem::zeroed() }
}

impl QueuePair<Rc> {
    /// `ibv_modify_qp` from RESET to INIT: from now on, receives can be posted.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the queue pair is in another state, or the port or P_Key index does not exist.
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html); InfiniBand Architecture Specification,
    /// volume 1, chapter 10.3.1.
    #[doc(alias = "ibv_modify_qp")]
    pub fn init(&self, local: &LocalEndpoint, options: &ConnectOptions) -> Result<()> {
        let mut attributes = no_attributes();
        attributes.port_num = local.port;
        attributes.pkey_index = options.pkey_index;
        attributes.qp_access_flags = options.access.bits();
        let mask = M::IBV_QP_PORT | M::IBV_QP_PKEY_INDEX | M::IBV_QP_ACCESS_FLAGS;
        self.modify(QueuePairState::INIT, &mut attributes, mask)
    }

    /// `ibv_modify_qp` from INIT to RTR: from now on, messages of `remote` arrive. On RoCE the kernel first resolves the
    /// link address of the remote GID, which can take a second.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: a value does not fit its field, the path MTU is above an active one, or the link layer
    ///   needs GIDs and one end has none.
    /// * `EINVAL`: the queue pair is in another state, or the device refuses a value; the message says which.
    /// * `ETIMEDOUT`: nobody answers at the remote GID.
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html); InfiniBand Architecture Specification,
    /// volume 1, chapter 10.3.1.
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_receive(&self, local: &LocalEndpoint, remote: &Endpoint, options: &ConnectOptions) -> Result<()> {
        options.check()?;
        check_24_bits("dest_qp_num", remote.qp_num)?;
        check_24_bits("rq_psn", remote.psn)?;
        let mut attributes = no_attributes();
        attributes.path_mtu = ffi::ibv_mtu(options.path_mtu_between(local, remote)?.as_raw());
        attributes.dest_qp_num = remote.qp_num;
        attributes.rq_psn = remote.psn;
        attributes.max_dest_rd_atomic = options.max_dest_rd_atomic;
        attributes.min_rnr_timer = options.min_rnr_timer.code();
        address(&mut attributes.ah_attr, local, remote, options)?;
        let mask = M::IBV_QP_AV
            | M::IBV_QP_PATH_MTU
            | M::IBV_QP_DEST_QPN
            | M::IBV_QP_RQ_PSN
            | M::IBV_QP_MAX_DEST_RD_ATOMIC
            | M::IBV_QP_MIN_RNR_TIMER;
        self.modify(QueuePairState::READY_TO_RECEIVE, &mut attributes, mask)
    }

    /// `ibv_modify_qp` from RTR to RTS: from now on, messages can be sent.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: a value does not fit its field.
    /// * `EINVAL`: the queue pair is in another state, or the device refuses a value; the message says which.
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html); InfiniBand Architecture Specification,
    /// volume 1, chapter 10.3.1.
    #[doc(alias = "ibv_modify_qp")]
    pub fn ready_to_send(&self, local: &LocalEndpoint, options: &ConnectOptions) -> Result<()> {
        options.check()?;
        check_24_bits("sq_psn", local.endpoint.psn)?;
        let mut attributes = no_attributes();
        attributes.sq_psn = local.endpoint.psn;
        attributes.timeout = options.ack_timeout.code();
        attributes.retry_cnt = options.retry_count;
        attributes.rnr_retry = options.rnr_retry_count;
        attributes.max_rd_atomic = options.max_rd_atomic;
        let mask = M::IBV_QP_SQ_PSN
            | M::IBV_QP_TIMEOUT
            | M::IBV_QP_RETRY_CNT
            | M::IBV_QP_RNR_RETRY
            | M::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(QueuePairState::READY_TO_SEND, &mut attributes, mask)
    }

    /// Makes the three transitions of `ibv_modify_qp`, to INIT, RTR and RTS: connects the queue pair with the one at
    /// `remote`, which has to do the same. The first one is left out if it was made before, so that receives can be posted
    /// before the peer sends.
    ///
    /// # Errors
    ///
    /// As those of [`init`](Self::init), [`ready_to_receive`](Self::ready_to_receive) and
    /// [`ready_to_send`](Self::ready_to_send). A failed transition changes nothing; it can be made again with other values.
    #[doc(alias = "ibv_modify_qp")]
    pub fn connect(&self, local: &LocalEndpoint, remote: &Endpoint, options: &ConnectOptions) -> Result<()> {
        if self.state()? != QueuePairState::INIT {
            self.init(local, options)?;
        }
        self.ready_to_receive(local, remote, options)?;
        self.ready_to_send(local, options)
    }
}

/// Fills in the path to the peer.
fn address(
    attributes: &mut ffi::ibv_ah_attr,
    local: &LocalEndpoint,
    remote: &Endpoint,
    options: &ConnectOptions,
) -> Result<()> {
    attributes.dlid = remote.lid;
    attributes.sl = options.service_level;
    attributes.src_path_bits = options.source_path_bits;
    // The kernel wants it even where the queue pair's own port says the same.
    attributes.port_num = local.port;
    let (Some(from), Some(to)) = (local.gid, remote.gid) else {
        return match local.port_attributes.requires_grh() {
            true => {
                let whose = if local.gid.is_none() { "local" } else { "remote" };
                Err(invalid(
                    "the GID",
                    "missing",
                    format!("the link layer is Ethernet (RoCE), which needs the {whose} GID"),
                ))
            }
            false => Ok(()),
        };
    };
    let Ok(sgid_index) = u8::try_from(from.index) else {
        return Err(invalid("sgid_index", from.index, "libibverbs has 8 bits for it"));
    };
    attributes.is_global = 1;
    attributes.grh.dgid.raw = to.to_bytes();
    attributes.grh.sgid_index = sgid_index;
    attributes.grh.hop_limit = options.hop_limit;
    attributes.grh.traffic_class = options.traffic_class;
    attributes.grh.flow_label = options.flow_label;
    Ok(())
}
