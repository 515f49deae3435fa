//! Tests on a real device, run by `cargo xtask test`.

#[path = "../harness/mod.rs"]
mod harness;
#[path = "../readiness/mod.rs"]
mod readiness;

mod async_events;
mod atomic_write;
mod completion;
mod completion_queue;
mod data_path;
mod datagram;
mod descriptors;
mod device;
mod domains;
mod event_loop;
mod extended;
mod failure;
mod invalidate;
mod memory;
mod memory_window;
mod modify;
mod multicast;
mod questions;
mod queue_pair;
mod registration;
mod scenarios;
mod shared_receive_queue;
mod special;
mod traffic;
mod unreliable_connection;
mod wait;
mod way_down;
mod window_owner;
