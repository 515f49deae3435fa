//! What the crate uses of the process: no memory in steady state, and after ever so many rounds as many allocations, descriptors and
//! mappings as before.

#[path = "../null_provider/mod.rs"]
mod null_provider;
#[path = "../readiness/mod.rs"]
mod readiness;

mod allocator;
mod descriptors;
mod rounds;
mod steady_state;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Descriptors and mappings are the process's, so one test at a time counts.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}
