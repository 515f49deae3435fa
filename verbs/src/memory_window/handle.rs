//! The owner of a memory window, and which windows a queue pair has bound.
//!
//! # Safety
//!
//! `State::mw` came from `ibv_alloc_mw`, and is there until it is freed, which is done once and under the lock. Its domain is kept by whoever
//! has the handle, and its key is written to under the lock.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::ffi;
use crate::object_id::ObjectId;
use crate::queue_pair::QueuePair;
use crate::returns::{Errno, zero_or_errno};
use crate::transport::Transport;

/// A memory window, until it is freed.
pub(crate) struct Handle {
    state: Mutex<State>,
}

pub(super) struct State {
    mw: Option<NonNull<ffi::ibv_mw>>,
    /// The key that it had when it was freed.
    last_rkey: u32,
    /// Of a window of type 2. No other queue pair may bind it, and none that it belongs to can be destroyed as long as it is bound.
    belongs: Belongs,
    /// The request to unbind it that was posted after the last one to bind it.
    unbinding: Option<Unbinding>,
    /// Whether the program has said what the key is: then the key tells nothing of whether the window is bound.
    is_key_restored: bool,
}

/// To which queue pair a window of type 2 belongs: that through which it was bound, until it is known to be unbound.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Belongs {
    /// It is not bound.
    ToNone,
    /// It was taken over, and may be bound by one that this crate does not know of.
    Unknown,
    To(Owner),
}

/// A queue pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    id: ObjectId,
    qp_num: u32,
}

impl Owner {
    pub(super) fn of<T: Transport>(qp: &QueuePair<T>) -> Self {
        Self { id: qp.id(), qp_num: qp.qp_num() }
    }

    pub(super) fn qp_num(self) -> u32 {
        self.qp_num
    }
}

/// A request to unbind a window.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Unbinding {
    pub(super) wr_id: u64,
    pub(super) qp_num: u32,
}

/// What a request that the device does not take leaves as it was.
pub(super) struct Before {
    belongs: Belongs,
    unbinding: Option<Unbinding>,
}

// SAFETY: the window is only passed to libibverbs, and written to under the lock.
unsafe impl Send for State {}

impl Handle {
    /// # Safety
    ///
    /// The window is alive, and nobody else frees it. The caller keeps its domain until it is freed.
    pub(super) unsafe fn new(mw: NonNull<ffi::ibv_mw>, belongs: Belongs) -> Arc<Self> {
        let state = State { mw: Some(mw), last_rkey: 0, belongs, unbinding: None, is_key_restored: false };
        Arc::new(Self { state: Mutex::new(state) })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// `None`: it is freed.
    pub(super) fn mw(&self) -> Option<NonNull<ffi::ibv_mw>> {
        self.mw
    }

    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: the window is there, and we have the lock.
        self.mw.map_or(self.last_rkey, |mw| unsafe { mw.as_ref().rkey })
    }

    pub(super) fn set_rkey(&mut self, rkey: u32) {
        if let Some(mut mw) = self.mw {
            // SAFETY: the window is there, and we have the lock.
            unsafe { mw.as_mut().rkey = rkey };
        }
    }

    /// The program says that the key is this one.
    pub(super) fn restore_rkey(&mut self, rkey: u32) {
        self.set_rkey(rkey);
        self.is_key_restored = true;
    }

    pub(super) fn belongs(&self) -> Belongs {
        self.belongs
    }

    pub(super) fn unbinding(&self) -> Option<Unbinding> {
        self.unbinding
    }

    /// The key with which the window is bound, if it is: that of the last binding.
    pub(super) fn bound_rkey(&self) -> Option<u32> {
        (!self.is_key_restored).then(|| self.rkey())
    }

    /// A request to bind it is about to be posted.
    pub(super) fn binding(&mut self, belongs: Belongs) -> Before {
        let before = Before { belongs: self.belongs, unbinding: self.unbinding };
        (self.belongs, self.unbinding) = (belongs, None);
        before
    }

    /// The device has not taken the request.
    pub(super) fn not_bound(&mut self, before: Before) {
        (self.belongs, self.unbinding) = (before.belongs, before.unbinding);
    }

    /// The device has taken the request, under this key.
    pub(super) fn bound(&mut self, rkey: u32) {
        self.set_rkey(rkey);
        self.is_key_restored = false;
    }

    /// A request to unbind it was posted.
    pub(super) fn set_unbinding(&mut self, unbinding: Unbinding) {
        self.unbinding = Some(unbinding);
    }

    /// It is bound to nothing.
    pub(super) fn unbound(&mut self) {
        (self.belongs, self.unbinding) = (Belongs::ToNone, None);
    }

    /// Frees the window if it is not freed, and with that unbinds it. On failure nothing has changed.
    pub(super) fn free(&mut self) -> Result<(), Errno> {
        let Some(mw) = self.mw else { return Ok(()) };
        let last_rkey = self.rkey();
        // SAFETY: the window is there, and is forgotten once it is freed.
        zero_or_errno(unsafe { ffi::ibv_dealloc_mw(mw.as_ptr()) })?;
        self.unbound();
        (self.mw, self.last_rkey) = (None, last_rkey);
        Ok(())
    }
}

/// The windows of type 2 that a queue pair has bound, among them such as may belong to it no more.
#[derive(Default)]
pub(crate) struct BoundWindows {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By their addresses, which are not used again as long as they are known.
    windows: HashMap<usize, Weak<Handle>>,
    /// How many there may be before those that are gone are looked for.
    room: usize,
}

impl BoundWindows {
    pub(super) fn add(&self, window: &Arc<Handle>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.windows.len() >= known.room {
            known.windows.retain(|_, window| window.strong_count() > 0);
            known.room = 2 * known.windows.len() + 8;
        }
        known.windows.entry(Arc::as_ptr(window).addr()).or_insert_with(|| Arc::downgrade(window));
    }

    /// Frees the windows that still belong to the queue pair, which is about to be destroyed. (A device may refuse to destroy one that
    /// has windows; rxe hangs for a minute and then goes on with a queue pair that is freed.)
    pub(crate) fn free(&self, qp: ObjectId) {
        let windows = std::mem::take(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner).windows);
        for window in windows.into_values().filter_map(|window| window.upgrade()) {
            let mut state = window.lock();
            if matches!(state.belongs, Belongs::To(owner) if owner.id == qp) {
                let _ = state.free();
            }
        }
    }
}
