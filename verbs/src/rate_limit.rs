//! [`RateLimit`]: how fast a queue pair sends.
//!
//! # Safety
//!
//! The caller's queue pair is alive.
#![allow(unsafe_code)]

use std::fmt;

use crate::error::Result;
use crate::ffi;
use crate::queue_pair::QueuePair;
use crate::returns::zero_or_errno;
use crate::transport::Transport;

/// `struct ibv_qp_rate_limit_attr`: how fast a queue pair sends at most.
/// [`packet_pacing`](crate::ExtendedDeviceAttributes::packet_pacing) tells what the device takes, and of which queue pairs.
#[doc(alias = "ibv_qp_rate_limit_attr")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateLimit {
    /// The rate, in kbit/s; 0: no limit.
    pub rate_kbps: u32,
    /// How many bytes may leave at once; 0: the device chooses.
    pub max_burst_bytes: u32,
    /// How many bytes a packet usually has; 0: the device assumes something.
    pub typical_packet_bytes: u16,
}

impl RateLimit {
    /// A limit of so many kbit/s.
    pub const fn new(rate_kbps: u32) -> Self {
        Self { rate_kbps, max_burst_bytes: 0, typical_packet_bytes: 0 }
    }

    /// # Safety
    ///
    /// The queue pair is alive.
    pub(crate) unsafe fn set(&self, qp: *mut ffi::ibv_qp, name: impl fmt::Debug) -> Result<()> {
        let Self { rate_kbps, max_burst_bytes, typical_packet_bytes } = *self;
        let mut attributes = ffi::ibv_qp_rate_limit_attr {
            rate_limit: rate_kbps,
            max_burst_sz: max_burst_bytes,
            typical_pkt_sz: typical_packet_bytes,
            comp_mask: 0,
        };
        // SAFETY: the queue pair is alive, and `attributes` outlives the call.
        zero_or_errno(unsafe { ffi::ibv_modify_qp_rate_limit(qp, &mut attributes) })
            .map_err(|errno| errno.of("ibv_modify_qp_rate_limit", format_args!("{name:?}, {self}")))
    }
}

impl fmt::Display for RateLimit {
    /// Such as `1000 kbit/s, bursts of 8192 bytes, packets of 1024 bytes`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate_kbps {
            0 => f.write_str("no limit")?,
            rate => write!(f, "{rate} kbit/s")?,
        }
        if self.max_burst_bytes > 0 {
            write!(f, ", bursts of {} bytes", self.max_burst_bytes)?;
        }
        if self.typical_packet_bytes > 0 {
            write!(f, ", packets of {} bytes", self.typical_packet_bytes)?;
        }
        Ok(())
    }
}

impl<T: Transport> QueuePair<T> {
    /// `ibv_modify_qp_rate_limit`: how fast the queue pair sends. It has to be in state RTS.
    ///
    /// # Errors
    ///
    /// * [`Error::Unsupported`](crate::Error::Unsupported): the provider cannot limit it (rxe), or not of this transport.
    /// * `EINVAL`: the rate is out of the device's range, or the state is another one.
    ///
    /// # References
    ///
    /// [ibv_modify_qp_rate_limit(3)](https://man7.org/linux/man-pages/man3/ibv_modify_qp_rate_limit.3.html)
    #[doc(alias = "ibv_modify_qp_rate_limit")]
    pub fn set_rate_limit(&self, limit: &RateLimit) -> Result<()> {
        // SAFETY: the queue pair is alive.
        unsafe { limit.set(self.as_raw(), self) }
    }
}
