//! [`ExtendedCompletionQueue`]: completions with the fields that the program asks for.
//!
//! # Safety
//!
//! * `cq` is an `ibv_cq_ex`, made with the flags of `F`, each of whose functions that are called here is there; `queue` keeps it.
//! * Between `ibv_start_poll` and `ibv_end_poll`, while the provider holds the queue's lock, none of the program's code runs, so the
//!   queue cannot be polled again, nor one of its queue pairs be destroyed, which would wait for that lock. An entry is not lent but
//!   copied, so nothing of it is used after `ibv_end_poll`. (A closure that is lent the entry would be the program's code.)
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::fmt;
use std::hint::unreachable_unchecked;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
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
    /// Whether `ibv_next_poll` is there, and not that of rxe's provider, which where it finds nothing goes on to hand out completions that
    /// never were (rdma-core before release 55), and unlocks the queue's lock twice (before release 59).
    has_next: bool,
    queue: CompletionQueue,
    fields: PhantomData<fn() -> F>,
}

// SAFETY: libibverbs takes the queue's lock in every verb that is given it, and `queue` keeps it alive.
unsafe impl<F: CompletionFields> Send for ExtendedCompletionQueue<F> {}
// SAFETY: as above.
unsafe impl<F: CompletionFields> Sync for ExtendedCompletionQueue<F> {}

impl<F: CompletionFields> Clone for ExtendedCompletionQueue<F> {
    fn clone(&self) -> Self {
        Self { cq: self.cq, has_next: self.has_next, queue: self.queue.clone(), fields: PhantomData }
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
        // SAFETY: the queue is alive.
        let has_next = unsafe { cq.as_ref() }.next_poll.is_some()
            && queue.context().device_attributes().is_ok_and(|device| !device.is_rxe());
        Self { cq, has_next, queue, fields: PhantomData }
    }

    /// `ibv_start_poll`, the readers of the fields, `ibv_end_poll`: takes a completion off the queue. `None`: it is empty.
    ///
    /// [`poll_into`](Self::poll_into) takes several at less cost.
    ///
    /// # Errors
    ///
    /// [`PollError`]: the queue is broken, since it overflowed or the device is gone.
    ///
    /// # References
    ///
    /// [ibv_create_cq_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
    #[doc(alias = "ibv_start_poll")]
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
            let completion = ExtendedCompletion::read(cq);
            call!(cq.end_poll());
            Ok(Some(completion))
        }
    }

    /// `ibv_start_poll`, `ibv_next_poll` for each further one, `ibv_end_poll`: takes completions off the queue, as many as are there and as
    /// `completions` has room for, and returns the part that was filled in. An empty queue is not an error: the part is empty.
    ///
    /// The queue's lock is taken once; what was found is copied while it is held, and is the program's when it is not. With rxe's provider,
    /// whose `ibv_next_poll` hands out completions that never were, they are taken one by one.
    ///
    /// # Errors
    ///
    /// As those of [`poll`](Self::poll). What was found before the queue broke is returned first.
    ///
    /// # References
    ///
    /// [ibv_create_cq_ex(3)](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use verbs::completion_field::ByteLen;
    /// # fn example(cq: &verbs::ExtendedCompletionQueue<(ByteLen,)>) -> verbs::Result<()> {
    /// let mut completions = [Default::default(); 16];
    /// for completion in cq.poll_into(&mut completions)? {
    ///     let (byte_len,) = completion.success()?;
    ///     println!("request {}: {byte_len} bytes", completion.wr_id());
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_start_poll")]
    #[doc(alias = "ibv_next_poll")]
    #[doc(alias = "ibv_end_poll")]
    #[inline]
    pub fn poll_into<'a>(
        &self,
        completions: &'a mut [ExtendedCompletion<F>],
    ) -> Result<&'a mut [ExtendedCompletion<F>], PollError> {
        if !self.has_next {
            return self.poll_one_by_one(completions);
        }
        let cq = self.cq.as_ptr();
        let mut room = completions.iter_mut();
        let Some(mut place) = room.next() else { return Ok(&mut []) };
        // SAFETY: the queue is alive, and the functions are there: `next_poll` too, as `has_next` tells. Fields are read of an entry that is
        // open, and the queue is ended if it was started.
        let left = unsafe {
            let code = call!(cq.start_poll(NO_ATTRIBUTES.0.get()));
            if code != 0 {
                return none_or_error(code).map(|_: Option<()>| &mut [][..]);
            }
            loop {
                *place = ExtendedCompletion::read(cq);
                let Some(next) = room.next() else { break 0 };
                // Whatever is wrong, the next poll will tell.
                if call!(cq.next_poll()) != 0 {
                    break room.len() + 1;
                }
                place = next;
            }
        };
        // SAFETY: the queue was started.
        unsafe { call!(cq.end_poll()) };
        let filled = completions.len() - left;
        Ok(&mut completions[..filled])
    }

    #[cold]
    fn poll_one_by_one<'a>(
        &self,
        completions: &'a mut [ExtendedCompletion<F>],
    ) -> Result<&'a mut [ExtendedCompletion<F>], PollError> {
        let mut count = 0;
        while count < completions.len() {
            match self.poll() {
                Ok(Some(completion)) => completions[count] = completion,
                Ok(None) => break,
                Err(error) if count == 0 => return Err(error),
                Err(_) => break,
            }
            count += 1;
        }
        Ok(&mut completions[..count])
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

    /// Takes a completion off the queue as [`poll`](Self::poll) does. `None`: there is none, and the queue is armed, as
    /// [`CompletionQueue::poll_or_arm`] has it.
    ///
    /// # Errors
    ///
    /// As those of [`CompletionQueue::poll_or_arm`].
    pub fn poll_or_arm(&self, notify: Notify) -> Result<Option<ExtendedCompletion<F>>> {
        self.queue.poll_or_arm_by(notify, || self.poll())
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
        code => Err(PollError { extended: true, count: -code.saturating_abs() }),
    }
}

/// What became of one work request, with the fields `F` if it succeeded.
#[derive(Clone, Copy)]
pub struct ExtendedCompletion<F: CompletionFields> {
    wr_id: u64,
    status: ffi::ibv_wc_status,
    // The next two are 0 unless the request has failed.
    vendor_error: u32,
    qp_num: u32,
    /// Initialised if the request has succeeded.
    fields: MaybeUninit<F::Tuple>,
}

impl<F: CompletionFields> Default for ExtendedCompletion<F> {
    /// What no poll has filled in: a request that has failed.
    fn default() -> Self {
        let status = ffi::ibv_wc_status::IBV_WC_GENERAL_ERR;
        Self { wr_id: 0, status, vendor_error: 0, qp_num: 0, fields: MaybeUninit::uninit() }
    }
}

impl<F: CompletionFields> ExtendedCompletion<F> {
    /// Copies the entry that is open.
    ///
    /// # Safety
    ///
    /// One is, of a queue that was made with the flags of `F` and is complete.
    #[inline]
    unsafe fn read(cq: *mut ffi::ibv_cq_ex) -> Self {
        // SAFETY: as the caller says. The fields are those of a request that has succeeded.
        unsafe {
            let (wr_id, status) = ((*cq).wr_id, (*cq).status);
            let mut this = Self { wr_id, status, vendor_error: 0, qp_num: 0, fields: MaybeUninit::uninit() };
            if status == ffi::ibv_wc_status::IBV_WC_SUCCESS {
                this.fields.write(F::read(cq));
            } else {
                (this.vendor_error, this.qp_num) = failure(cq);
            }
            this
        }
    }

    /// The identifier that the program gave the request.
    #[inline]
    pub fn wr_id(&self) -> u64 {
        self.wr_id
    }

    /// How the request ended.
    #[inline]
    pub fn status(&self) -> WorkCompletionStatus {
        WorkCompletionStatus::from_raw(self.status.0)
    }

    /// The fields, if the request succeeded.
    ///
    /// # Errors
    ///
    /// [`CompletionError`], with the status and what it usually means.
    #[doc(alias = "ibv_wc_read_vendor_err")]
    #[inline]
    pub fn success(&self) -> Result<F::Tuple, CompletionError> {
        if self.status == ffi::ibv_wc_status::IBV_WC_SUCCESS {
            // SAFETY: the request has succeeded.
            Ok(unsafe { self.fields.assume_init() })
        } else {
            Err(self.error())
        }
    }

    #[cold]
    fn error(&self) -> CompletionError {
        let Self { wr_id, vendor_error, qp_num, .. } = *self;
        CompletionError { wr_id, status: self.status(), vendor_error, qp_num }
    }
}

/// The provider's code and the number of the queue pair.
///
/// # Safety
///
/// An entry is open, of a queue that is complete.
#[cold]
unsafe fn failure(cq: *mut ffi::ibv_cq_ex) -> (u32, u32) {
    // SAFETY: as the caller says, and the functions are there.
    unsafe { (call!(cq.read_vendor_err()), call!(cq.read_qp_num())) }
}

impl<F: CompletionFields> fmt::Display for ExtendedCompletion<F> {
    /// Such as `request 7: success`, or `request 7: remote access error (vendor error 0x88)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "request {}: {}", self.wr_id, self.status())?;
        match self.success() {
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
        f.debug_struct("ExtendedCompletion").field("wr_id", &self.wr_id).field("outcome", &self.success()).finish()
    }
}

impl<F: CompletionFields> fmt::Debug for ExtendedCompletionQueue<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExtendedCompletionQueue").field(&self.queue).finish()
    }
}
