//! [`Connection`].

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use verbs::{CompletionQueue, ProtectionDomain, QueuePair, Rc};

use crate::connection_options::Deadline;
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::id::Id;
use crate::parameters::PeerParameters;

/// A reliable connection: an ordinary queue pair, and the id that connected it. Dropping it ends the connection; the peer is told.
///
/// It has two file descriptors: that of its channel, and, unless the options bring queues along, that of its completion channel.
#[derive(Debug)]
pub struct Connection {
    // The peer is told before the queue pair goes.
    id: Id,
    queue_pair: QueuePair<Rc>,
    peer: PeerParameters,
    /// How it has ended, of which the kernel tells once.
    end: OnceLock<End>,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Disconnected,
    DeviceRemoved,
}

impl Connection {
    pub(crate) fn new(id: Id, queue_pair: QueuePair<Rc>, peer: PeerParameters) -> Self {
        Self { id, queue_pair, peer, end: OnceLock::new() }
    }

    /// A connection that the peer has ended before this end knew that it stood.
    pub(crate) fn ended(self) -> Result<Self> {
        self.finish()?;
        Ok(self)
    }

    /// The queue pair, ready to send.
    pub fn queue_pair(&self) -> &QueuePair<Rc> {
        &self.queue_pair
    }

    /// The domain of the queue pair, in which memory for it is registered.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        self.queue_pair.protection_domain()
    }

    /// Where completions of receives go; by default those of sends, too.
    pub fn completion_queue(&self) -> &CompletionQueue {
        self.queue_pair.recv_cq()
    }

    /// The id: its addresses, its events.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// What the peer told when the connection was made.
    pub fn peer_parameters(&self) -> &PeerParameters {
        &self.peer
    }

    /// The peer's bytes, and zeroes behind them up to the size of the message that carried them: 56 bytes at the end that accepted, 196 at
    /// the one that connected.
    pub fn private_data(&self) -> &[u8] {
        &self.peer.private_data
    }

    /// The local address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.id.local_addr()
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.id.peer_addr()
    }

    /// Ends the connection: what was posted and is not done is flushed, and the peer is told. Wait for the completions that matter before.
    ///
    /// # Errors
    ///
    /// The kernel's. A connection that the peer has ended already can be ended all the same.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<()> {
        self.queue_pair.move_to_error()?;
        self.id.disconnect()
    }

    /// Waits until the peer ends the connection, or has answered that this end did, and ends this end too. `false`: it had not when
    /// `timeout` was over; `None` waits for ever.
    ///
    /// Once it has ended, each call says so at once, on every thread. To watch for the end together with other things, keep the
    /// [channel](Id::channel) of the [id](Self::id), watch its descriptor ([`AsFd`](std::os::fd::AsFd)), and call this with a timeout
    /// of zero. An event that was taken from that channel by hand is not seen here.
    ///
    /// # Errors
    ///
    /// * [`Error::DeviceRemoved`].
    /// * As those of [`disconnect`](Self::disconnect).
    #[doc(alias = "RDMA_CM_EVENT_DISCONNECTED")]
    pub fn wait_disconnected(&self, timeout: Option<Duration>) -> Result<bool> {
        let deadline = Deadline::after(timeout.unwrap_or(Duration::MAX));
        let is_over = || self.end.get().is_some();
        loop {
            match self.end.get() {
                None => {}
                Some(End::Disconnected) => return Ok(true),
                Some(End::DeviceRemoved) => return Err(Error::DeviceRemoved),
            }
            match self.id.next_event_until(&deadline, is_over)? {
                Some(EventKind::Disconnected | EventKind::TimewaitExit) => self.finish()?,
                Some(EventKind::DeviceRemoval) => self.note(End::DeviceRemoved),
                Some(_) => {}
                None if is_over() => {}
                None => return Ok(false),
            }
        }
    }

    /// Ends this end, since the other one has ended.
    fn finish(&self) -> Result<()> {
        match self.disconnect() {
            // The other end was of a device that is being removed, and so is this one.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::EIO)) => {
                self.note(End::DeviceRemoved)
            }
            result => {
                self.note(End::Disconnected);
                return result;
            }
        }
        Ok(())
    }

    /// Notes the end, and tells those who wait for it.
    fn note(&self, end: End) {
        // The first one is that of the connection.
        let _ = self.end.set(end);
        let channel = self.id.channel();
        channel.wake(&channel.lock());
    }

    /// The parts: the connection lasts as long as the id, and the queue pair may outlive it.
    pub fn into_parts(self) -> (Id, QueuePair<Rc>) {
        (self.id, self.queue_pair)
    }
}
