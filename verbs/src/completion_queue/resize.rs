//! The size of a queue, and how often it tells of completions.
//!
//! # Safety
//!
//! Verbs are given a queue that is alive. Its field `cqe` is read under the capacity's lock only.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::completion_queue::CompletionQueue;
use crate::completion_queue::builder::clamp;
use crate::error::{Error, Result};
use crate::ffi;
use crate::returns::{Errno, zero_or_errno};

/// How many completions a queue holds. libibverbs writes to its own field while the queue is resized, so others read this one.
#[derive(Debug)]
pub(super) struct Capacity {
    entries: AtomicU32,
    /// Held while the queue is resized.
    resizing: Mutex<()>,
}

impl Capacity {
    pub(super) fn new(cqe: c_int) -> Self {
        Self { entries: AtomicU32::new(entries(cqe)), resizing: Mutex::new(()) }
    }
}

fn entries(cqe: c_int) -> u32 {
    u32::try_from(cqe).unwrap_or(0)
}

impl CompletionQueue {
    /// How many completions the queue holds, at least what was asked for.
    pub fn capacity(&self) -> u32 {
        self.inner.capacity.entries.load(Ordering::Relaxed)
    }

    /// `ibv_resize_cq`: changes how many completions the queue holds. Those that are in it stay.
    ///
    /// The device may round `entries` up; [`capacity`](Self::capacity) tells what it took. `entries` counts completions, from 1 to
    /// the device's [`max_cqe`](crate::DeviceAttributes::max_cqe).
    ///
    /// # Errors
    ///
    /// * `EINVAL`: `entries` is out of range, or below the number of completions that wait.
    /// * [`Error::Unsupported`]: the device cannot resize.
    ///
    /// # References
    ///
    /// [ibv_resize_cq(3)](https://man7.org/linux/man-pages/man3/ibv_resize_cq.3.html); InfiniBand Architecture Specification, volume
    /// 1, chapter 11.2.8.3.
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&self, entries: u32) -> Result<()> {
        let capacity = &self.inner.capacity;
        let alone = capacity.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the queue is alive.
        let code = unsafe { ffi::ibv_resize_cq(self.as_raw(), clamp(entries)) };
        // SAFETY: the queue is alive, and under the lock nobody resizes it.
        let cqe = unsafe { (*self.as_raw()).cqe };
        capacity.entries.store(self::entries(cqe), Ordering::Relaxed);
        drop(alone);
        zero_or_errno(code).map_err(|errno| {
            errno.with_remedy("ibv_resize_cq", format_args!("{entries} entries"), self.resize_remedy(errno, entries))
        })
    }

    #[cold]
    fn resize_remedy(&self, errno: Errno, entries: u32) -> String {
        match self.context().device_attributes() {
            Ok(device) if errno.0 == libc::EINVAL && !(1..=device.max_cqe()).contains(&entries) => {
                format!("{} takes 1 to {} entries", self.context().device().name(), device.max_cqe())
            }
            Ok(_) if errno.0 == libc::EINVAL => "more completions than that may be waiting: poll them first".to_owned(),
            _ => String::new(),
        }
    }

    /// `ibv_modify_cq`: has the device tell of completions less often: only when `count` of them have come, or `period` after the
    /// first one. The device has microseconds, to which `period` is rounded up. 0 and no time at all is to tell of each.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: `period` is above 65.535 ms.
    /// * `EINVAL`: a value is beyond the device's
    ///   [limits](crate::ExtendedDeviceAttributes::completion_moderation).
    /// * [`Error::Unsupported`]: the device cannot.
    ///
    /// # References
    ///
    /// [ibv_modify_cq(3)](https://man7.org/linux/man-pages/man3/ibv_modify_cq.3.html)
    #[doc(alias = "ibv_modify_cq")]
    #[doc(alias = "ibv_moderate_cq")]
    #[doc(alias = "IBV_CQ_ATTR_MODERATE")]
    pub fn moderate(&self, count: u16, period: Duration) -> Result<()> {
        const VERB: &str = "ibv_modify_cq";
        let Ok(cq_period) = u16::try_from(period.as_nanos().div_ceil(1000)) else {
            return Err(Error::invalid(VERB, "cq_period", format!("{period:?}"), "the longest one is 65.535 ms"));
        };
        let mut attributes = ffi::ibv_modify_cq_attr {
            attr_mask: ffi::ibv_cq_attr_mask::IBV_CQ_ATTR_MODERATE.0,
            moderate: ffi::ibv_moderate_cq { cq_count: count, cq_period },
        };
        // SAFETY: the queue is alive, and `attributes` outlives the call.
        zero_or_errno(unsafe { ffi::ibv_modify_cq(self.as_raw(), &mut attributes) })
            .map_err(|errno| errno.of(VERB, format_args!("cq_count {count}, cq_period {cq_period} us")))
    }
}
