//! What messages are made of.

use anyhow::{Result, bail};

/// The byte that messages are made of, the C programs'.
const FILLING: u8 = 0x7b;

/// How long the C programs' pages are: with their option `-c`, the first byte of each is 0, and that is what they look at.
const PAGE: usize = 4096;

/// The bytes of a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    chk: bool,
}

impl Pattern {
    pub(super) fn new(chk: bool) -> Self {
        Self { chk }
    }

    fn byte(self, offset: usize) -> u8 {
        if self.chk && offset % PAGE == 0 { 0 } else { FILLING }
    }

    /// A message.
    pub(super) fn message(self, length: usize) -> Vec<u8> {
        (0..length).map(|offset| self.byte(offset)).collect()
    }

    /// What differs from a message in each byte, and is not 0.
    pub(super) fn opposite(self, length: usize) -> Vec<u8> {
        vec![!FILLING; length]
    }

    /// Checks what arrived. The buffer of `ibv_srq_pingpong` holds zeroes until a message has come: with `may_be_zero` they may be there.
    pub(super) fn validate(self, arrived: &[u8], may_be_zero: bool) -> Result<()> {
        let is_wrong = |(offset, byte): &(usize, &u8)| **byte != self.byte(*offset) && !(may_be_zero && **byte == 0);
        let Some((offset, byte)) = arrived.iter().enumerate().find(is_wrong) else { return Ok(()) };
        let expected = self.byte(offset);
        let other = Self { chk: !self.chk }.byte(offset);
        let hint = if *byte == other { "; either both ends have to be given --chk, or neither" } else { "" };
        bail!("byte {offset} of what arrived is {byte:#04x} instead of {expected:#04x}{hint}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_found_wherever_it_is() {
        for (chk, at_a_page) in [(false, FILLING), (true, 0)] {
            let pattern = Pattern::new(chk);
            let message = pattern.message(10_000);
            assert_eq!(
                (message[0], message[1], message[PAGE], message[9_999]),
                (at_a_page, FILLING, at_a_page, FILLING)
            );
            pattern.validate(&message, false).unwrap();
            for offset in [0, 1, PAGE, 9_999] {
                let mut wrong = message.clone();
                wrong[offset] = 0x55;
                let error = pattern.validate(&wrong, true).unwrap_err().to_string();
                let expected = message[offset];
                assert_eq!(error, format!("byte {offset} of what arrived is 0x55 instead of {expected:#04x}"));
            }
            let nothing = pattern.validate(&pattern.opposite(1), true).unwrap_err().to_string();
            assert!(nothing.starts_with("byte 0 of what arrived is 0x84 instead of "), "{nothing}");
            assert!(pattern.opposite(10_000).iter().zip(&message).all(|(opposite, byte)| opposite != byte));
        }
    }

    #[test]
    fn ends_of_which_one_is_given_chk_say_so_and_zeroes_are_taken_where_they_may_be() {
        for chk in [false, true] {
            let other = Pattern::new(!chk).message(5);
            let error = Pattern::new(chk).validate(&other, false).unwrap_err().to_string();
            assert!(error.ends_with("; either both ends have to be given --chk, or neither"), "{error}");
            Pattern::new(chk).validate(&[0; 5], true).unwrap();
            assert!(Pattern::new(chk).validate(&[0; 5], false).is_err());
        }
    }
}
