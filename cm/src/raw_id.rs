//! [`RawId`]: the owner of an `rdma_cm_id`.
//!
//! # Safety
//!
//! * `RawId::id` came from `rdma_create_id` or from a connection request, and is destroyed only when the `RawId` is dropped.
//! * Calls of librdmacm that are given the id, and reads of its fields, are made under the lock of its channel. Events are taken from a
//!   channel, copied and acked under the same lock, and librdmacm changes ids as it takes events. So no two threads ever touch the
//!   same id, and no event is left for which `rdma_destroy_id` would wait.
//! * `RawId::id.context` is the number of its [`IdKey`], not an address.
//! * We never set `RawId::id.qp`: queue pairs belong to `verbs`.
#![allow(unsafe_code)]

use std::fmt;
use std::mem;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Error, Result};
use crate::event_channel::EventChannel;
use crate::ffi;
use crate::port_space::PortSpace;
use crate::returns::{Errno, minus_one_and_errno};

/// Which id an event is of. No two ids of a process ever have the same key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdKey(usize);

impl IdKey {
    pub(crate) fn next() -> Self {
        static LAST: AtomicUsize = AtomicUsize::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub(crate) fn to_context(self) -> *mut std::ffi::c_void {
        ptr::without_provenance_mut(self.0)
    }

    pub(crate) fn from_context(context: *const std::ffi::c_void) -> Self {
        Self(context.addr())
    }
}

impl fmt::Debug for IdKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdKey({})", self.0)
    }
}

impl fmt::Display for IdKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

pub(crate) struct RawId {
    id: NonNull<ffi::rdma_cm_id>,
    key: IdKey,
    space: PortSpace,
    /// Whether the request that the id came with was accepted.
    accepted: AtomicBool,
    /// Where the id's events go. Another one only by `migrate`, which holds this lock and those of both channels.
    channel: Mutex<EventChannel>,
}

// SAFETY: whatever touches the id holds the lock of its channel.
unsafe impl Send for RawId {}
// SAFETY: as above.
unsafe impl Sync for RawId {}

impl Drop for RawId {
    fn drop(&mut self) {
        let channel = self.channel.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _lock = channel.lock();
        // SAFETY: the id is alive and nobody else has it. All of its events that were taken are acked. If the kernel does not know it
        // any more, librdmacm keeps it.
        let _ = unsafe { ffi::rdma_destroy_id(self.id.as_ptr()) };
    }
}

impl RawId {
    /// `rdma_create_id`.
    pub(crate) fn create(channel: &EventChannel, space: PortSpace) -> Result<Self> {
        let key = IdKey::next();
        let mut id = ptr::null_mut();
        // SAFETY: the channel is alive, and `id` outlives the call.
        let code = unsafe {
            ffi::rdma_create_id(channel.as_raw(), &mut id, key.to_context(), ffi::rdma_port_space(space.as_raw()))
        };
        minus_one_and_errno(code).map_err(|errno| errno.of("rdma_create_id", space))?;
        let Some(id) = NonNull::new(id) else { return Err(Errno(libc::EIO).of("rdma_create_id", space)) };
        Ok(Self { id, key, space, accepted: AtomicBool::new(false), channel: Mutex::new(channel.clone()) })
    }

    /// Takes over the id of a connection request, and gives it a key of its own.
    ///
    /// # Safety
    ///
    /// `id` is alive, of `channel` whose lock is held, and nobody else has it.
    pub(crate) unsafe fn of_request(id: NonNull<ffi::rdma_cm_id>, channel: &EventChannel) -> Self {
        let key = IdKey::next();
        // SAFETY: as the caller says.
        let space = unsafe {
            (*id.as_ptr()).context = key.to_context();
            PortSpace::from_raw((*id.as_ptr()).ps.0)
        };
        Self { id, key, space, accepted: AtomicBool::new(false), channel: Mutex::new(channel.clone()) }
    }

    pub(crate) fn key(&self) -> IdKey {
        self.key
    }

    pub(crate) fn space(&self) -> PortSpace {
        self.space
    }

    pub(crate) fn channel(&self) -> EventChannel {
        self.lock().clone()
    }

    pub(crate) fn set_accepted(&self) {
        self.accepted.store(true, Ordering::Relaxed);
    }

    /// Refuses to refuse what was accepted: the kernel would take it, and then wait up to 69 s when the id is destroyed, as long as the
    /// peer's host has asked it to.
    pub(crate) fn check_not_accepted(&self, call: &'static str) -> Result<()> {
        match self.accepted.load(Ordering::Relaxed) {
            true => Err(Error::WrongState { call, rule: "the request was accepted already; drop its id instead" }),
            false => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, EventChannel> {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `function` with the id, under the lock of its channel.
    pub(crate) fn with<R>(&self, function: impl FnOnce(NonNull<ffi::rdma_cm_id>) -> R) -> R {
        let channel = self.lock();
        let _lock = channel.lock();
        function(self.id)
    }

    /// Makes a call that returns 0, or -1 and sets `errno`.
    pub(crate) fn call(&self, function: impl FnOnce(*mut ffi::rdma_cm_id) -> std::ffi::c_int) -> Result<(), Errno> {
        self.with(|id| minus_one_and_errno(function(id.as_ptr())))
    }

    /// As [`call`](Self::call), once the id belongs to a device: librdmacm would look the device up without looking whether there is one.
    pub(crate) fn call_on_device(
        &self,
        call: &'static str,
        function: impl FnOnce(*mut ffi::rdma_cm_id) -> std::ffi::c_int,
    ) -> Result<Result<(), Errno>> {
        self.with(|id| {
            // SAFETY: the id is alive, and the lock is held.
            if unsafe { (*id.as_ptr()).verbs }.is_null() {
                return Err(Error::WrongState { call, rule: NO_DEVICE_YET });
            }
            Ok(minus_one_and_errno(function(id.as_ptr())))
        })
    }

    /// `rdma_migrate_id`.
    pub(crate) fn migrate(&self, to: &EventChannel) -> Result<()> {
        let mut from = self.lock();
        if from.is_same(to) {
            return Ok(());
        }
        // Always in the same order, so that two migrations never wait for each other.
        let (first, second) = if from.as_raw() < to.as_raw() { (&*from, to) } else { (to, &*from) };
        let locks = (first.lock(), second.lock());
        // SAFETY: the id and both channels are alive, and their locks are held. No event of the id waits to be acked, so the call does
        // not wait.
        let result = minus_one_and_errno(unsafe { ffi::rdma_migrate_id(self.id.as_ptr(), to.as_raw()) });
        drop(locks);
        result.map_err(|errno| errno.of("rdma_migrate_id", format_args!("{self:?}")))?;
        // What was sent to the old channel's descriptor was moved along by the kernel.
        drop(mem::replace(&mut *from, to.clone()));
        Ok(())
    }

    pub(crate) fn as_raw(&self) -> *mut ffi::rdma_cm_id {
        self.id.as_ptr()
    }
}

pub(crate) const NO_DEVICE_YET: &str =
    "the id belongs to no device yet; resolve an address first, or bind it to the address of an interface";

impl fmt::Debug for RawId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({} {})", self.space, self.key)
    }
}
