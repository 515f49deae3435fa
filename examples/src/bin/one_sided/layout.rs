//! How the table lies in the server's memory.
//!
//! ```text
//!   slot, 256 bytes:   word (8) | body 0 (120) | body 1 (120) | unused (8)
//!   word:              version (48 bits) | owner of the lock, 0: none (16 bits)
//!   body:              checksum (8) | length of key (1), of value (1) | unused (6) | key (32) | value (72)
//! ```
//!
//! Version 0 has no body; a later one has the body of its lowest bit. The checksum is of the version and of the rest of the body. A key stays
//! in its slot for good: once removed, it has no value.
//!
//! Numbers are in the byte order of the server's processor, which atomic operations use; a client of another order is refused.

use anyhow::{Result, ensure};
use xxhash_rust::xxh3::xxh3_64;

pub(crate) const SLOT: usize = 256;
pub(crate) const BODY: usize = 120;
pub(crate) const MAX_KEY: usize = 32;
pub(crate) const MAX_VALUE: usize = 72;
/// The length of the value of a key that was removed.
const REMOVED: u8 = u8::MAX;
/// At the beginning of the private data with which the server accepts: this program, and the byte order.
pub(crate) const MAGIC: u64 = 0x6f6e_6573_6964_0001;

/// The first 8 bytes of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) version: u64,
    /// 0: it is not locked.
    pub(crate) owner: u16,
}

impl Word {
    pub(crate) fn from_raw(raw: u64) -> Self {
        Self { version: raw >> 16, owner: raw as u16 }
    }

    pub(crate) fn to_raw(self) -> u64 {
        self.version << 16 | u64::from(self.owner)
    }

    pub(crate) fn locked(self, owner: u16) -> Self {
        Self { owner, ..self }
    }

    /// The next version, not locked.
    pub(crate) fn next(self) -> Self {
        Self { version: (self.version + 1) & ((1 << 48) - 1), owner: 0 }
    }

    /// Where in the slot the body of this version is.
    pub(crate) fn body(self) -> usize {
        8 + (self.version & 1) as usize * BODY
    }
}

/// What a slot holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Empty,
    /// `None`: it was removed.
    Key {
        key: Vec<u8>,
        value: Option<Vec<u8>>,
    },
}

/// Reads a slot. `None`: it is a mixture of two versions.
pub(crate) fn read(slot: &[u8; SLOT]) -> Option<(Word, Content)> {
    let number = |at: usize| slot[at..][..8].try_into().map(u64::from_ne_bytes).ok();
    let word = Word::from_raw(number(0)?);
    if word.version == 0 {
        return Some((word, Content::Empty));
    }
    let body = &slot[word.body()..][..BODY];
    if number(word.body())? != checksum(word.version, body) {
        return None;
    }
    let (key, value) = (usize::from(body[8]), body[9]);
    let key = body[16..].get(..key.min(MAX_KEY))?.to_vec();
    let value = (value != REMOVED).then(|| body[48..].get(..usize::from(value)).map(<[u8]>::to_vec));
    Some((word, Content::Key { key, value: value.map_or(Some(None), |value| value.map(Some))? }))
}

/// Refuses a key that no slot can hold.
pub(crate) fn check_key(key: &[u8]) -> Result<()> {
    ensure!((1..=MAX_KEY).contains(&key.len()), "a key has 1 to {MAX_KEY} bytes, and this one {}", key.len());
    Ok(())
}

/// Makes the body of a version.
pub(crate) fn body(version: u64, key: &[u8], value: Option<&[u8]>) -> Result<[u8; BODY]> {
    check_key(key)?;
    let mut body = [0; BODY];
    body[8] = key.len() as u8;
    body[16..][..key.len()].copy_from_slice(key);
    match value {
        Some(value) => {
            ensure!(value.len() <= MAX_VALUE, "a value has at most {MAX_VALUE} bytes, and this one {}", value.len());
            body[9] = value.len() as u8;
            body[48..][..value.len()].copy_from_slice(value);
        }
        None => body[9] = REMOVED,
    }
    let checksum = checksum(version, &body);
    body[..8].copy_from_slice(&checksum.to_ne_bytes());
    Ok(body)
}

fn checksum(version: u64, body: &[u8]) -> u64 {
    let mut bytes = [0; BODY];
    bytes[..8].copy_from_slice(&version.to_ne_bytes());
    bytes[8..].copy_from_slice(&body[8..]);
    xxh3_64(&bytes)
}

/// The slots in which a key may be, of a table of `slots`: each once, from the one that its hash names on.
pub(crate) fn places(key: &[u8], slots: usize) -> impl Iterator<Item = usize> + use<> {
    let first = (xxh3_64(key) % slots.max(1) as u64) as usize;
    (0..slots).map(move |step| (first + step) % slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slot after the update to `version`, of a key whose value tells the version.
    fn update(slot: &mut [u8; SLOT], version: u64) {
        let word = Word { version, owner: 0 };
        let value = vec![version as u8; MAX_VALUE];
        slot[word.body()..][..BODY].copy_from_slice(&body(version, b"key", Some(&value)).unwrap());
        slot[..8].copy_from_slice(&word.to_raw().to_ne_bytes());
    }

    #[test]
    fn a_slot_is_read_as_it_was_written() {
        let mut slot = [0; SLOT];
        assert_eq!(read(&slot), Some((Word { version: 0, owner: 0 }, Content::Empty)));
        for version in 1..5 {
            update(&mut slot, version);
            let (word, content) = read(&slot).unwrap();
            assert_eq!(word.version, version);
            let value = Some(vec![version as u8; MAX_VALUE]);
            assert_eq!(content, Content::Key { key: b"key".to_vec(), value });
        }
        let locked = Word { version: 4, owner: 9 };
        slot[..8].copy_from_slice(&locked.to_raw().to_ne_bytes());
        assert_eq!(read(&slot).unwrap().0, locked, "a lock does not keep readers out");
        slot[Word { version: 5, owner: 0 }.body()..][..BODY].copy_from_slice(&body(5, b"key", None).unwrap());
        assert_eq!(read(&slot).unwrap().0.version, 4, "nor does what the owner of the lock writes");
        slot[..8].copy_from_slice(&locked.next().to_raw().to_ne_bytes());
        assert_eq!(read(&slot).unwrap().1, Content::Key { key: b"key".to_vec(), value: None });
    }

    #[test]
    fn a_mixture_of_versions_is_found_out_wherever_it_is_torn() {
        let (mut old, mut new) = ([0; SLOT], [0; SLOT]);
        (5..=7).for_each(|version| update(&mut old, version));
        (8..=9).for_each(|version| {
            new = if version == 8 { old } else { new };
            update(&mut new, version);
        });
        let mut torn = 0;
        for at in 0..=SLOT {
            for (front, back) in [(&old, &new), (&new, &old)] {
                let mut mixture = *back;
                mixture[..at].copy_from_slice(&front[..at]);
                match read(&mixture) {
                    None => torn += 1,
                    Some((word, Content::Key { value: Some(value), .. })) => {
                        assert_eq!(value, [word.version as u8; MAX_VALUE], "torn at {at}");
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        assert!(torn > 100, "{torn}");
    }

    #[test]
    fn keys_and_values_that_do_not_fit_are_refused() {
        assert!(body(1, &[1; 33], None).unwrap_err().to_string().contains("a key has 1 to 32 bytes, and this one 33"));
        assert!(body(1, b"", None).is_err());
        assert!(body(1, b"k", Some(&[1; 73])).unwrap_err().to_string().contains("at most 72 bytes, and this one 73"));
        assert!(body(1, &[1; 32], Some(&[1; 72])).is_ok());
    }

    #[test]
    fn a_key_may_be_in_each_slot_once() {
        let mut all: Vec<_> = places(b"key", 10).collect();
        all.sort_unstable();
        assert_eq!(all, (0..10).collect::<Vec<_>>());
        assert_eq!(places(b"key", 0).count(), 0);
    }
}
