//! [`ExtendedCompletionQueue`]: completions with the fields that the program asks for.
//!
//! # Safety
//!
//! * `cq` is an `ibv_cq_ex`, made with the flags of `F`, each of whose functions that are called here is there; `queue` keeps it.
//! * Between `ibv_start_poll` and `ibv_end_poll`, while the provider holds the queue's lock, none of the program's code runs, so the
//!   queue cannot be polled again, nor one of its queue pairs be destroyed, which would wait for that lock. An entry is not lent but
//!   copied, so nothing of it is used after `ibv_end_poll`.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::hint::unreachable_unchecked;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::time::Duration;

use crate::completion_error::CompletionError;
use crate::completion_fields::CompletionFields;
use crate::completion_queue::{CompletionQueue, Notify};
use crate::error::Result;
use crate::ffi;
use crate::poll_error::PollError;
use crate::work_completion::WorkCompletionStatus;

/// `struct ibv_cq_ex`: a completion queue whose completions have the fields `F`, a tuple of types of
/// [`completion_field`](crate::completion_field). Made by
/// [`CompletionQueueBuilder::build_extended`](crate::CompletionQueueBuilder::build_extended).
///
/// [`as_completion_queue`](Self::as_completion_queue) is what queue pairs are made on. A clone is another handle to the same queue.
///
/// # Examples
///
/// ```no_run
/// use verbs::completion_field::{ByteLen, Timestamp};
/// use verbs::{CompletionQueueBuilder, Context};
///
/// # fn example(context: &Context) -> verbs::Result<()> {
/// let cq = CompletionQueueBuilder::new(context, 64).build_extended::<(ByteLen, Timestamp)>()?;
/// while let Some(completion) = cq.poll()? {
///     let (byte_len, timestamp) = completion.success()?;
///     println!("request {}: {byte_len} bytes at {timestamp}", completion.wr_id());
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_cq_ex")]
pub struct ExtendedCompletionQueue<F: CompletionFields> {
    cq: NonNull<ffi::ibv_cq_ex>,
    queue: CompletionQueue,
    fields: PhantomData<fn() -> F>,
}

// SAFETY: libibverbs takes the queue's lock in every verb that is given it, and `queue` keeps it alive.
unsafe impl<F: CompletionFields> Send for ExtendedCompletionQueue<F> {}
// SAFETY: as above.
unsafe impl<F: CompletionFields> Sync for ExtendedCompletionQueue<F> {}

impl<F: CompletionFields> Clone for ExtendedCompletionQueue<F> {
    fn clone(&self) -> Self {
        Self { cq: self.cq, queue: self.queue.clone(), fields: PhantomData }
    }
}

/// Whether the functions are there that are called for a queue of the fields `F`.
pub(crate) fn is_complete<F: CompletionFields>(cq: &ffi::ibv_cq_ex) -> bool {
    cq.start_poll.is_some()
        && cq.end_poll.is_some()
        && cq.read_vendor_err.is_some()
        && cq.read_qp_num.is_some()
        && cq.read_wc_flags.is_some()
        && F::are_readable(cq)
}

/// Calls a function of an `ibv_cq_ex`, as libibverbs' inline functions do.
macro_rules! call {
    ($cq:ident.$function:ident($($argument:expr),*)) => {
        match (*$cq).$function {
            Some(function) => function($cq, $($argument),*),
            // The queue was made only with the function there.
            None => unreachable_unchecked(),
        }
    };
}

impl<F: CompletionFields> ExtendedCompletionQueue<F> {
    /// # Safety
    ///
    /// `cq` is the queue behind `queue`, was made with the flags of `F`, and [is complete](is_complete).
    pub(crate) unsafe fn new(cq: NonNull<ffi::ibv_cq_ex>, queue: CompletionQueue) -> Self {
        Self { cq, queue, fields: PhantomData }
    }

    /// `ibv_start_poll`, the readers of the fields, `ibv_end_poll`: takes a completion off the queue. `None`: it is empty.
    ///
    /// `ibv_next_poll` is not used: where it finds nothing, rdma-core 44's provider of rxe goes on to hand out completions that never
    /// were.
    ///
    /// # Errors
    ///
    /// [`PollError`]: the queue is broken, since it overflowed or the device is gone.
    ///
    /// # References
    ///
    /// [ibv_create_cq_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
    #[doc(alias = "ibv_start_poll")]
    #[doc(alias = "ibv_next_poll")]
    #[doc(alias = "ibv_end_poll")]
    #[doc(alias = "ibv_wc_read_wc_flags")]
    #[inline]
    pub fn poll(&self) -> Result<Option<ExtendedCompletion<F>>, PollError> {
        let cq = self.cq.as_ptr();
        // SAFETY: the queue is alive, and the functions are there. Fields are read of an entry that is open, and the queue is ended if it
        // was started.
        unsafe {
            let code = call!(cq.start_poll(NO_ATTRIBUTES.0.get()));
            if code != 0 {
                return none_or_error(code);
            }
            let wr_id = (*cq).wr_id;
            let outcome = match (*cq).status {
                ffi::ibv_wc_status::IBV_WC_SUCCESS => Ok(F::read(cq)),
                status => Err(failure(cq, status)),
            };
            call!(cq.end_poll());
            Ok(Some(ExtendedCompletion { wr_id, outcome }))
        }
    }

    /// Takes a completion off the queue as [`poll`](Self::poll) does, and sleeps until there is one. `None`: there was none until
    /// `timeout` was over; without a timeout it waits for ever.
    ///
    /// # Errors
    ///
    /// As those of [`CompletionQueue::wait`].
    pub fn wait(&self, timeout: Option<Duration>) -> Result<Option<ExtendedCompletion<F>>> {
        self.queue.wait_until(Notify::Any, timeout, || self.poll())
    }

    /// The queue without its fields: to make queue pairs on, to arm, or to poll plainly.
    #[doc(alias = "ibv_cq_ex_to_cq")]
    pub fn as_completion_queue(&self) -> &CompletionQueue {
        &self.queue
    }

    /// The queue in libibverbs' terms; valid as long as `self`, and not to be destroyed.
    #[inline]
    pub fn as_raw(&self) -> *mut ffi::ibv_cq_ex {
        self.cq.as_ptr()
    }
}

/// What polls are begun with. It has no field that a provider would write to.
struct Attributes(UnsafeCell<ffi::ibv_poll_cq_attr>);

// SAFETY: nobody writes to it.
unsafe impl Sync for Attributes {}

static NO_ATTRIBUTES: Attributes = Attributes(UnsafeCell::new(ffi::ibv_poll_cq_attr { comp_mask: 0 }));

#[cold]
fn none_or_error<C>(code: i32) -> Result<Option<C>, PollError> {
    match code {
        libc::ENOENT => Ok(None),
        code => Err(PollError { count: -code.saturating_abs() }),
    }
}

/// # Safety
///
/// An entry is open, whose request has failed.
#[cold]
unsafe fn failure(cq: *mut ffi::ibv_cq_ex, status: ffi::ibv_wc_status) -> CompletionError {
    // SAFETY: as the caller says, and the functions are there.
    unsafe {
        let (vendor_error, qp_num) = (call!(cq.read_vendor_err()), call!(cq.read_qp_num()));
        CompletionError { wr_id: (*cq).wr_id, status: WorkCompletionStatus::from_raw(status.0), vendor_error, qp_num }
    }
}

/// What became of one work request, with the fields `F` if it succeeded.
#[derive(Clone, Copy)]
pub struct ExtendedCompletion<F: CompletionFields> {
    wr_id: u64,
    outcome: Result<F::Tuple, CompletionError>,
}

impl<F: CompletionFields> ExtendedCompletion<F> {
    /// The identifier that the program gave the request.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        self.wr_id
    }

    /// How the request ended.
    #[inline]
    pub fn status(&self) -> WorkCompletionStatus {
        self.outcome.err().map_or(WorkCompletionStatus::SUCCESS, |error| error.status)
    }

    /// The fields, if the request succeeded.
    ///
    /// # Errors
    ///
    /// [`CompletionError`], with the status and what it usually means.
    #[doc(alias = "ibv_wc_read_vendor_err")]
    #[inline]
    pub fn success(&self) -> Result<F::Tuple, CompletionError> {
        self.outcome
    }
}

impl<F: CompletionFields> fmt::Display for ExtendedCompletion<F> {
    /// Such as `request 7: success`, or `request 7: remote access error (vendor error 0x88)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}: {}", self.wr_id, self.status())?;
        match &self.outcome {
            Ok(_) => Ok(()),
            Err(error) => write!(f, " (vendor error {:#x})", error.vendor_error),
        }
    }
}

impl<F: CompletionFields> fmt::Debug for ExtendedCompletion<F>
where
    F::Tuple: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtendedCompletion").field("wr_id", &self.wr_id).field("outcome", &self.outcome).finish()
    }
}

impl<F: CompletionFields> fmt::Debug for ExtendedCompletionQueue<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExtendedCompletionQueue").field(&self.queue).finish()
    }
}
