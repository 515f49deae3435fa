//! [`LocalSlice`]: a scatter/gather entry.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use crate::error::{Error, Result};
use crate::ffi;
use crate::range::resolve;

/// `struct ibv_sge`: a range of a live memory region, as a request names it.
///
/// It borrows its region, so the region cannot be deregistered, nor written to, before the request is posted. After that
/// the device may still use the range: deregistering waits for it.
///
/// ```compile_fail,E0502
/// # fn example(mut region: verbs::MemoryRegion<Vec<u8>>) -> verbs::Result<()> {
/// let entry = region.slice(..16)?;
/// region.write_at(0, b"too early")?;
/// assert_eq!(entry.len(), 16);
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_sge")]
#[doc(alias = "scatter gather")]
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct LocalSlice<'a> {
    sge: ffi::ibv_sge,
    region: PhantomData<&'a ()>,
}

impl<'a> LocalSlice<'a> {
    /// The entry in libibverbs' terms. What is made of it by other means has to be done with before the region is.
    #[doc(alias = "ibv_sge")]
    pub fn as_raw(&self) -> &ffi::ibv_sge {
        &self.sge
    }

    /// The range at what is `address` for the device, of a region that lives for `'a`.
    #[inline]
    pub(crate) fn new(address: u64, length: usize, lkey: u32) -> Result<Self> {
        let Ok(length) = u32::try_from(length) else { return Err(too_long(length)) };
        Ok(Self { sge: ffi::ibv_sge { addr: address, length, lkey }, region: PhantomData })
    }

    pub(crate) fn address(&self) -> u64 {
        self.sge.addr
    }

    /// How many bytes.
    #[inline]
    pub fn len(&self) -> u32 {
        self.sge.length
    }

    /// Whether it is of no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.sge.length == 0
    }

    /// The key by which the local device finds the region.
    #[inline]
    pub fn lkey(&self) -> u32 {
        self.sge.lkey
    }

    /// A part of the slice.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`]: `range` does not lie in the slice.
    #[inline]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<LocalSlice<'a>> {
        let range = resolve(range, self.sge.length as usize, "slice")?;
        let addr = self.sge.addr + range.start as u64;
        // The part is not longer than the whole, whose length has 32 bits.
        let sge = ffi::ibv_sge { addr, length: range.len() as u32, lkey: self.sge.lkey };
        Ok(LocalSlice { sge, region: PhantomData })
    }
}

#[cold]
fn too_long(length: usize) -> Error {
    Error::invalid("ibv_post_send", "the length of a scatter/gather entry", length, "it has 32 bits")
}

impl fmt::Debug for LocalSlice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalSlice({:#x}, {} bytes, lkey {:#x})", self.sge.addr, self.sge.length, self.sge.lkey)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_lies_in_its_whole() {
        let whole = LocalSlice::new(0x1000, 100, 7).unwrap();
        let part = whole.slice(10..30).unwrap();
        assert_eq!((part.sge.addr, part.len(), part.lkey()), (0x100a, 20, 7));
        assert_eq!(part.slice(20..).unwrap().len(), 0);
        assert!(part.slice(..21).is_err());
        assert!(LocalSlice::new(0x1000, 1 << 32, 7).is_err());
    }
}
