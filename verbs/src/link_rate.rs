//! [`LinkRate`]: how fast a link is.

use std::fmt;

use crate::port_link::{LinkSpeed, LinkWidth};

/// How fast a link is: its lanes times the speed of each.
///
/// # Examples
///
/// ```
/// use verbs::{LinkRate, LinkSpeed, LinkWidth};
///
/// let rate = LinkRate::new(LinkWidth::X4, LinkSpeed::EDR);
/// assert_eq!(rate.mbps(), Some(100_000));
/// assert_eq!(rate.to_string(), "100 Gb/s (4X EDR)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinkRate {
    width: LinkWidth,
    speed: LinkSpeed,
}

impl LinkRate {
    /// The rate of a link of this width and speed.
    pub const fn new(width: LinkWidth, speed: LinkSpeed) -> Self {
        Self { width, speed }
    }

    /// How many lanes the link has.
    pub const fn width(self) -> LinkWidth {
        self.width
    }

    /// How fast each lane is.
    pub const fn speed(self) -> LinkSpeed {
        self.speed
    }

    /// The rate in Mbit/s on the wire, as libibverbs' programs tell it. `None`: the width or the speed is not known to this crate.
    pub fn mbps(self) -> Option<u32> {
        Some(self.width.lanes()? * self.speed.lane_mbps()?)
    }
}

impl fmt::Display for LinkRate {
    /// As the tools of rdma-core print it, such as `100 Gb/s (4X EDR)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match (self.mbps(), self.width.lanes()) {
            // The name of the constant is that of the speed.
            (Some(mbps), Some(lanes)) => {
                format!("{} Gb/s ({lanes}X {:?})", f64::from(mbps) / 1000.0, self.speed)
            }
            _ => format!("unknown rate (width {}, speed {})", self.width, self.speed),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_prints_as_the_tools_print_it() {
        let text = |width, speed| LinkRate::new(LinkWidth::from_raw(width), LinkSpeed::from_raw(speed)).to_string();
        assert_eq!(text(1, 1), "2.5 Gb/s (1X SDR)");
        assert_eq!(text(2, 1), "10 Gb/s (4X SDR)");
        assert_eq!(text(2, 16), "56 Gb/s (4X FDR)");
        assert_eq!(text(8, 8), "120 Gb/s (12X FDR10)");
        assert_eq!(text(2, 256), "800 Gb/s (4X XDR)");
        assert_eq!(text(16, 64), "100 Gb/s (2X HDR)");
        assert_eq!(text(3, 32), "unknown rate (width unknown (3), speed 25 Gbit/s (EDR))");
        assert_eq!(LinkRate::new(LinkWidth::X1, LinkSpeed::from_raw(3)).mbps(), None);
    }
}
