//! [`IndirectionTable`]: the work queues that packets are spread over.
//!
//! # Safety
//!
//! `Inner::table` came from `ibv_create_rwq_ind_table`, is destroyed only when `Inner` is dropped, and every queue pair with it holds
//! the `Inner`.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::context::{Context, must_be_made_of};
use crate::error::{Error, Result};
use crate::ffi;
use crate::returns::null_and_errno;
use crate::work_queue::WorkQueue;

const VERB: &str = "ibv_create_rwq_ind_table";

struct Inner {
    table: NonNull<ffi::ibv_rwq_ind_table>,
    // Let go after the table is destroyed.
    queues: Vec<WorkQueue>,
    context: Context,
}

// SAFETY: a table is only passed to libibverbs, which does not write to it.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the table is alive, is destroyed only here, and no queue pair has it: each held us and is gone.
        let _ = unsafe { ffi::ibv_destroy_rwq_ind_table(self.table.as_ptr()) };
    }
}

/// `struct ibv_rwq_ind_table`: the work queues that a [raw packet queue pair](crate::RawPacketQueuePair::with_indirection_table)
/// spreads what it receives over.
///
/// A clone is another handle to the same table.
#[doc(alias = "ibv_rwq_ind_table")]
#[derive(Clone)]
pub struct IndirectionTable {
    inner: Arc<Inner>,
}

impl Context {
    /// `ibv_create_rwq_ind_table`: makes a table of work queues. A queue may be in it several times.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: their number is not a power of two, or a queue comes from another [`Context`].
    /// * [`Error::Unsupported`]: the provider has none (rxe).
    /// * `EINVAL`: there are too many of them.
    ///
    /// # References
    ///
    /// [ibv_create_rwq_ind_table(3)](https://man7.org/linux/man-pages/man3/ibv_create_rwq_ind_table.3.html)
    #[doc(alias = "ibv_create_rwq_ind_table")]
    pub fn create_indirection_table(&self, queues: &[WorkQueue]) -> Result<IndirectionTable> {
        if !queues.len().is_power_of_two() {
            return Err(Error::invalid(VERB, "the number of queues", queues.len(), "it is a power of two"));
        }
        for queue in queues {
            self.must_be(queue.protection_domain().context(), VERB, "ind_tbl")?;
        }
        let mut raw: Vec<_> = queues.iter().map(WorkQueue::as_raw).collect();
        let mut attributes = ffi::ibv_rwq_ind_table_init_attr {
            log_ind_tbl_size: queues.len().trailing_zeros(),
            ind_tbl: raw.as_mut_ptr(),
            comp_mask: 0,
        };
        // SAFETY: the context is open, the queues are alive and of it, there are as many as the logarithm says, and the array and
        // `attributes` outlive the call.
        let table = null_and_errno(unsafe { ffi::ibv_create_rwq_ind_table(self.as_raw(), &mut attributes) })
            .map_err(|errno| errno.of(VERB, format_args!("{}, {} queues", self.device().name(), queues.len())))?;
        let inner = Inner { table, queues: queues.to_vec(), context: self.clone() };
        Ok(IndirectionTable { inner: Arc::new(inner) })
    }
}

impl IndirectionTable {
    /// Takes over a table that was made by other means, of these queues. It is destroyed when the last handle, and the last queue pair with
    /// it, are gone.
    ///
    /// # Safety
    ///
    /// * `table` is alive, is of these queues, and nobody else destroys it.
    /// * Queue pairs that have it by other means are gone before the last handle is.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: it, or a queue, is of another context. It then still belongs to the caller.
    pub unsafe fn from_raw(
        table: NonNull<ffi::ibv_rwq_ind_table>,
        queues: &[WorkQueue],
        context: &Context,
    ) -> Result<Self> {
        // SAFETY: the table is alive.
        must_be_made_of(VERB, &[("context", unsafe { table.as_ref().context } == context.as_raw())])?;
        for queue in queues {
            context.must_be(queue.protection_domain().context(), VERB, "ind_tbl")?;
        }
        Ok(Self { inner: Arc::new(Inner { table, queues: queues.to_vec(), context: context.clone() }) })
    }

    /// The queues, in their order.
    pub fn queues(&self) -> &[WorkQueue] {
        &self.inner.queues
    }

    /// The context in which the table was made.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The table in libibverbs' terms; valid as long as `self`, and not to be destroyed.
    pub fn as_raw(&self) -> *mut ffi::ibv_rwq_ind_table {
        self.inner.table.as_ptr()
    }
}

impl fmt::Debug for IndirectionTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.queues()).finish()
    }
}
