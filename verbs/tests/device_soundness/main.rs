//! Whatever a program does with live objects on a real device, in whatever order and on however many threads: nothing hangs, nothing is
//! left in the device, and the process is what it was.

#[path = "../harness/mod.rs"]
mod harness;

mod handles;
mod lanes;
mod orders;
mod threads;
