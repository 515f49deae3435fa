//! [`SendBatch`]: memory for chains of requests, used again and again.
//!
//! # Safety
//!
//! The vectors of a [`SendBatch`] are memory only; their length is 0. A [`BatchedSends`], which has the batch to itself, writes to it from
//! the beginning: requests from `first` to `next`, slices up to `next_slice`, with room until `end` and `end_slice`. What it writes is
//! valid for as long as it can be used. Each request is linked to the place after it, but for `last`, whose link is null. A list that was
//! copied lies in the slices. When memory grows, links and pointers to lists are set anew.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ptr;

use crate::chain::sealed::Requests;
use crate::ffi;
use crate::local_slice::LocalSlice;
use crate::send_request::SendRequest;
use crate::transport::{Rc, Transport};
use crate::work_request::{Limits, Linked, WorkRequest as _, link_each};

/// Memory for chains of requests: allocated once, used for one chain after the other.
///
/// An array on the stack does as well where the number of requests is known beforehand:
/// [`post_send_chain`](crate::QueuePair::post_send_chain) takes both.
///
/// # Examples
///
/// ```no_run
/// # use verbs::{MemoryRegion, QueuePair, Rc, RemoteSlice, SendBatch, SendRequest};
/// # fn example(qp: &QueuePair<Rc>, region: &MemoryRegion<Vec<u8>>, pages: &[RemoteSlice]) -> verbs::Result<()> {
/// let mut batch = SendBatch::with_capacity(16);
/// for pages in pages.chunks(16) {
///     let mut chain = batch.begin();
///     for (index, page) in pages.iter().enumerate() {
///         let write = SendRequest::rdma_write(index as u64, &[], *page);
///         chain.push_with(write.signaled(), &[region.slice(index * 4096..(index + 1) * 4096)?]);
///     }
///     qp.post_send_chain(&mut chain)?;
/// }
/// # Ok(()) }
/// ```
///
/// A region cannot go away while a chain that names it waits to be posted:
///
/// ```compile_fail,E0505
/// # use verbs::{MemoryRegion, QueuePair, Rc, SendBatch, SendRequest};
/// # fn example(qp: &QueuePair<Rc>, region: MemoryRegion<Vec<u8>>) -> verbs::Result<()> {
/// let mut batch = SendBatch::with_capacity(1);
/// let mut chain = batch.begin();
/// chain.push_with(SendRequest::send(1, &[]), &[region.slice(..)?]);
/// drop(region);
/// qp.post_send_chain(&mut chain)?;
/// # Ok(()) }
/// ```
///
/// Nor can a chain be posted once the next one has begun in its memory:
///
/// ```compile_fail,E0499
/// # use verbs::{QueuePair, Rc, SendBatch};
/// # fn example(qp: &QueuePair<Rc>, batch: &mut SendBatch<Rc>) -> verbs::Result<()> {
/// let mut first = batch.begin();
/// let mut second = batch.begin();
/// qp.post_send_chain(&mut first)?;
/// # Ok(()) }
/// ```
pub struct SendBatch<T: Transport = Rc> {
    requests: Vec<SendRequest<'static, T>>,
    slices: Vec<LocalSlice<'static>>,
}

/// A chain in a [`SendBatch`], made by [`SendBatch::begin`]: a [`SendChain`](crate::SendChain).
// The ends are kept here and not in the vectors, so that they stay in registers while requests are added; and requests are linked when
// they are added. A request of a chain of 16 then costs 91 instructions on the null provider, and not 110; in C, on the stack, 97.
pub struct BatchedSends<'a, T: Transport = Rc> {
    batch: &'a mut SendBatch<T>,
    first: *mut ffi::ibv_send_wr,
    next: *mut ffi::ibv_send_wr,
    end: *mut ffi::ibv_send_wr,
    last: *mut ffi::ibv_send_wr,
    next_slice: *mut ffi::ibv_sge,
    end_slice: *mut ffi::ibv_sge,
    /// Whether any request has inline data.
    inline: bool,
    regions: PhantomData<(SendRequest<'a, T>, LocalSlice<'a>)>,
}

// SAFETY: the pointers lead into the batch, which it has to itself, and requests and slices can be sent.
unsafe impl<T: Transport> Send for BatchedSends<'_, T> {}

impl<T: Transport> SendBatch<T> {
    /// Memory for chains of `requests` of one scatter/gather entry each. It grows for longer ones.
    pub fn with_capacity(requests: usize) -> Self {
        Self { requests: Vec::with_capacity(requests), slices: Vec::with_capacity(requests) }
    }

    /// Begins a chain. The requests of the one before are gone.
    #[inline]
    pub fn begin(&mut self) -> BatchedSends<'_, T> {
        let requests: *mut ffi::ibv_send_wr = self.requests.as_mut_ptr().cast();
        let slices: *mut ffi::ibv_sge = self.slices.as_mut_ptr().cast();
        BatchedSends {
            first: requests,
            next: requests,
            // SAFETY: the ends of the vectors' memory. A `SendRequest` is an `ibv_send_wr`, and a `LocalSlice` an `ibv_sge`.
            end: unsafe { requests.add(self.requests.capacity()) },
            last: ptr::null_mut(),
            next_slice: slices,
            // SAFETY: as above.
            end_slice: unsafe { slices.add(self.slices.capacity()) },
            batch: self,
            inline: false,
            regions: PhantomData,
        }
    }
}

impl<'a, T: Transport> BatchedSends<'a, T> {
    /// Adds a request at the end.
    #[inline]
    pub fn push(&mut self, request: SendRequest<'a, T>) {
        if self.next == self.end {
            self.grow_requests();
        }
        // SAFETY: there is room for a request, and if there is none for the one after it, it will be linked anew. The request is used for
        // `'a` only: the batch is ours for that long, and is emptied before it is used again.
        unsafe {
            self.inline |= ffi::ibv_send_wr::is_inline(request.as_raw());
            self.next.cast::<SendRequest<'a, T>>().write(request);
            let after = self.next.add(1);
            (&raw mut (*self.next).next).write(after);
            self.next = after;
        }
    }

    /// Adds a request at the end, with `slices` for its list; they are copied. The list that the request was made with, or its inline data,
    /// is not used.
    #[inline]
    pub fn push_with(&mut self, request: SendRequest<'a, T>, slices: &[LocalSlice<'a>]) {
        // SAFETY: there is room for the slices, each of which is an `ibv_sge`, once the memory has grown. They are used for `'a` only, as
        // above. The request's list has as many entries, and stays where it is until `grow_slices` sees to it.
        let request = unsafe {
            if (self.end_slice.offset_from(self.next_slice) as usize) < slices.len() {
                self.grow_slices(slices.len());
            }
            let list = self.next_slice;
            ptr::copy_nonoverlapping(slices.as_ptr().cast(), list, slices.len());
            self.next_slice = list.add(slices.len());
            request.with_list_at(list, slices.len()).if_atomic_on_a_word()
        };
        self.push(request);
    }

    /// How many requests.
    #[inline]
    pub fn len(&self) -> usize {
        // SAFETY: both lie in the vector's memory, in this order.
        unsafe { self.next.offset_from(self.first) as usize }
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes `count` requests from the front, at most all: those that were [accepted](crate::PostError::accepted) by a queue that
    /// refused the rest, which can then be posted later.
    pub fn skip(&mut self, count: usize) {
        // SAFETY: not beyond `next`.
        self.first = unsafe { self.first.add(count.min(self.len())) };
    }

    /// Makes room for more requests.
    #[cold]
    fn grow_requests(&mut self) {
        let requests = &mut self.batch.requests;
        // SAFETY: the memory up to `next` holds requests, which are moved along. The pointers are set to the same places in what is the
        // vector's memory then, and each request is linked to the one after it.
        unsafe {
            let base: *mut ffi::ibv_send_wr = requests.as_mut_ptr().cast();
            let (first, next) = (self.first.offset_from(base) as usize, self.next.offset_from(base) as usize);
            requests.set_len(next);
            requests.reserve(next.max(8));
            requests.set_len(0);
            let base: *mut ffi::ibv_send_wr = requests.as_mut_ptr().cast();
            (self.first, self.next, self.end) = (base.add(first), base.add(next), base.add(requests.capacity()));
            for index in 0..next {
                (*base.add(index)).next = base.add(index + 1);
            }
        }
        self.last = ptr::null_mut();
    }

    /// Makes room for `count` more slices.
    #[cold]
    fn grow_slices(&mut self, count: usize) {
        let slices = &mut self.batch.slices;
        // SAFETY: the memory up to `next_slice` holds slices, which are moved along. Lists that lay there are found at the same places in
        // what is the vector's memory then.
        unsafe {
            let old: *mut ffi::ibv_sge = slices.as_mut_ptr().cast();
            let next = self.next_slice.offset_from(old) as usize;
            let old = old.addr()..self.next_slice.addr();
            slices.set_len(next);
            slices.reserve(count.max(next));
            slices.set_len(0);
            let base: *mut ffi::ibv_sge = slices.as_mut_ptr().cast();
            (self.next_slice, self.end_slice) = (base.add(next), base.add(slices.capacity()));
            for index in 0..self.len() {
                let request = self.first.add(index);
                let list = (*request).sg_list.addr();
                if old.contains(&list) {
                    (*request).sg_list = base.byte_add(list - old.start);
                }
            }
        }
    }
}

// SAFETY: the requests are valid for the transport.
unsafe impl<T: Transport> Requests<ffi::ibv_send_wr, T> for BatchedSends<'_, T> {
    const DATAGRAM: bool = T::DATAGRAM;

    #[inline]
    fn length(&self) -> usize {
        self.len()
    }

    #[inline]
    unsafe fn as_wr(&self, index: usize) -> *mut ffi::ibv_send_wr {
        // SAFETY: the caller says that the request is there.
        unsafe { self.first.add(index) }
    }

    #[inline]
    fn link(&mut self, limits: Limits) -> Linked<ffi::ibv_send_wr> {
        if self.inline || T::DATAGRAM {
            return link_each(self, limits);
        }
        let count = self.len();
        // SAFETY: `last` is a request of the chain, or null, and there is a request before `next` unless the chain is empty.
        unsafe {
            if !self.last.is_null() {
                (*self.last).next = self.last.add(1);
            }
            if count > 0 {
                self.last = self.next.sub(1);
                (*self.last).next = ptr::null_mut();
            }
        }
        Linked { first: self.first, count, refused: ptr::null_mut() }
    }
}

impl<T: Transport> fmt::Debug for SendBatch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBatch").field("capacity", &self.requests.capacity()).finish_non_exhaustive()
    }
}

impl<T: Transport> fmt::Debug for BatchedSends<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchedSends").field("requests", &self.len()).finish_non_exhaustive()
    }
}
