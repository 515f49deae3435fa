//! [`RawPacketQueuePair`]: whole packets of Ethernet.
//!
//! # Safety
//!
//! `Inner::qp` came from `ibv_create_qp` or `ibv_create_qp_ex`, is destroyed only when `Inner` is dropped, and every flow to it holds the
//! `Inner`. What it was made of is held until then.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::completion_queue::CompletionQueue;
use crate::context::must_be_made_of;
use crate::error::{Error, Result};
use crate::ffi;
use crate::ffi::{ibv_qp_attr_mask as A, ibv_qp_init_attr_mask as Mask};
use crate::indirection_table::IndirectionTable;
use crate::protection_domain::ProtectionDomain;
use crate::queue_pair::{QueuePairCapabilities, QueuePairCreationFlags};
use crate::rate_limit::RateLimit;
use crate::raw_packet_capabilities::ReceiveHashFields;
use crate::returns::{Errno, null_and_errno, zero_or_errno};

struct Inner {
    qp: NonNull<ffi::ibv_qp>,
    // All let go after the queue pair is destroyed.
    _queues: Queues,
    pd: ProtectionDomain,
}

/// What takes the completions.
enum Queues {
    Own { _send_cq: CompletionQueue, _recv_cq: CompletionQueue },
    Table { _table: IndirectionTable },
}

// SAFETY: libibverbs takes the queue pair's locks in every verb that is given it, and we reach it only through verbs, but for its
// number, which does not change.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the queue pair is alive, is destroyed only here, and no flow leads to it: each held us and is gone.
        let _ = unsafe { ffi::ibv_destroy_qp(self.qp.as_ptr()) };
    }
}

/// A queue pair of type `IBV_QPT_RAW_PACKET`: it sends and receives packets with all their headers. What it receives, a
/// [`Flow`](crate::Flow) says.
///
/// The crate has no data path for it: [`as_raw`](Self::as_raw) leads to that of libibverbs. A clone is another handle to the same queue
/// pair.
#[doc(alias = "IBV_QPT_RAW_PACKET")]
#[derive(Clone)]
pub struct RawPacketQueuePair {
    inner: Arc<Inner>,
}

/// `struct ibv_rx_hash_conf`: how a packet chooses one of the queues of an [`IndirectionTable`], by Toeplitz' function.
#[doc(alias = "ibv_rx_hash_conf")]
#[derive(Clone, Copy, Debug)]
pub struct ReceiveHash<'a> {
    /// The key of the function; devices ask for 40 bytes.
    pub key: &'a [u8],
    /// What of the packet is hashed.
    pub fields: ReceiveHashFields,
}

impl RawPacketQueuePair {
    /// Takes over a queue pair that was made by other means. It is destroyed when the last handle, and the last flow to it, are gone.
    ///
    /// # Safety
    ///
    /// * `qp` is alive, and nobody else destroys it.
    /// * Flows that lead to it by other means are gone before the last handle is.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: it is of another type, or was made with another domain or other queues. It then still belongs to the
    /// caller.
    pub unsafe fn from_raw(
        qp: NonNull<ffi::ibv_qp>,
        pd: &ProtectionDomain,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
    ) -> Result<Self> {
        // SAFETY: the queue pair is alive, and these fields do not change.
        let raw = unsafe { qp.as_ref() };
        let parts = [
            ("qp_type", raw.qp_type == ffi::ibv_qp_type::IBV_QPT_RAW_PACKET),
            ("pd", raw.pd == pd.as_raw()),
            ("send_cq", raw.send_cq == send_cq.as_raw()),
            ("recv_cq", raw.recv_cq == recv_cq.as_raw()),
        ];
        must_be_made_of("ibv_create_qp", &parts)?;
        let queues = Queues::Own { _send_cq: send_cq.clone(), _recv_cq: recv_cq.clone() };
        Ok(Self { inner: Arc::new(Inner { qp, _queues: queues, pd: pd.clone() }) })
    }

    /// `ibv_modify_qp_rate_limit`: how fast the queue pair sends. It has to be in state RTS.
    ///
    /// # Errors
    ///
    /// As those of [`QueuePair::set_rate_limit`](crate::QueuePair::set_rate_limit).
    ///
    /// # References
    ///
    /// [ibv_modify_qp_rate_limit(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp_rate_limit.3.html)
    #[doc(alias = "ibv_modify_qp_rate_limit")]
    pub fn set_rate_limit(&self, limit: &RateLimit) -> Result<()> {
        // SAFETY: the queue pair is alive.
        unsafe { limit.set(self.as_raw(), self) }
    }

    /// `ibv_create_qp`: makes a queue pair in `pd`, with the sizes of `capabilities`, whose completions go to `send_cq` and `recv_cq`. It
    /// is in state RESET: [`activate`](Self::activate) it.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: a queue comes from another [`Context`](crate::Context).
    /// * `EPERM`: it takes the capability `CAP_NET_RAW`.
    /// * [`Error::Unsupported`]: the provider has none (rxe).
    /// * `EINVAL`: a size is beyond the device's limit.
    ///
    /// # References
    ///
    /// [ibv_create_qp(3)](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html)
    #[doc(alias = "ibv_create_qp")]
    pub fn new(
        pd: &ProtectionDomain,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        capabilities: QueuePairCapabilities,
    ) -> Result<Self> {
        const VERB: &str = "ibv_create_qp";
        pd.context().must_be(send_cq.context(), VERB, "send_cq")?;
        pd.context().must_be(recv_cq.context(), VERB, "recv_cq")?;
        // SAFETY: all zeroes are a valid structure.
        let mut attributes: ffi::ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        attributes.qp_type = ffi::ibv_qp_type::IBV_QPT_RAW_PACKET;
        (attributes.send_cq, attributes.recv_cq) = (send_cq.as_raw(), recv_cq.as_raw());
        attributes.cap = capabilities.into();
        // SAFETY: the domain and the queues are alive and of one context, and `attributes` outlives the call.
        let qp = null_and_errno(unsafe { ffi::ibv_create_qp(pd.as_raw(), &mut attributes) })
            .map_err(|errno| errno.with_remedy(VERB, format_args!("RAW_PACKET, {capabilities}"), remedy(errno)))?;
        Ok(Self::with_queues(qp, pd, send_cq, recv_cq))
    }

    /// `ibv_create_qp_ex` with `create_flags`: as [`new`](Self::new), with flags for what it does with packets.
    /// [`raw_packet_capabilities`](crate::ExtendedDeviceAttributes::raw_packet_capabilities) tells which ones the device can.
    ///
    /// # Errors
    ///
    /// As those of [`new`](Self::new). [`Error::Unsupported`] or `EINVAL`: the device lacks one of the flags.
    ///
    /// # References
    ///
    /// [ibv_create_qp_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html)
    #[doc(alias = "ibv_create_qp_ex")]
    #[doc(alias = "IBV_QP_CREATE_SCATTER_FCS")]
    #[doc(alias = "IBV_QP_CREATE_CVLAN_STRIPPING")]
    pub fn with_flags(
        pd: &ProtectionDomain,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        capabilities: QueuePairCapabilities,
        flags: QueuePairCreationFlags,
    ) -> Result<Self> {
        const VERB: &str = "ibv_create_qp_ex";
        let context = pd.context();
        context.must_be(send_cq.context(), VERB, "send_cq")?;
        context.must_be(recv_cq.context(), VERB, "recv_cq")?;
        // SAFETY: all zeroes are a valid structure.
        let mut attributes: ffi::ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
        attributes.qp_type = ffi::ibv_qp_type::IBV_QPT_RAW_PACKET;
        (attributes.send_cq, attributes.recv_cq) = (send_cq.as_raw(), recv_cq.as_raw());
        attributes.cap = capabilities.into();
        attributes.comp_mask = Mask::IBV_QP_INIT_ATTR_PD.0 | Mask::IBV_QP_INIT_ATTR_CREATE_FLAGS.0;
        (attributes.pd, attributes.create_flags) = (pd.as_raw(), flags.bits());
        // SAFETY: the domain and the queues are alive and of one context, and `attributes` outlives the call.
        let qp =
            null_and_errno(unsafe { ffi::ibv_create_qp_ex(context.as_raw(), &mut attributes) }).map_err(|errno| {
                errno.with_remedy(VERB, format_args!("RAW_PACKET, {capabilities}, {flags}"), remedy(errno))
            })?;
        Ok(Self::with_queues(qp, pd, send_cq, recv_cq))
    }

    /// What was made just now.
    fn with_queues(
        qp: NonNull<ffi::ibv_qp>,
        pd: &ProtectionDomain,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
    ) -> Self {
        let queues = Queues::Own { _send_cq: send_cq.clone(), _recv_cq: recv_cq.clone() };
        Self { inner: Arc::new(Inner { qp, _queues: queues, pd: pd.clone() }) }
    }

    /// `ibv_create_qp_ex` with an indirection table: makes a queue pair in `pd` that spreads what it receives over the table's queues. It
    /// sends nothing, and needs not be activated.
    ///
    /// # Errors
    ///
    /// As those of [`new`](Self::new), and [`Error::InvalidArgument`]: the key has more than 255 bytes.
    ///
    /// # References
    ///
    /// [ibv_create_qp_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html)
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn with_indirection_table(
        pd: &ProtectionDomain,
        table: &IndirectionTable,
        hash: &ReceiveHash<'_>,
    ) -> Result<Self> {
        const VERB: &str = "ibv_create_qp_ex";
        let context = pd.context();
        context.must_be(table.context(), VERB, "rwq_ind_tbl")?;
        let Ok(rx_hash_key_len) = u8::try_from(hash.key.len()) else {
            return Err(Error::invalid(VERB, "rx_hash_key_len", hash.key.len(), "it is at most 255"));
        };
        // SAFETY: all zeroes are a valid structure.
        let mut attributes: ffi::ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
        attributes.qp_type = ffi::ibv_qp_type::IBV_QPT_RAW_PACKET;
        attributes.comp_mask =
            Mask::IBV_QP_INIT_ATTR_PD.0 | Mask::IBV_QP_INIT_ATTR_IND_TABLE.0 | Mask::IBV_QP_INIT_ATTR_RX_HASH.0;
        attributes.pd = pd.as_raw();
        attributes.rwq_ind_tbl = table.as_raw();
        attributes.rx_hash_conf = ffi::ibv_rx_hash_conf {
            rx_hash_function: ffi::ibv_rx_hash_function_flags::IBV_RX_HASH_FUNC_TOEPLITZ.0 as u8,
            rx_hash_key_len,
            // It is only read.
            rx_hash_key: hash.key.as_ptr().cast_mut(),
            rx_hash_fields_mask: hash.fields.bits(),
        };
        // SAFETY: the context is open, the domain and the table are alive and of it, and `attributes` and the key outlive the call.
        let qp =
            null_and_errno(unsafe { ffi::ibv_create_qp_ex(context.as_raw(), &mut attributes) }).map_err(|errno| {
                let arguments = format!("RAW_PACKET, a table of {}, {}", table.queues().len(), hash.fields);
                errno.with_remedy(VERB, arguments, remedy(errno))
            })?;
        let queues = Queues::Table { _table: table.clone() };
        Ok(Self { inner: Arc::new(Inner { qp, _queues: queues, pd: pd.clone() }) })
    }

    /// `ibv_modify_qp`: from RESET to RTS, to send and receive through `port`. Ports count from 1.
    ///
    /// # Errors
    ///
    /// `EINVAL`: there is no such port, or the queue pair is not in state RESET.
    ///
    /// # References
    ///
    /// [ibv_modify_qp(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
    #[doc(alias = "ibv_modify_qp")]
    pub fn activate(&self, port: u8) -> Result<()> {
        use ffi::ibv_qp_state as S;
        for (state, mask) in [(S::IBV_QPS_INIT, A::IBV_QP_PORT.0), (S::IBV_QPS_RTR, 0), (S::IBV_QPS_RTS, 0)] {
            // SAFETY: all zeroes are a valid structure.
            let mut attributes: ffi::ibv_qp_attr = unsafe { std::mem::zeroed() };
            (attributes.qp_state, attributes.port_num) = (state, port);
            let mask = (mask | A::IBV_QP_STATE.0) as i32;
            // SAFETY: the queue pair is alive, and `attributes` outlives the call.
            zero_or_errno(unsafe { ffi::ibv_modify_qp(self.as_raw(), &mut attributes, mask) }).map_err(|errno| {
                errno.of("ibv_modify_qp", format_args!("{self:?}, port {port}, to state {}", state.0))
            })?;
        }
        Ok(())
    }

    /// The number of the queue pair, 24 bits.
    pub fn qp_num(&self) -> u32 {
        // SAFETY: the queue pair is alive, and its number does not change.
        unsafe { self.inner.qp.as_ref().qp_num }
    }

    /// The domain in which the queue pair was made.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// The queue pair in libibverbs' terms; valid as long as `self`, and not to be destroyed.
    pub fn as_raw(&self) -> *mut ffi::ibv_qp {
        self.inner.qp.as_ptr()
    }
}

fn remedy(errno: Errno) -> &'static str {
    if errno.0 == libc::EPERM { "raw packets take the capability CAP_NET_RAW" } else { "" }
}

impl fmt::Debug for RawPacketQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RawPacketQueuePair({:#x} on {})", self.qp_num(), self.inner.pd.context().device().name())
    }
}
