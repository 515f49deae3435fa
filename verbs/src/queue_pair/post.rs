//! Posting requests.
//!
//! # Safety
//!
//! The requests of a chain are linked to each other and to nothing else, and they, the lists of their scatter/gather entries
//! and the entries' regions live as long as the call. Providers do not keep pointers to them.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr;

use crate::dispatch;
use crate::ffi;
use crate::post_error::PostError;
use crate::queue_pair::QueuePair;
use crate::receive_request::ReceiveRequest;
use crate::send_request::SendRequest;
use crate::transport::Transport;

impl<T: Transport> QueuePair<T> {
    /// `ibv_post_send`: hands a request to the send queue. The queue pair must be in RTS.
    ///
    /// # Errors
    ///
    /// * `ENOMEM`: the queue is full.
    /// * `EINVAL`: the request has too many scatter/gather entries, or the queue pair's state takes none. Some providers
    ///   then keep the request and do not say so: [`PostError::accepted`] is `None`.
    ///
    /// # References
    ///
    /// [ibv_post_send(3)](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub fn post_send(&self, request: &SendRequest<'_, T>) -> Result<(), PostError> {
        let wr = request.as_raw();
        let mut bad_wr = ptr::null_mut();
        // SAFETY: the queue pair is alive; the request is valid for its transport and, with its link cleared, a chain of one.
        let code = unsafe {
            (*wr).next = ptr::null_mut();
            dispatch::post_send(self.as_raw(), wr, &mut bad_wr)
        };
        if code == 0 { Ok(()) } else { Err(refusal("ibv_post_send", code, wr, 1, bad_wr)) }
    }

    /// `ibv_post_send`: hands requests to the send queue, in their order, with one doorbell.
    ///
    /// # Errors
    ///
    /// As those of [`post_send`](Self::post_send). [`PostError::accepted`] tells how many were taken before the one that was
    /// refused.
    #[doc(alias = "ibv_post_send")]
    #[inline]
    pub fn post_send_chain(&self, requests: &mut [SendRequest<'_, T>]) -> Result<(), PostError> {
        let count = requests.len();
        let first: *mut ffi::ibv_send_wr = requests.as_mut_ptr().cast();
        let mut bad_wr = ptr::null_mut();
        if count == 0 {
            return Ok(());
        }
        // SAFETY: a `SendRequest` is an `ibv_send_wr` and nothing more, so `first` points to `count` of them, which are linked
        // in their order here. The queue pair is alive, and the requests are valid for its transport.
        let code = unsafe {
            for index in 1..count {
                (*first.add(index - 1)).next = first.add(index);
            }
            (*first.add(count - 1)).next = ptr::null_mut();
            dispatch::post_send(self.as_raw(), first, &mut bad_wr)
        };
        if code == 0 { Ok(()) } else { Err(refusal("ibv_post_send", code, first, count, bad_wr)) }
    }

    /// `ibv_post_recv`: hands a request to the receive queue. The queue pair must be in INIT or a later state.
    ///
    /// # Errors
    ///
    /// * `ENOMEM`: the queue is full.
    /// * `EINVAL`: the request has too many scatter/gather entries, or the queue pair is in RESET.
    ///
    /// # References
    ///
    /// [ibv_post_recv(3)](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html)
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn post_receive(&self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        let wr = request.as_raw();
        let mut bad_wr = ptr::null_mut();
        // SAFETY: the queue pair is alive; the request is valid and, with its link cleared, a chain of one.
        let code = unsafe {
            (*wr).next = ptr::null_mut();
            dispatch::post_recv(self.as_raw(), wr, &mut bad_wr)
        };
        if code == 0 { Ok(()) } else { Err(refusal("ibv_post_recv", code, wr, 1, bad_wr)) }
    }

    /// `ibv_post_recv`: hands requests to the receive queue, in their order, with one doorbell.
    ///
    /// # Errors
    ///
    /// As those of [`post_receive`](Self::post_receive). [`PostError::accepted`] tells how many were taken before the one
    /// that was refused.
    #[doc(alias = "ibv_post_recv")]
    #[inline]
    pub fn post_receive_chain(&self, requests: &mut [ReceiveRequest<'_>]) -> Result<(), PostError> {
        let count = requests.len();
        let first: *mut ffi::ibv_recv_wr = requests.as_mut_ptr().cast();
        let mut bad_wr = ptr::null_mut();
        if count == 0 {
            return Ok(());
        }
        // SAFETY: a `ReceiveRequest` is an `ibv_recv_wr` and nothing more, so `first` points to `count` of them, which are
        // linked in their order here. The queue pair is alive.
        let code = unsafe {
            for index in 1..count {
                (*first.add(index - 1)).next = first.add(index);
            }
            (*first.add(count - 1)).next = ptr::null_mut();
            dispatch::post_recv(self.as_raw(), first, &mut bad_wr)
        };
        if code == 0 { Ok(()) } else { Err(refusal("ibv_post_recv", code, first, count, bad_wr)) }
    }
}

/// What a refused call tells. `bad_wr` is the request that was refused; a provider may leave it alone, or point nowhere.
#[cold]
fn refusal<W>(verb: &'static str, code: c_int, first: *const W, requests: usize, bad_wr: *const W) -> PostError {
    let errno = match code {
        -1 => std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
        code => code.saturating_abs(),
    };
    let offset = bad_wr.addr().checked_sub(first.addr());
    let accepted = offset
        .filter(|offset| offset % size_of::<W>() == 0)
        .map(|offset| offset / size_of::<W>())
        .filter(|index| *index < requests);
    PostError { verb, errno, accepted, requests }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_is_known_only_from_a_pointer_into_the_chain() {
        let chain = [0u64; 4];
        let accepted = |bad: *const u64| refusal("ibv_post_send", libc::ENOMEM, chain.as_ptr(), 4, bad).accepted();
        assert_eq!(accepted(&chain[0]), Some(0));
        assert_eq!(accepted(&chain[3]), Some(3));
        assert_eq!(accepted(chain.as_ptr().wrapping_add(4)), None);
        assert_eq!(accepted(chain.as_ptr().wrapping_sub(1)), None);
        assert_eq!(accepted(chain.as_ptr().wrapping_byte_add(4)), None);
        assert_eq!(accepted(ptr::null()), None);
    }
}
