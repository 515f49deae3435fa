//! [`PreparedSend`]: a request that is built once and posted again and again.
//!
//! # Safety
//!
//! A `PreparedSend` holds the regions of its slices, so they stay registered as long as it lives, and the address handle that a request
//! of UD names. `request` has a list of `N` entries,
//! and no inline data; its pointer to the list is set anew whenever the request is handed out, so the value can be moved.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::RangeBounds;
use std::ptr;

use crate::address_handle::AddressHandle;
use crate::chain::PreparedRequest;
use crate::chain::sealed::Request;
use crate::error::{Error, Result};
use crate::ffi;
use crate::held_slice::HeldSlice;
use crate::local_slice::LocalSlice;
use crate::remote_slice::RemoteSlice;
use crate::send_request::SendRequest;
use crate::transport::{Connected, Rc, Transport, Ud};

/// A request of `N` scatter/gather entries that is built once; what changes from post to post is set in place.
///
/// It holds its regions, which can be used meanwhile: see [`HeldSlice`]. Atomic operations are
/// [`PreparedAtomic`](crate::PreparedAtomic)s.
///
/// # Examples
///
/// ```no_run
/// # use verbs::{MemoryRegion, PreparedSend, QueuePair, Rc, RemoteSlice};
/// # fn example(qp: &QueuePair<Rc>, region: MemoryRegion<Vec<u8>>, remote: RemoteSlice) -> verbs::Result<()> {
/// let mut write = PreparedSend::rdma_write(0, [region.hold(..64)?], remote).signaled();
/// for slot in 0..16 {
///     write.set_wr_id(slot as u64);
///     write.set_range(0, slot * 64..slot * 64 + 64)?;
///     qp.post_prepared_send(&mut write)?;
/// }
/// # Ok(()) }
/// ```
#[must_use = "a request does nothing before it is posted"]
pub struct PreparedSend<const N: usize = 1, T: Transport = Rc> {
    pub(crate) request: SendRequest<'static, T>,
    slices: [LocalSlice<'static>; N],
    held: [HeldSlice; N],
    destination: T::Destination,
}

impl<const N: usize, T: Transport> PreparedSend<N, T> {
    pub(crate) fn new(request: SendRequest<'static, T>, held: [HeldSlice; N], destination: T::Destination) -> Self {
        // SAFETY: the pointer is set before anybody reads the list.
        let request = unsafe { request.with_list_at(ptr::null(), N) };
        Self { request, slices: held.each_ref().map(HeldSlice::entry), held, destination }
    }

    /// As [`SendRequest::signaled`].
    pub fn signaled(mut self) -> Self {
        self.request = self.request.signaled();
        self
    }

    /// As [`SendRequest::fenced`].
    pub fn fenced(mut self) -> Self {
        self.request = self.request.fenced();
        self
    }

    /// As [`SendRequest::solicited`].
    pub fn solicited(mut self) -> Self {
        self.request = self.request.solicited();
        self
    }

    /// The identifier that the completion will carry.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        self.request.wr_id()
    }

    /// Sets the identifier that the completion will carry.
    #[inline]
    pub fn set_wr_id(&mut self, wr_id: u64) {
        self.request.set_wr_id(wr_id);
    }

    /// Sets the slice at `index` to another range of its region.
    ///
    /// # Errors
    ///
    /// * [`Error::OutOfRange`]: the range does not lie in the region.
    /// * [`Error::InvalidArgument`]: there is no such slice, or the range is longer than 32 bits tell.
    #[inline]
    pub fn set_range(&mut self, index: usize, range: impl RangeBounds<usize>) -> Result<()> {
        let (slice, held) = self.slice(index)?;
        *slice = held.range(range)?;
        Ok(())
    }

    /// The slice at `index`, and what holds its region.
    #[inline]
    pub(crate) fn slice(&mut self, index: usize) -> Result<(&mut LocalSlice<'static>, &HeldSlice)> {
        self.slices.get_mut(index).zip(self.held.get(index)).ok_or_else(|| no_slice(index, N))
    }

    /// Sets the slice at `index`, to one of another region for example.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: there is no such slice.
    pub fn set_slice(&mut self, index: usize, slice: HeldSlice) -> Result<()> {
        let held = self.held.get_mut(index).ok_or_else(|| no_slice(index, N))?;
        self.slices[index] = slice.entry();
        *held = slice;
        Ok(())
    }

    /// As [`SendRequest::set_remote`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: the operation uses no memory of the peer's.
    #[inline]
    pub fn set_remote(&mut self, remote: RemoteSlice) -> Result<()> {
        self.request.set_remote(remote)
    }

    /// As [`SendRequest::set_imm_data`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: the operation has no immediate data.
    #[inline]
    pub fn set_imm_data(&mut self, imm_data: u32) -> Result<()> {
        self.request.set_imm_data(imm_data)
    }
}

impl<const N: usize, T: Connected> PreparedSend<N, T> {
    /// As [`SendRequest::send`].
    pub fn send(wr_id: u64, slices: [HeldSlice; N]) -> Self {
        Self::new(SendRequest::send(wr_id, &[]), slices, ())
    }

    /// As [`SendRequest::send_with_imm`].
    pub fn send_with_imm(wr_id: u64, slices: [HeldSlice; N], imm_data: u32) -> Self {
        Self::new(SendRequest::send_with_imm(wr_id, &[], imm_data), slices, ())
    }

    /// As [`SendRequest::rdma_write`].
    pub fn rdma_write(wr_id: u64, slices: [HeldSlice; N], remote: RemoteSlice) -> Self {
        Self::new(SendRequest::rdma_write(wr_id, &[], remote), slices, ())
    }

    /// As [`SendRequest::rdma_write_with_imm`].
    pub fn rdma_write_with_imm(wr_id: u64, slices: [HeldSlice; N], remote: RemoteSlice, imm_data: u32) -> Self {
        Self::new(SendRequest::rdma_write_with_imm(wr_id, &[], remote, imm_data), slices, ())
    }
}

impl<const N: usize> PreparedSend<N, Rc> {
    /// As [`SendRequest::rdma_read`].
    pub fn rdma_read(wr_id: u64, slices: [HeldSlice; N], remote: RemoteSlice) -> Self {
        Self::new(SendRequest::rdma_read(wr_id, &[], remote), slices, ())
    }
}

impl<const N: usize> PreparedSend<N, Ud> {
    /// As [`SendRequest::send_to`]. The request holds the address handle.
    pub fn send_to(wr_id: u64, slices: [HeldSlice; N], ah: &AddressHandle, remote_qpn: u32, remote_qkey: u32) -> Self {
        // SAFETY: the request holds a clone.
        let request = SendRequest::send_to(wr_id, &[], unsafe { lasting(ah) }, remote_qpn, remote_qkey);
        Self::new(request, slices, ah.clone())
    }

    /// As [`SendRequest::send_to_with_imm`]. The request holds the address handle.
    pub fn send_to_with_imm(
        wr_id: u64,
        slices: [HeldSlice; N],
        ah: &AddressHandle,
        remote_qpn: u32,
        remote_qkey: u32,
        imm_data: u32,
    ) -> Self {
        // SAFETY: the request holds a clone.
        let ah_of_request = unsafe { lasting(ah) };
        let request = SendRequest::send_to_with_imm(wr_id, &[], ah_of_request, remote_qpn, remote_qkey, imm_data);
        Self::new(request, slices, ah.clone())
    }

    /// As [`SendRequest::set_destination`]. The request holds the new address handle in place of the old one.
    #[inline]
    pub fn set_destination(&mut self, ah: &AddressHandle, remote_qpn: u32, remote_qkey: u32) {
        // SAFETY: the request holds a clone.
        self.request.set_destination(unsafe { lasting(ah) }, remote_qpn, remote_qkey);
        self.destination = ah.clone();
    }

    /// The address handle that the request holds.
    pub fn address_handle(&self) -> &AddressHandle {
        &self.destination
    }
}

/// The address handle for a request that keeps only the pointer to the C object.
///
/// # Safety
///
/// Whoever owns the request holds a clone.
#[inline]
unsafe fn lasting(ah: &AddressHandle) -> &'static AddressHandle {
    // SAFETY: the reference is not used after the call that it is passed to.
    unsafe { &*ptr::from_ref(ah) }
}

#[cold]
pub(crate) fn no_slice(index: usize, count: usize) -> Error {
    let rule = format!("the request has {count} slices, counted from 0");
    Error::invalid("ibv_post_send", "the index of a slice", index, rule)
}

// SAFETY: the request is valid for its transport, and in a cell; its list is where the entries are now, and nobody writes to them.
unsafe impl<const N: usize, T: Transport> Request<ffi::ibv_send_wr, T> for PreparedSend<N, T> {
    const INLINE: bool = false;
    const DATAGRAM: bool = T::DATAGRAM;

    #[inline]
    fn as_wr(&self) -> *mut ffi::ibv_send_wr {
        let wr = self.request.as_raw();
        // SAFETY: the request is initialised, and ours alone. A `LocalSlice` is an `ibv_sge` and nothing more.
        unsafe { (*wr).sg_list = self.slices.as_ptr().cast_mut().cast() };
        wr
    }
}

impl<const N: usize, T: Transport> PreparedRequest<T> for PreparedSend<N, T> {}

impl<const N: usize, T: Transport> fmt::Debug for PreparedSend<N, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedSend").field("request", &self.request).field("slices", &self.slices).finish()
    }
}
