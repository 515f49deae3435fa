//! Receives of UD: one that has no room for a header never receives anything, and with rxe on Linux 6.1 breaks the queue pair.
//!
//! # Safety
//!
//! The requests of a chain are valid, and linked as [`Linked`] says.
#![allow(unsafe_code)]

use std::ptr;

use crate::ffi;
use crate::grh::Grh;
use crate::post_error::{PostError, Reason};
use crate::queue_pair::QueuePair;
use crate::transport::Transport;
use crate::work_request::{Linked, WorkRequest};

/// Whether a receive has no room for a header.
///
/// # Safety
///
/// The request is valid.
#[inline]
pub(super) unsafe fn is_too_short(wr: *const ffi::ibv_recv_wr) -> bool {
    // Most have one entry, whose length need not be added up.
    // SAFETY: as the caller says.
    unsafe { ((*wr).num_sge != 1 || (*(*wr).sg_list).length < LEN) && is_too_short_list(wr) }
}

const LEN: u32 = Grh::LEN as u32;

/// # Safety
///
/// As [`is_too_short`].
#[inline(never)]
unsafe fn is_too_short_list(wr: *const ffi::ibv_recv_wr) -> bool {
    // SAFETY: as the caller says.
    unsafe { WorkRequest::length(wr) < LEN.into() }
}

/// The error of such a receive.
#[cold]
pub(super) fn too_short(wr: *const ffi::ibv_recv_wr, accepted: usize, requests: usize) -> PostError {
    // SAFETY: the request is valid.
    let length = unsafe { WorkRequest::length(wr) };
    let reason = Reason::DatagramReceive { length };
    PostError { verb: ffi::ibv_recv_wr::VERB, errno: libc::EINVAL, accepted: Some(accepted), requests, reason }
}

impl<T: Transport> QueuePair<T> {
    /// Posts a chain up to a receive that has no room for a header.
    pub(super) fn post_datagram_receives(
        &self,
        mut chain: Linked<ffi::ibv_recv_wr>,
        total: usize,
    ) -> Result<(), PostError> {
        let (mut before, mut request) = (ptr::null_mut(), chain.first);
        for index in 0..chain.count {
            // SAFETY: the chain has as many requests.
            unsafe {
                if is_too_short(request) {
                    chain.count = index;
                    break;
                }
                (before, request) = (request, (*request).next);
            }
        }
        if chain.count == total {
            return self.post_linked_receives(&chain, total);
        }
        // SAFETY: both are requests of the chain; whoever linked it finds it as it was.
        unsafe {
            if chain.count > 0 {
                (*before).next = ptr::null_mut();
            }
            let outcome = self.post_linked_receives(&chain, total);
            if chain.count > 0 {
                (*before).next = request;
            }
            outcome.and_then(|()| Err(too_short(request, chain.count, total)))
        }
    }
}
