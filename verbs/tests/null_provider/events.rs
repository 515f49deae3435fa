//! Asynchronous events: the functions that libibverbs exports.
//!
//! # Safety
//!
//! All pointers come from the provider; what it made stays in memory as long as it does. Each function is called with valid
//! structures.
#![allow(clippy::missing_safety_doc, reason = "the manual pages of libibverbs say it")]

use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::ptr;
use std::sync::MutexGuard;
use std::time::Duration;

use verbs::ffi;
use verbs::ffi::ibv_event_type as E;

use super::device::shared;
use super::state::{Kind, Shared, State, set_errno};

/// How long the destruction of an object waits for its events to be acked; libibverbs waits for ever.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(super) struct AsyncEvents {
    /// What each context has not handed out yet: the types, and the objects or ports.
    waiting: HashMap<usize, VecDeque<(u32, usize)>>,
    /// Of each object, the events that were handed out and are not acked.
    unacked: HashMap<usize, u32>,
    /// How long a call dawdles before it returns with an event.
    pub(super) pause: Duration,
}

/// The kind of object that events of a type are of.
fn kind(event_type: E) -> Option<Kind> {
    match event_type {
        E::IBV_EVENT_CQ_ERR => Some(Kind::CompletionQueue),
        E::IBV_EVENT_QP_FATAL
        | E::IBV_EVENT_QP_REQ_ERR
        | E::IBV_EVENT_QP_ACCESS_ERR
        | E::IBV_EVENT_COMM_EST
        | E::IBV_EVENT_SQ_DRAINED
        | E::IBV_EVENT_PATH_MIG
        | E::IBV_EVENT_PATH_MIG_ERR
        | E::IBV_EVENT_QP_LAST_WQE_REACHED => Some(Kind::QueuePair),
        E::IBV_EVENT_SRQ_ERR | E::IBV_EVENT_SRQ_LIMIT_REACHED => Some(Kind::SharedReceiveQueue),
        _ => None,
    }
}

/// Lets an event of `element`, the address of an object or the number of a port, happen.
pub(super) fn raise(state: &mut State, context: *mut ffi::ibv_context, event_type: u32, element: usize) {
    state.async_events.waiting.entry(context as usize).or_default().push_back((event_type, element));
    // SAFETY: the context is alive, and eight bytes are written.
    let written = unsafe { libc::write((*context).async_fd, ptr::from_ref(&1u64).cast(), 8) };
    assert_eq!(written, 8);
}

/// Takes one off the count of a context's events, or waits for one, as its descriptor is set.
///
/// # Safety
///
/// The context is alive.
unsafe fn take_from(context: *mut ffi::ibv_context) -> bool {
    let mut count = 0u64;
    // SAFETY: the descriptor is the context's, and `count` has the eight bytes that are read.
    unsafe { libc::read((*context).async_fd, (&raw mut count).cast(), 8) == 8 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_get_async_event(context: *mut ffi::ibv_context, event: *mut ffi::ibv_async_event) -> c_int {
    // SAFETY: the context is one of ours, and the caller passes a structure.
    unsafe {
        let shared = shared(context);
        let mut state = shared.lock();
        state.check(Kind::Context, context as usize, "ibv_get_async_event");
        if let Some(fault) = state.fault("ibv_get_async_event") {
            set_errno(fault.errno);
            return fault.returns.unwrap_or(-1);
        }
        drop(state);
        if !take_from(context) {
            return -1;
        }
        let mut state = shared.lock();
        let waiting = state.async_events.waiting.get_mut(&(context as usize));
        let Some((event_type, element)) = waiting.and_then(VecDeque::pop_front) else {
            set_errno(libc::EAGAIN);
            return -1;
        };
        (*event).event_type = E(event_type);
        if kind(E(event_type)).is_some() {
            *state.async_events.unacked.entry(element).or_default() += 1;
            (*event).element.cq = element as *mut ffi::ibv_cq;
        } else {
            (*event).element.port_num = element as c_int;
        }
        let pause = state.async_events.pause;
        drop(state);
        std::thread::sleep(pause);
    }
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_ack_async_event(event: *mut ffi::ibv_async_event) {
    // SAFETY: the caller passes an event that was taken; each kind of object has its context in its first field.
    let (event_type, element) = unsafe { ((*event).event_type, (*event).element.cq) };
    let Some(kind) = kind(event_type) else { return };
    // SAFETY: as above.
    let shared = unsafe { shared((*element).context) };
    let mut state = shared.lock();
    if state.check(kind, element as usize, "ibv_ack_async_event") {
        match state.async_events.unacked.get_mut(&(element as usize)) {
            Some(unacked) if *unacked > 0 => *unacked -= 1,
            _ => state.violations.push("ibv_ack_async_event: the event was acked before".to_owned()),
        }
    }
    drop(state);
    shared.acked.notify_all();
}

/// What the destruction of an object does first: takes back its events that were not handed out, and waits for the acks of
/// those that were.
///
/// # Safety
///
/// The context is alive.
pub(super) unsafe fn settle<'a>(
    shared: &'a Shared,
    mut state: MutexGuard<'a, State>,
    context: *mut ffi::ibv_context,
    object: usize,
    verb: &str,
) -> MutexGuard<'a, State> {
    if let Some(waiting) = state.async_events.waiting.get_mut(&(context as usize)) {
        let before = waiting.len();
        waiting.retain(|(event_type, element)| kind(E(*event_type)).is_none() || *element != object);
        for _ in waiting.len()..before {
            // SAFETY: the context is alive.
            unsafe { take_from(context) };
        }
    }
    let left = |state: &State| state.async_events.unacked.get(&object).copied().unwrap_or(0);
    let waited = shared.acked.wait_timeout_while(state, PATIENCE, |state| left(state) > 0);
    state = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
    let unacked = left(&state);
    if unacked > 0 {
        state.violations.push(format!("{verb}: it would wait for ever for {unacked} asynchronous events to be acked"));
    }
    state
}
