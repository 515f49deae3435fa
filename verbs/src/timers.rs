//! [`AckTimeout`] and [`RnrTimer`]: times that the wire encodes in 5 bits.

use std::fmt;
use std::time::Duration;

use crate::error::Error;

/// How long a requester waits for an acknowledgement before it sends again: 4.096 µs · 2ⁿ with n from 1 to 31 (8.192 µs
/// to 2.4 hours), or for ever.
///
/// # References
///
/// InfiniBand Architecture Specification, volume 1, chapter 9.7.6.1.3.
#[doc(alias = "timeout")]
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// No timeout: with a peer that is gone, a request never completes.
    pub const INFINITE: Self = Self(0);

    /// The timeout of a 5-bit code.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: the code is above 31.
    pub fn from_code(code: u8) -> Result<Self, Error> {
        code5(code, "timeout").map(Self)
    }

    /// The shortest timeout that is not below `duration`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: `duration` is above the longest one, 4.096 µs · 2³¹.
    pub fn at_least(duration: Duration) -> Result<Self, Error> {
        (1..32).map(Self).find(|timeout| timeout.duration() >= Some(duration)).ok_or_else(|| {
            Error::invalid("ibv_modify_qp", "timeout", format!("{duration:?}"), "the longest one is 2.44 hours")
        })
    }

    /// The 5-bit code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time; `None` means for ever.
    pub fn duration(self) -> Option<Duration> {
        (self.0 != 0).then(|| Duration::from_nanos(4096 << self.0))
    }
}

impl Default for AckTimeout {
    /// Code 14, 67 ms, as the C examples have it.
    fn default() -> Self {
        Self(14)
    }
}

impl fmt::Display for AckTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.duration() {
            Some(duration) => fmt::Debug::fmt(&duration, f),
            None => f.pad("infinite"),
        }
    }
}

impl fmt::Debug for AckTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.duration() {
            Some(duration) => write!(f, "AckTimeout({}: {duration:?})", self.0),
            None => f.write_str("AckTimeout(0: infinite)"),
        }
    }
}

/// How long a peer that found no receive posted has to wait before it sends again: 0.01 ms to 655.36 ms, in 32 steps.
///
/// # References
///
/// InfiniBand Architecture Specification, volume 1, chapter 9.7.5.2.8, table 45.
#[doc(alias = "min_rnr_timer")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

/// The times of the codes, in units of 10 µs.
const RNR_TIMES: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

impl RnrTimer {
    /// The time of a 5-bit code. Code 0 is the longest time, 655.36 ms, not the shortest.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: the code is above 31.
    pub fn from_code(code: u8) -> Result<Self, Error> {
        code5(code, "min_rnr_timer").map(Self)
    }

    /// The shortest time that is not below `duration`.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: `duration` is above 655.36 ms.
    pub fn at_least(duration: Duration) -> Result<Self, Error> {
        // In the order of their times, code 0 comes last.
        (1..32).chain([0]).map(Self).find(|timer| timer.duration() >= duration).ok_or_else(|| {
            Error::invalid("ibv_modify_qp", "min_rnr_timer", format!("{duration:?}"), "the longest one is 655.36 ms")
        })
    }

    /// The 5-bit code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time.
    pub fn duration(self) -> Duration {
        Duration::from_micros(10) * RNR_TIMES[usize::from(self.0) % RNR_TIMES.len()]
    }
}

impl Default for RnrTimer {
    /// Code 12, 0.64 ms, as the C examples have it.
    fn default() -> Self {
        Self(12)
    }
}

impl fmt::Display for RnrTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.duration(), f)
    }
}

impl fmt::Debug for RnrTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RnrTimer({}: {:?})", self.0, self.duration())
    }
}

fn code5(code: u8, argument: &'static str) -> Result<u8, Error> {
    if code < 32 { Ok(code) } else { Err(Error::invalid("ibv_modify_qp", argument, code, "it has 5 bits, 0 to 31")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_converts_to_its_time_and_back() {
        for code in 1..32 {
            let timeout = AckTimeout::from_code(code).unwrap();
            assert_eq!(timeout.duration(), Some(Duration::from_nanos(4096) * 2u32.pow(code.into())));
            assert_eq!(AckTimeout::at_least(timeout.duration().unwrap()).unwrap(), timeout);
        }
        for code in 0..32 {
            let timer = RnrTimer::from_code(code).unwrap();
            assert_eq!(RnrTimer::at_least(timer.duration()).unwrap(), timer);
        }
    }

    #[test]
    fn the_ends_of_the_scales_are_the_specifications() {
        assert_eq!(AckTimeout::INFINITE.duration(), None);
        assert_eq!(
            (AckTimeout::INFINITE.to_string(), AckTimeout::default().to_string()),
            ("infinite".into(), "67.108864ms".into())
        );
        assert_eq!(RnrTimer::default().to_string(), "640µs");
        assert_eq!(AckTimeout::default().duration(), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(RnrTimer::from_code(0).unwrap().duration(), Duration::from_micros(655_360));
        assert_eq!(RnrTimer::from_code(1).unwrap().duration(), Duration::from_micros(10));
        assert_eq!(RnrTimer::from_code(31).unwrap().duration(), Duration::from_micros(491_520));
        assert_eq!(RnrTimer::at_least(Duration::ZERO).unwrap().code(), 1);
        assert_eq!(RnrTimer::at_least(Duration::from_millis(500)).unwrap().code(), 0);
    }

    #[test]
    fn codes_above_31_and_times_beyond_the_scale_are_refused() {
        assert!(AckTimeout::from_code(32).is_err() && RnrTimer::from_code(32).is_err());
        assert!(AckTimeout::at_least(Duration::from_secs(9000)).is_err());
        assert!(RnrTimer::at_least(Duration::from_millis(656)).is_err());
    }
}
