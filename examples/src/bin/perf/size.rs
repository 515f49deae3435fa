//! How many bytes a message has, as a user types it.

use std::str::FromStr;

/// The largest message of a sweep.
pub(crate) const LARGEST: usize = 8 << 20;

/// A number of bytes, as `64`, `4k` or `1m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) usize);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lower = text.to_ascii_lowercase();
        let unit = lower.trim_start_matches(|c: char| c.is_ascii_digit());
        let factor = match unit {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            _ => return Err("a size is a number of bytes, as 64, 4k or 1m".to_owned()),
        };
        let number = lower[..lower.len() - unit.len()].parse::<usize>().ok();
        match number.and_then(|number| number.checked_mul(factor)) {
            Some(size @ 1..=0x4000_0000) => Ok(Self(size)),
            _ => Err("a message has 1 byte to 1024m".to_owned()),
        }
    }
}

/// The sizes of `--all`, up to `largest`.
pub(crate) fn sweep(largest: usize) -> Vec<usize> {
    (1..).map(|exponent| 1 << exponent).take_while(|size| *size <= largest).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units_of_1024() {
        for (text, size) in [("1", 1), ("64", 64), ("4k", 4096), ("4KiB", 4096), ("1M", 1 << 20), ("1024m", 1 << 30)] {
            assert_eq!(text.parse(), Ok(Size(size)), "{text}");
        }
        for text in ["", "k", "4x", "-4", "+4", "4 k", "0", "1025m", "99999999999999999999"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_sweep_goes_from_2_bytes_to_8_mib() {
        let sizes = sweep(LARGEST);
        assert_eq!((sizes.len(), sizes[0], sizes[22]), (23, 2, 8 << 20));
        assert_eq!(sweep(8), [2, 4, 8]);
    }
}
