//! What the work requests of both queues have in common, and how a chain of them is linked.
//!
//! # Safety
//!
//! [`link_each`] links the requests of a chain to each other and to nothing else.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr;

use crate::address_handle::AddressHandle;
use crate::chain::sealed::Requests;
use crate::ffi;
use crate::ffi::ibv_wr_opcode as Opcode;
use crate::post_error::{PostError, Reason};
use crate::queue_pair::QueuePairCapabilities;

/// What a queue takes, and its provider does not look at.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub(crate) max_inline_data: u32,
    /// How many bytes a datagram has at most.
    pub(crate) max_datagram: u32,
    /// The domain of the address handles.
    pub(crate) pd: *const ffi::ibv_pd,
}

impl Limits {
    /// Of a receive queue, whose requests have neither inline data nor a destination.
    pub(crate) const NONE: Self = Self { max_inline_data: 0, max_datagram: 0, pd: ptr::null() };
}

/// `ibv_send_wr` or `ibv_recv_wr`.
pub trait WorkRequest: Sized {
    /// The verb that posts it.
    const VERB: &'static str;

    /// # Safety
    ///
    /// `this` is a request whose link is initialised or may be written to.
    unsafe fn next(this: *mut Self) -> *mut *mut Self;

    /// # Safety
    ///
    /// `this` is a request with its list.
    unsafe fn list<'a>(this: *const Self) -> &'a [ffi::ibv_sge];

    /// How long its list may be.
    fn max_sge(capabilities: &QueuePairCapabilities) -> u32;

    /// Whether the list names memory of the program.
    ///
    /// # Safety
    ///
    /// `this` is a request.
    unsafe fn is_inline(this: *const Self) -> bool;

    /// How many bytes the list has.
    ///
    /// # Safety
    ///
    /// `this` is a request with its list.
    #[inline]
    unsafe fn length(this: *const Self) -> u64 {
        // SAFETY: as the caller says.
        unsafe { Self::list(this) }.iter().map(|sge| u64::from(sge.length)).sum()
    }

    /// Whether the request carries more inline data than the queue takes. Providers are not relied on: some add the lengths
    /// up in 32 bits, and some do not look.
    ///
    /// # Safety
    ///
    /// `this` is a request with its list.
    #[inline]
    unsafe fn is_too_long(this: *const Self, max_inline_data: u32) -> bool {
        // A slice whose length 32 bits do not tell has the largest.
        let most = max_inline_data.min(u32::MAX - 1);
        // Most have one entry, whose length need not be added up.
        // SAFETY: as the caller says.
        unsafe {
            let is_short = || matches!(Self::list(this), [only] if only.length <= most);
            Self::is_inline(this) && !is_short() && is_longer(this, most)
        }
    }

    /// Whether the request is a datagram that its queue can send: one packet, whose address handle is of the queue's domain.
    ///
    /// # Safety
    ///
    /// `this` is a request of UD with its list and its address handle, which is alive, as is the domain.
    unsafe fn is_sendable_datagram(this: *const Self, limits: Limits) -> bool;
}

/// Whether the list has more bytes than that. Not inlined: a loop in `post_send` keeps the whole of it from being inlined.
///
/// # Safety
///
/// `this` is a request with its list.
#[inline(never)]
unsafe fn is_longer<W: WorkRequest>(this: *const W, most: u32) -> bool {
    // SAFETY: as the caller says.
    unsafe { W::length(this) > u64::from(most) }
}

/// # Safety
///
/// The list has `num_sge` entries and lives for `'a`.
#[inline]
unsafe fn list<'a>(sg_list: *const ffi::ibv_sge, num_sge: c_int) -> &'a [ffi::ibv_sge] {
    match usize::try_from(num_sge) {
        // SAFETY: as the caller says.
        Ok(length) if length > 0 => unsafe { std::slice::from_raw_parts(sg_list, length) },
        _ => &[],
    }
}

impl WorkRequest for ffi::ibv_send_wr {
    const VERB: &'static str = "ibv_post_send";

    fn max_sge(capabilities: &QueuePairCapabilities) -> u32 {
        capabilities.max_send_sge
    }

    #[inline]
    unsafe fn next(this: *mut Self) -> *mut *mut Self {
        // SAFETY: `this` points to memory for the structure.
        unsafe { &raw mut (*this).next }
    }

    #[inline]
    unsafe fn list<'a>(this: *const Self) -> &'a [ffi::ibv_sge] {
        // SAFETY: as the caller says.
        unsafe { list((*this).sg_list, (*this).num_sge) }
    }

    #[inline]
    unsafe fn is_inline(this: *const Self) -> bool {
        // SAFETY: a request has its flags.
        unsafe { (*this).send_flags & ffi::ibv_send_flags::IBV_SEND_INLINE.0 != 0 }
    }

    #[inline]
    unsafe fn is_sendable_datagram(this: *const Self, limits: Limits) -> bool {
        // Most have one entry, whose length need not be added up.
        // SAFETY: as the caller says.
        unsafe {
            let is_short = (*this).num_sge == 1 && (*(*this).sg_list).length <= limits.max_datagram;
            if is_short && ptr::eq((*(*this).wr.ud.ah).pd, limits.pd) {
                return true;
            }
            is_sendable_datagram(this, limits)
        }
    }
}

/// # Safety
///
/// As [`WorkRequest::is_sendable_datagram`].
#[inline(never)]
unsafe fn is_sendable_datagram(this: *const ffi::ibv_send_wr, limits: Limits) -> bool {
    // SAFETY: as the caller says.
    unsafe {
        AddressHandle::fits((*this).wr.ud.ah, limits.pd) && WorkRequest::length(this) <= u64::from(limits.max_datagram)
    }
}

/// Whether the request is an atomic operation.
///
/// # Safety
///
/// `this` is a request.
#[inline]
pub(crate) unsafe fn is_atomic(this: *const ffi::ibv_send_wr) -> bool {
    // SAFETY: a request has its operation.
    unsafe { matches!((*this).opcode, Opcode::IBV_WR_ATOMIC_CMP_AND_SWP | Opcode::IBV_WR_ATOMIC_FETCH_AND_ADD) }
}

/// Whether an atomic operation is one on a word: 8 bytes, at an address that is a multiple of 8. Providers are not relied on: some take a
/// longer list and leave its rest as it was, and some leave the address to the peer.
///
/// # Safety
///
/// `this` is an atomic operation with its list.
#[inline]
pub(crate) unsafe fn names_a_word(this: *const ffi::ibv_send_wr) -> bool {
    // Most have one entry, whose length need not be added up.
    // SAFETY: as the caller says.
    unsafe {
        let list = <ffi::ibv_send_wr as WorkRequest>::list(this);
        (*this).wr.atomic.remote_addr % 8 == 0 && (matches!(list, [only] if only.length == 8) || is_long(this, 8))
    }
}

/// # Safety
///
/// `this` is a request with its list.
#[inline(never)]
unsafe fn is_long(this: *const ffi::ibv_send_wr, length: u64) -> bool {
    // SAFETY: as the caller says.
    unsafe { WorkRequest::length(this) == length }
}

impl WorkRequest for ffi::ibv_recv_wr {
    const VERB: &'static str = "ibv_post_recv";

    fn max_sge(capabilities: &QueuePairCapabilities) -> u32 {
        capabilities.max_recv_sge
    }

    #[inline]
    unsafe fn next(this: *mut Self) -> *mut *mut Self {
        // SAFETY: `this` points to memory for the structure.
        unsafe { &raw mut (*this).next }
    }

    #[inline]
    unsafe fn list<'a>(this: *const Self) -> &'a [ffi::ibv_sge] {
        // SAFETY: as the caller says.
        unsafe { list((*this).sg_list, (*this).num_sge) }
    }

    #[inline]
    unsafe fn is_inline(_this: *const Self) -> bool {
        false
    }

    unsafe fn is_sendable_datagram(_this: *const Self, _limits: Limits) -> bool {
        false
    }
}

/// A chain that is linked.
#[derive(Debug)]
pub struct Linked<W> {
    pub(crate) first: *mut W,
    /// How many requests.
    pub(crate) count: usize,
    /// The request after those, if the queue does not take it.
    pub(crate) refused: *mut W,
}

impl<W: WorkRequest> Linked<W> {
    /// A request whose link is null.
    pub(crate) fn one(request: *mut W) -> Self {
        Self { first: request, count: 1, refused: ptr::null_mut() }
    }

    /// Which request of the chain this is. `None`: a provider may leave `bad_wr` alone, or point nowhere.
    pub(crate) fn position(&self, bad_wr: *const W) -> Option<usize> {
        let mut request = self.first;
        for index in 0..self.count {
            if ptr::eq(request, bad_wr) {
                return Some(index);
            }
            // SAFETY: there are `count` requests.
            request = unsafe { W::next(request).read() };
        }
        None
    }

    /// What a refused call tells, of a queue that takes lists of `limit` entries. `requests` were to be posted.
    #[cold]
    pub(crate) fn refusal(
        &self,
        verb: &'static str,
        code: c_int,
        limit: u32,
        requests: usize,
        bad_wr: *const W,
    ) -> PostError {
        let errno = match code {
            -1 => std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
            code => code.saturating_abs(),
        };
        let accepted = self.position(bad_wr);
        // Some providers answer ENOMEM to a list that is too long, as if the queue were full.
        let slices = accepted.map_or(0, |_| {
            // SAFETY: `bad_wr` is a request of the chain.
            unsafe { W::list(bad_wr) }.len()
        });
        let reason = if slices > limit as usize { Reason::Slices { slices, limit } } else { Reason::Provider };
        PostError { verb, errno, accepted, requests, reason }
    }
}

/// Links a chain, up to a request that the queue does not take.
#[inline]
pub(crate) fn link_each<W: WorkRequest, T, C: Requests<W, T> + ?Sized>(chain: &mut C, limits: Limits) -> Linked<W> {
    let chain = &*chain;
    // SAFETY: the caller passes requests of the chain; those that are datagrams name what is alive.
    let is_refused = |request: *const W| unsafe {
        C::INLINE && W::is_too_long(request, limits.max_inline_data)
            || C::DATAGRAM && !W::is_sendable_datagram(request, limits)
    };
    let length = chain.length();
    if length == 0 {
        return Linked { first: ptr::null_mut(), count: 0, refused: ptr::null_mut() };
    }
    // SAFETY: these are requests of the chain, which has as many.
    unsafe {
        let first = chain.as_wr(0);
        let mut last = first;
        if is_refused(first) {
            return Linked { first, count: 0, refused: first };
        }
        for index in 1..length {
            let request = chain.as_wr(index);
            if is_refused(request) {
                W::next(last).write(ptr::null_mut());
                return Linked { first, count: index, refused: request };
            }
            W::next(last).write(request);
            last = request;
        }
        W::next(last).write(ptr::null_mut());
        Linked { first, count: length, refused: ptr::null_mut() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::{InlineSlice, Rc, ReceiveRequest, SendRequest};

    #[test]
    fn what_was_taken_is_known_only_from_a_pointer_to_a_request_of_the_chain() {
        let mut requests: [_; 4] = std::array::from_fn(|index| ReceiveRequest::new(index as u64, &[]));
        let chain = link_each(&mut requests, Limits::NONE);
        assert_eq!((chain.count, chain.refused), (4, ptr::null_mut()));
        for (index, request) in requests.iter().enumerate() {
            assert_eq!(chain.position(request.as_raw()), Some(index));
        }
        let first = requests[0].as_raw();
        for nowhere in [ptr::null_mut(), first.wrapping_sub(1), first.wrapping_add(4), first.wrapping_byte_add(4)] {
            assert_eq!(chain.position(nowhere), None);
        }
    }

    #[test]
    fn a_chain_ends_before_the_request_with_too_much_inline_data() {
        let (short, long) = ([InlineSlice::new(&[0; 4]); 2], [InlineSlice::new(&[0; 4]), InlineSlice::new(&[0; 5])]);
        let mut requests: [SendRequest<'_, Rc>; 3] = [
            SendRequest::send_inline(0, &short),
            SendRequest::send_inline(1, &long),
            SendRequest::send_inline(2, &short),
        ];
        let limits = |max_inline_data| Limits { max_inline_data, ..Limits::NONE };
        let chain = link_each(&mut requests, limits(8));
        assert_eq!((chain.count, chain.refused), (1, requests[1].as_raw()));
        // SAFETY: the request is there.
        assert!(unsafe { (*chain.first).next }.is_null());
        assert_eq!(link_each(&mut requests, limits(9)).count, 3);
        assert_eq!(link_each(&mut requests, limits(7)).count, 0);
        assert_eq!(link_each(&mut requests[..0], limits(7)).count, 0);
    }

    #[test]
    fn inline_data_is_added_up_in_more_than_32_bits() {
        // The memory is never read.
        let large = [LARGE; 2];
        let request: SendRequest<'_, Rc> = SendRequest::send_inline(0, &large);
        // SAFETY: the request is initialised.
        unsafe {
            assert_eq!(WorkRequest::length(request.as_raw()), 2 * u64::from(u32::MAX));
            assert!(WorkRequest::is_too_long(request.as_raw(), u32::MAX));
        }
    }

    /// A slice of more bytes than 32 bits tell.
    const LARGE: InlineSlice<'static> = {
        // SAFETY: the layout is that of an `ibv_sge`, and nobody reads the memory.
        unsafe { std::mem::transmute(ffi::ibv_sge { addr: 8, length: u32::MAX, lkey: 0 }) }
    };
}
