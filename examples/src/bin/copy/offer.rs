//! What the ends tell each other as they connect, in the private data of the connection manager's messages.

use anyhow::{Context as _, Result, bail};
use verbs::RemoteSlice;

/// This program, and the version of its protocol.
const MAGIC: &[u8; 8] = b"rdcopy02";
/// The most memory that a receiver takes for a ring.
const MAX_RING: usize = 1 << 30;
/// A chunk has room for the longest path, as a record has it.
const MIN_CHUNK: usize = 64 << 10;
const MAX_CHUNK: usize = 64 << 20;
const MAX_SLOTS: usize = 1024;

/// The ring of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) chunk: usize,
    pub(crate) slots: usize,
}

impl Shape {
    pub(crate) fn check(self) -> Result<()> {
        let Self { chunk, slots } = self;
        if !(MIN_CHUNK..=MAX_CHUNK).contains(&chunk) || chunk % 4096 != 0 {
            bail!("a chunk of {chunk} bytes: it has {MIN_CHUNK} to {MAX_CHUNK}, in multiples of 4096");
        }
        if !(1..=MAX_SLOTS).contains(&slots) || chunk * slots > MAX_RING {
            bail!(
                "{slots} chunks of {chunk} bytes: there can be 1 to {MAX_SLOTS}, of no more than {MAX_RING} bytes together"
            );
        }
        Ok(())
    }
}

/// The memory to which the peer may write, and, from the sender, the shape of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) shape: Shape,
    pub(crate) memory: RemoteSlice,
}

impl Offer {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let Self { shape, memory } = self;
        let mut bytes = MAGIC.to_vec();
        for number in [shape.chunk as u64, shape.slots as u64, memory.address(), memory.len()] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(memory.rkey().to_be_bytes());
        bytes
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let offer = bytes.strip_prefix(MAGIC).filter(|rest| rest.len() >= 36).and_then(|rest| {
            let number = |index: usize| rest[index * 8..][..8].try_into().map(u64::from_be_bytes).ok();
            let shape = Shape { chunk: number(0)?.try_into().ok()?, slots: number(1)?.try_into().ok()? };
            let rkey = u32::from_be_bytes(rest[32..36].try_into().ok()?);
            Some(Self { shape, memory: RemoteSlice::new(number(2)?, number(3)?, rkey)? })
        });
        let offer = offer.context("the peer is not this program, or another version of it")?;
        offer.shape.check().context("the peer asks for too much")?;
        Ok(offer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_comes_back_as_it_went_and_fits_a_connection_request() {
        let shape = Shape { chunk: 1 << 20, slots: 16 };
        let offer = Offer { shape, memory: RemoteSlice::new(0x7f00_0000_1000, 16 << 20, 0xab).unwrap() };
        let mut bytes = offer.to_bytes();
        assert!(bytes.len() <= 56);
        bytes.resize(56, 0);
        assert_eq!(Offer::from_bytes(&bytes).unwrap(), offer);
        for wrong in [&bytes[..20], &bytes[1..], &[][..], &[0xff; 56]] {
            assert!(Offer::from_bytes(wrong).is_err());
        }
        bytes[15] = 1;
        assert!(Offer::from_bytes(&bytes).is_err(), "a chunk that is no multiple of a page");
    }

    #[test]
    fn a_shape_is_within_what_a_receiver_gives() {
        let ok = |chunk, slots| Shape { chunk, slots }.check().is_ok();
        assert!(ok(1 << 16, 1) && ok(1 << 20, 1024) && ok(64 << 20, 16));
        assert!(!ok(4096, 1) && !ok(65537, 1) && !ok(1 << 16, 0) && !ok(64 << 20, 17) && !ok(usize::MAX, usize::MAX));
    }
}
