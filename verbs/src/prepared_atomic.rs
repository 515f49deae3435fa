//! [`PreparedAtomic`]: an atomic operation that is built once and posted again and again.
//!
//! # Safety
//!
//! `request` is a [`PreparedSend`], whose requests are valid for RC.
#![allow(unsafe_code)]

use std::fmt;
use std::ops::RangeBounds;

use crate::chain::PreparedRequest;
use crate::chain::sealed::Request;
use crate::error::{Error, Result};
use crate::ffi;
use crate::held_slice::HeldSlice;
use crate::prepared_send::PreparedSend;
use crate::remote_slice::RemoteSlice;
use crate::send_request::{SendRequest, must_be_aligned};
use crate::transport::Rc;

/// An atomic operation whose result is scattered to `N` slices, 8 bytes in all; what changes from post to post is set in place. Posted as a
/// [`PreparedSend`] is.
///
/// # Examples
///
/// ```no_run
/// # use verbs::{MemoryRegion, PreparedAtomic, QueuePair, Rc, RemoteSlice};
/// # fn example(qp: &QueuePair<Rc>, region: MemoryRegion<Vec<u8>>, counters: RemoteSlice) -> verbs::Result<()> {
/// let mut add = PreparedAtomic::fetch_and_add(0, [region.hold(..8)?], counters, 1)?.signaled();
/// for counter in 0..16 {
///     add.set_range(0, counter * 8..counter * 8 + 8)?;
///     add.set_remote(counters.slice(counter * 8..)?)?;
///     qp.post_prepared_send(&add)?;
/// }
/// # Ok(()) }
/// ```
#[must_use = "a request does nothing before it is posted"]
pub struct PreparedAtomic<const N: usize = 1> {
    request: PreparedSend<N, Rc>,
}

impl<const N: usize> PreparedAtomic<N> {
    /// As [`SendRequest::compare_and_swap`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: the slices do not have 8 bytes in all, or the peer's address is not a multiple of 8.
    pub fn compare_and_swap(
        wr_id: u64,
        slices: [HeldSlice; N],
        remote: RemoteSlice,
        compare: u64,
        swap: u64,
    ) -> Result<Self> {
        Self::new(SendRequest::compare_and_swap(wr_id, &[], remote, compare, swap), slices, remote)
    }

    /// As [`SendRequest::fetch_and_add`].
    ///
    /// # Errors
    ///
    /// As those of [`compare_and_swap`](Self::compare_and_swap).
    pub fn fetch_and_add(wr_id: u64, slices: [HeldSlice; N], remote: RemoteSlice, add: u64) -> Result<Self> {
        Self::new(SendRequest::fetch_and_add(wr_id, &[], remote, add), slices, remote)
    }

    /// Providers are not relied on: some take more than 8 bytes, and write to the first 8 only.
    fn new(request: SendRequest<'static>, slices: [HeldSlice; N], remote: RemoteSlice) -> Result<Self> {
        must_be_aligned(remote)?;
        let length = slices.iter().map(|slice| u64::from(slice.len())).sum();
        if length != 8 {
            return Err(no_word("the length of the slices", length));
        }
        Ok(Self { request: PreparedSend::new(request, slices, ()) })
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
    /// * [`Error::InvalidArgument`]: there is no such slice, or the range is longer or shorter than the one before.
    #[inline]
    pub fn set_range(&mut self, index: usize, range: impl RangeBounds<usize>) -> Result<()> {
        let (old, held) = self.request.slice(index)?;
        let new = held.range(range)?;
        if new.len() != old.len() {
            return Err(no_word("the length of the slice", new.len().into()));
        }
        *old = new;
        Ok(())
    }

    /// Sets the slice at `index`, to one of another region for example.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: there is no such slice, or it is longer or shorter than the one before.
    pub fn set_slice(&mut self, index: usize, slice: HeldSlice) -> Result<()> {
        let (old, _) = self.request.slice(index)?;
        if slice.len() != old.len() {
            return Err(no_word("the length of the slice", slice.len().into()));
        }
        self.request.set_slice(index, slice)
    }

    /// As [`SendRequest::set_remote`].
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: the address is not a multiple of 8.
    #[inline]
    pub fn set_remote(&mut self, remote: RemoteSlice) -> Result<()> {
        self.request.set_remote(remote)
    }

    /// Sets what to compare with, or to add; and what to swap in, which fetch-and-add has not.
    #[inline]
    pub fn set_operands(&mut self, compare_add: u64, swap: u64) {
        self.request.request.put_operands(compare_add, swap);
    }
}

#[cold]
fn no_word(argument: &'static str, length: u64) -> Error {
    Error::invalid("ibv_post_send", argument, length, "the slices of an atomic operation have 8 bytes in all")
}

// SAFETY: that of a `PreparedSend`.
unsafe impl<const N: usize> Request<ffi::ibv_send_wr, Rc> for PreparedAtomic<N> {
    const INLINE: bool = false;

    #[inline]
    fn as_wr(&self) -> *mut ffi::ibv_send_wr {
        self.request.as_wr()
    }
}

impl<const N: usize> PreparedRequest<Rc> for PreparedAtomic<N> {}

impl<const N: usize> fmt::Debug for PreparedAtomic<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PreparedAtomic").field(&self.request).finish()
    }
}
