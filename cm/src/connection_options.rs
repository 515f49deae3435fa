//! [`ConnectionOptions`]: how queue pairs are made and connected.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use verbs::{
    AccessFlags, AckTimeout, CompletionQueue, CompletionQueueBuilder, ProtectionDomain, QueuePair,
    QueuePairCapabilities, RnrTimer, SharedReceiveQueue, Transport,
};

use crate::error::{Error, Result};
use crate::event::{Event, EventKind};
use crate::event_channel::EventChannel;
use crate::id::Id;
use crate::parameters::{ConnectionParameters, Depth};
use crate::port_space::PortSpace;

/// How a queue pair is made, and how it is connected. The default is good for a first program, and each field may be set.
///
/// ```no_run
/// # fn main() -> cm::Result<()> {
/// use std::time::Duration;
///
/// let mut options = cm::ConnectionOptions::default();
/// options.timeout = Duration::from_secs(2);
/// options.capabilities.max_send_wr = 256;
/// options.private_data = b"version 3".to_vec();
/// let connection = options.connect("storage.example.net:7471")?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectionOptions {
    /// How many requests and scatter/gather entries the queues hold. Default: 64 requests of one entry in each.
    pub capabilities: QueuePairCapabilities,
    /// Whether each request of the send queue has a completion. Default: no, only those that ask for it.
    pub signal_all: bool,
    /// The protection domain, which has to be of the device's [context](Id::context). Default: [librdmacm's](Id::protection_domain), the
    /// same for all connections of the device.
    pub protection_domain: Option<ProtectionDomain>,
    /// Where the completions of sends go. Default: a queue for both, with a channel to wait on and room for all requests.
    pub send_cq: Option<CompletionQueue>,
    /// Where the completions of receives go. Default: as above.
    pub recv_cq: Option<CompletionQueue>,
    /// The shared receive queue to take receives from. Default: none.
    pub shared_receive_queue: Option<SharedReceiveQueue>,
    /// What the peer may do through the queue pair. Default: RDMA WRITE, RDMA READ and atomics, on regions that allow it.
    pub access: AccessFlags,
    /// How many RDMA READs and atomics of the peer are answered at once. Default: the most that the device can.
    pub responder_resources: Depth,
    /// How many RDMA READs and atomics are under way at once. Default: the most that the device can, and the peer answers.
    pub initiator_depth: Depth,
    /// Whether the hardware controls the flow. Default: no.
    pub flow_control: bool,
    /// How often a packet that is not acknowledged is sent again, 0 to 7. When connecting only. Default: 7.
    pub retry_count: u8,
    /// How often a message is sent again for which the peer has no receive, 0 to 7; 7: for ever. Default: 7.
    pub rnr_retry_count: u8,
    /// How long the peer waits before it sends a message again for which there was no receive. Default: 0.64 ms.
    pub min_rnr_timer: RnrTimer,
    /// Bytes for the peer's program, with the request or with the answer. Default: none.
    pub private_data: Vec<u8>,
    /// How long connecting may take in all, or accepting, or waiting in each call where they are several. Default: 10 s.
    pub timeout: Duration,
    /// The local address to connect from; port 0: any. Default: the one that the route to the peer has.
    pub source: Option<SocketAddr>,
    /// The type of service of the packets, as in RFC 2474. When connecting only. Default: 0.
    pub type_of_service: Option<u8>,
    /// How long the queue pair waits for an acknowledgement. When connecting only. Default: what the path says.
    pub ack_timeout: Option<AckTimeout>,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            capabilities: QueuePairCapabilities::default(),
            signal_all: false,
            protection_domain: None,
            send_cq: None,
            recv_cq: None,
            shared_receive_queue: None,
            access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC,
            responder_resources: Depth::Max,
            initiator_depth: Depth::Max,
            flow_control: false,
            retry_count: 7,
            rnr_retry_count: 7,
            min_rnr_timer: RnrTimer::default(),
            private_data: Vec::new(),
            timeout: Duration::from_secs(10),
            source: None,
            type_of_service: None,
            ack_timeout: None,
        }
    }
}

impl ConnectionOptions {
    /// What the peer is told.
    pub(crate) fn parameters<T: Transport>(&self, qp: &QueuePair<T>) -> ConnectionParameters {
        let mut parameters = ConnectionParameters::new(qp.qp_num());
        parameters.private_data.clone_from(&self.private_data);
        parameters.responder_resources = self.responder_resources;
        parameters.initiator_depth = self.initiator_depth;
        parameters.flow_control = self.flow_control;
        parameters.retry_count = self.retry_count;
        parameters.rnr_retry_count = self.rnr_retry_count;
        parameters.srq = qp.shared_receive_queue().is_some();
        parameters
    }

    /// Makes a queue pair on the id's device.
    pub(crate) fn build<T: Transport>(&self, id: &Id) -> Result<QueuePair<T>> {
        let pd = match &self.protection_domain {
            Some(pd) => {
                let context = id.context()?;
                if pd.context().as_raw() != context.as_raw() {
                    let value = format!("of another context of {}", pd.context().device().name());
                    let rule = "it has to be made of the device's context as librdmacm opened it: see cm::devices and Id::context";
                    return Err(Error::invalid("ibv_create_qp", "the protection domain", value, rule));
                }
                pd.clone()
            }
            None => id.protection_domain()?,
        };
        let context = pd.context();
        let QueuePairCapabilities { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data, .. } =
            self.capabilities;
        let (send_cq, recv_cq) = match (&self.send_cq, &self.recv_cq) {
            (Some(send), Some(recv)) => (send.clone(), recv.clone()),
            (send, recv) => {
                let receives = match &self.shared_receive_queue {
                    Some(srq) => srq.attributes()?.max_wr,
                    None => max_recv_wr,
                };
                // The device may take more requests than were asked for, up to the next power of two.
                let room = |requests: u32| requests.max(1).checked_next_power_of_two().unwrap_or(u32::MAX);
                let entries =
                    room(max_send_wr).saturating_add(room(receives)).min(context.device_attributes()?.max_cqe());
                let channel = context.create_completion_channel()?;
                let both = CompletionQueueBuilder::new(context, entries).channel(&channel).build()?;
                (send.clone().unwrap_or_else(|| both.clone()), recv.clone().unwrap_or(both))
            }
        };
        let mut builder = QueuePair::<T>::builder(&pd, &send_cq, &recv_cq)
            .max_send_wr(max_send_wr)
            .max_recv_wr(max_recv_wr)
            .max_send_sge(max_send_sge)
            .max_recv_sge(max_recv_sge)
            .max_inline_data(max_inline_data)
            .signal_all(self.signal_all);
        if let Some(srq) = &self.shared_receive_queue {
            builder = builder.shared_receive_queue(srq);
        }
        Ok(builder.build()?)
    }

    /// An id on a channel of its own, with the device that leads to an address.
    pub(crate) fn resolve_device(&self, space: PortSpace, address: SocketAddr, deadline: &Deadline) -> Result<Id> {
        let id = EventChannel::create()?.create_id(space)?;
        if let Some(type_of_service) = self.type_of_service {
            id.set_type_of_service(type_of_service)?;
        }
        id.resolve_addr(self.source, address, deadline.time_for("rdma_resolve_addr")?)?;
        match id.wait_for_event(&deadline.with_grace(), "rdma_resolve_addr")? {
            EventKind::AddressResolved => Ok(id),
            other => Err(unexpected(other, address)),
        }
    }

    /// As [`resolve_device`](Self::resolve_device), with the route.
    pub(crate) fn resolve_route(&self, space: PortSpace, address: SocketAddr, deadline: &Deadline) -> Result<Id> {
        let id = self.resolve_device(space, address, deadline)?;
        if let (Some(timeout), false) = (self.ack_timeout, space.is_datagram()) {
            id.set_ack_timeout(timeout)?;
        }
        id.resolve_route(deadline.time_for("rdma_resolve_route")?)?;
        match id.wait_for_event(&deadline.with_grace(), "rdma_resolve_route")? {
            EventKind::RouteResolved => Ok(id),
            other => Err(unexpected(other, address)),
        }
    }
}

/// The error that an event tells of where another event was waited for.
pub(crate) fn unexpected(event: EventKind, address: SocketAddr) -> Error {
    match event {
        EventKind::AddressError { errno } => Error::AddressUnresolved { address, errno },
        EventKind::RouteError { errno } => Error::RouteUnresolved { address, errno },
        EventKind::Unreachable { errno } => Error::Unreachable { address, errno },
        EventKind::Rejected(rejection) => Error::Rejected { address, rejection },
        EventKind::DatagramRejected { status, private_data } => {
            Error::DatagramRejected { address, status, private_data }
        }
        EventKind::ConnectError { errno } => Error::Connect { address, errno },
        EventKind::Disconnected => Error::Disconnected,
        EventKind::DeviceRemoval => Error::DeviceRemoved,
        _ => Error::Connect { address, errno: libc::EPROTO },
    }
}

/// When something has to be done.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    timeout: Duration,
    /// `None`: beyond the clock's end.
    end: Option<Instant>,
}

impl Deadline {
    pub(crate) fn after(timeout: Duration) -> Self {
        Self { timeout, end: Instant::now().checked_add(timeout) }
    }

    /// When the first of `count` tries has to be done, so that each has as much time.
    pub(crate) fn share(&self, count: usize) -> Self {
        match u32::try_from(count).unwrap_or(u32::MAX) {
            0 | 1 => *self,
            count => Self::after(self.remaining() / count),
        }
    }

    pub(crate) fn end(&self) -> Option<Instant> {
        self.end
    }

    pub(crate) fn remaining(&self) -> Duration {
        self.end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()))
    }

    /// The same, for a step that takes some time; an error if there is none left. (Newer kernels answer EINVAL to a timeout of 0.)
    pub(crate) fn time_for(&self, step: &'static str) -> Result<Duration> {
        let remaining = self.remaining();
        if remaining.is_zero() { Err(Error::TimedOut { step, timeout: self.timeout }) } else { Ok(remaining) }
    }

    /// Later, so that the kernel, which has a timer of its own and says in any case what came of it, can say why there is nothing.
    pub(crate) fn with_grace(&self) -> Self {
        Self { end: self.end.and_then(|end| end.checked_add(Duration::from_secs(5))), ..*self }
    }
}

impl Id {
    /// The next event of this id, which has a channel of its own.
    pub(crate) fn wait_for_event(&self, deadline: &Deadline, step: &'static str) -> Result<EventKind> {
        let event = self.next_event_until(deadline, || false)?;
        event.ok_or(Error::TimedOut { step, timeout: deadline.timeout })
    }

    /// The same. `None`: there was none in time, or before it was over.
    pub(crate) fn next_event_until(
        &self,
        deadline: &Deadline,
        is_over: impl Fn() -> bool,
    ) -> Result<Option<EventKind>> {
        let channel = self.channel();
        loop {
            match channel.next_event_until(deadline.end, &is_over)? {
                Some(event) if event.id() != self.key() => {}
                event => return Ok(event.map(Event::into_kind)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_step_begins_when_the_time_is_over() {
        let error = Deadline::after(Duration::ZERO).time_for("rdma_resolve_route").unwrap_err();
        assert!(matches!(error, Error::TimedOut { step: "rdma_resolve_route", .. }), "{error}");
        let left = Deadline::after(Duration::from_secs(60)).time_for("rdma_resolve_route").unwrap();
        assert!(left > Duration::ZERO && left <= Duration::from_secs(60));
        assert_eq!(Deadline::after(Duration::MAX).time_for("rdma_resolve_route").unwrap(), Duration::MAX);
    }
}
