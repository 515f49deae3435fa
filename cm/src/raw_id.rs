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
//! * Whether a request was accepted is looked at and noted under the channel's lock, together with the call.
#![allow(unsafe_code)]

use std::fmt;
use std::mem;
use std::net::IpAddr;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::channel_state::State;
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
    /// Whether the id came with a connection request.
    is_of_request: bool,
    /// Whether that request was accepted.
    is_accepted: AtomicBool,
    /// Whether connection requests may come.
    is_listening: AtomicBool,
    /// The multicast groups that the id is in.
    groups: Mutex<Vec<IpAddr>>,
    /// Where the id's events go. Another one only by `migrate`, which holds this lock and those of both channels.
    channel: Mutex<EventChannel>,
}

// SAFETY: whatever touches the id holds the lock of its channel.
unsafe impl Send for RawId {}
// SAFETY: as above.
unsafe impl Sync for RawId {}

impl Drop for RawId {
    fn drop(&mut self) {
        let channel = self.lock();
        let mut lock = channel.lock();
        self.settle(&channel, &mut lock);
        // SAFETY: the id is alive and nobody else has it. All of its events that were taken are acked. If the kernel does not know it
        // any more, librdmacm keeps it.
        let code = unsafe { ffi::rdma_destroy_id(self.id.as_ptr()) };
        if code == 0 {
            // With the id its events went.
            lock.remove(self.key);
        }
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
        Ok(Self::of(id, key, space, false, channel))
    }

    /// Takes over an id, and gives it a key of its own.
    ///
    /// # Safety
    ///
    /// `id` is alive, was made on `channel`, does not listen, and nobody else has it.
    pub(crate) unsafe fn from_raw(id: NonNull<ffi::rdma_cm_id>, channel: &EventChannel) -> Self {
        let _lock = channel.lock();
        // SAFETY: as the caller says, and the lock is held.
        let mut id = unsafe { Self::of_request(id, channel) };
        id.is_of_request = false;
        id
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
        Self::of(id, key, space, true, channel)
    }

    fn of(
        id: NonNull<ffi::rdma_cm_id>,
        key: IdKey,
        space: PortSpace,
        is_of_request: bool,
        channel: &EventChannel,
    ) -> Self {
        Self {
            id,
            key,
            space,
            is_of_request,
            is_accepted: AtomicBool::new(false),
            is_listening: AtomicBool::new(false),
            groups: Mutex::new(Vec::new()),
            channel: Mutex::new(channel.clone()),
        }
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

    /// Answers the request that the id came with, unless it was accepted.
    ///
    /// The kernel would take an answer to a request that was accepted, and one from the end that has asked, as the connection's end, and
    /// then wait, when the id is destroyed, until the message that it has sent before is given up: 69 s, or more.
    pub(crate) fn answer(
        &self,
        call: &'static str,
        is_acceptance: bool,
        function: impl FnOnce(*mut ffi::rdma_cm_id) -> std::ffi::c_int,
    ) -> Result<Result<(), Errno>> {
        self.with(|id| {
            let rule = match (self.is_of_request, self.is_accepted.load(Ordering::Relaxed)) {
                (false, _) => "the id came with no connection request; to give a connection up, drop its id",
                (true, true) => "the request was accepted already; to give the connection up, drop its id",
                // SAFETY: the id is alive, and the lock is held.
                (true, false) if unsafe { (*id.as_ptr()).verbs }.is_null() => NO_DEVICE_YET,
                (true, false) => {
                    let result = minus_one_and_errno(function(id.as_ptr()));
                    self.is_accepted.store(is_acceptance && result.is_ok(), Ordering::Relaxed);
                    return Ok(result);
                }
            };
            Err(Error::WrongState { call, rule })
        })
    }

    /// Says that the end that has asked is ready, if the peer has accepted; otherwise, the kernel would give up as in
    /// [`answer`](Self::answer).
    pub(crate) fn establish(&self) -> Result<Result<(), Errno>> {
        const CALL: &str = "rdma_establish";
        if self.is_of_request {
            let rule = "the id came with a connection request: it is the peer that says that it is ready";
            return Err(Error::WrongState { call: CALL, rule });
        }
        // SAFETY: all zeroes are a valid structure.
        let mut attributes: verbs::ffi::ibv_qp_attr = unsafe { mem::zeroed() };
        attributes.qp_state = verbs::ffi::ibv_qp_state::IBV_QPS_RTR;
        let mut mask = 0;
        // SAFETY: the id is alive, and what is written outlives the calls. Only who has an answer knows what to set for RTR.
        Ok(self.call(|id| unsafe {
            match ffi::rdma_init_qp_attr(id, &mut attributes, &mut mask) {
                0 => ffi::rdma_establish(id),
                code => code,
            }
        }))
    }

    /// `rdma_notify`.
    pub(crate) fn notify(&self, event: verbs::ffi::ibv_event_type) -> Result<(), Errno> {
        let channel = self.lock();
        let mut lock = channel.lock();
        // SAFETY: the id is alive, and the lock is held.
        minus_one_and_errno(unsafe { ffi::rdma_notify(self.id.as_ptr(), event) })?;
        if event == verbs::ffi::ibv_event_type::IBV_EVENT_COMM_EST {
            lock.notified.push(self.key);
        }
        Ok(())
    }

    /// `rdma_disconnect`.
    pub(crate) fn disconnect(&self) -> Result<Result<(), Errno>> {
        let channel = self.lock();
        let mut lock = channel.lock();
        // SAFETY: the id is alive, and the lock is held.
        if unsafe { (*self.id.as_ptr()).verbs }.is_null() {
            return Err(Error::WrongState { call: "rdma_disconnect", rule: NO_DEVICE_YET });
        }
        self.settle(&channel, &mut lock);
        // SAFETY: as above.
        Ok(minus_one_and_errno(unsafe { ffi::rdma_disconnect(self.id.as_ptr()) }))
    }

    /// Waits until the kernel has done what [`notify`](Self::notify) has told it to do.
    ///
    /// That the first message has come makes it give up the answer that it keeps sending, on a thread of its own, and then send
    /// [`Established`](crate::EventKind::Established). If the connection were ended before, destroying the id would wait as in
    /// [`answer`](Self::answer).
    fn settle(&self, channel: &EventChannel, state: &mut State) {
        let Some(index) = state.notified.iter().position(|key| *key == self.key) else { return };
        state.notified.swap_remove(index);
        // On a channel of its own the event can be told from others.
        let Ok(own) = EventChannel::create() else { return thread::sleep(Duration::from_millis(100)) };
        // SAFETY: the id and both channels are alive, and the lock is held; nobody else has the other channel. No event of the id waits to
        // be acked, so the calls do not wait.
        unsafe {
            if ffi::rdma_migrate_id(self.id.as_ptr(), own.as_raw()) == 0 {
                own.is_readable(Duration::from_secs(1));
                if ffi::rdma_migrate_id(self.id.as_ptr(), channel.as_raw()) != 0 {
                    // The device has gone just now. The id still points there.
                    mem::forget(own);
                }
                channel.wake(state);
            }
        }
    }

    /// `rdma_listen`.
    pub(crate) fn listen(&self, backlog: std::ffi::c_int) -> Result<(), Errno> {
        self.with(|id| {
            // SAFETY: the id is alive, and the lock is held.
            minus_one_and_errno(unsafe { ffi::rdma_listen(id.as_ptr(), backlog) })?;
            self.is_listening.store(true, Ordering::Relaxed);
            Ok(())
        })
    }

    /// The multicast groups that the id is in.
    pub(crate) fn groups(&self) -> MutexGuard<'_, Vec<IpAddr>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `rdma_leave_multicast`.
    ///
    /// If the kernel refuses, since the device is gone, librdmacm forgets the membership all the same, but the kernel does not, and
    /// events of it may wait that librdmacm would look for in it. So it is not asked then: the membership goes with the id, and a few
    /// bytes of librdmacm's stay.
    ///
    /// # Safety
    ///
    /// `group` is a socket address.
    pub(crate) unsafe fn leave_multicast(&self, group: *mut libc::sockaddr) -> Result<(), Errno> {
        let channel = self.lock();
        let mut lock = channel.lock();
        // SAFETY: all zeroes are a valid structure.
        let mut attributes: verbs::ffi::ibv_qp_attr = unsafe { mem::zeroed() };
        let mut mask = 0;
        // SAFETY: the id is alive, the lock is held, and what is written outlives the call.
        let probe = unsafe { ffi::rdma_init_qp_attr(self.id.as_ptr(), &mut attributes, &mut mask) };
        if let Err(gone @ Errno(libc::ENXIO)) = minus_one_and_errno(probe) {
            return Err(gone);
        }
        // SAFETY: the id is alive, the lock is held, and no event waits to be acked, so that the call does not wait.
        let result = minus_one_and_errno(unsafe { ffi::rdma_leave_multicast(self.id.as_ptr(), group) });
        if result == Err(Errno(libc::ENXIO)) {
            // The device has gone just now. No event may be taken until the id and its events are gone, too.
            lock.add_stale(self.key);
        }
        result
    }

    /// `rdma_migrate_id`.
    pub(crate) fn migrate(&self, to: &EventChannel) -> Result<()> {
        let mut from = self.lock();
        if from.is_same(to) {
            return Ok(());
        }
        // Always in the same order, so that two migrations never wait for each other.
        let (first, second) = if from.as_raw() < to.as_raw() { (&*from, to) } else { (to, &*from) };
        let mut locks = (first.lock(), second.lock());
        let (old, new) =
            if from.as_raw() < to.as_raw() { (&mut locks.0, &mut locks.1) } else { (&mut locks.1, &mut locks.0) };
        // The kernel would leave connection requests behind, where nobody can take them, and take stale events along.
        old.check_migration(self.key, self.is_listening.load(Ordering::Relaxed))?;
        // SAFETY: the id and both channels are alive, and their locks are held. No event of the id waits to be acked, so the call does
        // not wait.
        let result = minus_one_and_errno(unsafe { ffi::rdma_migrate_id(self.id.as_ptr(), to.as_raw()) });
        if result.is_ok() {
            if let Some(index) = old.notified.iter().position(|key| *key == self.key) {
                new.notified.push(old.notified.swap_remove(index));
            }
            to.wake(new);
        }
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
