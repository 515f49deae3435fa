//! The checksum of a file: XXH3 of 128 bits. It tells what changed by accident; it does not withstand who changes it on purpose.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use verbs::{Mapping, MemoryRegion};
use xxhash_rust::xxh3::Xxh3;

/// Both halves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Digest(u64, u64);

/// The checksum of what came so far.
#[derive(Default)]
pub(crate) struct Digester {
    hash: Box<Xxh3>,
    length: u64,
}

impl Digester {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.length += bytes.len() as u64;
    }

    /// Takes a range of registered memory, a piece that stays in the processor's cache at a time: there are no slices of such memory.
    pub(crate) fn update_from(&mut self, region: &MemoryRegion<Mapping>, range: Range<usize>) -> Result<()> {
        let mut window = [0; 16 << 10];
        for start in range.clone().step_by(window.len()) {
            let piece = &mut window[..(range.end - start).min(16 << 10)];
            region.read_at(start, piece)?;
            self.update(piece);
        }
        Ok(())
    }

    /// Takes up to `length` bytes of a file, from where it is read.
    pub(crate) fn update_from_file(&mut self, file: &File, length: u64) -> Result<()> {
        let mut buffer = vec![0; 1 << 20];
        let mut file = file.take(length);
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(count) => self.update(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    pub(crate) fn digest(&self) -> Digest {
        let value = self.hash.digest128();
        Digest((value >> 64) as u64, value as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..40_000u32).map(|i| (i * i) as u8).collect();
        let mut pieces = Digester::default();
        bytes.chunks(777).for_each(|piece| pieces.update(piece));
        let whole = xxhash_rust::xxh3::xxh3_128(&bytes);
        assert_eq!(pieces.digest(), Digest((whole >> 64) as u64, whole as u64));
        assert_eq!(pieces.length(), 40_000);
        let file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut &file, &bytes).unwrap();
        std::io::Seek::rewind(&mut &file).unwrap();
        let mut part = Digester::default();
        part.update_from_file(&file, 30_000).unwrap();
        let begin = xxhash_rust::xxh3::xxh3_128(&bytes[..30_000]);
        assert_eq!((part.length(), part.digest().1), (30_000, begin as u64));
    }
}
