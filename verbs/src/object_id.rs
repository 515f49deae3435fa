//! [`ObjectId`]: which object an event is of.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::context::Context;

/// The number of a completion queue, queue pair or shared receive queue of this process. No two objects ever have the same
/// one, so an event of an object that is gone is never taken for one of its successor's.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(u64);

impl ObjectId {
    /// The next number. (At one a nanosecond, they last 584 years.)
    fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ObjectId({})", self.0)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The objects of a context by their addresses in libibverbs.
///
/// The lock is held for a look-up only, and never during a call of libibverbs.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    entries: Mutex<HashMap<usize, Entry>>,
}

#[derive(Debug)]
struct Entry {
    id: ObjectId,
    /// Whether an event has told that the object cannot be used any more.
    failed: Arc<AtomicBool>,
}

impl Objects {
    fn lock(&self) -> MutexGuard<'_, HashMap<usize, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object at an address; `None`: it was not made by this crate, or is being destroyed.
    pub(crate) fn find<T>(&self, object: *const T) -> Option<ObjectId> {
        self.lock().get(&object.addr()).map(|entry| entry.id)
    }

    /// [Finds](Self::find) an object that cannot be used any more, and has its owner know.
    pub(crate) fn find_failed<T>(&self, object: *const T) -> Option<ObjectId> {
        self.lock().get(&object.addr()).map(|entry| {
            entry.failed.store(true, Ordering::Relaxed);
            entry.id
        })
    }
}

/// An object's entry in the [`Objects`] of its context. Its owner keeps it as long as the object, or a little longer: an entry
/// that another object has taken over at the same address stays when this one goes.
pub(crate) struct Identity {
    id: ObjectId,
    failed: Arc<AtomicBool>,
    address: usize,
    context: Context,
}

impl Identity {
    /// Enters an object that was just made.
    pub(crate) fn new<T>(context: &Context, object: *const T) -> Self {
        let (id, address, failed) = (ObjectId::next(), object.addr(), Arc::new(AtomicBool::new(false)));
        context.objects().lock().insert(address, Entry { id, failed: failed.clone() });
        Self { id, failed, address, context: context.clone() }
    }

    /// Whether an event that was taken has told that the object cannot be used any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn id(&self) -> ObjectId {
        self.id
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        let mut entries = self.context.objects().lock();
        if entries.get(&self.address).is_some_and(|entry| entry.id == self.id) {
            entries.remove(&self.address);
        }
    }
}
