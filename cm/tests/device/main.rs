//! Tests on a real device, run by `cargo xtask test`.

#[path = "../harness/mod.rs"]
mod harness;

mod connection;
