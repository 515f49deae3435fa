//! [`Listener`].

use std::iter::FusedIterator;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::connection::Connection;
use crate::connection_options::{ConnectionOptions, Deadline};
use crate::connection_request::ConnectionRequest;
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::event_channel::EventChannel;
use crate::id::Id;
use crate::listener_options::ListenerOptions;
use crate::lookup::ToAddress;

/// Accepts reliable connections at an address.
///
/// ```no_run
/// # fn main() -> cm::Result<()> {
/// use verbs::{AccessFlags, ReceiveRequest, WorkCompletion};
///
/// let listener = cm::Listener::bind("0.0.0.0:7471")?;
/// let connection = listener.accept()?;
/// let mut region = connection.protection_domain().register(vec![0; 4096], AccessFlags::LOCAL_WRITE)?;
/// connection.queue_pair().post_receive(&ReceiveRequest::new(1, &[region.slice(..)?]))?;
/// let mut completions = [WorkCompletion::default(); 1];
/// for completion in connection.completion_queue().wait(&mut completions, None)? {
///     let length = completion.success()?.byte_len().unwrap_or(0) as usize;
///     println!("{}", String::from_utf8_lossy(&region.to_vec(..length)?));
/// }
/// connection.wait_disconnected(None)?;
/// # Ok(()) }
/// ```
///
/// Requests that wait when it is dropped are refused.
#[doc(alias = "rdma_listen")]
#[derive(Debug)]
pub struct Listener {
    id: Id,
    channel: EventChannel,
    options: ConnectionOptions,
    /// Whether the device is gone, of which the kernel tells once.
    is_removed: AtomicBool,
}

impl Listener {
    /// Listens at an address: `0.0.0.0` or `::` for every device, port 0 for any free port.
    ///
    /// # Errors
    ///
    /// * [`Error::NoDevice`]: the machine has no RDMA device.
    /// * [`Error::AddressInUse`]: another listener is there.
    /// * [`Error::Lookup`]: the name has no address.
    /// * As those of [`Id::bind`].
    #[doc(alias = "rdma_bind_addr")]
    pub fn bind(address: impl ToAddress) -> Result<Self> {
        ListenerOptions::default().bind(address)
    }

    /// As [`bind`](Self::bind), with options for the connections that are [accepted](Self::accept), and the number of requests that
    /// may wait. [`ListenerOptions`] have more.
    ///
    /// # Errors
    ///
    /// As those of [`bind`](Self::bind).
    pub fn bind_with(address: impl ToAddress, options: &ConnectionOptions, backlog: u32) -> Result<Self> {
        ListenerOptions { backlog, connections: options.clone(), ..ListenerOptions::default() }.bind(address)
    }

    /// With an id that listens, on a channel of its own.
    pub(crate) fn new(id: Id, channel: EventChannel, options: ConnectionOptions) -> Self {
        Self { id, channel, options, is_removed: AtomicBool::new(false) }
    }

    /// The address, with the port that was chosen.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.id.local_addr()
    }

    /// The id that listens.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// The next connection, when it stands, made with the listener's options. A peer that goes away while it is being accepted is an
    /// error, after the options' timeout at the latest; the next call is for the next peer.
    ///
    /// While it waits for a peer's last word, others wait. To do more than one at a time, take [requests](Self::next_request), and accept
    /// each on a thread of its own.
    ///
    /// # Errors
    ///
    /// As those of [`ConnectionRequest::accept`].
    #[doc(alias = "rdma_accept")]
    pub fn accept(&self) -> Result<Connection> {
        loop {
            if let Some(request) = self.next_request(None)? {
                return request.accept(&self.options);
            }
        }
    }

    /// The next connection request: look at it, then accept or reject it. `None`: there was none when `timeout` was over; without a
    /// timeout it waits for ever.
    ///
    /// # Errors
    ///
    /// * [`Error::DeviceRemoved`]: the device at whose address it listens is gone. Each call says so from then on, on every thread.
    /// * `EMFILE`: there is no descriptor left for the request's events; it is refused.
    #[doc(alias = "rdma_get_request")]
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_REQUEST")]
    pub fn next_request(&self, timeout: Option<Duration>) -> Result<Option<ConnectionRequest>> {
        let deadline = Deadline::after(timeout.unwrap_or(Duration::MAX));
        loop {
            let event = self.channel.next_event_until(deadline.end(), || self.is_removed())?;
            if self.is_removed() {
                return Err(Error::DeviceRemoved);
            }
            match event {
                None => return Ok(None),
                Some(event) if event.id() == self.id.key() => match event.into_kind() {
                    EventKind::ConnectRequest(request) => {
                        // What becomes of it is no concern of who waits for the next one, who would take its events away.
                        request.id().migrate(&EventChannel::create()?)?;
                        return Ok(Some(request));
                    }
                    EventKind::DeviceRemoval => {
                        self.is_removed.store(true, Ordering::Release);
                        self.channel.wake(&self.channel.lock());
                    }
                    _ => {}
                },
                Some(_) => {}
            }
        }
    }

    fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }

    /// The connections, one after another, until the listener's device is removed: that is the last error.
    ///
    /// A peer that goes away while it is being accepted is an error, too, and others come behind it.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self, is_over: false }
    }
}

impl AsFd for Listener {
    /// The file descriptor that becomes readable when there is a request; then [`next_request`](Listener::next_request), with a timeout of
    /// zero, takes it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// The connections of a [`Listener`]. Made by [`Listener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a Listener,
    is_over: bool,
}

impl Iterator for Incoming<'_> {
    type Item = Result<Connection>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let connection = self.listener.accept();
        self.is_over = matches!(connection, Err(Error::DeviceRemoved)) && self.listener.is_removed();
        Some(connection)
    }
}

impl FusedIterator for Incoming<'_> {}
