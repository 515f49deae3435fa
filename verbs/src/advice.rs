//! [`Advice`]: what the program is about to do with memory.
//!
//! # Safety
//!
//! `ibv_advise_mr` is given slices of live regions, and does not write to them.
#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::ffi;
use crate::ffi::ib_uverbs_advise_mr_advice as A;
use crate::local_slice::LocalSlice;
use crate::open_enum::open_enum;
use crate::protection_domain::ProtectionDomain;
use crate::returns::zero_or_errno;

open_enum! {
    /// `enum ibv_advise_mr_advice`: what is to be done with pages of a region that is [paged on demand](crate::AccessFlags::ON_DEMAND).
    #[doc(alias = "ibv_advise_mr_advice")]
    Advice(u32) {
        /// Page them in, and tell the device, for reading.
        PREFETCH = A::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH.0, "prefetch";
        /// Page them in, and tell the device, for writing.
        PREFETCH_WRITE = A::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE.0, "prefetch for writing";
        /// Tell the device of those that are in memory already.
        PREFETCH_NO_FAULT = A::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT.0, "prefetch without faults";
    }
}

impl ProtectionDomain {
    /// `ibv_advise_mr`: tells the kernel what the program is about to do with slices of regions of this domain that are
    /// [paged on demand](crate::AccessFlags::ON_DEMAND), so that requests do not have to wait for their pages. It may be done later, or not
    /// at all.
    ///
    /// # Errors
    ///
    /// * [`Error::Unsupported`]: the provider takes no advice, or not this one (rxe).
    /// * [`Error::InvalidArgument`]: there are more slices than 32 bits tell.
    /// * `EFAULT`: a slice's memory is not mapped, or its region is not paged on demand.
    /// * `EPERM`: a slice's region is of another domain, or is not writable and the advice is to write.
    /// * `ENOENT`, `EINVAL`, `ENOMEM`: see the manual page.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # use verbs::{Advice, MemoryRegion, ProtectionDomain};
    /// # fn example(pd: &ProtectionDomain, region: MemoryRegion<Vec<u8>>) -> verbs::Result<()> {
    /// pd.advise(Advice::PREFETCH_WRITE, &[region.slice(..1 << 20)?])?;
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    ///
    /// [ibv_advise_mr(3)](https://man7.org/linux/man-pages/man3/ibv_advise_mr.3.html)
    #[doc(alias = "ibv_advise_mr")]
    pub fn advise(&self, advice: Advice, slices: &[LocalSlice<'_>]) -> Result<()> {
        self.advise_with(advice, 0, slices)
    }

    /// `ibv_advise_mr` with `IBV_ADVISE_MR_FLAG_FLUSH`: as [`advise`](Self::advise), and returns when it is done.
    ///
    /// # Errors
    ///
    /// As those of [`advise`](Self::advise).
    ///
    /// # References
    ///
    /// [ibv_advise_mr(3)](https://man7.org/linux/man-pages/man3/ibv_advise_mr.3.html)
    #[doc(alias = "ibv_advise_mr")]
    #[doc(alias = "IBV_ADVISE_MR_FLAG_FLUSH")]
    pub fn advise_and_wait(&self, advice: Advice, slices: &[LocalSlice<'_>]) -> Result<()> {
        self.advise_with(advice, ffi::IBV_ADVISE_MR_FLAG_FLUSH.0, slices)
    }

    fn advise_with(&self, advice: Advice, flags: u32, slices: &[LocalSlice<'_>]) -> Result<()> {
        const VERB: &str = "ibv_advise_mr";
        let Ok(count) = u32::try_from(slices.len()) else {
            return Err(Error::invalid(VERB, "num_sge", slices.len(), "it has 32 bits"));
        };
        let list = slices.as_ptr().cast::<ffi::ibv_sge>().cast_mut();
        // SAFETY: the domain is alive; a `LocalSlice` is an `ibv_sge` and nothing more, and its region is alive.
        zero_or_errno(unsafe { ffi::ibv_advise_mr(self.as_raw(), A(advice.as_raw()), flags, list, count) }).map_err(
            |errno| {
                let remedy = match errno.0 {
                    libc::EFAULT | libc::ENOENT | libc::EINVAL | libc::EPERM => {
                        "the slices must be of regions of this domain that were registered with ON_DEMAND, and with \
                         LOCAL_WRITE if they are to be written to"
                    }
                    _ => "",
                };
                errno.with_remedy(VERB, format_args!("{advice}, {count} slices"), remedy)
            },
        )
    }
}
