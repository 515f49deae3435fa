//! Tests on a real device, run by `cargo xtask test`.

#[path = "../harness/mod.rs"]
mod harness;

mod address_info;
mod addresses;
mod connection;
mod datagram;
mod listener;
mod multicast;
mod polling;
mod private_data;
mod refusal;
mod resources;
mod soundness;
mod soundness_threads;
mod step_by_step;
mod synchronous;
mod teardown;
mod unreachable;
