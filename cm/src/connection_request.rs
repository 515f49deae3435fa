//! [`ConnectionRequest`].

use std::fmt;
use std::net::SocketAddr;

use crate::error::Result;
use crate::id::Id;
use crate::parameters::PeerParameters;
use crate::raw_id::RawId;

/// A peer's wish to connect, with an id of its own (`RDMA_CM_EVENT_CONNECT_REQUEST`).
///
/// Dropped, it is rejected, and its id destroyed.
#[must_use = "a connection request that is dropped is rejected"]
pub struct ConnectionRequest {
    id: Id,
    parameters: PeerParameters,
    /// Whether somebody else answers it, or has.
    is_answered: bool,
}

impl ConnectionRequest {
    pub(crate) fn new(id: RawId, parameters: PeerParameters) -> Self {
        Self { id: Id::of(id), parameters, is_answered: false }
    }

    /// The id of the connection that is to be.
    pub fn id(&self) -> &Id {
        &self.id
    }

    /// What the peer told. Of a datagram port space's there is only the private data.
    pub fn parameters(&self) -> &PeerParameters {
        &self.parameters
    }

    /// The peer's bytes, and zeroes behind them up to the size of the message: 56 bytes for a connection, 180 for datagrams.
    pub fn private_data(&self) -> &[u8] {
        &self.parameters.private_data
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.id.peer_addr()
    }

    /// `rdma_reject`: refuses, and says why.
    ///
    /// # Errors
    ///
    /// As those of [`Id::reject`]; the request is then refused without the private data.
    ///
    /// # References
    ///
    /// [rdma_reject(3)](https://man7.org/linux/man-pages/man3/rdma_reject.3.html)
    #[doc(alias = "rdma_reject")]
    pub fn reject(mut self, private_data: &[u8]) -> Result<()> {
        self.id.reject(private_data)?;
        self.is_answered = true;
        Ok(())
    }

    /// The id, to answer by [`Id::accept`] or [`Id::reject`].
    pub fn into_id(self) -> Id {
        self.into_parts().0
    }

    pub(crate) fn into_parts(mut self) -> (Id, PeerParameters) {
        self.is_answered = true;
        (self.id.share(), std::mem::take(&mut self.parameters))
    }
}

impl Drop for ConnectionRequest {
    fn drop(&mut self) {
        if !self.is_answered {
            // It may be gone already.
            let _ = self.id.reject(&[]);
        }
    }
}

impl fmt::Debug for ConnectionRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionRequest")
            .field("id", &self.id)
            .field("peer_addr", &self.peer_addr())
            .field("parameters", &self.parameters)
            .finish()
    }
}
