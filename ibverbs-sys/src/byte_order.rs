//! The header's integers whose bytes are in network order. The types do not enforce it: convert with `to_be` and `from_be`.

#![allow(non_camel_case_types)]

/// A 16-bit integer in big-endian byte order.
pub type __be16 = u16;
/// A 32-bit integer in big-endian byte order.
pub type __be32 = u32;
/// A 64-bit integer in big-endian byte order.
pub type __be64 = u64;
