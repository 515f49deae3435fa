//! [`SendChain`] and [`ReceiveChain`]: requests that are posted with one doorbell.
//!
//! # Safety
//!
//! The elements of a slice are requests that are valid for the queue which the slice is a chain for, and stay where they are as long
//! as the slice is borrowed.
#![allow(unsafe_code)]

use crate::ffi;
use crate::transport::Transport;

/// Requests for a send queue of transport `T`: an array, a slice or a vector of [`SendRequest`](crate::SendRequest)s or of
/// [`PreparedSend`](crate::PreparedSend)s or [`PreparedAtomic`](crate::PreparedAtomic)s, or what is in a [`SendBatch`](crate::SendBatch).
///
/// [`QueuePair::post_send_chain`](crate::QueuePair::post_send_chain) posts it.
pub trait SendChain<T: Transport>: sealed::Requests<ffi::ibv_send_wr, T> {}

impl<T: Transport, C: sealed::Requests<ffi::ibv_send_wr, T> + ?Sized> SendChain<T> for C {}

/// A request for a send queue of transport `T` that is built once, without inline data: a [`PreparedSend`](crate::PreparedSend), or a
/// [`PreparedAtomic`](crate::PreparedAtomic).
///
/// [`QueuePair::post_prepared_send`](crate::QueuePair::post_prepared_send) posts it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no prepared request for a queue pair of `{T}`",
    label = "not an operation of `{T}`"
)]
pub trait PreparedRequest<T: Transport>: sealed::Request<ffi::ibv_send_wr, T> {}

/// Requests for a receive queue: an array, a slice or a vector of [`ReceiveRequest`](crate::ReceiveRequest)s or of
/// [`PreparedReceive`](crate::PreparedReceive)s.
///
/// [`QueuePair::post_receive_chain`](crate::QueuePair::post_receive_chain) posts it.
pub trait ReceiveChain: sealed::Requests<ffi::ibv_recv_wr, ()> {}

impl<C: sealed::Requests<ffi::ibv_recv_wr, ()> + ?Sized> ReceiveChain for C {}

pub(crate) mod sealed {
    use crate::work_request::{Limits, Linked, WorkRequest, link_each};

    /// A work request for a send queue of transport `T`, or for a receive queue, where `T` is `()`.
    ///
    /// # Safety
    ///
    /// `as_wr` returns a request that is valid for such a queue. It may be written to, and stays valid, as long as `self` is borrowed.
    pub unsafe trait Request<W, T> {
        /// Whether it may have inline data.
        #[doc(hidden)]
        const INLINE: bool = true;

        /// Whether it names its destination.
        #[doc(hidden)]
        const DATAGRAM: bool = false;

        #[doc(hidden)]
        fn as_wr(&self) -> *mut W;
    }

    /// Work requests in their order. (They can be written to through a shared reference, so that asking for one leaves the pointers
    /// to the others valid. Whoever posts a chain has it borrowed mutably.)
    ///
    /// # Safety
    ///
    /// `as_wr` returns, for each index below `length`, another request as [`Request`] has it; `length` does not change while `self` is
    /// borrowed.
    pub unsafe trait Requests<W, T> {
        /// Whether one may have inline data.
        #[doc(hidden)]
        const INLINE: bool = true;

        /// Whether each names its destination.
        #[doc(hidden)]
        const DATAGRAM: bool = false;

        #[doc(hidden)]
        fn length(&self) -> usize;

        /// # Safety
        ///
        /// `index` is below `length`.
        #[doc(hidden)]
        unsafe fn as_wr(&self, index: usize) -> *mut W;

        /// Links the requests, up to one that the queue does not take.
        #[doc(hidden)]
        #[inline]
        fn link(&mut self, limits: Limits) -> Linked<W>
        where
            W: WorkRequest,
        {
            link_each(self, limits)
        }
    }

    // SAFETY: the elements are such requests.
    unsafe impl<W, T, R: Request<W, T>> Requests<W, T> for [R] {
        const INLINE: bool = R::INLINE;
        const DATAGRAM: bool = R::DATAGRAM;

        #[inline]
        fn length(&self) -> usize {
            self.len()
        }

        #[inline]
        unsafe fn as_wr(&self, index: usize) -> *mut W {
            // SAFETY: the caller says that there is such a request.
            unsafe { self.get_unchecked(index) }.as_wr()
        }
    }

    // SAFETY: as above.
    unsafe impl<W, T, R: Request<W, T>, const N: usize> Requests<W, T> for [R; N] {
        const INLINE: bool = R::INLINE;
        const DATAGRAM: bool = R::DATAGRAM;

        #[inline]
        fn length(&self) -> usize {
            N
        }

        #[inline]
        unsafe fn as_wr(&self, index: usize) -> *mut W {
            // SAFETY: the caller says that there is such a request.
            unsafe { self.get_unchecked(index) }.as_wr()
        }
    }

    // SAFETY: as above.
    unsafe impl<W, T, R: Request<W, T>> Requests<W, T> for Vec<R> {
        const INLINE: bool = R::INLINE;
        const DATAGRAM: bool = R::DATAGRAM;

        #[inline]
        fn length(&self) -> usize {
            self.len()
        }

        #[inline]
        unsafe fn as_wr(&self, index: usize) -> *mut W {
            // SAFETY: the caller says that there is such a request.
            unsafe { self.get_unchecked(index) }.as_wr()
        }
    }
}
