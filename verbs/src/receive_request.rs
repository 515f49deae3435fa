//! [`ReceiveRequest`]: where to put what arrives.
//!
//! # Safety
//!
//! All fields of the `ibv_recv_wr` are initialised. Its list of scatter/gather entries lives for `'a`, and each entry's
//! region too.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::fmt;
use std::marker::PhantomData;
use std::ptr;

use crate::chain::sealed::Request;
use crate::ffi;
use crate::local_slice::LocalSlice;

/// `struct ibv_recv_wr`: a request for a receive queue: where the next message goes.
///
/// A message is scattered to the `slices` in their order; one that is larger than all of them together fails at both ends.
/// Their regions need [`LOCAL_WRITE`](crate::AccessFlags::LOCAL_WRITE). An empty list receives empty messages and the
/// immediate data of RDMA WRITEs. Of a UD queue pair, a receive also needs room for the 40 bytes of a [`Grh`](crate::Grh), which
/// come before the message.
///
/// # References
///
/// [ibv_post_recv(3)](https://man7.org/linux/man-pages/man3/ibv_post_recv.3.html); InfiniBand Architecture Specification,
/// volume 1, chapter 11.4.1.2.
///
/// # Examples
///
/// A region cannot go away while a request that names it waits to be posted:
///
/// ```compile_fail,E0505
/// # use verbs::{MemoryRegion, QueuePair, Rc, ReceiveRequest};
/// # fn example(qp: &QueuePair<Rc>, region: MemoryRegion<Vec<u8>>) -> verbs::Result<()> {
/// let slices = [region.slice(..)?];
/// let request = ReceiveRequest::new(1, &slices);
/// let buffer = region.deregister().map_err(|(_, error)| error)?;
/// qp.post_receive(&request)?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_recv_wr")]
#[must_use = "a request does nothing before it is posted"]
#[repr(transparent)]
pub struct ReceiveRequest<'a> {
    // Libibverbs takes requests by a pointer to mutable memory, hence the cell.
    wr: UnsafeCell<ffi::ibv_recv_wr>,
    slices: PhantomData<&'a [LocalSlice<'a>]>,
}

// SAFETY: what the pointers in the request lead to is only read, and may be read from any thread.
unsafe impl Send for ReceiveRequest<'_> {}

impl<'a> ReceiveRequest<'a> {
    /// A receive into `slices`; its completion carries `wr_id`.
    #[inline]
    pub fn new(wr_id: u64, slices: &'a [LocalSlice<'a>]) -> Self {
        // More entries than an `int` holds are more than any device takes, and so is the largest `int`.
        let num_sge = c_int::try_from(slices.len()).unwrap_or(c_int::MAX);
        // A `LocalSlice` is an `ibv_sge` and nothing more, and libibverbs does not write to the list.
        let sg_list = slices.as_ptr().cast_mut().cast();
        let wr = ffi::ibv_recv_wr { wr_id, next: ptr::null_mut(), sg_list, num_sge };
        Self { wr: UnsafeCell::new(wr), slices: PhantomData }
    }

    /// The identifier that the completion will carry.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        // SAFETY: the field is initialised, and libibverbs is not using the request at this time.
        unsafe { (*self.wr.get()).wr_id }
    }

    /// Sets the identifier that the completion will carry.
    #[inline]
    pub fn set_wr_id(&mut self, wr_id: u64) {
        self.wr.get_mut().wr_id = wr_id;
    }

    /// The request in libibverbs' terms; valid as long as `self`.
    #[inline]
    pub fn as_raw(&self) -> *mut ffi::ibv_recv_wr {
        self.wr.get()
    }
}

// SAFETY: the request is valid, and in a cell.
unsafe impl Request<ffi::ibv_recv_wr, ()> for ReceiveRequest<'_> {
    #[inline]
    fn as_wr(&self) -> *mut ffi::ibv_recv_wr {
        self.as_raw()
    }
}

impl fmt::Debug for ReceiveRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveRequest").field("wr_id", &self.wr_id()).finish_non_exhaustive()
    }
}
