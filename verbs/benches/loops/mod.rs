//! The loops that the benches run: in Rust through the safe interface, and in C beside it.
#![allow(dead_code, reason = "each bench runs its part")]

pub(crate) mod ours;
pub(crate) mod theirs;
