//! Each operation crossed with each fault of its remote and of its local memory: the statuses at both ends, and what has happened to the
//! memory.

use verbs::*;

use super::{failure, ids, statuses, tampered};
use crate::harness::*;

use WorkCompletionStatus as Status;

/// A request of 8 bytes, to the peer's memory or to its receive.
type Make = for<'a> fn(&'a [LocalSlice<'a>], RemoteSlice) -> SendRequest<'a>;

struct Operation {
    name: &'static str,
    make: Make,
    /// The right that the peer's region has to give; none where the operation does not name the peer's memory.
    right: Option<AccessFlags>,
}

const OPERATIONS: [Operation; 6] = [
    Operation { name: "SEND", make: |slices, _| SendRequest::send(1, slices), right: None },
    Operation {
        name: "RDMA WRITE",
        make: |slices, remote| SendRequest::rdma_write(1, slices, remote),
        right: Some(AccessFlags::REMOTE_WRITE),
    },
    Operation {
        name: "RDMA WRITE with immediate",
        make: |slices, remote| SendRequest::rdma_write_with_imm(1, slices, remote, 5),
        right: Some(AccessFlags::REMOTE_WRITE),
    },
    Operation {
        name: "RDMA READ",
        make: |slices, remote| SendRequest::rdma_read(1, slices, remote),
        right: Some(AccessFlags::REMOTE_READ),
    },
    Operation {
        name: "compare and swap",
        make: |slices, remote| SendRequest::compare_and_swap(1, slices, remote, u64::from_ne_bytes(BEFORE), 7),
        right: Some(AccessFlags::REMOTE_ATOMIC),
    },
    Operation {
        name: "fetch and add",
        make: |slices, remote| SendRequest::fetch_and_add(1, slices, remote, 7),
        right: Some(AccessFlags::REMOTE_ATOMIC),
    },
];

const ALL: AccessFlags = RW.union(AccessFlags::REMOTE_ATOMIC);
/// What is in each word before: at the peer, and at the sender.
const BEFORE: [u8; 8] = [0xb0, 1, 2, 3, 4, 5, 6, 7];
const OURS: [u8; 8] = [0xa0, 9, 8, 7, 6, 5, 4, 3];

/// Two ends; a region of a few words at each, and at the second one a receive that has a region of its own.
struct Ends {
    a: Side,
    b: Side,
    source: MemoryRegion<Vec<u8>>,
    target: MemoryRegion<Vec<u8>>,
    receive: MemoryRegion<Vec<u8>>,
}

const WORDS: usize = 4;

impl Ends {
    /// With these rights to the target.
    fn new(access: AccessFlags) -> Self {
        let mut options = options();
        options.access = ALL;
        let (a, b) = pair_with(&options);
        let (mut source, mut target) = (a.region(8 * WORDS, RW), b.region(8 * WORDS, access));
        source.write_at(0, &OURS.repeat(WORDS)).unwrap();
        target.write_at(0, &BEFORE.repeat(WORDS)).unwrap();
        let receive = b.region(64, RW);
        b.qp.post_receive(&ReceiveRequest::new(2, &[receive.slice(..).unwrap()])).unwrap();
        Self { a, b, source, target, receive }
    }

    /// Nothing was written, at neither end.
    fn assert_untouched(&self, what: &str) {
        assert_eq!(self.target.to_vec(..).unwrap(), BEFORE.repeat(WORDS), "{what}: the peer's memory");
        assert_eq!(self.receive.to_vec(..).unwrap(), [0; 64], "{what}: the peer's receive");
        assert_eq!(self.source.to_vec(..).unwrap(), OURS.repeat(WORDS), "{what}: the sender's memory");
    }
}

#[test]
fn memory_of_the_peer_that_an_operation_may_not_use_is_a_remote_access_error_of_each_and_stays_as_it_was() {
    for operation in &OPERATIONS {
        let Some(right) = operation.right else { continue };
        for fault in ["bad rkey", "past the end", "before the begin", "another domain", "no right"] {
            let what = format!("{}, {fault}", operation.name);
            let ends = Ends::new(if fault == "no right" { ALL - right } else { ALL });
            let other = ends.b.context.create_protection_domain().unwrap();
            let mut foreign = other.register(vec![0; 8], ALL).unwrap();
            foreign.write_at(0, &BEFORE).unwrap();
            let word = ends.target.remote_slice(8..16).unwrap();
            let remote = match fault {
                "bad rkey" => RemoteSlice::new(word.address(), 8, word.rkey() ^ 0x00ff_ff00),
                "past the end" => RemoteSlice::new(word.address() + 8 * (WORDS as u64 - 1), 8, word.rkey()),
                "before the begin" => RemoteSlice::new(word.address() - 16, 8, word.rkey()),
                "another domain" => foreign.remote_slice(..).ok(),
                _ => Some(word),
            };
            let slices = [ends.source.slice(..8).unwrap()];
            ends.a.qp.post_send(&(operation.make)(&slices, remote.unwrap())).unwrap();
            assert_eq!(failure(&ends.a.completion()), Status::REMOTE_ACCESS_ERROR, "{what}");
            // The peer learns of it, too: its queue pair fails, and its receive is flushed.
            let told = match operation.name {
                // rxe takes the receive before it looks at the memory.
                "RDMA WRITE with immediate" => [Status::REMOTE_ACCESS_ERROR, Status::WORK_REQUEST_FLUSHED].as_slice(),
                _ => &[Status::WORK_REQUEST_FLUSHED],
            };
            let at_peer = failure(&ends.b.completion());
            assert!(told.contains(&at_peer), "{what}: {at_peer}");
            for side in [&ends.a, &ends.b] {
                becomes(&side.qp, QueuePairState::ERROR);
            }
            ends.assert_untouched(&what);
            assert_eq!(foreign.to_vec(..).unwrap(), BEFORE, "{what}");
        }
    }
}

/// Ways in which memory of one's own is not what a request needs.
const LOCAL_FAULTS: [&str; 3] = ["bad lkey", "past the end", "another domain"];

/// The slice with that fault. `foreign` is of another domain, the only one of the faults that a program can make.
fn faulty<'a>(fault: &str, slice: LocalSlice<'a>, foreign: LocalSlice<'a>) -> LocalSlice<'a> {
    match fault {
        "bad lkey" => tampered(slice, |sge| sge.lkey ^= 0x00ff_ff00),
        // The second half of it is.
        "past the end" => tampered(slice, |sge| sge.addr += 8 * WORDS as u64 - u64::from(sge.length) / 2),
        _ => foreign,
    }
}

/// With which statuses rxe tells of it. The specification has a local protection error for all.
fn at_sender(operation: &str, fault: &str) -> &'static [Status] {
    const OPERATION: [Status; 1] = [Status::LOCAL_QUEUE_PAIR_OPERATION_ERROR];
    const PROTECTION: [Status; 1] = [Status::LOCAL_PROTECTION_ERROR];
    const FLUSHED: [Status; 2] = [Status::WORK_REQUEST_FLUSHED, Status::LOCAL_PROTECTION_ERROR];
    const ANY: [Status; 3] = [OPERATION[0], FLUSHED[0], PROTECTION[0]];
    // What comes back is put into memory by another part of rxe than the one that sends.
    let comes_back = ["RDMA READ", "compare and swap", "fetch and add"].contains(&operation);
    match kernel() {
        _ if comes_back => &PROTECTION,
        (6, 1) if fault == "past the end" => &PROTECTION,
        (6, 1) => &OPERATION,
        // No cause is told.
        later if later >= LATER => &FLUSHED,
        _ => &ANY,
    }
}

#[test]
fn memory_of_ones_own_that_an_operation_may_not_use_fails_the_sender_alone() {
    for operation in &OPERATIONS {
        for fault in LOCAL_FAULTS {
            let what = format!("{}, {fault}", operation.name);
            let mut ends = Ends::new(ALL);
            let other = ends.a.context.create_protection_domain().unwrap();
            let mut foreign = other.register(vec![0; 8], RW).unwrap();
            foreign.write_at(0, &OURS).unwrap();
            let slices = [faulty(fault, ends.source.slice(..8).unwrap(), foreign.slice(..).unwrap())];
            let remote = ends.target.remote_slice(8..16).unwrap();
            ends.a.qp.post_send(&(operation.make)(&slices, remote)).unwrap();
            let error = ends.a.completion().success().unwrap_err();
            assert!(at_sender(operation.name, fault).contains(&error.status), "{what}: {error}");
            let words = ["look at the local buffers of the request", "by a fault in a local buffer"];
            assert!(words.iter().any(|words| error.to_string().contains(words)), "{what}: {error}");
            becomes(&ends.a.qp, QueuePairState::ERROR);
            // The peer does not learn of it, and goes on.
            assert_eq!(ends.b.qp.state().unwrap(), QueuePairState::READY_TO_SEND, "{what}");
            assert!(ends.b.cq.poll(&mut [WorkCompletion::default()]).unwrap().is_empty(), "{what}");
            assert_eq!(foreign.to_vec(..).unwrap(), OURS, "{what}");
            // An atomic has been carried out by the time its result has nowhere to go.
            let mut words = BEFORE.repeat(WORDS);
            match operation.name {
                "compare and swap" => words[8..16].copy_from_slice(&7u64.to_ne_bytes()),
                "fetch and add" => {
                    words[8..16].copy_from_slice(&(u64::from_ne_bytes(BEFORE) + 7).to_ne_bytes());
                }
                _ => {}
            }
            assert_eq!(ends.target.to_vec(..).unwrap(), words, "{what}");
            // The peer's memory as it was before, for what is looked at below.
            ends.target.write_at(0, &BEFORE.repeat(WORDS)).unwrap();
            ends.assert_untouched(&what);
        }
    }
}

#[test]
fn memory_that_a_receive_may_not_use_fails_both_ends_and_stays_as_it_was() {
    for fault in LOCAL_FAULTS {
        for length in [8, 20_000] {
            let what = format!("{fault}, {length} bytes");
            let (a, b) = pair();
            let source = a.region(length, RW);
            let target = b.region(8 * WORDS, RW);
            let other = b.context.create_protection_domain().unwrap();
            let foreign = other.register(vec![0; 8], RW).unwrap();
            let slice = faulty(fault, target.slice(..8).unwrap(), foreign.slice(..).unwrap());
            let slice = tampered(slice, |sge| sge.length = length as u32);
            for id in [2, 3] {
                b.qp.post_receive(&ReceiveRequest::new(id, &[slice])).unwrap();
            }
            a.qp.post_send(&SendRequest::send(1, &[source.slice(..).unwrap()])).unwrap();
            let received = b.completions(2);
            // The specification has local length error or local protection error, and remote operation error.
            let known =
                [Status::LOCAL_LENGTH_ERROR, Status::LOCAL_PROTECTION_ERROR, Status::LOCAL_QUEUE_PAIR_OPERATION_ERROR];
            assert!(known.contains(&statuses(&received)[0]), "{what}: {received:?}");
            assert_eq!((ids(&received), statuses(&received)[1]), (vec![2, 3], Status::WORK_REQUEST_FLUSHED), "{what}");
            assert_eq!(failure(&a.completion()), Status::REMOTE_OPERATION_ERROR, "{what}");
            for side in [&a, &b] {
                becomes(&side.qp, QueuePairState::ERROR);
            }
            assert_eq!(target.to_vec(..).unwrap(), [0; 8 * WORDS], "{what}");
            assert_eq!(foreign.to_vec(..).unwrap(), [0; 8], "{what}");
        }
    }
}
