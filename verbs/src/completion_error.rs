//! [`CompletionError`]: a work request that failed.

use crate::work_completion::WorkCompletionStatus;

/// A work request that completed with an error.
///
/// These four are the only fields of a failed completion that mean anything: its opcode, length and flags are undefined,
/// so whether it was a send or a receive has to come from its `wr_id`, or from the queue that it was polled from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("work request {wr_id} on queue pair {qp_num:#x} failed: {status} (vendor error {vendor_error:#x}); {}", status.advice())]
#[non_exhaustive]
pub struct CompletionError {
    /// The identifier that the program gave the request.
    pub wr_id: u64,
    /// Why it failed.
    pub status: WorkCompletionStatus,
    /// The provider's own code; 0 where it has none.
    pub vendor_error: u32,
    /// The local queue pair, 24 bits.
    pub qp_num: u32,
}
