//! [`HeldSlice`]: a scatter/gather entry that keeps its region.

use std::fmt;
use std::ops::RangeBounds;
use std::sync::Arc;

use crate::error::Result;
use crate::local_slice::LocalSlice;
use crate::memory_region::Registered;
use crate::range::resolve;

/// A range of a memory region that keeps the region registered: what a [`PreparedSend`](crate::PreparedSend) and a
/// [`PreparedReceive`](crate::PreparedReceive) are made of. Made by [`MemoryRegion::hold`](crate::MemoryRegion::hold).
///
/// While it lives, [`MemoryRegion::deregister`](crate::MemoryRegion::deregister) fails with [`Error::Busy`](crate::Error::Busy), and a
/// region that is dropped stays registered.
#[derive(Clone)]
pub struct HeldSlice {
    /// Lies in the `length` bytes at `address` of the region.
    slice: LocalSlice<'static>,
    address: u64,
    length: usize,
    // Keeps the region registered.
    _region: Arc<dyn Registered>,
}

impl HeldSlice {
    /// `range` of the `length` bytes at `address`, which `region` keeps registered under `lkey`.
    pub(crate) fn new(
        region: Arc<dyn Registered>,
        address: u64,
        length: usize,
        lkey: u32,
        range: impl RangeBounds<usize>,
    ) -> Result<Self> {
        let range = resolve(range, length, "memory region")?;
        let slice = LocalSlice::new(address + range.start as u64, range.len(), lkey)?;
        Ok(Self { slice, address, length, _region: region })
    }

    /// The entry, to be used as long as `self` or a clone of it is there.
    pub(crate) fn entry(&self) -> LocalSlice<'static> {
        self.slice
    }

    /// The entry of another range of the region, to be used as long as `self` or a clone of it is there.
    #[inline]
    pub(crate) fn range(&self, range: impl RangeBounds<usize>) -> Result<LocalSlice<'static>> {
        let range = resolve(range, self.length, "memory region")?;
        LocalSlice::new(self.address + range.start as u64, range.len(), self.slice.lkey())
    }

    /// Where in its region the slice begins.
    pub(crate) fn offset(&self) -> usize {
        (self.slice.address() - self.address) as usize
    }

    /// How many bytes.
    pub fn len(&self) -> u32 {
        self.slice.len()
    }

    /// Whether it is of no bytes.
    pub fn is_empty(&self) -> bool {
        self.slice.is_empty()
    }
}

impl fmt::Debug for HeldSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.slice.fmt(f)
    }
}
