//! [`QueuePairBuilder`].
//!
//! # Safety
//!
//! `ibv_create_qp` is given a domain and queues that are alive and of one context.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::completion_queue::CompletionQueue;
use crate::device_capabilities::DeviceCapabilities;
use crate::error::{Error, Result};
use crate::ffi;
use crate::ffi::ibv_qp_init_attr_mask as Mask;
use crate::object_id::Identity;
use crate::protection_domain::ProtectionDomain;
use crate::queue_pair::multicast::Attachments;
use crate::queue_pair::{QueuePair, QueuePairCreationFlags, extended_table, optional, receive};
use crate::returns::{Errno, null_and_errno};
use crate::shared_receive_queue::SharedReceiveQueue;
use crate::transport::Transport;

const EXTENDED_VERB: &str = "ibv_create_qp_ex";

/// `struct ibv_qp_cap`: how many requests and scatter/gather entries the queues of a queue pair hold.
#[doc(alias = "ibv_qp_cap")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuePairCapabilities {
    /// Requests in the send queue.
    pub max_send_wr: u32,
    /// Requests in the receive queue.
    pub max_recv_wr: u32,
    /// Scatter/gather entries in a request of the send queue.
    pub max_send_sge: u32,
    /// Scatter/gather entries in a request of the receive queue.
    pub max_recv_sge: u32,
    /// Bytes in an inline request.
    pub max_inline_data: u32,
}

impl From<ffi::ibv_qp_cap> for QueuePairCapabilities {
    fn from(cap: ffi::ibv_qp_cap) -> Self {
        Self {
            max_send_wr: cap.max_send_wr,
            max_recv_wr: cap.max_recv_wr,
            max_send_sge: cap.max_send_sge,
            max_recv_sge: cap.max_recv_sge,
            max_inline_data: cap.max_inline_data,
        }
    }
}

impl From<QueuePairCapabilities> for ffi::ibv_qp_cap {
    fn from(capabilities: QueuePairCapabilities) -> Self {
        let QueuePairCapabilities { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } =
            capabilities;
        Self { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
    }
}

impl Default for QueuePairCapabilities {
    /// 64 requests in each queue, of one scatter/gather entry each.
    fn default() -> Self {
        Self { max_send_wr: 64, max_recv_wr: 64, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 }
    }
}

impl fmt::Display for QueuePairCapabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data } = self;
        write!(f, "max_send_wr {max_send_wr}, max_recv_wr {max_recv_wr}, max_send_sge {max_send_sge}, ")?;
        write!(f, "max_recv_sge {max_recv_sge}, max_inline_data {max_inline_data}")
    }
}

/// `ibv_create_qp` and its arguments. Made by [`QueuePair::builder`].
#[must_use = "a builder makes nothing before `build` is called"]
pub struct QueuePairBuilder<T: Transport> {
    pd: ProtectionDomain,
    send_cq: CompletionQueue,
    recv_cq: CompletionQueue,
    srq: Option<SharedReceiveQueue>,
    cap: ffi::ibv_qp_cap,
    signal_all: bool,
    extended: Extended,
    /// Which of the operations that not every extended interface has.
    pub(super) optional: u64,
    pub(super) flags: QueuePairCreationFlags,
    transport: PhantomData<T>,
}

/// Whether the queue pair is to have the extended interface.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extended {
    No,
    Preferred,
    Required,
}

impl<T: Transport> QueuePairBuilder<T> {
    pub(super) fn new(pd: &ProtectionDomain, send_cq: &CompletionQueue, recv_cq: &CompletionQueue) -> Self {
        Self {
            pd: pd.clone(),
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            srq: None,
            cap: QueuePairCapabilities::default().into(),
            signal_all: false,
            extended: Extended::No,
            optional: 0,
            flags: QueuePairCreationFlags::empty(),
            transport: PhantomData,
        }
    }

    /// How many requests the send queue holds at least. Default: 64.
    pub fn max_send_wr(mut self, requests: u32) -> Self {
        self.cap.max_send_wr = requests;
        self
    }

    /// How many requests the receive queue holds at least. Default: 64.
    pub fn max_recv_wr(mut self, requests: u32) -> Self {
        self.cap.max_recv_wr = requests;
        self
    }

    /// How many scatter/gather entries a request of the send queue can have. Default: 1.
    pub fn max_send_sge(mut self, entries: u32) -> Self {
        self.cap.max_send_sge = entries;
        self
    }

    /// How many scatter/gather entries a request of the receive queue can have. Default: 1.
    pub fn max_recv_sge(mut self, entries: u32) -> Self {
        self.cap.max_recv_sge = entries;
        self
    }

    /// The shared receive queue to take receives from. The queue pair then has no receive queue of its own, and
    /// `max_recv_wr` and `max_recv_sge` mean nothing. Default: none.
    #[doc(alias = "srq")]
    pub fn shared_receive_queue(mut self, srq: &SharedReceiveQueue) -> Self {
        self.srq = Some(srq.clone());
        self
    }

    /// How many bytes an inline request can have. Default: 0.
    pub fn max_inline_data(mut self, bytes: u32) -> Self {
        self.cap.max_inline_data = bytes;
        self
    }

    /// Whether each request of the send queue has a completion, as if it were
    /// [`signaled`](crate::SendRequest::signaled). Default: no.
    #[doc(alias = "sq_sig_all")]
    pub fn signal_all(mut self, signal_all: bool) -> Self {
        self.signal_all = signal_all;
        self
    }

    /// `ibv_create_qp_ex`: the send queue is to have the [extended interface](QueuePair::extended) as well, or there is to be no queue
    /// pair. Default: the plain one only.
    ///
    /// # References
    ///
    /// [ibv_create_qp_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html)
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn require_extended(mut self) -> Self {
        self.extended = Extended::Required;
        self
    }

    /// As [`require_extended`](Self::require_extended); a provider that has no extended interface makes a plain queue pair.
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn prefer_extended(mut self) -> Self {
        self.extended = Extended::Preferred;
        self
    }

    /// The extended interface is to [bind memory windows](crate::ExtendedSend::post_bind) too, which not every provider of it can. Default:
    /// no.
    #[doc(alias = "IBV_QP_EX_WITH_BIND_MW")]
    pub fn extended_memory_windows(mut self) -> Self {
        self.optional |= optional::BIND_MW;
        self
    }

    /// `ibv_create_qp`: makes the queue pair, in state RESET. The device may round sizes up;
    /// [`capabilities`](QueuePair::capabilities) tells what it gave.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: a queue comes from another [`Context`](crate::Context)
    ///   than the domain.
    /// * `EINVAL`: a size is beyond the device's limit; the message names it.
    /// * `ENOMEM`: the device has no more queue pairs, or no memory.
    /// * [`Error::Unsupported`]: the extended interface is required, and the provider does not have it, or the device lacks what was asked
    ///   for by a [flag](QueuePairCreationFlags).
    ///
    /// # References
    ///
    /// [ibv_create_qp(3)](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html); InfiniBand Architecture
    /// Specification, volume 1, chapter 11.2.4.1.
    #[doc(alias = "ibv_create_qp")]
    pub fn build(self) -> Result<QueuePair<T>> {
        const VERB: &str = "ibv_create_qp";
        let context = self.pd.context();
        context.must_be(self.send_cq.context(), VERB, "send_cq")?;
        context.must_be(self.recv_cq.context(), VERB, "recv_cq")?;
        if let Some(srq) = &self.srq {
            context.must_be(srq.protection_domain().context(), VERB, "srq")?;
        }
        if self.extended != Extended::No {
            match self.create_extended() {
                Ok((qp, cap, extended)) => return Ok(self.finish(qp, cap, Some(extended))),
                Err(Error::Unsupported { .. }) if self.extended == Extended::Preferred => {}
                Err(error) => return Err(error),
            }
        }
        if !self.flags.is_empty() {
            let (qp, cap) = self.create_with(0)?;
            return Ok(self.finish(qp, cap, None));
        }
        // SAFETY: all zeroes are a valid structure.
        let mut attributes: ffi::ibv_qp_init_attr = unsafe { std::mem::zeroed() };
        attributes.send_cq = self.send_cq.as_raw();
        attributes.recv_cq = self.recv_cq.as_raw();
        attributes.cap = self.cap();
        attributes.srq = self.srq.as_ref().map_or(ptr::null_mut(), SharedReceiveQueue::as_raw);
        attributes.qp_type = T::TYPE;
        attributes.sq_sig_all = self.signal_all.into();
        // SAFETY: the domain and the queues are alive and of one context.
        let qp = null_and_errno(unsafe { ffi::ibv_create_qp(self.pd.as_raw(), &mut attributes) })
            .map_err(|errno| errno.with_remedy(VERB, &self, self.remedy(errno)))?;
        Ok(self.finish(qp, attributes.cap, None))
    }

    fn create_extended(&self) -> Result<(NonNull<ffi::ibv_qp>, ffi::ibv_qp_cap, extended_table::Extended)> {
        let device = self.pd.context().device_attributes()?;
        self.check_capabilities(EXTENDED_VERB)?;
        let (qp, cap) = self.create_with(T::SEND_OPERATIONS | self.optional)?;
        // SAFETY: the queue pair was made just now, with these operations.
        match unsafe { extended_table::Extended::new::<T>(qp, self.optional, &device) } {
            Some(extended) => Ok((qp, cap, extended)),
            None => {
                // SAFETY: the queue pair was made just now, and nobody else knows it.
                let _ = unsafe { ffi::ibv_destroy_qp(qp.as_ptr()) };
                Err(Errno(libc::EOPNOTSUPP).of(EXTENDED_VERB, self))
            }
        }
    }

    /// Makes a queue pair with these operations of the extended interface, if there are some, and with the flags.
    fn create_with(&self, send_operations: u64) -> Result<(NonNull<ffi::ibv_qp>, ffi::ibv_qp_cap)> {
        let context = self.pd.context();
        // SAFETY: all zeroes are a valid structure.
        let mut attributes: ffi::ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
        attributes.send_cq = self.send_cq.as_raw();
        attributes.recv_cq = self.recv_cq.as_raw();
        attributes.cap = self.cap();
        attributes.srq = self.srq.as_ref().map_or(ptr::null_mut(), SharedReceiveQueue::as_raw);
        attributes.qp_type = T::TYPE;
        attributes.sq_sig_all = self.signal_all.into();
        attributes.comp_mask = Mask::IBV_QP_INIT_ATTR_PD.0;
        attributes.pd = self.pd.as_raw();
        if send_operations != 0 {
            attributes.comp_mask |= Mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
            attributes.send_ops_flags = send_operations;
        }
        if !self.flags.is_empty() {
            attributes.comp_mask |= Mask::IBV_QP_INIT_ATTR_CREATE_FLAGS.0;
            attributes.create_flags = self.flags.bits();
        }
        // SAFETY: the domain and the queues are alive and of one context.
        let qp = null_and_errno(unsafe { ffi::ibv_create_qp_ex(context.as_raw(), &mut attributes) })
            .map_err(|errno| errno.with_remedy(EXTENDED_VERB, self, self.remedy(errno)))?;
        Ok((qp, attributes.cap))
    }

    /// Some providers take what the device cannot do, and the request then fails.
    fn check_capabilities(&self, verb: &'static str) -> Result<()> {
        if self.optional & !optional::BIND_MW == 0 {
            return Ok(());
        }
        let capabilities = self.pd.context().extended_device_attributes()?.capabilities();
        let lacks = |operation: u64, needed: DeviceCapabilities| {
            self.optional & operation != 0 && !capabilities.intersects(needed)
        };
        let lacking = lacks(optional::ATOMIC_WRITE, DeviceCapabilities::ATOMIC_WRITE).then_some("atomic write");
        #[cfg(rdma_core_45)]
        let lacking = {
            let flush = DeviceCapabilities::FLUSH_GLOBAL | DeviceCapabilities::FLUSH_PERSISTENT;
            lacking.or(lacks(optional::FLUSH, flush).then_some("flush"))
        };
        match lacking {
            Some(operation) => Err(Errno(libc::EOPNOTSUPP).of(verb, format_args!("{self}, with {operation}"))),
            None => Ok(()),
        }
    }

    pub(super) fn finish(
        self,
        qp: NonNull<ffi::ibv_qp>,
        cap: ffi::ibv_qp_cap,
        extended: Option<extended_table::Extended>,
    ) -> QueuePair<T> {
        QueuePair {
            qp,
            post_recv: receive::function(self.pd.context(), self.srq.is_none()),
            capabilities: cap.into(),
            windows: Box::default(),
            extended,
            datagrams: Box::default(),
            multicast: T::DATAGRAM.then(|| Arc::new(Attachments::new(qp))),
            lender: None,
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            srq: self.srq,
            identity: Identity::new(self.pd.context(), qp.as_ptr()),
            pd: self.pd,
            transport: PhantomData,
        }
    }

    /// The sizes to ask for.
    fn cap(&self) -> ffi::ibv_qp_cap {
        match self.srq {
            Some(_) => ffi::ibv_qp_cap { max_recv_wr: 0, max_recv_sge: 0, ..self.cap },
            None => self.cap,
        }
    }

    /// Which size is beyond the device's limit.
    #[cold]
    fn remedy(&self, errno: Errno) -> String {
        if errno.0 == libc::ENOMEM {
            return "the device is out of queue pairs or memory; see also `ulimit -l`".to_owned();
        }
        let Ok(device) = self.pd.context().device_attributes() else { return String::new() };
        let (wr, sge) = (device.max_queue_pair_work_requests(), device.max_sge());
        let name = self.pd.context().device().name();
        let cap = self.cap();
        let limits = [
            ("max_send_wr", cap.max_send_wr, wr),
            ("max_recv_wr", cap.max_recv_wr, wr),
            ("max_send_sge", cap.max_send_sge, sge),
            ("max_recv_sge", cap.max_recv_sge, sge),
        ];
        match limits.into_iter().find(|(_, asked, limit)| asked > limit) {
            Some((cap, asked, limit)) => format!("{cap} is {asked}, and {name} takes at most {limit}"),
            None if !self.flags.is_empty() => {
                format!(
                    "no queue size is beyond {name}'s limits, so it may lack what the flags ask for: {}",
                    self.flags
                )
            }
            None if self.cap.max_inline_data > 0 => format!(
                "no queue size is beyond {name}'s limits, so max_inline_data may be, of which devices do not tell: \
                 ask for less, or for 0",
            ),
            None => String::new(),
        }
    }
}

impl<T: Transport> fmt::Display for QueuePairBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", T::NAME, QueuePairCapabilities::from(self.cap()))?;
        if !self.flags.is_empty() {
            write!(f, ", {}", self.flags)?;
        }
        match &self.srq {
            Some(srq) => write!(f, ", {srq:?}"),
            None => Ok(()),
        }
    }
}

impl<T: Transport> fmt::Debug for QueuePairBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueuePairBuilder({self})")
    }
}
