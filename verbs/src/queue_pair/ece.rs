//! Enhanced connection establishment: options of a vendor that both ends of a connection agree on.
//!
//! # Safety
//!
//! Calls are given a queue pair that is alive, and a structure that outlives them.
#![allow(unsafe_code)]

use std::fmt;

use crate::error::{Error, Result};
use crate::ffi;
use crate::queue_pair::QueuePair;
use crate::returns::zero_or_errno;
use crate::transport::Transport;

/// `struct ibv_ece`: options of a vendor for a connection (enhanced connection establishment, ECE).
///
/// One end sends what its device [can do](QueuePair::enhanced_connection) to the other one, which
/// [sets](QueuePair::set_enhanced_connection) it, and sends back what its device then has, for the first one to set.
#[doc(alias = "ibv_ece")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EnhancedConnection {
    /// The vendor's identifier; 0: the device has no options.
    pub vendor_id: u32,
    /// The vendor's options.
    pub options: u32,
    /// Which further fields mean something: none so far.
    pub comp_mask: u32,
}

impl EnhancedConnection {
    /// The options of a vendor.
    pub fn new(vendor_id: u32, options: u32) -> Self {
        Self { vendor_id, options, comp_mask: 0 }
    }
}

impl fmt::Display for EnhancedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vendor {:#x}, options {:#x}", self.vendor_id, self.options)
    }
}

impl<T: Transport> QueuePair<T> {
    /// `ibv_query_ece`: in RESET and INIT the options that the device can have, later those that it has.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`]: the provider has none (rxe).
    ///
    /// # References
    ///
    /// [ibv_query_ece(3)](https://man7.org/linux/man-pages/man3/ibv_query_ece.3.html)
    #[doc(alias = "ibv_query_ece")]
    pub fn enhanced_connection(&self) -> Result<EnhancedConnection> {
        let mut ece = ffi::ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 };
        // SAFETY: the queue pair is alive, and `ece` outlives the call.
        let code = unsafe { ffi::ibv_query_ece(self.as_raw(), &mut ece) };
        zero_or_errno(code).map_err(|errno| errno.of("ibv_query_ece", format_args!("{self:?}")))?;
        let ffi::ibv_ece { vendor_id, options, comp_mask } = ece;
        Ok(EnhancedConnection { vendor_id, options, comp_mask })
    }

    /// `ibv_set_ece`: sets the options for the connection; they take effect at the transition to RTR.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: the vendor is 0, which means no options.
    /// * `EINVAL`: they are another vendor's, or the device does not know them.
    /// * [`Error::Unsupported`]: the provider has none (rxe).
    ///
    /// # References
    ///
    /// [ibv_set_ece(3)](https://man7.org/linux/man-pages/man3/ibv_set_ece.3.html)
    #[doc(alias = "ibv_set_ece")]
    pub fn set_enhanced_connection(&self, options: &EnhancedConnection) -> Result<()> {
        const VERB: &str = "ibv_set_ece";
        let EnhancedConnection { vendor_id, options, comp_mask } = *options;
        if vendor_id == 0 {
            return Err(Error::invalid(VERB, "vendor_id", 0, "options have a vendor; there is nothing to set"));
        }
        let mut ece = ffi::ibv_ece { vendor_id, options, comp_mask };
        // SAFETY: the queue pair is alive, and `ece` outlives the call.
        zero_or_errno(unsafe { ffi::ibv_set_ece(self.as_raw(), &mut ece) })
            .map_err(|errno| errno.of(VERB, format_args!("{self:?}, vendor_id {vendor_id:#x}, options {options:#x}")))
    }
}
