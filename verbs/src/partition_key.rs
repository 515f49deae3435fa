//! [`PartitionKey`] and the P_Key table of a port.
//!
//! # Safety
//!
//! Each call is given an open context, and a place for what it writes.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::fmt;

use crate::context::Context;
use crate::error::Result;
use crate::ffi;
use crate::returns::minus_one_and_errno;

/// A partition key, `P_Key`: which partition of the network a queue pair belongs to.
///
/// # References
///
/// InfiniBand Architecture Specification, volume 1, chapter 10.9.
#[doc(alias = "P_Key")]
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionKey(u16);

impl PartitionKey {
    /// The default partition, as a full member; the one key that RoCE has.
    pub const DEFAULT: Self = Self(0xffff);

    /// The key of this number, in the host's byte order.
    pub const fn new(key: u16) -> Self {
        Self(key)
    }

    /// The number, in the host's byte order.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The number of the partition, 15 bits. An entry of a table that is not used has partition 0.
    pub const fn partition(self) -> u16 {
        self.0 & 0x7fff
    }

    /// Whether it is the key of a full member. Limited members cannot talk to each other.
    pub const fn is_full_member(self) -> bool {
        self.0 & 0x8000 != 0
    }
}

impl fmt::Debug for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PartitionKey({self})")
    }
}

impl fmt::Display for PartitionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

impl Context {
    /// `ibv_query_pkey`: the entry of a port's P_Key table at `index`. Ports count from 1, indices from 0.
    ///
    /// # Errors
    ///
    /// `EINVAL`, `ENOENT`: the device has no such port, or its table is shorter.
    ///
    /// # References
    ///
    /// [ibv_query_pkey(3)](https://man7.org/linux/man-pages/man3/ibv_query_pkey.3.html)
    #[doc(alias = "ibv_query_pkey")]
    pub fn pkey(&self, port: u8, index: u16) -> Result<PartitionKey> {
        let mut key = 0;
        // SAFETY: the context is open, and `key` outlives the call.
        let code = unsafe { ffi::ibv_query_pkey(self.as_raw(), port, index.into(), &mut key) };
        match minus_one_and_errno(code) {
            Ok(()) => Ok(PartitionKey(u16::from_be(key))),
            Err(errno) => {
                let length = self.port(port)?.pkey_table_len();
                let remedy = match index {
                    index if index >= length => format!("the table of port {port} has {length} P_Keys, from 0"),
                    _ => String::new(),
                };
                let arguments = format!("{}, port {port}, P_Key index {index}", self.device().name());
                Err(errno.with_remedy("ibv_query_pkey", arguments, remedy))
            }
        }
    }

    /// `ibv_get_pkey_index`: the index of a P_Key in a port's table, for
    /// [`ConnectOptions::pkey_index`](crate::ConnectOptions::pkey_index). `None`: it is not there. Ports count from 1.
    ///
    /// # Errors
    ///
    /// `EINVAL`: the device has no such port.
    ///
    /// # References
    ///
    /// [ibv_get_pkey_index(3)](https://man7.org/linux/man-pages/man3/ibv_get_pkey_index.3.html)
    #[doc(alias = "ibv_get_pkey_index")]
    pub fn pkey_index(&self, port: u8, key: PartitionKey) -> Result<Option<u16>> {
        // SAFETY: the context is open.
        let index: c_int = unsafe { ffi::ibv_get_pkey_index(self.as_raw(), port, key.0.to_be()) };
        match u16::try_from(index) {
            Ok(index) => Ok(Some(index)),
            // It searches until there is no entry any more, which is no error; no port is one.
            Err(_) => self.port(port).map(|_| None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_a_partition_and_a_membership() {
        let (full, limited) = (PartitionKey::new(0x8012), PartitionKey::new(0x0012));
        assert_eq!((full.partition(), full.is_full_member()), (0x12, true));
        assert_eq!((limited.partition(), limited.is_full_member()), (0x12, false));
        assert_eq!(format!("{full} {limited:?}"), "0x8012 PartitionKey(0x0012)");
        assert!(PartitionKey::DEFAULT.is_full_member());
    }
}
