//! A provider of verbs that does nothing: test support.
//!
//! A test or bench binary that includes this module *defines* the functions of libibverbs, so the linker takes these and not
//! the library's: no kernel, no device, no privileges. Devices, domains, regions, queues and channels work as far as the
//! control path needs. There are two data paths, both of which complete at once what was posted, unless told otherwise:
//!
//! * the *checked* one, for tests of the crate's logic: requests may name live regions only, a queue can be full, and each
//!   call can be told to fail;
//! * the *plain* one, of a few instructions, on which the crate's own instructions can be counted and timed. It checks nothing,
//!   and a queue that is not polled forgets its oldest completions.
//!
//! It watches what it is called with: an object that is destroyed twice, too early or not at all, one that is used after it
//! was destroyed, and a queue that is destroyed while events are not acked (for which libibverbs would wait for ever). No
//! memory is freed before the [`NullProvider`] is dropped, so that a stale pointer is seen and not followed.
#![allow(dead_code, reason = "each binary uses its part")]

mod address;
mod attributes;
mod checked;
mod checked_extended;
mod completion_queue;
mod control;
mod device;
mod device_memory;
mod domains;
mod events;
mod extended;
mod extended_cq;
mod extended_queue;
pub(crate) mod handles;
mod imports;
mod lies;
mod plain;
mod questions;
mod regions;
mod special;
mod srq;
mod state;
mod windows;

use std::sync::Arc;

use verbs::Context;

use state::{CURRENT, Shared};

#[allow(unused_imports, reason = "each binary uses its part")]
pub(crate) use extended_queue::{CVLAN, FLOW_TAG, TIMESTAMP};
pub(crate) use plain::Polls;
#[allow(unused_imports, reason = "each binary uses its part")]
pub(crate) use state::{BadWr, Fault, Kind, Refusal};

/// What a context that is opened on the provider does with requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DataPath {
    #[default]
    Checked,
    Plain(Polls),
}

/// The provider of one thread: what it opens and makes, whichever thread then uses it.
pub(crate) struct NullProvider {
    shared: Arc<Shared>,
}

impl NullProvider {
    /// Makes a provider with a device `null0`, with the checked data path, and makes it this thread's.
    pub(crate) fn new() -> Self {
        let shared = Arc::new(Shared::default());
        CURRENT.set(Some(shared.clone()));
        Self { shared }
    }

    /// Opens the device.
    pub(crate) fn open(&self) -> Context {
        self.open_with(DataPath::Checked)
    }

    pub(crate) fn open_with(&self, path: DataPath) -> Context {
        self.shared.lock().data_path = path;
        verbs::devices().unwrap().find(Some("null0")).unwrap().open().unwrap()
    }

    /// The next call of `verb` fails with `errno`, in the way of that verb.
    pub(crate) fn fail(&self, verb: &'static str, errno: i32) {
        self.fault(verb, Fault { errno, returns: None });
    }

    /// The next call of `verb` does as told.
    pub(crate) fn fault(&self, verb: &'static str, fault: Fault) {
        self.shared.lock().faults.entry(verb).or_default().push_back(fault);
    }

    /// A later request is refused.
    pub(crate) fn refuse(&self, refusal: Refusal) {
        self.shared.lock().refusal = Some(refusal);
    }

    /// No request is refused after all.
    pub(crate) fn refuse_nothing(&self) {
        self.shared.lock().refusal = None;
    }

    /// The next completion has this status and opcode, whatever they mean.
    pub(crate) fn complete_with(&self, status: u32, opcode: u32) {
        self.shared.lock().odd_completion = Some((status, opcode));
    }

    /// The port is one of InfiniBand whose packets need a global route header.
    pub(crate) fn be_infiniband_with_grh(&self) {
        self.shared.lock().infiniband_with_grh = true;
    }

    /// The next completion that is polled has these flags, and these 32 bits of immediate data, or of a key.
    pub(crate) fn complete_with_flags(&self, flags: u32, data: u32) {
        self.shared.lock().odd_flags = Some((flags, data));
    }

    /// A message has invalidated a window's key.
    pub(crate) fn invalidate(&self, rkey: u32) {
        self.shared.lock().invalidated(rkey);
    }

    /// The `comp_mask` and the `flags` that the last extended completion queue was made with.
    pub(crate) fn creation_flags(&self) -> (u32, u32) {
        self.shared.lock().creation_flags
    }

    /// The flags that the last queue pair was made with, if with some.
    pub(crate) fn queue_pair_flags(&self) -> Option<u32> {
        self.shared.lock().queue_pair_flags
    }

    /// The next extended queue pair that is made lacks a builder that was asked for.
    pub(crate) fn lack_builders(&self) {
        self.shared.lock().lacks_builders = true;
    }

    /// The next extended completion queue that is made lacks the readers that were asked for.
    pub(crate) fn lack_readers(&self) {
        self.shared.lock().lacks_readers = true;
    }

    /// The next extended completion queue that is made has no `ibv_next_poll`.
    pub(crate) fn lack_next_poll(&self) {
        self.shared.lock().lacks_next_poll = true;
    }

    /// How often extended completion queues were started.
    pub(crate) fn starts(&self) -> u32 {
        self.shared.lock().starts
    }

    /// The next queue pair that is made has this number, as devices give a number again once its queue pair is gone.
    pub(crate) fn give_number(&self, qp_num: u32) {
        self.shared.lock().number_again = Some(qp_num);
    }

    /// The next poll returns `count` and takes nothing off the queue; called again, the one after it.
    pub(crate) fn poll_returns(&self, count: i32) {
        self.shared.lock().poll_returns.push_back(count);
    }

    /// How many objects of a kind there are.
    pub(crate) fn live(&self, kind: Kind) -> usize {
        self.shared.lock().live(kind)
    }

    /// How many events of the queue behind `cq` were taken from its channel and are not acked.
    pub(crate) fn unacked(&self, cq: &verbs::CompletionQueue) -> u32 {
        self.shared.lock().unacked(cq.as_raw() as usize)
    }

    /// What the queue behind `cq` is armed for.
    pub(crate) fn armed(&self, cq: &verbs::CompletionQueue) -> Option<verbs::Notify> {
        let state = self.shared.lock();
        let queue = &state.queues[&(cq.as_raw() as usize)];
        let notify = if queue.solicited_only { verbs::Notify::Solicited } else { verbs::Notify::Any };
        queue.armed.then_some(notify)
    }

    /// After how many completions, and after how many microseconds, the queue behind `cq` tells of them.
    pub(crate) fn moderation(&self, cq: &verbs::CompletionQueue) -> (u16, u16) {
        self.shared.lock().queues[&(cq.as_raw() as usize)].moderation
    }

    /// The advice that was given last: which, its flags, and on how many bytes.
    pub(crate) fn advice(&self) -> Option<(u32, u32, u64)> {
        self.shared.lock().advice
    }

    /// The rights with which the region of a local key was registered.
    pub(crate) fn access(&self, lkey: u32) -> verbs::AccessFlags {
        verbs::AccessFlags::from_bits_retain(self.shared.lock().regions[&lkey].access)
    }

    /// An asynchronous event of `element` happens: the address of an object, or the number of a port.
    pub(crate) fn raise(&self, context: &Context, event_type: verbs::AsyncEventType, element: usize) {
        events::raise(&mut self.shared.lock(), context.as_raw(), event_type.as_raw(), element);
    }

    /// A call that takes an asynchronous event dawdles for this long, with the event in its hands.
    pub(crate) fn dawdle(&self, pause: std::time::Duration) {
        self.shared.lock().async_events.pause = pause;
    }

    /// The kernel copies registered memory at a fork.
    pub(crate) fn copy_at_fork(&self) {
        self.shared.lock().fork_status = verbs::ffi::ibv_fork_status::IBV_FORK_UNNEEDED.0;
    }

    /// The last rule that a flow was made of: an `ibv_flow_attr` and what follows it.
    pub(crate) fn flow_rule(&self) -> Vec<u8> {
        self.shared.lock().special.rule.clone()
    }

    /// The security parameters indices, and keys, that actions of ESP were made of or changed to.
    pub(crate) fn esp(&self) -> Vec<(u32, Vec<u8>)> {
        self.shared.lock().special.esp.clone()
    }

    /// The descriptors that XRC domains were opened with.
    pub(crate) fn xrc_files(&self) -> Vec<i32> {
        self.shared.lock().special.files.clone()
    }

    /// The key and the fields of the last queue pair with an indirection table.
    pub(crate) fn receive_hash(&self) -> Option<(Vec<u8>, u64)> {
        self.shared.lock().special.hash.clone()
    }

    /// The device can do neither atomic write nor flush.
    pub(crate) fn lack_atomic_write_and_flush(&self) {
        self.shared.lock().lacks_atomic_write_and_flush = true;
    }

    /// The atomic writes that were posted: key, address and bytes.
    pub(crate) fn atomic_writes(&self) -> Vec<(u32, u64, [u8; 8])> {
        self.shared.lock().atomic_writes.clone()
    }

    /// The flushes that were posted: key, address, length, placement and level.
    pub(crate) fn flushes(&self) -> Vec<(u32, u64, usize, u8, u8)> {
        self.shared.lock().flushes.clone()
    }

    /// The rate limits that queue pairs were given: kbit/s, bytes of a burst, bytes of a packet.
    pub(crate) fn rate_limits(&self) -> Vec<(u32, u32, u16)> {
        self.shared.lock().rate_limits.clone()
    }

    /// A message arrives at a queue pair on a shared receive queue. `false`: that queue is empty.
    pub(crate) fn deliver<T: verbs::Transport>(&self, qp: &verbs::QueuePair<T>) -> bool {
        srq::deliver(&mut self.shared.lock(), qp.as_raw())
    }

    /// How many multicast groups a queue pair is attached to.
    pub(crate) fn groups<T: verbs::Transport>(&self, qp: &verbs::QueuePair<T>) -> usize {
        self.shared.lock().pairs.get(&(qp.as_raw() as usize)).map_or(0, |pair| pair.groups.len())
    }

    /// The objects that there are, in an order of their kinds.
    pub(crate) fn live_objects(&self) -> Vec<Kind> {
        let mut kinds = self.shared.lock().live_objects();
        kinds.sort_by_key(|kind| *kind as u32);
        kinds
    }

    /// What was done wrong so far; it is then forgotten.
    pub(crate) fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.lock().violations)
    }

    /// Fails if anything was done wrong.
    pub(crate) fn assert_no_violation(&self) {
        assert_eq!(self.shared.lock().violations, Vec::<String>::new());
    }

    /// What is left was to be left.
    pub(crate) fn forget_what_is_left(&self) {
        self.shared.lock().forget_objects();
    }

    /// Fails if anything was done wrong, or is left.
    pub(crate) fn assert_clean(&self) {
        let state = self.shared.lock();
        assert_eq!(state.violations, Vec::<String>::new());
        assert_eq!(state.live_objects(), Vec::<Kind>::new(), "left behind");
    }
}

impl Drop for NullProvider {
    fn drop(&mut self) {
        CURRENT.set(None);
        if !std::thread::panicking() {
            self.assert_clean();
        }
    }
}
