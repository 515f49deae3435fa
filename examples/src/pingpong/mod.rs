//! What the ping-pong programs share, whatever their transport.

mod buffer;
mod completions;
mod options;
mod receives;

pub use buffer::{FILLING, validate};
pub use completions::Completions;
pub use options::{Common, check_mtu};
pub use receives::Receives;

/// The `wr_id` of each receive.
pub const RECEIVE: u64 = 1;
/// The `wr_id` of each send.
pub const SEND: u64 = 2;
