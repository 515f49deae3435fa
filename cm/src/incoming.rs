//! Accepting a [`ConnectionRequest`], in one call and in steps: [`IncomingConnection`].

use std::net::SocketAddr;

use verbs::{ProtectionDomain, QueuePair, Rc};

use crate::connection::Connection;
use crate::connection_options::{ConnectionOptions, Deadline, unexpected};
use crate::connection_request::ConnectionRequest;
use crate::ece;
use crate::error::{Error, Result};
use crate::event::EventKind;
use crate::parameters::Depth;
use crate::port_space::{Carrier, PortSpace};
use crate::queue_pair::TransitionOptions;

impl ConnectionRequest {
    /// Accepts, with a queue pair made as `options` say, and waits until the peer is ready too.
    ///
    /// Where the peer may send before this end has posted receives, [`prepare`](Self::prepare) the connection, and post them before
    /// accepting. (With the peer's `rnr_retry_count` at 7, its messages only wait.)
    ///
    /// A peer that was connected and has ended the connection already is no error: what it has sent has arrived.
    ///
    /// # Errors
    ///
    /// * [`Error::TimedOut`], [`Error::Unreachable`], [`Error::Disconnected`]: the peer has gone.
    /// * [`Error::Verbs`]: the queue pair could not be made; the peer is refused.
    #[doc(alias = "rdma_accept")]
    pub fn accept(self, options: &ConnectionOptions) -> Result<Connection> {
        self.prepare(options)?.accept()
    }

    /// Makes a queue pair for the connection, to which receives can then be posted.
    ///
    /// # Errors
    ///
    /// * [`Error::Disconnected`]: the peer has gone.
    /// * Those of the queue pair's making; the peer is refused.
    pub fn prepare(self, options: &ConnectionOptions) -> Result<IncomingConnection> {
        PortSpace::TCP.check(Carrier::Accept, "rdma_accept", &options.private_data)?;
        let queue_pair = options.build(self.id())?;
        self.prepare_with(queue_pair, options)
    }

    /// Takes a queue pair that is in RESET, and made of the [context](crate::Id::context) of this request's id.
    ///
    /// # Errors
    ///
    /// * [`Error::Disconnected`]: the peer has gone.
    /// * As those of [`Id::init_queue_pair`](crate::Id::init_queue_pair); the peer is refused.
    pub fn prepare_with(self, queue_pair: QueuePair<Rc>, options: &ConnectionOptions) -> Result<IncomingConnection> {
        self.id().init_queue_pair(&queue_pair).map_err(or_gone)?;
        Ok(IncomingConnection { request: self, queue_pair, options: options.clone() })
    }
}

/// The error of a transition: a request that came is far enough for each, unless its peer is gone.
fn or_gone(error: Error) -> Error {
    match error {
        Error::Call { call: "rdma_init_qp_attr", errno: libc::EINVAL, .. } => Error::Disconnected,
        error => error,
    }
}

/// A connection that is about to be accepted: its queue pair takes receives. Made by [`ConnectionRequest::prepare`]; dropped, the
/// request is rejected.
#[derive(Debug)]
#[must_use = "a connection request that is dropped is rejected"]
pub struct IncomingConnection {
    request: ConnectionRequest,
    queue_pair: QueuePair<Rc>,
    options: ConnectionOptions,
}

impl IncomingConnection {
    /// What the peer asked for.
    pub fn request(&self) -> &ConnectionRequest {
        &self.request
    }

    /// The queue pair, in INIT.
    pub fn queue_pair(&self) -> &QueuePair<Rc> {
        &self.queue_pair
    }

    /// The domain of the queue pair, for the memory of its receives.
    pub fn protection_domain(&self) -> &ProtectionDomain {
        self.queue_pair.protection_domain()
    }

    /// The options, to change what is told to the peer, such as the key of memory that was registered just now.
    pub fn options_mut(&mut self) -> &mut ConnectionOptions {
        &mut self.options
    }

    /// Refuses after all, and says why.
    ///
    /// # Errors
    ///
    /// As those of [`ConnectionRequest::reject`].
    pub fn reject(self, private_data: &[u8]) -> Result<()> {
        self.request.reject(private_data)
    }

    /// Accepts, and waits until the peer is ready too: as long as the options' [timeout](ConnectionOptions::timeout) says.
    ///
    /// # Errors
    ///
    /// As those of [`ConnectionRequest::accept`].
    pub fn accept(self) -> Result<Connection> {
        let Self { request, queue_pair, options } = self;
        let deadline = Deadline::after(options.timeout);
        let address = request.peer_addr().unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)));
        let device = queue_pair.protection_domain().context().device_attributes()?;
        let asked = request.parameters();
        let mut parameters = options.parameters(&queue_pair);
        let responder_resources =
            options.responder_resources.when_asked(asked.responder_resources, device.max_qp_rd_atom());
        let initiator_depth = options.initiator_depth.when_asked(asked.initiator_depth, device.max_qp_init_rd_atom());
        parameters.responder_resources = Depth::Exactly(responder_resources);
        parameters.initiator_depth = Depth::Exactly(initiator_depth);
        let transition = TransitionOptions {
            access: Some(options.access),
            min_rnr_timer: Some(options.min_rnr_timer),
            responder_resources: Some(responder_resources),
            initiator_depth: Some(initiator_depth),
        };
        ece::answer(request.id(), &queue_pair)?;
        request.id().connect_queue_pair(&queue_pair, &transition).map_err(or_gone)?;
        request.id().accept(&parameters)?;
        let (id, peer) = request.into_parts();
        match id.wait_for_event(&deadline, "rdma_accept, until the peer is ready")? {
            EventKind::Established(_) => Ok(Connection::new(id, queue_pair, peer)),
            // The end has overtaken the peer's last word: it was connected, and what it has sent is here.
            EventKind::Disconnected => Connection::new(id, queue_pair, peer).ended(),
            other => Err(unexpected(other, address)),
        }
    }
}
