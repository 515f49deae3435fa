//! What the example programs share.
//!
//! Each program is a file of `src/bin`; the names, options and wire protocols are those of the C programs.

pub mod exchange;
pub mod report;
