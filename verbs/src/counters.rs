//! [`Counters`]: how many packets and bytes a flow had.
//!
//! # Safety
//!
//! `Inner::counters` came from `ibv_create_counters`, is destroyed only when `Inner` is dropped, and every flow that counts by it holds
//! the `Inner`.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::context::{Context, must_be_made_of};
use crate::error::Result;
use crate::ffi;
use crate::open_enum::open_enum;
use crate::returns::{null_and_errno, zero_or_errno};

open_enum! {
    /// `enum ibv_counter_description`: what is counted.
    #[doc(alias = "ibv_counter_description")]
    CounterDescription(u32) {
        /// Packets.
        PACKETS = ffi::ibv_counter_description::IBV_COUNTER_PACKETS.0, "packets";
        /// Bytes.
        BYTES = ffi::ibv_counter_description::IBV_COUNTER_BYTES.0, "bytes";
    }
}

struct Inner {
    counters: NonNull<ffi::ibv_counters>,
    // Closed after the counters are destroyed.
    context: Context,
}

// SAFETY: libibverbs takes a lock of the counters in every verb that is given them, and we reach them only through verbs.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the counters are alive, are destroyed only here, and no flow counts by them: each held us and is gone.
        let _ = unsafe { ffi::ibv_destroy_counters(self.counters.as_ptr()) };
    }
}

/// `struct ibv_counters`: counters of a [flow](crate::FlowRule::count).
///
/// A clone is another handle to the same counters.
#[doc(alias = "ibv_counters")]
#[derive(Clone)]
pub struct Counters {
    inner: Arc<Inner>,
}

impl Context {
    /// `ibv_create_counters`: makes counters, which count nothing so far.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported): the provider has none (rxe).
    ///
    /// # References
    ///
    /// [ibv_create_counters(3)](https://man7.org/linux/man-pages/man3/ibv_create_counters.3.html)
    #[doc(alias = "ibv_create_counters")]
    pub fn create_counters(&self) -> Result<Counters> {
        let mut attributes = ffi::ibv_counters_init_attr { comp_mask: 0 };
        // SAFETY: the context is open, and `attributes` outlives the call.
        let counters = null_and_errno(unsafe { ffi::ibv_create_counters(self.as_raw(), &mut attributes) })
            .map_err(|errno| errno.of("ibv_create_counters", self.device().name()))?;
        Ok(Counters { inner: Arc::new(Inner { counters, context: self.clone() }) })
    }
}

impl Counters {
    /// Takes over counters that were made by other means. They are destroyed when the last handle, and the last object that holds them, are
    /// gone.
    ///
    /// # Safety
    ///
    /// * `counters` are alive, and nobody else destroys them.
    /// * Flows that count by them by other means are gone before the last handle is.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument): they were made in another context. They then still belong to the caller.
    pub unsafe fn from_raw(counters: NonNull<ffi::ibv_counters>, context: &Context) -> Result<Self> {
        // SAFETY: the caller says that they are alive.
        let own = unsafe { counters.as_ref().context };
        must_be_made_of("ibv_create_counters", &[("context", own == context.as_raw())])?;
        Ok(Self { inner: Arc::new(Inner { counters, context: context.clone() }) })
    }

    /// `ibv_attach_counters_point_flow`: has the counter at `index` count this of the flows that are then
    /// [made](crate::FlowRule::count) with these counters.
    ///
    /// # Errors
    ///
    /// * `EBUSY`: a flow counts by them already.
    /// * `EINVAL`, `ENOTSUP`: the device does not count this, or has no such index.
    ///
    /// # References
    ///
    /// [ibv_attach_counters_point_flow(3)](https://man7.org/linux/man-pages/man3/ibv_attach_counters_point_flow.3.html)
    #[doc(alias = "ibv_attach_counters_point_flow")]
    pub fn attach(&self, description: CounterDescription, index: u32) -> Result<()> {
        // SAFETY: no flow means those that are made later.
        unsafe { self.attach_point(description, index, ptr::null_mut()) }
    }

    /// # Safety
    ///
    /// `flow` is null, or alive, and then it holds the counters.
    pub(crate) unsafe fn attach_point(
        &self,
        description: CounterDescription,
        index: u32,
        flow: *mut ffi::ibv_flow,
    ) -> Result<()> {
        let counter_desc = ffi::ibv_counter_description(description.as_raw());
        let mut attributes = ffi::ibv_counter_attach_attr { counter_desc, index, comp_mask: 0 };
        // SAFETY: the counters are alive, `attributes` outlives the call, and the flow is as the caller says.
        zero_or_errno(unsafe { ffi::ibv_attach_counters_point_flow(self.as_raw(), &mut attributes, flow) })
            .map_err(|errno| errno.of("ibv_attach_counters_point_flow", format_args!("{description}, index {index}")))
    }

    /// `ibv_read_counters`: the values of the counters, by their indices from 0, as many as `values` has room for.
    ///
    /// # Errors
    ///
    /// `EINVAL`: nothing is attached, or there are fewer of them.
    ///
    /// # References
    ///
    /// [ibv_read_counters(3)](https://man7.org/linux/man-pages/man3/ibv_read_counters.3.html)
    #[doc(alias = "ibv_read_counters")]
    pub fn read(&self, values: &mut [u64]) -> Result<()> {
        self.read_with(values, 0)
    }

    /// As [`read`](Self::read), with the values that the driver has at hand, which may be a little old.
    ///
    /// # Errors
    ///
    /// As those of [`read`](Self::read).
    #[doc(alias = "IBV_READ_COUNTERS_ATTR_PREFER_CACHED")]
    pub fn read_cached(&self, values: &mut [u64]) -> Result<()> {
        self.read_with(values, ffi::ibv_read_counters_flags::IBV_READ_COUNTERS_ATTR_PREFER_CACHED.0)
    }

    fn read_with(&self, values: &mut [u64], flags: u32) -> Result<()> {
        let count = u32::try_from(values.len()).unwrap_or(u32::MAX);
        // SAFETY: the counters are alive, and `values` has room for at least `count` of them.
        zero_or_errno(unsafe { ffi::ibv_read_counters(self.as_raw(), values.as_mut_ptr(), count, flags) })
            .map_err(|errno| errno.of("ibv_read_counters", format_args!("{count} counters")))
    }

    /// The context in which the counters were made.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The counters in libibverbs' terms; valid as long as `self`, and not to be destroyed.
    pub fn as_raw(&self) -> *mut ffi::ibv_counters {
        self.inner.counters.as_ptr()
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counters").field("device", &self.context().device().name()).finish()
    }
}
