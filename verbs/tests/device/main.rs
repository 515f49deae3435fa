//! Tests on a real device, run by `cargo xtask test`.

#[path = "../harness/mod.rs"]
mod harness;

mod async_events;
mod completion;
mod completion_queue;
mod data_path;
mod device;
mod domains;
mod extended;
mod failure;
mod memory;
mod questions;
mod queue_pair;
mod shared_receive_queue;
mod traffic;
mod wait;
