//! What the two ends send each other: 16 bytes, in network byte order.

use anyhow::{Result, bail};
use verbs::RemoteSlice;

/// How many bytes a message has.
pub(crate) const LEN: usize = 16;

/// Where the client's data is, or is to go: address, key and length.
pub(crate) fn offer(slice: RemoteSlice) -> [u8; LEN] {
    let mut message = [0; LEN];
    message[..8].copy_from_slice(&slice.address().to_be_bytes());
    message[8..12].copy_from_slice(&slice.rkey().to_be_bytes());
    message[12..].copy_from_slice(&(slice.len() as u32).to_be_bytes());
    message
}

/// The server's "go ahead": its bytes mean nothing.
pub(crate) const GO_AHEAD: [u8; LEN] = [0; LEN];

/// What a client offers.
pub(crate) fn parse(message: &[u8; LEN], limit: usize) -> Result<RemoteSlice> {
    let (address, rest) = message.split_at(8);
    let (rkey, size) = rest.split_at(4);
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    let (address, rkey, size) = (number(address), number(rkey) as u32, number(size));
    match RemoteSlice::new(address, size, rkey) {
        Some(slice) if size <= limit as u64 => Ok(slice),
        _ => bail!("the client offers {size} bytes at {address:#x}; a ping has {limit} at most"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_is_in_network_byte_order_and_has_a_limit() {
        let slice = RemoteSlice::new(0x0102_0304_0506_0708, 64, 0x090a_0b0c).unwrap();
        let message = offer(slice);
        assert_eq!(message, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 64]);
        assert_eq!(parse(&message, 64).unwrap(), slice);
        assert!(parse(&message, 63).unwrap_err().to_string().contains("has 63 at most"));
        assert!(parse(&[0xff; LEN], usize::MAX).is_err(), "beyond the address space");
    }
}
