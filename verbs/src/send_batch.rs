//! [`SendBatch`]: memory for chains of requests, used again and again.
//!
//! # Safety
//!
//! What a [`BatchedSends`] adds to its batch is valid for as long as the [`BatchedSends`] can be used, and beginning another one empties
//! the batch. A request whose list was copied finds it at `Entry::list` of `slices`; its pointer to the list is set anew whenever the
//! request is handed out, since the vector may have grown.
#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroUsize;

use crate::chain::sealed::Requests;
use crate::ffi;
use crate::local_slice::LocalSlice;
use crate::send_request::SendRequest;
use crate::transport::{Rc, Transport};

struct Entry<T: Transport> {
    request: SendRequest<'static, T>,
    /// Where in `slices` its list begins, plus one. `None`: the list is not ours.
    list: Option<NonZeroUsize>,
}

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
pub struct SendBatch<T: Transport = Rc> {
    entries: Vec<Entry<T>>,
    slices: Vec<LocalSlice<'static>>,
}

/// A chain in a [`SendBatch`], made by [`SendBatch::begin`]: a [`SendChain`](crate::SendChain).
pub struct BatchedSends<'a, T: Transport = Rc> {
    batch: &'a mut SendBatch<T>,
    /// How many requests at the front are no longer of the chain.
    skipped: usize,
    regions: PhantomData<LocalSlice<'a>>,
}

impl<T: Transport> SendBatch<T> {
    /// Memory for chains of `requests` of one scatter/gather entry each. It grows for longer ones.
    pub fn with_capacity(requests: usize) -> Self {
        Self { entries: Vec::with_capacity(requests), slices: Vec::with_capacity(requests) }
    }

    /// Begins a chain. The requests of the one before are gone.
    #[inline]
    pub fn begin(&mut self) -> BatchedSends<'_, T> {
        self.entries.clear();
        self.slices.clear();
        BatchedSends { batch: self, skipped: 0, regions: PhantomData }
    }
}

impl<'a, T: Transport> BatchedSends<'a, T> {
    /// Adds a request at the end.
    #[inline]
    pub fn push(&mut self, request: SendRequest<'a, T>) {
        self.add(request, None);
    }

    /// Adds a request at the end, with `slices` for its list; they are copied. The list that the request was made with is not used.
    #[inline]
    pub fn push_with(&mut self, request: SendRequest<'a, T>, slices: &[LocalSlice<'a>]) {
        let list = NonZeroUsize::new(self.batch.slices.len() + 1);
        self.batch.slices.extend(slices.iter().map(LocalSlice::detached));
        self.add(request.with_list_of(slices.len()), list);
    }

    #[inline]
    fn add(&mut self, request: SendRequest<'a, T>, list: Option<NonZeroUsize>) {
        // Used for `'a` only: the batch is ours for that long, and is emptied before it is used again.
        self.batch.entries.push(Entry { request: request.detached(), list });
    }

    /// How many requests.
    #[inline]
    pub fn len(&self) -> usize {
        self.batch.entries.len() - self.skipped
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes `count` requests from the front, at most all: those that were [accepted](crate::PostError::accepted) by a queue that
    /// refused the rest, which can then be posted later.
    pub fn skip(&mut self, count: usize) {
        self.skipped += count.min(self.len());
    }
}

// SAFETY: the requests are valid for the transport, and in cells. Those with a list of ours find it where it is now.
unsafe impl<T: Transport> Requests<ffi::ibv_send_wr, T> for BatchedSends<'_, T> {
    #[inline]
    fn length(&self) -> usize {
        self.len()
    }

    #[inline]
    fn as_wr(&self, index: usize) -> *mut ffi::ibv_send_wr {
        let entry = &self.batch.entries[self.skipped + index];
        let wr = entry.request.as_raw();
        if let Some(list) = entry.list {
            // SAFETY: the request is initialised, and ours alone; its list lies in the vector. A `LocalSlice` is an `ibv_sge` and
            // nothing more.
            unsafe { (*wr).sg_list = self.batch.slices.as_ptr().add(list.get() - 1).cast_mut().cast() };
        }
        wr
    }
}

impl<T: Transport> fmt::Debug for SendBatch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendBatch").field("capacity", &self.entries.capacity()).finish_non_exhaustive()
    }
}

impl<T: Transport> fmt::Debug for BatchedSends<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.batch.entries[self.skipped..].iter().map(|entry| &entry.request)).finish()
    }
}
