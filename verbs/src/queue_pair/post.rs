//! Posting requests.
//!
//! # Safety
//!
//! The requests of a chain are linked to each other and to nothing else, and they, the lists of their scatter/gather entries
//! and the entries' regions live as long as the call. Providers do not keep pointers to them. Those of UD name a live address handle,
//! which is looked at before a provider sees it: one of another device's provider would be taken for the provider's own.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr;

use crate::address_handle::AddressHandle;
use crate::chain::sealed::Request;
use crate::chain::{PreparedRequest, ReceiveChain, SendChain};
use crate::dispatch;
use crate::ffi;
use crate::post_error::{PostError, Reason};
use crate::prepared_receive::PreparedReceive;
use crate::queue_pair::{QueuePair, datagram_receive};
use crate::receive_request::ReceiveRequest;
use crate::send_request::SendRequest;
use crate::transport::Transport;
use crate::work_request::{Limits, Linked, WorkRequest, is_atomic};

impl<T: Transport> QueuePair<T> {
    /// `ibv_post_send`: hands a request to the send queue. The queue pair must be in RTS.
    ///
    /// # Errors
    ///
    /// * `ENOMEM`: the queue is full.
    /// * `EINVAL`: the request has too many scatter/gather entries or too much inline data, or the queue pair's state takes
    ///   none. Some providers then keep the request and do not say so: [`PostError::accepted`] is `None`. A datagram also has to
    ///   fit into a packet, and its address handle to be of the queue pair's domain; an atomic operation is one of 8 bytes, at an address
    ///   of the peer's that is a multiple of 8.
    ///
    /// # References
    ///
    /// [ibv_post_send(3)](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub fn post_send(&self, request: &SendRequest<'_, T>) -> Result<(), PostError> {
        let wr = request.as_raw();
        // SAFETY: the request is initialised.
        if unsafe { WorkRequest::is_too_long(wr, self.capabilities.max_inline_data) } {
            return Err(self.unfit(wr, 0, 1));
        }
        // SAFETY: the request is valid for this transport.
        unsafe { self.post_one_send(wr) }
    }

    /// `ibv_post_send`: hands a prepared request to the send queue, as it is now. It can then be changed and posted again.
    ///
    /// # Errors
    ///
    /// As those of [`post_send`](Self::post_send).
    ///
    /// # References
    ///
    /// [ibv_post_send(3)](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub fn post_prepared_send<P: PreparedRequest<T>>(&self, request: &P) -> Result<(), PostError> {
        // SAFETY: the request is valid for this transport, and has no inline data.
        unsafe { self.post_one_send(request.as_wr()) }
    }

    /// `ibv_post_send`: hands requests to the send queue, in their order, with one doorbell.
    ///
    /// # Errors
    ///
    /// As those of [`post_send`](Self::post_send). [`PostError::accepted`] tells how many were taken before the one that was
    /// refused.
    ///
    /// # References
    ///
    /// [ibv_post_send(3)](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub fn post_send_chain<C: SendChain<T> + ?Sized>(&self, requests: &mut C) -> Result<(), PostError> {
        let (total, requests) = (requests.length(), requests.link(self.limits()));
        let mut bad_wr = ptr::null_mut();
        if requests.count > 0 {
            // SAFETY: the queue pair is alive, and the requests are a chain of valid ones for this transport.
            let code = unsafe { dispatch::post_send(self.as_raw(), requests.first, &mut bad_wr) };
            if code != 0 {
                return Err(self.refusal(code, &requests, total, bad_wr));
            }
        }
        if requests.count == total { Ok(()) } else { Err(self.unfit(requests.refused, requests.count, total)) }
    }

    /// `ibv_post_recv`: hands a request to the receive queue. The queue pair must be in INIT or a later state.
    ///
    /// # Errors
    ///
    /// * `ENOMEM`: the queue is full.
    /// * `EINVAL`: the request has too many scatter/gather entries, or the queue pair is in RESET, or it has a
    ///   [shared receive queue](Self::shared_receive_queue). A receive of UD also needs room for a [`Grh`](crate::Grh).
    ///
    /// # References
    ///
    /// [ibv_post_recv(3)](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn post_receive(&self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        // SAFETY: the request is valid.
        unsafe { self.post_one_receive(request.as_raw()) }
    }

    /// `ibv_post_recv`: hands a prepared request to the receive queue, as it is now. It can then be changed and posted again.
    ///
    /// # Errors
    ///
    /// As those of [`post_receive`](Self::post_receive).
    ///
    /// # References
    ///
    /// [ibv_post_recv(3)](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn post_prepared_receive<const N: usize>(&self, request: &PreparedReceive<N>) -> Result<(), PostError> {
        // SAFETY: the request is valid.
        unsafe { self.post_one_receive(request.as_wr()) }
    }

    /// `ibv_post_recv`: hands requests to the receive queue, in their order, with one doorbell.
    ///
    /// # Errors
    ///
    /// As those of [`post_receive`](Self::post_receive). [`PostError::accepted`] tells how many were taken before the one
    /// that was refused.
    ///
    /// # References
    ///
    /// [ibv_post_recv(3)](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn post_receive_chain<C: ReceiveChain + ?Sized>(&self, requests: &mut C) -> Result<(), PostError> {
        let (total, requests) = (requests.length(), requests.link(Limits::NONE));
        if T::DATAGRAM {
            return self.post_datagram_receives(requests, total);
        }
        self.post_linked_receives(&requests, total)
    }

    /// Posts a chain that is linked; `total` requests were to be posted.
    #[inline]
    pub(super) fn post_linked_receives(&self, chain: &Linked<ffi::ibv_recv_wr>, total: usize) -> Result<(), PostError> {
        let mut bad_wr = ptr::null_mut();
        if chain.count > 0 {
            // SAFETY: the queue pair is alive, and the requests are a chain of valid ones.
            let code = unsafe { (self.post_recv)(self.as_raw(), chain.first, &mut bad_wr) };
            if code != 0 {
                return Err(self.receive_refusal(code, chain, total, bad_wr));
            }
        }
        Ok(())
    }

    /// # Safety
    ///
    /// The request is valid for this transport, and does not have too much inline data.
    // Left to itself, the compiler makes a call of it in one program and not in the next: 22 instructions for a datagram.
    #[inline(always)]
    pub(crate) unsafe fn post_one_send(&self, wr: *mut ffi::ibv_send_wr) -> Result<(), PostError> {
        // SAFETY: a request of UD has its address handle.
        if T::DATAGRAM && !unsafe { WorkRequest::is_sendable_datagram(wr, self.limits()) } {
            return Err(self.unfit(wr, 0, 1));
        }
        let mut bad_wr = ptr::null_mut();
        // SAFETY: the queue pair is alive; the request is valid and, with its link cleared, a chain of one.
        let code = unsafe {
            (*wr).next = ptr::null_mut();
            dispatch::post_send(self.as_raw(), wr, &mut bad_wr)
        };
        if code == 0 { Ok(()) } else { Err(self.refusal(code, &Linked::one(wr), 1, bad_wr)) }
    }

    /// # Safety
    ///
    /// The request is valid.
    #[inline]
    unsafe fn post_one_receive(&self, wr: *mut ffi::ibv_recv_wr) -> Result<(), PostError> {
        // SAFETY: the request is valid.
        if T::DATAGRAM && unsafe { datagram_receive::is_too_short(wr) } {
            return Err(datagram_receive::too_short(wr, 0, 1));
        }
        let mut bad_wr = ptr::null_mut();
        // SAFETY: the queue pair is alive; the request is valid and, with its link cleared, a chain of one.
        let code = unsafe {
            (*wr).next = ptr::null_mut();
            (self.post_recv)(self.as_raw(), wr, &mut bad_wr)
        };
        if code == 0 { Ok(()) } else { Err(self.receive_refusal(code, &Linked::one(wr), 1, bad_wr)) }
    }

    /// What the send queue takes, as far as providers do not look.
    #[inline]
    pub(super) fn limits(&self) -> Limits {
        Limits {
            max_inline_data: self.capabilities.max_inline_data,
            // Only for datagrams: an atomic load stays in the program even if nobody uses what it found.
            max_datagram: if T::DATAGRAM { self.datagrams.max_bytes() } else { u32::MAX },
            pd: self.pd.as_raw(),
        }
    }

    /// The error of a request that is not posted.
    #[cold]
    fn unfit(&self, wr: *const ffi::ibv_send_wr, accepted: usize, requests: usize) -> PostError {
        let reason = self.unfitness(wr).unwrap_or(Reason::Provider);
        PostError { verb: ffi::ibv_send_wr::VERB, errno: libc::EINVAL, accepted: Some(accepted), requests, reason }
    }

    /// What is beyond the [limits](Self::limits).
    #[cold]
    pub(super) fn unfitness(&self, wr: *const ffi::ibv_send_wr) -> Option<Reason> {
        let limits = self.limits();
        // SAFETY: the caller's request is initialised; one of UD has its address handle, which is alive.
        unsafe {
            let length = WorkRequest::length(wr);
            if T::ATOMIC && is_atomic(wr) && WorkRequest::is_inline(wr) {
                Some(Reason::Atomic { address: (*wr).wr.atomic.remote_addr })
            } else if WorkRequest::is_too_long(wr, limits.max_inline_data) {
                Some(Reason::InlineData { length, limit: limits.max_inline_data })
            } else if !T::DATAGRAM || WorkRequest::is_sendable_datagram(wr, limits) {
                None
            } else if AddressHandle::fits((*wr).wr.ud.ah, limits.pd) {
                Some(Reason::Datagram { length, limit: limits.max_datagram })
            } else {
                Some(Reason::AddressHandle)
            }
        }
    }

    #[cold]
    fn receive_refusal(
        &self,
        code: c_int,
        chain: &Linked<ffi::ibv_recv_wr>,
        requests: usize,
        bad_wr: *const ffi::ibv_recv_wr,
    ) -> PostError {
        let error = self.refusal(code, chain, requests, bad_wr);
        if self.srq.is_some() { PostError { reason: Reason::SharedReceiveQueue, ..error } } else { error }
    }

    #[cold]
    fn refusal<W: WorkRequest>(&self, code: c_int, chain: &Linked<W>, requests: usize, bad_wr: *const W) -> PostError {
        chain.refusal(W::VERB, code, W::max_sge(&self.capabilities), requests, bad_wr)
    }
}
