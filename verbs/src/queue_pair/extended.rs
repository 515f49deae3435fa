//! [`ExtendedSend`]: the same requests through `ibv_wr_start` … `ibv_wr_complete`.
//!
//! # Safety
//!
//! * Each function that is called here is there: an [`Extended`] is made only then.
//! * Between `ibv_wr_start` and `ibv_wr_complete`, while the provider holds the send queue's lock, none of the program's code runs, so
//!   nothing can be posted to the queue, and it cannot be destroyed.
//! * Providers copy what a request names (its list, its inline data) before `ibv_wr_complete` returns.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::fmt;
use std::hint::unreachable_unchecked;
use std::mem::MaybeUninit;

use crate::chain::sealed::Request;
use crate::chain::{PreparedRequest, SendChain};
use crate::error::{Error, Result};
use crate::ffi;
use crate::ffi::ibv_wr_opcode as Opcode;
use crate::post_error::{PostError, Reason};
use crate::queue_pair::QueuePair;
use crate::queue_pair::extended_table::Extended;
use crate::send_request::SendRequest;
use crate::transport::Transport;
use crate::work_request::WorkRequest;

/// The pieces of inline data that a request of the extended path may have.
const MAX_INLINE_PIECES: usize = 32;

/// Calls a function of the table of an `ibv_qp_ex`, as libibverbs' inline functions do.
macro_rules! call {
    ($qp:ident.$function:ident($($argument:expr),*)) => {
        match (*$qp).$function {
            Some(function) => function($qp, $($argument),*),
            // `Extended` is made only if the function is there.
            None => unreachable_unchecked(),
        }
    };
}

/// The send queue of a queue pair that was made [extended](crate::QueuePairBuilder::require_extended): posts the same requests through
/// `struct ibv_qp_ex`. Made by [`QueuePair::extended`].
///
/// The requests of a call are posted all together or, if one of them is refused by the provider, not at all.
///
/// On rxe requests with more than one scatter/gather entry or piece of inline data are refused: its provider would send something else.
///
/// # References
///
/// [ibv_wr_post(3)](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
#[doc(alias = "ibv_qp_ex")]
#[derive(Clone, Copy)]
pub struct ExtendedSend<'a, T: Transport> {
    queue_pair: &'a QueuePair<T>,
    extended: Extended,
}

impl<T: Transport> QueuePair<T> {
    /// `ibv_qp_to_qp_ex`: the send queue's extended interface. `None`: the queue pair was made without it.
    ///
    /// # References
    ///
    /// [ibv_wr_post(3)](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
    #[doc(alias = "ibv_qp_to_qp_ex")]
    #[inline]
    pub fn extended(&self) -> Option<ExtendedSend<'_, T>> {
        self.extended.map(|extended| ExtendedSend { queue_pair: self, extended })
    }
}

impl<T: Transport> ExtendedSend<'_, T> {
    /// `ibv_wr_start`, a builder and its setter, `ibv_wr_complete`: hands a request to the send queue. The queue pair must be in RTS.
    ///
    /// # Errors
    ///
    /// * `ENOMEM`, `ENOSPC`: the queue is full.
    /// * `EINVAL`: the request has too much inline data, is a datagram that does not fit into a packet or that names an address handle of
    ///   another domain, or the queue pair's state takes none; in the last case it is not known whether the device took the request.
    /// * `EOPNOTSUPP`: a list on rxe.
    ///
    /// # References
    ///
    /// [ibv_wr_post(3)](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
    #[doc(alias = "ibv_wr_start")]
    #[doc(alias = "ibv_wr_complete")]
    #[doc(alias = "ibv_wr_send")]
    #[doc(alias = "ibv_wr_send_imm")]
    #[doc(alias = "ibv_wr_send_inv")]
    #[doc(alias = "ibv_wr_rdma_write")]
    #[doc(alias = "ibv_wr_rdma_write_imm")]
    #[doc(alias = "ibv_wr_rdma_read")]
    #[doc(alias = "ibv_wr_atomic_cmp_swp")]
    #[doc(alias = "ibv_wr_atomic_fetch_add")]
    #[doc(alias = "ibv_wr_local_inv")]
    #[doc(alias = "ibv_wr_set_ud_addr")]
    #[doc(alias = "ibv_wr_set_sge")]
    #[doc(alias = "ibv_wr_set_sge_list")]
    #[doc(alias = "ibv_wr_set_inline_data")]
    #[doc(alias = "ibv_wr_set_inline_data_list")]
    #[inline]
    pub fn post_send(&self, request: &SendRequest<'_, T>) -> Result<(), PostError> {
        // SAFETY: the request is valid for this transport.
        unsafe { self.post_one(request.as_wr()) }
    }

    /// As [`post_send`](Self::post_send), for a prepared request.
    ///
    /// # Errors
    ///
    /// As those of [`post_send`](Self::post_send).
    #[inline]
    pub fn post_prepared_send<P: PreparedRequest<T>>(&self, request: &P) -> Result<(), PostError> {
        // SAFETY: the request is valid for this transport.
        unsafe { self.post_one(request.as_wr()) }
    }

    /// `ibv_wr_start`, a builder and its setter for each request, `ibv_wr_complete`: hands requests to the send queue, in their order,
    /// with one doorbell.
    ///
    /// # Errors
    ///
    /// As those of [`post_send`](Self::post_send). Requests before one that has too much inline data, or a list on rxe, are posted.
    ///
    /// # References
    ///
    /// [ibv_wr_post(3)](https://man7.org/linux/man-pages/man3/ibv_wr_post.3.html)
    #[doc(alias = "ibv_wr_start")]
    #[doc(alias = "ibv_wr_complete")]
    #[inline]
    pub fn post_send_chain<C: SendChain<T> + ?Sized>(&self, requests: &mut C) -> Result<(), PostError> {
        let total = requests.length();
        // SAFETY: there are `total` requests, which are initialised.
        let unfit = (0..total).position(|index| unsafe { self.is_unfit(requests.as_wr(index)) });
        let count = unfit.unwrap_or(total);
        if count > 0 {
            let qp = self.extended.qp.as_ptr();
            // SAFETY: the queue pair is alive, and `count` of the requests are valid for its transport and fit.
            let code = unsafe {
                call!(qp.wr_start());
                for index in 0..count {
                    build::<T>(qp, requests.as_wr(index));
                }
                call!(qp.wr_complete())
            };
            if code != 0 {
                return Err(refusal(code, total));
            }
        }
        match unfit {
            None => Ok(()),
            // SAFETY: the request is one of them.
            Some(index) => Err(self.unfit(unsafe { requests.as_wr(index) }, index, total)),
        }
    }

    /// # Safety
    ///
    /// The request is valid for this transport.
    #[inline]
    unsafe fn post_one(&self, wr: *const ffi::ibv_send_wr) -> Result<(), PostError> {
        let qp = self.extended.qp.as_ptr();
        // SAFETY: the queue pair is alive, and the request is valid and fits.
        let code = unsafe {
            if self.is_unfit(wr) {
                return Err(self.unfit(wr, 0, 1));
            }
            call!(qp.wr_start());
            build::<T>(qp, wr);
            call!(qp.wr_complete())
        };
        if code == 0 { Ok(()) } else { Err(refusal(code, 1)) }
    }

    /// The queue pair in libibverbs' terms; valid as long as the [`QueuePair`].
    pub fn as_raw(&self) -> *mut ffi::ibv_qp_ex {
        self.extended.qp.as_ptr()
    }

    /// The queue pair whose send queue it is.
    pub(crate) fn queue_pair(&self) -> &QueuePair<T> {
        self.queue_pair
    }

    /// Whether the queue pair was made with an [`optional`] operation; `method` is that of the builder which asks for it.
    pub(crate) fn must_have(&self, operation: u64, verb: &'static str, method: &str) -> Result<()> {
        if self.extended.optional & operation != 0 {
            return Ok(());
        }
        let rule = format!("for this it is to be made with `{method}`");
        Err(Error::invalid(verb, "qp", format!("{:?}", self.queue_pair), rule))
    }

    /// Posts a request that `build` calls the builder of.
    ///
    /// # Safety
    ///
    /// `build` calls one builder that the queue pair has, whose request has no data, and none of the program's code.
    pub(crate) unsafe fn post_built(
        &self,
        wr_id: u64,
        flags: u32,
        build: impl FnOnce(*mut ffi::ibv_qp_ex),
    ) -> Result<(), PostError> {
        let qp = self.extended.qp.as_ptr();
        // SAFETY: the queue pair is alive, and the caller answers for the builder.
        let code = unsafe {
            call!(qp.wr_start());
            (*qp).wr_id = wr_id;
            (*qp).wr_flags = flags;
            build(qp);
            call!(qp.wr_complete())
        };
        if code == 0 { Ok(()) } else { Err(refusal(code, 1)) }
    }

    /// Whether the request has too much inline data, or a list that the provider would not send as it is, or is a datagram that the
    /// queue cannot send.
    ///
    /// # Safety
    ///
    /// The request is initialised.
    #[inline]
    unsafe fn is_unfit(&self, wr: *const ffi::ibv_send_wr) -> bool {
        // SAFETY: as the caller says.
        unsafe {
            WorkRequest::is_too_long(wr, self.queue_pair.capabilities.max_inline_data)
                || T::DATAGRAM && !WorkRequest::is_sendable_datagram(wr, self.queue_pair.limits())
                || (*wr).num_sge > 1 && self.is_unfit_list(wr)
        }
    }

    /// # Safety
    ///
    /// The request is initialised.
    #[cold]
    unsafe fn is_unfit_list(&self, wr: *const ffi::ibv_send_wr) -> bool {
        // SAFETY: as the caller says.
        let (inline, slices) = unsafe { (WorkRequest::is_inline(wr), (*wr).num_sge as usize) };
        !self.extended.lists || inline && slices > MAX_INLINE_PIECES
    }

    /// Why a request is unfit.
    #[cold]
    fn unfit(&self, wr: *const ffi::ibv_send_wr, accepted: usize, requests: usize) -> PostError {
        let (errno, reason) = match self.queue_pair.unfitness(wr) {
            Some(reason) => (libc::EINVAL, reason),
            None => {
                // SAFETY: the request is initialised.
                let slices = unsafe { WorkRequest::list(wr) }.len();
                match self.extended.lists {
                    true => (libc::EINVAL, Reason::Slices { slices, limit: MAX_INLINE_PIECES as u32 }),
                    false => (libc::EOPNOTSUPP, Reason::ExtendedList { slices }),
                }
            }
        };
        PostError { verb: VERB, errno, accepted: Some(accepted), requests, reason }
    }
}

const VERB: &str = "ibv_wr_complete";

#[cold]
fn refusal(code: c_int, requests: usize) -> PostError {
    let errno = code.saturating_abs();
    // A builder that found the queue full has had all requests given up. Other refusals come from the kernel, to which some providers
    // had already given the requests.
    let accepted = [libc::ENOMEM, libc::ENOSPC].contains(&errno).then_some(0);
    PostError { verb: VERB, errno, accepted, requests, reason: Reason::Provider }
}

/// Calls the builder of a request's operation, and the setter of its data.
///
/// # Safety
///
/// The request is valid for the queue pair's transport and fits, and the queue pair is between `wr_start` and `wr_complete`.
#[inline(always)]
unsafe fn build<T: Transport>(qp: *mut ffi::ibv_qp_ex, wr: *const ffi::ibv_send_wr) {
    // SAFETY: an operation's fields are initialised, and its builder is there.
    unsafe {
        (*qp).wr_id = (*wr).wr_id;
        (*qp).wr_flags = (*wr).send_flags;
        let imm_data = || (*wr).__bindgen_anon_1.imm_data;
        let (rdma, atomic) = (&raw const (*wr).wr.rdma, &raw const (*wr).wr.atomic);
        match (*wr).opcode {
            Opcode::IBV_WR_SEND => call!(qp.wr_send()),
            Opcode::IBV_WR_SEND_WITH_IMM => call!(qp.wr_send_imm(imm_data())),
            Opcode::IBV_WR_RDMA_WRITE => call!(qp.wr_rdma_write((*rdma).rkey, (*rdma).remote_addr)),
            Opcode::IBV_WR_RDMA_WRITE_WITH_IMM => {
                call!(qp.wr_rdma_write_imm((*rdma).rkey, (*rdma).remote_addr, imm_data()));
            }
            Opcode::IBV_WR_RDMA_READ => call!(qp.wr_rdma_read((*rdma).rkey, (*rdma).remote_addr)),
            Opcode::IBV_WR_ATOMIC_CMP_AND_SWP => {
                let (compare, swap) = ((*atomic).compare_add, (*atomic).swap);
                call!(qp.wr_atomic_cmp_swp((*atomic).rkey, (*atomic).remote_addr, compare, swap));
            }
            Opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => {
                call!(qp.wr_atomic_fetch_add((*atomic).rkey, (*atomic).remote_addr, (*atomic).compare_add));
            }
            Opcode::IBV_WR_SEND_WITH_INV => call!(qp.wr_send_inv((*wr).__bindgen_anon_1.invalidate_rkey)),
            // It has no data, so no setter is called.
            Opcode::IBV_WR_LOCAL_INV => return call!(qp.wr_local_inv((*wr).__bindgen_anon_1.invalidate_rkey)),
            // No constructor of a request makes another operation.
            _ => unreachable_unchecked(),
        }
        if T::DATAGRAM {
            let ud = &raw const (*wr).wr.ud;
            call!(qp.wr_set_ud_addr((*ud).ah, (*ud).remote_qpn, (*ud).remote_qkey));
        }
        set_data(qp, WorkRequest::list(wr), WorkRequest::is_inline(wr));
    }
}

/// Calls the setter of a request's data.
///
/// # Safety
///
/// The queue pair's last builder is that of the request whose list this is, which fits.
#[inline(always)]
unsafe fn set_data(qp: *mut ffi::ibv_qp_ex, list: &[ffi::ibv_sge], inline: bool) {
    // SAFETY: the setters are there; the list's entries name memory of the program, or of regions.
    unsafe {
        match (list, inline) {
            ([one], false) => call!(qp.wr_set_sge(one.lkey, one.addr, one.length)),
            (list, false) => call!(qp.wr_set_sge_list(list.len(), list.as_ptr())),
            ([one], true) => call!(qp.wr_set_inline_data(one.addr as *mut c_void, one.length as usize)),
            (list, true) => {
                let mut pieces = [const { MaybeUninit::<ffi::ibv_data_buf>::uninit() }; MAX_INLINE_PIECES];
                for (piece, sge) in pieces.iter_mut().zip(list) {
                    piece.write(ffi::ibv_data_buf { addr: sge.addr as *mut c_void, length: sge.length as usize });
                }
                call!(qp.wr_set_inline_data_list(list.len(), pieces.as_ptr().cast()));
            }
        }
    }
}

impl<T: Transport> fmt::Debug for ExtendedSend<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExtendedSend").field(&self.queue_pair).finish()
    }
}
