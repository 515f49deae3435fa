//! The memory of one end: what it sends, and the places where messages arrive.

use std::ops::Range;

use anyhow::{Context, Result};
use verbs::{AccessFlags, LocalSlice, Mapping, MemoryRegion, ProtectionDomain};

use super::Common;
use super::pattern::Pattern;

/// First what this end sends, or what the peer reads; then the places.
///
/// Each place is filled with the opposite of what is to arrive there, so that a byte that did not arrive is found.
#[derive(Debug)]
pub struct Buffer {
    region: MemoryRegion<Mapping>,
    length: usize,
    header: usize,
    places: usize,
    pattern: Pattern,
    check_each: bool,
}

impl Buffer {
    /// For messages of `length` bytes, before which the device puts `header` bytes. With `--chk` each receive has a place of its own, since
    /// each message is looked at; else they share one.
    ///
    /// # Errors
    ///
    /// There is no memory.
    pub fn new(
        pd: &ProtectionDomain,
        length: u32,
        header: usize,
        access: AccessFlags,
        options: &Common,
    ) -> Result<Self> {
        let length = length as usize;
        let places = if options.chk { options.rx_depth as usize } else { 1 };
        let bytes = places.checked_mul(header + length).and_then(|bytes| bytes.checked_add(length));
        let memory = Mapping::new(bytes.context("--size and --rx-depth are too large together")?);
        let memory = memory.context("cannot get memory for the buffer; with --chk, a lower --rx-depth takes less")?;
        let region = pd.register(memory, AccessFlags::LOCAL_WRITE | access).map_err(verbs::Error::from)?;
        let mut buffer =
            Self { region, length, header, places, pattern: Pattern::new(options.chk), check_each: options.chk };
        buffer.region.write_at(0, &buffer.pattern.message(length))?;
        (0..places).try_for_each(|place| buffer.clear(place as u64))?;
        Ok(buffer)
    }

    /// The memory, all of it.
    pub fn region(&self) -> &MemoryRegion<Mapping> {
        &self.region
    }

    /// What this end sends.
    ///
    /// # Errors
    ///
    /// None.
    pub fn outgoing(&self) -> Result<[LocalSlice<'_>; 1]> {
        Ok([self.region.slice(..self.length)?])
    }

    /// Where a message arrives, with its header.
    ///
    /// # Errors
    ///
    /// There is no such place.
    pub fn place(&self, place: u64) -> Result<[LocalSlice<'_>; 1]> {
        let range = self.range(place);
        Ok([self.region.slice(range.start - self.header..range.end)?])
    }

    /// The `wr_id` of each of so many receives: their places.
    pub fn places(&self, receives: u32) -> Vec<u64> {
        (0..u64::from(receives)).map(|receive| receive % self.places as u64).collect()
    }

    /// Looks at a message that has arrived, if each is looked at; then the place is as before.
    ///
    /// # Errors
    ///
    /// A byte is not what the peer sends.
    pub fn check(&mut self, place: u64, may_be_zero: bool) -> Result<()> {
        if self.check_each {
            self.look(place, may_be_zero)?;
        }
        Ok(())
    }

    /// Looks at the message that arrived last, if they are not all looked at.
    ///
    /// # Errors
    ///
    /// A byte is not what the peer sends.
    pub fn check_last(&mut self, may_be_zero: bool) -> Result<()> {
        if !self.check_each {
            self.look(0, may_be_zero)?;
        }
        Ok(())
    }

    fn look(&mut self, place: u64, may_be_zero: bool) -> Result<()> {
        self.pattern.validate(&self.region.to_vec(self.range(place))?, may_be_zero)?;
        self.clear(place)
    }

    fn clear(&mut self, place: u64) -> Result<()> {
        Ok(self.region.write_at(self.range(place).start, &self.pattern.opposite(self.length))?)
    }

    /// Where in the region the payload of a message is.
    fn range(&self, place: u64) -> Range<usize> {
        let start = self.length + place as usize * (self.header + self.length) + self.header;
        start..start + self.length
    }
}
