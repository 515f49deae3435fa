//! The loops that the benches run: in Rust through the safe interface, and in C beside it.
#![allow(dead_code, reason = "each bench runs its part")]

pub(crate) mod allocations;
pub(crate) mod datagrams;
pub(crate) mod extended_polls;
pub(crate) mod ours;
pub(crate) mod posts;
pub(crate) mod prepared;
pub(crate) mod shared;
pub(crate) mod theirs;
pub(crate) mod unreliable;
pub(crate) mod waits;
