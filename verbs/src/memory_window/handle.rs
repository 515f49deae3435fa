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
use crate::returns::{Errno, zero_or_errno};

/// A memory window, until it is freed.
pub(crate) struct Handle {
    state: Mutex<State>,
}

pub(super) struct State {
    mw: Option<NonNull<ffi::ibv_mw>>,
    /// The key that it had when it was freed.
    last_rkey: u32,
    /// The queue pair that cannot be destroyed as long as the window is bound.
    bound_by: Option<NonNull<ffi::ibv_qp>>,
    /// Whether a request to unbind it was posted after that.
    unbinding: bool,
}

// SAFETY: the window is only passed to libibverbs, and written to under the lock; the queue pair is only compared with.
unsafe impl Send for State {}

impl Handle {
    /// # Safety
    ///
    /// The window is alive, and nobody else frees it. The caller keeps its domain until it is freed.
    pub(super) unsafe fn new(mw: NonNull<ffi::ibv_mw>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { mw: Some(mw), last_rkey: 0, bound_by: None, unbinding: false }) })
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

    /// Whether no other queue pair has bound it, as far as is known here.
    pub(super) fn may_be_bound_by(&self, qp: *const ffi::ibv_qp) -> bool {
        self.unbinding || self.bound_by.is_none_or(|bound_by| std::ptr::eq(bound_by.as_ptr(), qp))
    }

    /// Returns what it was before.
    pub(super) fn set_bound_by(&mut self, qp: Option<NonNull<ffi::ibv_qp>>) -> Option<NonNull<ffi::ibv_qp>> {
        self.unbinding = false;
        std::mem::replace(&mut self.bound_by, qp)
    }

    /// A request to unbind it was posted to a queue pair. (That of another queue pair than has bound it fails.)
    pub(super) fn set_unbinding(&mut self, qp: *const ffi::ibv_qp) {
        self.unbinding |= self.may_be_bound_by(qp);
    }

    /// Frees the window if it is not freed, and with that unbinds it. On failure nothing has changed.
    pub(super) fn free(&mut self) -> Result<(), Errno> {
        let Some(mw) = self.mw else { return Ok(()) };
        let last_rkey = self.rkey();
        // SAFETY: the window is there, and is forgotten once it is freed.
        zero_or_errno(unsafe { ffi::ibv_dealloc_mw(mw.as_ptr()) })?;
        *self = Self { mw: None, last_rkey, bound_by: None, unbinding: false };
        Ok(())
    }
}

/// The windows of type 2 that a queue pair has bound.
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

    /// Frees the windows that are still bound by the queue pair, which is about to be destroyed. (A device may refuse to destroy one that
    /// has windows; rxe hangs for a minute and then goes on with a queue pair that is freed.)
    pub(crate) fn free(&self, qp: NonNull<ffi::ibv_qp>) {
        let windows = std::mem::take(&mut self.known.lock().unwrap_or_else(PoisonError::into_inner).windows);
        for window in windows.into_values().filter_map(|window| window.upgrade()) {
            let mut state = window.lock();
            if state.bound_by == Some(qp) {
                let _ = state.free();
            }
        }
    }
}
