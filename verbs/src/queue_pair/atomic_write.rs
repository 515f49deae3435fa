//! [`AtomicWriteRequest`]: eight bytes that a peer sees all at once.
//!
//! # Safety
//!
//! The builder is there: the queue pair was made to have it. Providers copy the bytes before it returns.
#![allow(unsafe_code)]

use std::hint::unreachable_unchecked;

use crate::error::Result;
use crate::ffi::ibv_send_flags as Flags;
use crate::queue_pair::{ExtendedSend, QueuePairBuilder, optional};
use crate::remote_slice::RemoteSlice;
use crate::transport::Rc;

const VERB: &str = "ibv_wr_atomic_write";

/// ATOMIC WRITE (`IBV_WR_ATOMIC_WRITE`): a request to write 8 bytes into the peer's memory, which nobody ever sees half written. Posted by
/// [`ExtendedSend::post_atomic_write`]; `ibv_post_send` does not have it.
///
/// The peer's device carries it out after the RDMA WRITEs that were posted earlier to the same queue pair and, where a
/// flush was posted before it, after that: so it can mark what was written as complete.
///
/// `wr_id` is the program's own number; the request's completion carries it.
///
/// # References
///
/// InfiniBand Architecture Specification, volume 1, chapter 9.4.5 and annex A19.
#[doc(alias = "IBV_WR_ATOMIC_WRITE")]
#[must_use = "a request does nothing before it is posted"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicWriteRequest {
    wr_id: u64,
    flags: u32,
    remote: RemoteSlice,
    bytes: [u8; 8],
}

impl AtomicWriteRequest {
    /// To make the 8 bytes at the beginning of `remote` these, in the order that they are to have in the peer's memory. The peer's memory
    /// needs [`REMOTE_WRITE`](crate::AccessFlags::REMOTE_WRITE) and an address that is a multiple of 8.
    pub fn new(wr_id: u64, remote: RemoteSlice, bytes: [u8; 8]) -> Self {
        Self { wr_id, flags: 0, remote, bytes }
    }

    /// As [`SendRequest::signaled`](crate::SendRequest::signaled).
    pub fn signaled(mut self) -> Self {
        self.flags |= Flags::IBV_SEND_SIGNALED.0;
        self
    }

    /// As [`SendRequest::fenced`](crate::SendRequest::fenced).
    pub fn fenced(mut self) -> Self {
        self.flags |= Flags::IBV_SEND_FENCE.0;
        self
    }
}

impl QueuePairBuilder<Rc> {
    /// The extended interface is to have [atomic write](ExtendedSend::post_atomic_write) too, which few devices and providers do. Default:
    /// no.
    #[doc(alias = "IBV_QP_EX_WITH_ATOMIC_WRITE")]
    pub fn extended_atomic_write(mut self) -> Self {
        self.optional |= optional::ATOMIC_WRITE;
        self
    }
}

impl ExtendedSend<'_, Rc> {
    /// `ibv_wr_start`, `ibv_wr_atomic_write`, `ibv_wr_complete`: hands an atomic write to the send queue, on a queue pair that was made with
    /// [`extended_atomic_write`](QueuePairBuilder::extended_atomic_write).
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): the queue pair was made without.
    /// * [`Error::Post`](crate::Error::Post): as those of [`post_send`](Self::post_send).
    ///
    /// # References
    ///
    /// [ibv_wr_post(3)](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
    #[doc(alias = "ibv_wr_atomic_write")]
    pub fn post_atomic_write(&self, request: &AtomicWriteRequest) -> Result<()> {
        self.must_have(optional::ATOMIC_WRITE, VERB, "extended_atomic_write")?;
        let AtomicWriteRequest { wr_id, flags, remote, bytes } = request;
        // SAFETY: the queue pair has the builder, which copies the bytes.
        Ok(unsafe {
            self.post_built(*wr_id, *flags, |qp| match (*qp).wr_atomic_write {
                Some(build) => build(qp, remote.rkey(), remote.address(), bytes.as_ptr().cast()),
                None => unreachable_unchecked(),
            })
        }?)
    }
}
