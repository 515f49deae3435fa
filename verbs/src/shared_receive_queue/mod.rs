//! [`SharedReceiveQueue`]: one receive queue for many queue pairs.
//!
//! # Safety
//!
//! * `Inner::srq` came from `ibv_create_srq` and is destroyed only when `Inner` is dropped, or is alive as long as `Inner::lender` is.
//!   Each queue pair on it holds the `Inner`. `SharedReceiveQueue::post` is the function in the operation table of its context.
//! * The requests of a chain are linked to each other and to nothing else, and they, the lists of their scatter/gather entries
//!   and the entries' regions live as long as the call. Providers do not keep pointers to them.
#![allow(unsafe_code)]

mod raw;
mod xrc;

use std::ffi::c_int;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::chain::ReceiveChain;
use crate::chain::sealed::Request as _;
use crate::context::Context;
use crate::error::Result;
use crate::ffi;
use crate::lender::Lender;
use crate::object_id::{Identity, ObjectId};
use crate::post_error::PostError;
use crate::prepared_receive::PreparedReceive;
use crate::protection_domain::ProtectionDomain;
use crate::receive_request::ReceiveRequest;
use crate::returns::{Errno, null_and_errno, zero_or_errno};
use crate::work_request::{Limits, Linked};

use xrc::Xrc;

/// The verb that posts.
const VERB: &str = "ibv_post_srq_recv";

/// `ibv_post_srq_recv`.
type Function = unsafe extern "C" fn(*mut ffi::ibv_srq, *mut ffi::ibv_recv_wr, *mut *mut ffi::ibv_recv_wr) -> c_int;

struct Inner {
    srq: NonNull<ffi::ibv_srq>,
    /// How many scatter/gather entries a request can have.
    max_sge: u32,
    identity: Identity,
    lender: Option<Lender>,
    // Let go after the queue is destroyed, as is the domain.
    xrc: Option<Xrc>,
    // Freed after the queue is destroyed: libibverbs refuses to free a domain that a queue still uses.
    pd: ProtectionDomain,
}

// SAFETY: libibverbs takes the queue's lock in every verb that is given it, and we reach `srq` only through verbs.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.lender.is_none() {
            // SAFETY: the queue is alive, is destroyed only here, and no queue pair uses it: each held us and is gone.
            let _ = unsafe { ffi::ibv_destroy_srq(self.srq.as_ptr()) };
        }
    }
}

/// `struct ibv_srq`: a receive queue that many queue pairs take their receives from, each message the next one.
///
/// A queue pair is put on it by [`QueuePairBuilder::shared_receive_queue`](crate::QueuePairBuilder::shared_receive_queue). Its
/// receives complete in the queue pair's own completion queue, in the order of the messages and not of the requests.
///
/// A queue pair whose peer sends while the queue is empty is like one without a receive posted: on RC the peer waits and tries
/// again. [`set_limit`](Self::set_limit) has the device tell before that.
///
/// A clone is another handle to the same queue.
///
/// # Examples
///
/// ```no_run
/// use verbs::{AccessFlags, QueuePair, Rc, ReceiveRequest, SharedReceiveQueueBuilder};
///
/// # fn main() -> verbs::Result<()> {
/// let context = verbs::devices()?.find(None)?.open()?;
/// let pd = context.create_protection_domain()?;
/// let cq = context.create_completion_queue(64)?;
/// let srq = SharedReceiveQueueBuilder::new(&pd, 64).build()?;
/// let pairs = [(); 4].map(|()| QueuePair::<Rc>::builder(&pd, &cq, &cq).shared_receive_queue(&srq).build());
/// let region = pd.register(vec![0; 4096], AccessFlags::LOCAL_WRITE)?;
/// srq.post_receive(&ReceiveRequest::new(1, &[region.slice(..)?]))?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_srq")]
#[derive(Clone)]
pub struct SharedReceiveQueue {
    // `Inner::srq` once more: a post that finds it here costs one instruction less.
    srq: NonNull<ffi::ibv_srq>,
    /// The provider's: to call the function that is known from the beginning takes a load less than to look it up.
    post: Function,
    inner: Arc<Inner>,
}

// SAFETY: as for `Inner`, which keeps the queue alive.
unsafe impl Send for SharedReceiveQueue {}
// SAFETY: as above.
unsafe impl Sync for SharedReceiveQueue {}

/// `struct ibv_srq_attr`: how many requests a shared receive queue holds, and when it tells that they run low.
#[doc(alias = "ibv_srq_attr")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedReceiveQueueAttributes {
    /// Requests in the queue.
    pub max_wr: u32,
    /// Scatter/gather entries in a request.
    pub max_sge: u32,
    /// With fewer requests than this the device tells; 0: it does not.
    pub limit: u32,
}

impl fmt::Display for SharedReceiveQueueAttributes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "max_wr {}, max_sge {}, limit {}", self.max_wr, self.max_sge, self.limit)
    }
}

/// `ibv_create_srq` and its arguments.
#[derive(Clone, Debug)]
#[must_use = "a builder makes nothing before `build` is called"]
pub struct SharedReceiveQueueBuilder {
    pd: ProtectionDomain,
    max_wr: u32,
    max_sge: u32,
}

impl SharedReceiveQueueBuilder {
    /// A queue in `pd` for at least `max_wr` requests, from 1 to the device's
    /// [`max_srq_work_requests`](crate::DeviceAttributes::max_srq_work_requests).
    pub fn new(pd: &ProtectionDomain, max_wr: u32) -> Self {
        Self { pd: pd.clone(), max_wr, max_sge: 1 }
    }

    /// How many scatter/gather entries a request can have. Default: 1.
    pub fn max_sge(mut self, entries: u32) -> Self {
        self.max_sge = entries;
        self
    }

    /// `ibv_create_srq`: makes the queue. The device may round its sizes up;
    /// [`attributes`](SharedReceiveQueue::attributes) tells.
    ///
    /// # Errors
    ///
    /// * `EINVAL`: a size is 0 or beyond the device's limit; the message names it.
    /// * `ENOMEM`: the device has no more of them, or no memory.
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the device has none.
    ///
    /// # References
    ///
    /// [ibv_create_srq(3)](https://man7.org/linux/man-pages/man3/ibv_create_srq.3.html); InfiniBand Architecture Specification,
    /// volume 1, chapter 10.2.9.
    #[doc(alias = "ibv_create_srq")]
    #[doc(alias = "ibv_create_srq_ex")]
    pub fn build(self) -> Result<SharedReceiveQueue> {
        const VERB: &str = "ibv_create_srq";
        let Self { pd, max_wr, max_sge } = self;
        let arguments = format!("max_wr {max_wr}, max_sge {max_sge}");
        // SAFETY: the context is open.
        let Some(post) = (unsafe { (*pd.context().as_raw()).ops.post_srq_recv }) else {
            return Err(Errno(libc::EOPNOTSUPP).of(VERB, arguments));
        };
        let attr = ffi::ibv_srq_attr { max_wr, max_sge, srq_limit: 0 };
        let mut attributes = ffi::ibv_srq_init_attr { srq_context: ptr::null_mut(), attr };
        // SAFETY: the domain is alive, and `attributes` outlives the call.
        let srq = null_and_errno(unsafe { ffi::ibv_create_srq(pd.as_raw(), &mut attributes) })
            .map_err(|errno| errno.with_remedy(VERB, arguments, remedy(pd.context(), errno, max_wr, max_sge)))?;
        // SAFETY: the queue was made just now, nobody else has it, and `post` is its context's.
        Ok(unsafe { SharedReceiveQueue::new(srq, post, &pd, attributes.attr.max_sge, None, None) })
    }
}

/// Which size is beyond the device's limit.
#[cold]
fn remedy(context: &Context, errno: Errno, max_wr: u32, max_sge: u32) -> String {
    let Ok(device) = context.device_attributes() else { return String::new() };
    let name = context.device().name();
    match errno.0 {
        libc::ENOMEM => "the device is out of shared receive queues or memory; see also `ulimit -l`".to_owned(),
        libc::EINVAL if !(1..=device.max_srq_work_requests()).contains(&max_wr) => {
            format!("{name} takes 1 to {} requests", device.max_srq_work_requests())
        }
        libc::EINVAL if max_sge > device.max_srq_sge() => {
            format!("{name} takes at most {} scatter/gather entries a request", device.max_srq_sge())
        }
        _ => String::new(),
    }
}

impl ProtectionDomain {
    /// `ibv_create_srq`: makes a shared receive queue for at least `max_wr` requests of one scatter/gather entry each.
    /// [`SharedReceiveQueueBuilder`] has the other choices.
    ///
    /// # Errors
    ///
    /// As those of [`SharedReceiveQueueBuilder::build`].
    ///
    /// # References
    ///
    /// [ibv_create_srq(3)](https://man7.org/linux/man-pages/man3/ibv_create_srq.3.html)
    #[doc(alias = "ibv_create_srq")]
    pub fn create_shared_receive_queue(&self, max_wr: u32) -> Result<SharedReceiveQueue> {
        SharedReceiveQueueBuilder::new(self, max_wr).build()
    }
}

impl SharedReceiveQueue {
    /// `ibv_post_srq_recv`: hands a request to the queue.
    ///
    /// # Errors
    ///
    /// * `ENOMEM`: the queue is full.
    /// * `EINVAL`: the request has too many scatter/gather entries.
    ///
    /// # References
    ///
    /// [ibv_post_srq_recv(3)](https://man7.org/linux/man-pages/man3/ibv_post_srq_recv.3.html)
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline]
    pub fn post_receive(&self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        // SAFETY: the request is valid.
        unsafe { self.post_one(request.as_raw()) }
    }

    /// `ibv_post_srq_recv`: hands a prepared request to the queue, as it is now. It can then be changed and posted again.
    ///
    /// # Errors
    ///
    /// As those of [`post_receive`](Self::post_receive).
    ///
    /// # References
    ///
    /// [ibv_post_srq_recv(3)](https://man7.org/linux/man-pages/man3/ibv_post_srq_recv.3.html)
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline]
    pub fn post_prepared_receive<const N: usize>(&self, request: &PreparedReceive<N>) -> Result<(), PostError> {
        // SAFETY: the request is valid.
        unsafe { self.post_one(request.as_wr()) }
    }

    /// `ibv_post_srq_recv`: hands requests to the queue, in their order, with one doorbell.
    ///
    /// # Errors
    ///
    /// As those of [`post_receive`](Self::post_receive). [`PostError::accepted`] tells how many were taken before the one
    /// that was refused.
    ///
    /// # References
    ///
    /// [ibv_post_srq_recv(3)](https://man7.org/linux/man-pages/man3/ibv_post_srq_recv.3.html)
    #[doc(alias = "ibv_post_srq_recv")]
    #[inline]
    pub fn post_receive_chain<C: ReceiveChain + ?Sized>(&self, requests: &mut C) -> Result<(), PostError> {
        let (total, requests) = (requests.length(), requests.link(Limits::NONE));
        let mut bad_wr = ptr::null_mut();
        if requests.count > 0 {
            // SAFETY: the queue is alive, and the requests are a chain of valid ones.
            let code = unsafe { (self.post)(self.as_raw(), requests.first, &mut bad_wr) };
            if code != 0 {
                return Err(requests.refusal(VERB, code, self.inner.max_sge, total, bad_wr));
            }
        }
        Ok(())
    }

    /// # Safety
    ///
    /// The request is valid.
    #[inline]
    unsafe fn post_one(&self, wr: *mut ffi::ibv_recv_wr) -> Result<(), PostError> {
        let mut bad_wr = ptr::null_mut();
        // SAFETY: the queue is alive; the request is valid and, with its link cleared, a chain of one.
        let code = unsafe {
            (*wr).next = ptr::null_mut();
            (self.post)(self.as_raw(), wr, &mut bad_wr)
        };
        if code == 0 { Ok(()) } else { Err(Linked::one(wr).refusal(VERB, code, self.inner.max_sge, 1, bad_wr)) }
    }

    /// `ibv_query_srq`: the sizes of the queue, and its limit.
    ///
    /// # Errors
    ///
    /// `EIO` or `ENODEV`: the device is gone. Other numbers are the provider's.
    ///
    /// # References
    ///
    /// [ibv_query_srq(3)](https://man7.org/linux/man-pages/man3/ibv_query_srq.3.html)
    #[doc(alias = "ibv_query_srq")]
    pub fn attributes(&self) -> Result<SharedReceiveQueueAttributes> {
        let mut attr = ffi::ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: 0 };
        // SAFETY: the queue is alive, and `attr` outlives the call.
        let code = unsafe { ffi::ibv_query_srq(self.as_raw(), &mut attr) };
        zero_or_errno(code).map_err(|errno| errno.of("ibv_query_srq", format_args!("{self:?}")))?;
        let ffi::ibv_srq_attr { max_wr, max_sge, srq_limit: limit } = attr;
        Ok(SharedReceiveQueueAttributes { max_wr, max_sge, limit })
    }

    /// `ibv_modify_srq`: has the device tell once, by the event
    /// [`SHARED_RECEIVE_QUEUE_LIMIT_REACHED`](crate::AsyncEventType::SHARED_RECEIVE_QUEUE_LIMIT_REACHED), when fewer than
    /// `limit` requests are left. The limit is 0 after that, which means never, until it is set again.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the limit is above the size of the queue.
    ///
    /// # References
    ///
    /// [ibv_modify_srq(3)](https://man7.org/linux/man-pages/man3/ibv_modify_srq.3.html); InfiniBand Architecture
    /// Specification, volume 1, chapter 10.2.9.1.
    #[doc(alias = "ibv_modify_srq")]
    #[doc(alias = "IBV_SRQ_LIMIT")]
    pub fn set_limit(&self, limit: u32) -> Result<()> {
        let attr = ffi::ibv_srq_attr { max_wr: 0, max_sge: 0, srq_limit: limit };
        self.modify(attr, ffi::ibv_srq_attr_mask::IBV_SRQ_LIMIT).map_err(|errno| {
            let remedy = match self.attributes() {
                Ok(have) if limit > have.max_wr => format!("the queue holds {} requests", have.max_wr),
                _ => String::new(),
            };
            errno.with_remedy("ibv_modify_srq", format_args!("{self:?}, srq_limit {limit}"), remedy)
        })
    }

    /// `ibv_modify_srq`: changes how many requests the queue holds. The device may round `max_wr` up.
    ///
    /// # Errors
    ///
    /// * `EINVAL`: `max_wr` is beyond the device's limit, below the queue's [limit](Self::set_limit), or below the number of
    ///   requests that are there.
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the device cannot resize.
    ///
    /// # References
    ///
    /// [ibv_modify_srq(3)](https://man7.org/linux/man-pages/man3/ibv_modify_srq.3.html)
    #[doc(alias = "ibv_modify_srq")]
    #[doc(alias = "IBV_SRQ_MAX_WR")]
    pub fn resize(&self, max_wr: u32) -> Result<()> {
        let attr = ffi::ibv_srq_attr { max_wr, max_sge: 0, srq_limit: 0 };
        self.modify(attr, ffi::ibv_srq_attr_mask::IBV_SRQ_MAX_WR).map_err(|errno| {
            let remedy = remedy(self.inner.pd.context(), errno, max_wr, 0);
            errno.with_remedy("ibv_modify_srq", format_args!("{self:?}, max_wr {max_wr}"), remedy)
        })
    }

    fn modify(&self, mut attr: ffi::ibv_srq_attr, mask: ffi::ibv_srq_attr_mask) -> Result<(), Errno> {
        // SAFETY: the queue is alive, and `attr` outlives the call.
        zero_or_errno(unsafe { ffi::ibv_modify_srq(self.as_raw(), &mut attr, mask.0 as i32) })
    }

    /// `ibv_get_srq_num`: the number of the queue on its device, where the device has numbers for them.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported): it has none for queues that are not of XRC.
    ///
    /// # References
    ///
    /// [ibv_get_srq_num(3)](https://man7.org/linux/man-pages/man3/ibv_get_srq_num.3.html)
    #[doc(alias = "ibv_get_srq_num")]
    pub fn number(&self) -> Result<u32> {
        let mut number = 0;
        // SAFETY: the queue is alive, and `number` outlives the call.
        let code = unsafe { ffi::ibv_get_srq_num(self.as_raw(), &mut number) };
        zero_or_errno(code).map_err(|errno| errno.of("ibv_get_srq_num", format_args!("{self:?}")))?;
        Ok(number)
    }

    /// The number by which an [`AsyncEvent`](crate::AsyncEvent) names the queue.
    pub fn id(&self) -> ObjectId {
        self.inner.identity.id()
    }

    /// The domain in which the queue was made.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        &self.inner.pd
    }

    /// The queue in libibverbs' terms; valid as long as `self`, and not to be destroyed.
    #[inline]
    pub fn as_raw(&self) -> *mut ffi::ibv_srq {
        self.srq.as_ptr()
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedReceiveQueue({} on {})", self.id(), self.inner.pd.context().device().name())
    }
}
