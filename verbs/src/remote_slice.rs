//! [`RemoteSlice`]: memory of a peer.

use std::fmt;
use std::ops::RangeBounds;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::range::resolve;

/// A range of a peer's memory region, as the peer described it: what RDMA READ and WRITE name.
///
/// It travels to the peer as text (`Display` and `FromStr`), as its three numbers, or in a message of the program's own.
/// Nothing vouches for what a peer says; a range that its region does not grant ends in
/// [`REMOTE_ACCESS_ERROR`](crate::WorkCompletionStatus::REMOTE_ACCESS_ERROR).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RemoteSlice {
    address: u64,
    length: u64,
    rkey: u32,
}

impl RemoteSlice {
    /// The `length` bytes at `address` of the region that `rkey` names; `None` if they run past the end of the address
    /// space.
    pub const fn new(address: u64, length: u64, rkey: u32) -> Option<Self> {
        match address.checked_add(length) {
            Some(_) => Some(Self { address, length, rkey }),
            None => None,
        }
    }

    /// The address in the peer's memory.
    #[inline]
    pub const fn address(&self) -> u64 {
        self.address
    }

    /// How many bytes.
    #[inline]
    pub const fn len(&self) -> u64 {
        self.length
    }

    /// Whether it is of no bytes.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The key by which the peer's device finds the region.
    #[inline]
    pub const fn rkey(&self) -> u32 {
        self.rkey
    }

    /// A part of the slice.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`]: `range` does not lie in the slice.
    #[inline]
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let length = usize::try_from(self.length).unwrap_or(usize::MAX);
        let range = resolve(range, length, "remote slice")?;
        // The whole lies in the address space, and the part in the whole.
        Ok(Self { address: self.address + range.start as u64, length: range.len() as u64, rkey: self.rkey })
    }
}

impl fmt::Display for RemoteSlice {
    /// `address:length:rkey`, in hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}:{:016x}:{:08x}", self.address, self.length, self.rkey)
    }
}

impl fmt::Debug for RemoteSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RemoteSlice({:#x}, {} bytes, rkey {:#x})", self.address, self.length, self.rkey)
    }
}

impl FromStr for RemoteSlice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut fields = text.split(':');
        let mut number = |digits: usize| {
            let field = fields.next().filter(|field| field.len() == digits)?;
            field.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u64::from_str_radix(field, 16).ok())?
        };
        let (address, length, rkey) = (number(16), number(16), number(8));
        let slice = match (address, length, rkey, fields.next()) {
            (Some(address), Some(length), Some(rkey), None) => Self::new(address, length, rkey as u32),
            _ => None,
        };
        let expected = "a remote slice, `address:length:rkey` in 16, 16 and 8 hexadecimal digits";
        slice.ok_or_else(|| Error::Parse { expected, text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        let slice = RemoteSlice::new(0x7f00_1234_5678, 4096, 0x2ab).unwrap();
        assert_eq!(slice.to_string(), "00007f0012345678:0000000000001000:000002ab");
        assert_eq!(slice.to_string().parse::<RemoteSlice>().unwrap(), slice);
        for nonsense in [
            "",
            "1:2:3",
            "00007f0012345678:0000000000001000",
            "00007f0012345678:0000000000001000:000002ab:0",
            "+0007f0012345678:0000000000001000:000002ab",
            "ffffffffffffffff:0000000000000001:000002ab",
        ] {
            assert!(nonsense.parse::<RemoteSlice>().is_err(), "{nonsense}");
        }
    }

    #[test]
    fn a_part_lies_in_its_whole() {
        let whole = RemoteSlice::new(0x1000, 100, 7).unwrap();
        assert_eq!(whole.slice(90..).unwrap(), RemoteSlice::new(0x105a, 10, 7).unwrap());
        assert!(whole.slice(..101).is_err());
        assert!(RemoteSlice::new(u64::MAX, 1, 7).is_none());
    }
}
