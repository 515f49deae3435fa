//! [`AsyncEvent`]: what a device tells without being asked.
//!
//! # Safety
//!
//! * `ibv_get_async_event` hands out a pointer to the object that an event is of. The kernel counts the event as it hands it
//!   out, and libibverbs' call that destroys the object returns only when as many were acked: until then the object's memory
//!   is there, whatever other threads destroy.
//! * Between that call and `ibv_ack_async_event` we do nothing but to read a number that never changes and to look an address
//!   up, under a lock that is never held during a call of libibverbs: a thread that destroys the object waits for a few
//!   instructions of ours, and we never for it.
//! * The descriptor does not block while we read from it.
#![allow(unsafe_code)]

use std::fmt;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use crate::completion_queue::CompletionQueue;
use crate::context::Context;
use crate::error::Result;
use crate::ffi;
use crate::ffi::ibv_event_type as E;
use crate::object_id::ObjectId;
use crate::open_enum::open_enum;
use crate::queue_pair::QueuePair;
use crate::readable::{set_nonblocking, wait_readable};
use crate::returns::{Errno, minus_one_and_errno};
use crate::shared_receive_queue::SharedReceiveQueue;
use crate::transport::Transport;

open_enum! {
    /// `enum ibv_event_type`: what happened.
    ///
    /// # References
    ///
    /// [ibv_get_async_event(3)](https://man7.org/linux/man-pages/man3/ibv_get_async_event.3.html); InfiniBand Architecture
    /// Specification, volume 1, chapter 11.6.3.
    #[doc(alias = "ibv_event_type")]
    AsyncEventType(u32) {
        /// A completion queue overflowed or cannot be used any more.
        COMPLETION_QUEUE_ERROR = E::IBV_EVENT_CQ_ERR.0, "completion queue error";
        /// An error that kept a queue pair from completing requests; it is in ERROR.
        QUEUE_PAIR_FATAL = E::IBV_EVENT_QP_FATAL.0, "queue pair fatal";
        /// A peer's request that makes no sense; the queue pair is in ERROR.
        QUEUE_PAIR_REQUEST_ERROR = E::IBV_EVENT_QP_REQ_ERR.0, "queue pair request error";
        /// A peer's request that a region's or queue pair's rights do not allow; the queue pair is in ERROR.
        QUEUE_PAIR_ACCESS_ERROR = E::IBV_EVENT_QP_ACCESS_ERR.0, "queue pair access error";
        /// The first message arrived on a queue pair in RTR.
        COMMUNICATION_ESTABLISHED = E::IBV_EVENT_COMM_EST.0, "communication established";
        /// A queue pair that was moved to SQD has finished what it had begun.
        SEND_QUEUE_DRAINED = E::IBV_EVENT_SQ_DRAINED.0, "send queue drained";
        /// A queue pair now uses its alternate path.
        PATH_MIGRATED = E::IBV_EVENT_PATH_MIG.0, "path migrated";
        /// A queue pair could not change to its alternate path.
        PATH_MIGRATION_ERROR = E::IBV_EVENT_PATH_MIG_ERR.0, "path migration error";
        /// The device failed: close it.
        DEVICE_FATAL = E::IBV_EVENT_DEVICE_FATAL.0, "device fatal";
        /// A port became active.
        PORT_ACTIVE = E::IBV_EVENT_PORT_ACTIVE.0, "port active";
        /// A port is no longer active.
        PORT_ERROR = E::IBV_EVENT_PORT_ERR.0, "port error";
        /// A port has another LID.
        LID_CHANGE = E::IBV_EVENT_LID_CHANGE.0, "LID change";
        /// A port's P_Key table changed.
        PKEY_CHANGE = E::IBV_EVENT_PKEY_CHANGE.0, "P_Key change";
        /// A port has another subnet manager.
        SUBNET_MANAGER_CHANGE = E::IBV_EVENT_SM_CHANGE.0, "subnet manager change";
        /// A shared receive queue cannot be used any more.
        SHARED_RECEIVE_QUEUE_ERROR = E::IBV_EVENT_SRQ_ERR.0, "shared receive queue error";
        /// A shared receive queue has fewer requests left than its limit, and its limit is 0 again.
        SHARED_RECEIVE_QUEUE_LIMIT_REACHED = E::IBV_EVENT_SRQ_LIMIT_REACHED.0, "shared receive queue limit reached";
        /// A queue pair in ERROR takes nothing more from its shared receive queue.
        LAST_WORK_QUEUE_ELEMENT_REACHED = E::IBV_EVENT_QP_LAST_WQE_REACHED.0, "last work queue element reached";
        /// The subnet manager asks to join multicast groups and to subscribe to services again.
        CLIENT_REREGISTER = E::IBV_EVENT_CLIENT_REREGISTER.0, "client reregister";
        /// A port's GID table changed.
        GID_CHANGE = E::IBV_EVENT_GID_CHANGE.0, "GID change";
        /// A work queue cannot be used any more.
        WORK_QUEUE_FATAL = E::IBV_EVENT_WQ_FATAL.0, "work queue fatal";
        /// The device has another speed. (`IBV_EVENT_DEVICE_SPEED_CHANGE`, from release 62 of rdma-core on.)
        DEVICE_SPEED_CHANGE = 20, "device speed change";
    }
}

/// What an [`AsyncEvent`] is of, by what a program knows it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEventSource {
    /// The device.
    Device,
    /// A port, from 1.
    Port(u8),
    /// A queue pair.
    QueuePair {
        /// Its number, 24 bits.
        qp_num: u32,
        /// Its [`QueuePair::id`]; `None`: it is one of XRC or of raw packets, was not made by this crate, or is being dropped.
        id: Option<ObjectId>,
    },
    /// A completion queue, by its [`CompletionQueue::id`]; `None`: it was not made by this crate, or is being dropped.
    CompletionQueue(Option<ObjectId>),
    /// A shared receive queue, by its [`SharedReceiveQueue::id`]; `None`: it was not made by this crate, or is being dropped.
    SharedReceiveQueue(Option<ObjectId>),
    /// A work queue, by its number.
    WorkQueue(u32),
    /// It is not known what events of this type are of.
    Unknown,
}

/// `struct ibv_async_event`: something that happened to a device, a port or a queue, and that no completion tells of.
///
/// It is a copy that was acknowledged already: it can be kept, and the object be dropped.
///
/// # Examples
///
/// ```no_run
/// use verbs::{AsyncEventSource, AsyncEventType};
///
/// # fn example(context: &verbs::Context, cq: &verbs::CompletionQueue) -> verbs::Result<()> {
/// while let Some(event) = context.async_event(None)? {
///     match (event.event_type(), event.source()) {
///         (AsyncEventType::PORT_ERROR, AsyncEventSource::Port(port)) => eprintln!("port {port} is down"),
///         (AsyncEventType::COMPLETION_QUEUE_ERROR, _) if event.is_for(cq) => eprintln!("our queue overflowed"),
///         (AsyncEventType::DEVICE_FATAL, _) => break,
///         _ => eprintln!("{event}"),
///     }
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_async_event")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    event_type: AsyncEventType,
    source: AsyncEventSource,
}

mod sealed {
    pub trait Sealed {}
}

/// An object that asynchronous events can be of, for [`AsyncEvent::is_for`].
pub trait AsyncEventObject: sealed::Sealed {
    /// The number by which events name the object.
    fn id(&self) -> ObjectId;
}

macro_rules! event_objects {
    ($([$($generics:tt)*] $object:ty;)*) => {
        $(impl<$($generics)*> sealed::Sealed for $object {}

        impl<$($generics)*> AsyncEventObject for $object {
            fn id(&self) -> ObjectId {
                <$object>::id(self)
            }
        })*
    };
}

event_objects! {
    [] CompletionQueue;
    [] SharedReceiveQueue;
    [T: Transport] QueuePair<T>;
}

impl AsyncEvent {
    /// What happened.
    pub fn event_type(&self) -> AsyncEventType {
        self.event_type
    }

    /// What it happened to.
    pub fn source(&self) -> AsyncEventSource {
        self.source
    }

    /// Whether it happened to this queue or queue pair. An event of an object that was dropped is for none that is there,
    /// even where its number is used again.
    pub fn is_for(&self, object: &impl AsyncEventObject) -> bool {
        match self.source {
            AsyncEventSource::CompletionQueue(id)
            | AsyncEventSource::SharedReceiveQueue(id)
            | AsyncEventSource::QueuePair { id, .. } => id == Some(object.id()),
            _ => false,
        }
    }

    /// # Safety
    ///
    /// The event was taken from `context` and is not acked yet.
    unsafe fn describe(context: &Context, event: &ffi::ibv_async_event) -> Self {
        let event_type = AsyncEventType::from_raw(event.event_type.0);
        let element = event.element;
        let objects = context.objects();
        // SAFETY: libibverbs sets the member of the union that belongs to the type. The objects are there until the event is
        // acked, and their numbers do not change.
        let source = unsafe {
            match event.event_type {
                E::IBV_EVENT_CQ_ERR => AsyncEventSource::CompletionQueue(objects.find_failed(element.cq)),
                E::IBV_EVENT_QP_FATAL
                | E::IBV_EVENT_QP_REQ_ERR
                | E::IBV_EVENT_QP_ACCESS_ERR
                | E::IBV_EVENT_COMM_EST
                | E::IBV_EVENT_SQ_DRAINED
                | E::IBV_EVENT_PATH_MIG
                | E::IBV_EVENT_PATH_MIG_ERR
                | E::IBV_EVENT_QP_LAST_WQE_REACHED => {
                    AsyncEventSource::QueuePair { qp_num: (*element.qp).qp_num, id: objects.find(element.qp) }
                }
                E::IBV_EVENT_SRQ_ERR | E::IBV_EVENT_SRQ_LIMIT_REACHED => {
                    AsyncEventSource::SharedReceiveQueue(objects.find(element.srq))
                }
                E::IBV_EVENT_WQ_FATAL => AsyncEventSource::WorkQueue((*element.wq).wq_num),
                E::IBV_EVENT_PORT_ACTIVE
                | E::IBV_EVENT_PORT_ERR
                | E::IBV_EVENT_LID_CHANGE
                | E::IBV_EVENT_PKEY_CHANGE
                | E::IBV_EVENT_SM_CHANGE
                | E::IBV_EVENT_CLIENT_REREGISTER
                | E::IBV_EVENT_GID_CHANGE => AsyncEventSource::Port(element.port_num as u8),
                E::IBV_EVENT_DEVICE_FATAL => AsyncEventSource::Device,
                _ if event_type == AsyncEventType::DEVICE_SPEED_CHANGE => AsyncEventSource::Device,
                _ => AsyncEventSource::Unknown,
            }
        };
        Self { event_type, source }
    }
}

impl fmt::Display for AsyncEventSource {
    /// Such as `queue pair 0x11`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device => f.write_str("the device"),
            Self::Port(port) => write!(f, "port {port}"),
            Self::QueuePair { qp_num, .. } => write!(f, "queue pair {qp_num:#x}"),
            Self::CompletionQueue(Some(id)) => write!(f, "completion queue {id}"),
            Self::SharedReceiveQueue(Some(id)) => write!(f, "shared receive queue {id}"),
            Self::CompletionQueue(None) | Self::SharedReceiveQueue(None) => {
                f.write_str("a queue that was not made by this crate or is gone")
            }
            Self::WorkQueue(number) => write!(f, "work queue {number:#x}"),
            Self::Unknown => f.write_str("something unknown"),
        }
    }
}

impl fmt::Display for AsyncEvent {
    /// Such as `port error, port 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.event_type;
        match self.source {
            AsyncEventSource::Device => write!(f, "{kind}"),
            AsyncEventSource::Unknown => write!(f, "{kind} asynchronous event"),
            source => write!(f, "{kind}, {source}"),
        }
    }
}

impl Context {
    /// `ibv_get_async_event`: takes the next asynchronous event and acknowledges it, sleeping until there is one. `Ok(None)`:
    /// there was none until `timeout` was over. `None` as the timeout waits for ever.
    ///
    /// The first call makes the context's own descriptor non-blocking. Several threads may call it; each event goes to one of them.
    ///
    /// # Errors
    ///
    /// `EIO`: the device is gone.
    ///
    /// # References
    ///
    /// [ibv_get_async_event(3)](https://man7.org/linux/man-pages/man3/ibv_get_async_event.3.html); InfiniBand Architecture
    /// Specification, volume 1, chapter 11.6.3.
    #[doc(alias = "ibv_get_async_event")]
    #[doc(alias = "ibv_ack_async_event")]
    pub fn async_event(&self, timeout: Option<Duration>) -> Result<Option<AsyncEvent>> {
        // A time that is too far off to be counted is for ever.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(event) = self.try_async_event()? {
                return Ok(Some(event));
            }
            let remaining = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if remaining == Some(Duration::ZERO) {
                return Ok(None);
            }
            // Whether it is readable or a signal came: the next round looks.
            wait_readable(self.async_fd(), remaining, "asynchronous events")?;
        }
    }

    /// `ibv_get_async_event`: takes the next asynchronous event and acknowledges it; `Ok(None)`: there is none. It never
    /// sleeps: call it when [`as_fd`](std::os::fd::AsFd::as_fd) is readable, until there is no event left.
    ///
    /// # Errors
    ///
    /// As those of [`async_event`](Self::async_event).
    ///
    /// # References
    ///
    /// [ibv_get_async_event(3)](https://man7.org/linux/man-pages/man3/ibv_get_async_event.3.html)
    #[doc(alias = "ibv_get_async_event")]
    #[doc(alias = "ibv_ack_async_event")]
    pub fn try_async_event(&self) -> Result<Option<AsyncEvent>> {
        self.watch().check()?;
        // Another thread may have taken the event that the descriptor was readable for; and whoever lent us the context may have changed
        // the descriptor.
        set_nonblocking(self.async_fd())
            .map_err(|errno| errno.of("ibv_get_async_event", format_args!("{}, O_NONBLOCK", self.device().name())))?;
        let mut event = MaybeUninit::zeroed();
        // SAFETY: the context is open, and `event` has room for the structure. The call does not block.
        let code = unsafe { ffi::ibv_get_async_event(self.as_raw(), event.as_mut_ptr()) };
        match minus_one_and_errno(code) {
            Ok(()) => {}
            Err(Errno(libc::EAGAIN | libc::EINTR)) => return Ok(None),
            Err(errno) => {
                let remedy = if errno.0 == libc::EIO { "the device is gone" } else { "" };
                return Err(errno.with_remedy("ibv_get_async_event", self.device().name(), remedy));
            }
        }
        // SAFETY: all zeroes are a valid structure, and libibverbs wrote valid fields over them. The event was taken just now,
        // and is acked once, after the last use of what it points to. Nothing in between panics, so no event stays unacked.
        unsafe {
            let mut event = event.assume_init();
            let described = AsyncEvent::describe(self, &event);
            ffi::ibv_ack_async_event(&mut event);
            Ok(Some(described))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_prints_what_happened_and_to_what() {
        let text = |event_type, source| AsyncEvent { event_type, source }.to_string();
        assert_eq!(text(AsyncEventType::PORT_ERROR, AsyncEventSource::Port(2)), "port error, port 2");
        let pair = AsyncEventSource::QueuePair { qp_num: 0x11, id: None };
        assert_eq!(text(AsyncEventType::QUEUE_PAIR_FATAL, pair), "queue pair fatal, queue pair 0x11");
        let gone = text(AsyncEventType::COMPLETION_QUEUE_ERROR, AsyncEventSource::CompletionQueue(None));
        assert_eq!(gone, "completion queue error, a queue that was not made by this crate or is gone");
        assert_eq!(text(AsyncEventType::from_raw(77), AsyncEventSource::Unknown), "unknown (77) asynchronous event");
    }

    #[test]
    fn the_number_that_older_headers_lack_is_the_one_after_their_last() {
        assert_eq!(AsyncEventType::DEVICE_SPEED_CHANGE.as_raw(), E::IBV_EVENT_WQ_FATAL.0 + 1);
    }
}
