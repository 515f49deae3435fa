//! What the provider knows of its objects.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::ffi::c_int;
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use verbs::ffi;

use super::DataPath;
use super::checked_extended::Building;
use super::events::AsyncEvents;
use super::imports::Imports;
use super::lies::Lies;
use super::special::Special;
use super::srq::SharedQueue;

thread_local! {
    /// The provider that `ibv_get_device_list` finds on this thread.
    pub(super) static CURRENT: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    List,
    Device,
    Context,
    Domain,
    Region,
    Channel,
    CompletionQueue,
    QueuePair,
    SharedReceiveQueue,
    ThreadDomain,
    AddressHandle,
    Window,
    DeviceMemory,
    XrcDomain,
    WorkQueue,
    IndirectionTable,
    Flow,
    Counters,
    FlowAction,
}

/// How a call fails.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    pub(crate) errno: c_int,
    /// What a call that returns an integer returns, where it is not what its manual page says.
    pub(crate) returns: Option<c_int>,
}

/// Which requests a queue refuses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    /// How many requests are taken before.
    pub(crate) after: usize,
    pub(crate) errno: c_int,
    pub(crate) bad_wr: BadWr,
}

/// What `bad_wr` is then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadWr {
    /// The request that is refused.
    Refused,
    /// Null.
    Null,
    /// What it was before the call.
    Untouched,
    /// The request at this many bytes from the first one, whether or not there is one.
    AtBytes(isize),
}

#[derive(Debug)]
struct Object {
    kind: Kind,
    parents: Vec<usize>,
    users: usize,
    alive: bool,
}

/// A completion that waits to be polled.
pub(super) struct Waiting {
    pub(super) completion: ffi::ibv_wc,
    pub(super) qp: usize,
    /// How many slots of the send queue become free when it is polled.
    pub(super) slots: u32,
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) channel: usize,
    /// Between `ibv_start_poll` and `ibv_end_poll`.
    pub(super) started: bool,
    pub(super) armed: bool,
    /// Whether solicited completions only are told of.
    pub(super) solicited_only: bool,
    /// After how many completions, and after how many microseconds, the queue tells of them.
    pub(super) moderation: (u16, u16),
    /// Events that were taken, and those of them that were acked.
    pub(super) taken: u32,
    pub(super) acked: u32,
}

/// The slots of a queue pair's queues.
#[derive(Default)]
pub(super) struct Slots {
    pub(super) max_send: u32,
    pub(super) sends: u32,
    /// Of the sends, those that complete with a later one.
    pub(super) unsignaled: u32,
    pub(super) max_receive: u32,
    pub(super) receives: u32,
    pub(super) signal_all: bool,
    pub(super) max_send_sge: u32,
    pub(super) max_recv_sge: u32,
    pub(super) max_inline_data: u32,
    /// Between `ibv_wr_start` and `ibv_wr_complete`.
    pub(super) building: Option<Building>,
    /// The multicast groups that it is attached to.
    pub(super) groups: Vec<([u8; 16], u16)>,
}

/// A region, by its local key.
pub(super) struct RegisteredRange {
    /// Where the device finds it.
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) access: u32,
    /// The handle of its domain.
    pub(super) domain: u32,
}

/// What a window is bound to.
pub(super) struct Binding {
    /// The local key of its region.
    pub(super) lkey: u32,
    /// The queue pair through which it was bound, of a window of type 2; 0 for one of type 1.
    pub(super) qp: usize,
}

#[derive(Default)]
pub(super) struct State {
    objects: HashMap<usize, Object>,
    /// Memory that C would have freed.
    memory: Vec<(usize, unsafe fn(usize))>,
    pub(super) data_path: DataPath,
    pub(super) violations: Vec<String>,
    pub(super) faults: HashMap<&'static str, VecDeque<Fault>>,
    pub(super) refusal: Option<Refusal>,
    pub(super) odd_completion: Option<(u32, u32)>,
    pub(super) poll_returns: VecDeque<c_int>,
    /// The mask and the flags that the last extended queue was made with.
    pub(super) creation_flags: (u32, u32),
    /// The flags that the last queue pair was made with by `ibv_create_qp_ex`.
    pub(super) queue_pair_flags: Option<u32>,
    pub(super) fork_status: u32,
    pub(super) infiniband_with_grh: bool,
    /// The flags and the immediate data, or key, of the next completion.
    pub(super) odd_flags: Option<(u32, u32)>,
    pub(super) lacks_builders: bool,
    pub(super) lacks_readers: bool,
    pub(super) lacks_next_poll: bool,
    /// How often extended queues were started.
    pub(super) starts: u32,
    pub(super) queues: HashMap<usize, Queue>,
    pub(super) pairs: HashMap<usize, Slots>,
    pub(super) shared_queues: HashMap<usize, SharedQueue>,
    /// By their local keys.
    pub(super) regions: HashMap<u32, RegisteredRange>,
    /// What each window is bound to, by the window's handle.
    pub(super) windows: HashMap<u32, Binding>,
    pub(super) atomic_writes: Vec<(u32, u64, [u8; 8])>,
    pub(super) flushes: Vec<(u32, u64, usize, u8, u8)>,
    pub(super) lacks_atomic_write_and_flush: bool,
    /// The advice that was given last: which, its flags, and on how many bytes.
    pub(super) advice: Option<(u32, u32, u64)>,
    /// The queues of which each channel has an event.
    pub(super) events: HashMap<usize, VecDeque<usize>>,
    pub(super) async_events: AsyncEvents,
    pub(super) special: Special,
    pub(super) imports: Imports,
    pub(super) rate_limits: Vec<(u32, u32, u16)>,
    pub(super) lies: Lies,
    /// The number of the next queue pair, which another one had before.
    pub(super) number_again: Option<u32>,
    last_number: u32,
}

/// The state, and what guards it.
#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Signaled when an asynchronous event is acked.
    pub(super) acked: Condvar,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        for (address, free) in self.memory.drain(..) {
            // SAFETY: `keep` made the pair, and nobody uses the object any more: its provider is gone.
            unsafe { free(address) };
        }
    }
}

impl State {
    /// Moves a value to memory that stays until the provider is gone.
    pub(super) fn keep<T: Any>(&mut self, value: T) -> *mut T {
        unsafe fn free<T>(address: usize) {
            // SAFETY: the address is that of a box, which is freed once.
            drop(unsafe { Box::from_raw(address as *mut T) });
        }
        let pointer = Box::into_raw(Box::new(value));
        self.memory.push((pointer.expose_provenance(), free::<T>));
        pointer
    }

    pub(super) fn number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }

    /// An object was made of these others.
    pub(super) fn add(&mut self, kind: Kind, address: usize, parents: &[usize]) {
        for parent in parents {
            self.objects.get_mut(parent).expect("checked before").users += 1;
        }
        self.objects.insert(address, Object { kind, parents: parents.to_vec(), users: 0, alive: true });
    }

    /// An object was made of another one too.
    pub(super) fn adopt(&mut self, child: usize, parent: usize) {
        self.objects.get_mut(&parent).expect("checked before").users += 1;
        self.objects.get_mut(&child).expect("was added").parents.push(parent);
    }

    /// Whether there is such an object; if not, `verb` was called with what it must not.
    pub(super) fn check(&mut self, kind: Kind, address: usize, verb: &str) -> bool {
        let problem = match self.objects.get(&address) {
            None => "was never made",
            Some(object) if object.kind != kind => "is of another kind",
            Some(object) if !object.alive => "was destroyed before",
            Some(_) => return true,
        };
        self.violations.push(format!("{verb}: the {kind:?} {problem}"));
        false
    }

    /// An object has another parent.
    pub(super) fn move_to(&mut self, address: usize, parent: usize) {
        let object = self.objects.get_mut(&address).expect("checked before");
        let before = std::mem::replace(&mut object.parents, vec![parent]);
        self.objects.get_mut(&parent).expect("checked before").users += 1;
        for parent in before {
            self.objects.get_mut(&parent).expect("was added").users -= 1;
        }
    }

    /// An object is destroyed. `false`: it cannot be.
    pub(super) fn remove(&mut self, kind: Kind, address: usize, verb: &str) -> bool {
        if !self.check(kind, address, verb) {
            return false;
        }
        if self.is_imported(address) {
            self.violations.push(format!("{verb}: the {kind:?} is not this process's"));
        }
        let object = self.objects.get_mut(&address).expect("checked before");
        if object.users > 0 {
            self.violations.push(format!("{verb}: the {kind:?} is used by {} others", object.users));
            return false;
        }
        object.alive = false;
        for parent in std::mem::take(&mut object.parents) {
            let parent = self.objects.get_mut(&parent).expect("was added");
            parent.users -= 1;
            // Nobody destroys a device: it is gone when its list and all contexts are.
            if parent.kind == Kind::Device && parent.users == 0 {
                parent.alive = false;
            }
        }
        true
    }

    pub(super) fn live(&self, kind: Kind) -> usize {
        self.objects.values().filter(|object| object.alive && object.kind == kind).count()
    }

    /// The device that is in a list or open.
    pub(super) fn live_device(&self) -> Option<usize> {
        let mut objects = self.objects.iter();
        objects.find(|(_, object)| object.alive && object.kind == Kind::Device).map(|(address, _)| *address)
    }

    pub(super) fn live_objects(&self) -> Vec<Kind> {
        self.objects.values().filter(|object| object.alive).map(|object| object.kind).collect()
    }

    pub(super) fn forget_objects(&mut self) {
        self.objects.clear();
    }

    pub(super) fn unacked(&self, cq: usize) -> u32 {
        self.queues.get(&cq).map_or(0, |queue| queue.taken - queue.acked)
    }

    /// Puts an event of a queue, which is alive and has a channel, into its channel.
    pub(super) fn tell(&mut self, cq: usize) {
        let channel = self.queues[&cq].channel;
        self.events.get_mut(&channel).expect("the queue holds its channel").push_back(cq);
        // SAFETY: the queue holds its channel, and eight bytes are written.
        unsafe {
            let fd = (*(channel as *mut ffi::ibv_comp_channel)).fd;
            libc::write(fd, ptr::from_ref(&1u64).cast(), 8);
        }
    }

    /// How this call of `verb` is to fail; sets `errno`, which no caller is to look at unless the verb's convention says so.
    pub(super) fn fault(&mut self, verb: &str) -> Option<Fault> {
        let fault = self.faults.get_mut(verb)?.pop_front();
        if let Some(fault) = fault {
            set_errno(fault.errno);
        }
        fault
    }
}

pub(super) fn set_errno(errno: c_int) {
    // SAFETY: the address is that of this thread's `errno`.
    unsafe { *libc::__errno_location() = errno };
}
