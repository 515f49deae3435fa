//! What messages are made of.

use anyhow::{Result, bail};

/// The byte that messages are made of, the C programs'.
pub const FILLING: u8 = 0x7b;

/// How long the C programs' pages are: with their option `-c`, the first byte of each is 0.
const C_PAGE: usize = 4096;

/// Checks what arrived.
///
/// # Errors
///
/// A byte is not what the peer sends.
pub fn validate(arrived: &[u8]) -> Result<()> {
    let wrong = |(offset, byte): &(usize, &u8)| **byte != FILLING && !(**byte == 0 && offset % C_PAGE == 0);
    match arrived.iter().enumerate().find(wrong) {
        None => Ok(()),
        Some((offset, byte)) => bail!("byte {offset} of what arrived is {byte:#04x} instead of {FILLING:#04x}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_byte_is_found_and_the_first_one_of_a_page_may_be_zero() {
        let mut arrived = vec![FILLING; 10_000];
        validate(&arrived).unwrap();
        (arrived[0], arrived[C_PAGE]) = (0, 0);
        validate(&arrived).unwrap();
        arrived[9_999] = 0;
        assert_eq!(validate(&arrived).unwrap_err().to_string(), "byte 9999 of what arrived is 0x00 instead of 0x7b");
    }
}
