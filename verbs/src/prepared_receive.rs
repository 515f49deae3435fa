//! [`PreparedReceive`]: a receive that is built once and posted again and again.
//!
//! # Safety
//!
//! A `PreparedReceive` holds the regions of its slices, so they stay registered as long as it lives. `request` has a list of `N`
//! entries; its pointer to the list is set anew whenever the request is handed out, so the value can be moved.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::RangeBounds;

use crate::chain::sealed::Request;
use crate::error::Result;
use crate::ffi;
use crate::held_slice::HeldSlice;
use crate::local_slice::LocalSlice;
use crate::prepared_send::no_slice;
use crate::receive_request::ReceiveRequest;

/// A receive of `N` scatter/gather entries that is built once; what changes from post to post is set in place.
///
/// It holds its regions, which can be used meanwhile: see [`HeldSlice`]. [`ReceiveSlots`](crate::ReceiveSlots) is a queue's worth of
/// them.
#[must_use = "a request does nothing before it is posted"]
pub struct PreparedReceive<const N: usize = 1> {
    request: ReceiveRequest<'static>,
    slices: [LocalSlice<'static>; N],
    held: [HeldSlice; N],
}

impl<const N: usize> PreparedReceive<N> {
    /// A receive into `slices`; its completion carries `wr_id`.
    pub fn new(wr_id: u64, slices: [HeldSlice; N]) -> Self {
        let request = ReceiveRequest::new(wr_id, &[]);
        // More entries than an `int` holds are more than any device takes, and so is the largest `int`.
        let num_sge = i32::try_from(N).unwrap_or(i32::MAX);
        // SAFETY: the request is ours alone, and nobody reads its list before it is handed out with the `N` entries.
        unsafe { (*request.as_raw()).num_sge = num_sge };
        Self { request, slices: slices.each_ref().map(HeldSlice::entry), held: slices }
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
    /// * [`Error::OutOfRange`](crate::Error::OutOfRange): the range does not lie in the region.
    /// * [`Error::InvalidArgument`](crate::Error::InvalidArgument): there is no such slice, or the range is longer than 32 bits tell.
    #[inline]
    pub fn set_range(&mut self, index: usize, range: impl RangeBounds<usize>) -> Result<()> {
        let (Some(slice), Some(held)) = (self.slices.get_mut(index), self.held.get(index)) else {
            return Err(no_slice(index, N));
        };
        *slice = held.range(range)?;
        Ok(())
    }

    /// Sets the slice at `index`, to one of another region for example.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument): there is no such slice.
    pub fn set_slice(&mut self, index: usize, slice: HeldSlice) -> Result<()> {
        let held = self.held.get_mut(index).ok_or_else(|| no_slice(index, N))?;
        self.slices[index] = slice.entry();
        *held = slice;
        Ok(())
    }
}

// SAFETY: the request is valid, and in a cell; its list is where the entries are now, and nobody writes to them.
unsafe impl<const N: usize> Request<ffi::ibv_recv_wr, ()> for PreparedReceive<N> {
    #[inline]
    fn as_wr(&self) -> *mut ffi::ibv_recv_wr {
        let wr = self.request.as_raw();
        // SAFETY: the request is initialised, and ours alone. A `LocalSlice` is an `ibv_sge` and nothing more.
        unsafe { (*wr).sg_list = self.slices.as_ptr().cast_mut().cast() };
        wr
    }
}

impl<const N: usize> fmt::Debug for PreparedReceive<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedReceive").field("request", &self.request).field("slices", &self.slices).finish()
    }
}
