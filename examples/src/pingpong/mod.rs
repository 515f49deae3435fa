//! What the ping-pong programs share, whatever their transport.

mod buffer;
mod completions;
mod options;
mod pattern;
mod receives;

pub use buffer::Buffer;
pub use completions::Completions;
pub use options::{Common, check_mtu};
pub use receives::Receives;

/// The `wr_id` of each send; that of a receive is the place where its message arrives.
pub const SEND: u64 = u64::MAX;
