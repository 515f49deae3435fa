//! Memory that cannot be registered, and memory that is gone while the device may still write to it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{self, NonNull};

use verbs::*;

use super::failure;
use crate::harness::link::Disturbance;
use crate::harness::*;

use WorkCompletionStatus as Status;

const PAGE: usize = 4096;

/// A range of memory, as good or bad as it is.
fn range(address: usize, length: usize) -> RawBuffer {
    // SAFETY: nobody uses the memory but by registering it, which the kernel refuses where there is none to use.
    unsafe { RawBuffer::new(NonNull::new(ptr::with_exposed_provenance_mut(address)).unwrap(), length) }
}

/// A mapping that is there as long as the program.
fn map(protection: i32, flags: i32, file: i32) -> usize {
    // SAFETY: a new mapping, at a place that the kernel chooses.
    let address = unsafe { libc::mmap(ptr::null_mut(), PAGE, protection, flags, file, 0) };
    assert_ne!(address, libc::MAP_FAILED);
    address.expose_provenance()
}

#[test]
fn each_way_in_which_memory_cannot_be_registered_has_its_error_number_and_its_words() {
    let pd = open().create_protection_domain().unwrap();
    let read_only = map(libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
    let writable = map(libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1);
    let local = AccessFlags::LOCAL_WRITE;
    let (unmapped, too_large) = ("the memory is not mapped, or is read-only", "the range is too large");
    for (what, buffer, access, errno, words) in [
        ("no memory", range(PAGE, PAGE), local, libc::EFAULT, unmapped),
        ("read-only memory to write to", range(read_only, PAGE), local, libc::EFAULT, unmapped),
        ("more than there is", range(writable, 1 << 40), local, libc::EFAULT, unmapped),
        ("as good as all", range(PAGE, usize::MAX - 2 * PAGE + 1), local, libc::EINVAL, too_large),
        (
            "an unknown flag",
            range(writable, PAGE),
            local | AccessFlags::from_bits_retain(1 << 15),
            libc::EINVAL,
            "flags",
        ),
    ] {
        let error = pd.register(buffer, access).unwrap_err().error;
        assert_eq!(error.raw_os_error(), Some(errno), "{what}: {error}");
        assert!(error.to_string().contains(words), "{what}: {error}");
    }
    // What is read-only can be sent from.
    pd.register(range(read_only, PAGE), AccessFlags::empty()).unwrap();
}

#[test]
fn a_file_that_is_mapped_read_only_is_registered_or_refused_as_unwritable() {
    use std::os::fd::AsRawFd;
    let pd = open().create_protection_domain().unwrap();
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let mapped = map(libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd());
    // Linux 6.1 always wants to write to shared memory; 6.12 does not.
    match pd.register(range(mapped, PAGE), AccessFlags::empty()) {
        Ok(_) => assert!(kernel() > (6, 1)),
        Err(error) => {
            assert!(kernel() < LATER, "{}", error.error);
            assert_eq!(error.error.raw_os_error(), Some(libc::EFAULT), "{}", error.error);
        }
    }
}

#[test]
fn remote_rights_to_write_are_not_given_without_the_local_one_and_none_is_added() {
    let pd = open().create_protection_domain().unwrap();
    for access in
        [AccessFlags::REMOTE_WRITE, AccessFlags::REMOTE_ATOMIC, AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE]
    {
        let error = pd.register(vec![0; PAGE], access).unwrap_err().error;
        assert!(error.to_string().contains("REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE too"), "{error}");
    }
    // A peer that may read still may not write.
    let (a, b) = pair();
    let (source, target) = (a.region(64, RW), b.region(64, AccessFlags::REMOTE_READ));
    let remote = target.remote_slice(..).unwrap();
    a.qp.post_send(&SendRequest::rdma_write(1, &[source.slice(..).unwrap()], remote)).unwrap();
    assert_eq!(failure(&a.completion()), Status::REMOTE_ACCESS_ERROR);
}

/// The ways in which a program lets go of what it has posted.
#[derive(Clone, Copy, Debug)]
enum End {
    Region,
    /// The memory is back in the program's hands.
    Deregister,
    RegionThenQueuePair,
    QueuePairThenRegion,
    /// The queue pair keeps the queue.
    CompletionQueueThenRegion,
    Panic,
}

const ENDS: [End; 6] = [
    End::Region,
    End::Deregister,
    End::RegionThenQueuePair,
    End::QueuePairThenRegion,
    End::CompletionQueueThenRegion,
    End::Panic,
];

/// Large enough that the allocator gives the memory back, and takes the same again.
const LENGTH: usize = 1 << 20;

/// Ends so, and takes memory of the size that was freed.
fn end(how: End, side: Side, region: MemoryRegion<Vec<u8>>) -> (Option<Side>, Vec<Vec<u8>>) {
    let Side { qp, cq, pd, context } = side;
    let mut others = Vec::new();
    let kept = match how {
        End::Region => {
            drop(region);
            Some(qp)
        }
        End::Deregister => {
            let mut buffer = region.deregister().unwrap();
            buffer.fill(0x5a);
            others.push(buffer);
            Some(qp)
        }
        End::CompletionQueueThenRegion => {
            drop((cq, region));
            let cq = qp.recv_cq().clone();
            others.extend((0..4).map(|_| vec![0x5a; LENGTH]));
            return (Some(Side { context, pd, cq, qp }), others);
        }
        End::RegionThenQueuePair => {
            drop((region, qp));
            None
        }
        End::QueuePairThenRegion => {
            drop((qp, region));
            None
        }
        End::Panic => {
            let region = AssertUnwindSafe(region);
            let unwound = catch_unwind(move || {
                let _region = region;
                std::panic::resume_unwind(Box::new("a panic between post and completion"));
            });
            assert!(unwound.is_err());
            Some(qp)
        }
    };
    others.extend((0..4).map(|_| vec![0x5a; LENGTH]));
    (kept.map(|qp| Side { context, pd, cq, qp }), others)
}

fn are_untouched(others: &[Vec<u8>]) -> bool {
    others.iter().all(|other| other.iter().all(|byte| *byte == 0x5a))
}

#[test]
fn a_late_message_does_not_reach_memory_that_was_let_go_of_under_its_receive() {
    for how in ENDS {
        let mut options = options();
        // A peer that is gone is given up soon; one that is there may take its time.
        if matches!(how, End::RegionThenQueuePair | End::QueuePairThenRegion) {
            (options.retry_count, options.ack_timeout) = (2, AckTimeout::from_code(12).unwrap());
        }
        let (a, b) = pair_with(&options);
        let target = b.region(LENGTH, RW);
        b.qp.post_receive(&ReceiveRequest::new(1, &[target.slice(..).unwrap()])).unwrap();
        let (b, others) = end(how, b, target);
        let mut source = a.region(LENGTH, RW);
        source.fill(0xff);
        a.qp.post_send(&SendRequest::send(2, &[source.slice(..).unwrap()])).unwrap();
        let expected = if b.is_some() { Status::REMOTE_OPERATION_ERROR } else { Status::RETRY_COUNTER_EXCEEDED };
        assert_eq!(failure(&a.completion()), expected, "{how:?}");
        assert!(are_untouched(&others), "{how:?}");
    }
}

#[test]
fn a_late_answer_does_not_reach_memory_that_was_let_go_of_under_its_read() {
    for how in ENDS {
        let (a, b) = (Side::on(open()), Side::on(open_peer()));
        let mut options = options();
        options.ack_timeout = AckTimeout::from_code(14).unwrap();
        connect(&a, &b, &options);
        let mut source = b.region(LENGTH, RW);
        source.fill(0xff);
        let target = a.region(LENGTH, RW);
        // One packet, so that no answer is under way when the request is made again.
        let (slice, remote) = (target.slice(..1000).unwrap(), source.remote_slice(..1000).unwrap());
        // The peer does not answer as long as the memory is there.
        let cut = Disturbance::of_both_ends("loss 100%");
        a.qp.post_send(&SendRequest::rdma_read(1, &[slice], remote)).unwrap();
        let (a, others) = end(how, a, target);
        drop(cut);
        match a {
            Some(a) => {
                // Linux 6.12 has now and then not completed it at all.
                let mut room = [WorkCompletion::default(); 1];
                let limit = if kernel() == (6, 1) { LIMIT } else { LIMIT / 10 };
                let Some(completion) = a.cq.wait(&mut room, Some(limit)).unwrap().first() else {
                    assert_ne!(kernel(), (6, 1), "{how:?}: no completion");
                    assert!(are_untouched(&others), "{how:?}");
                    continue;
                };
                let status = failure(completion);
                let known = [
                    Status::LOCAL_PROTECTION_ERROR,
                    Status::LOCAL_QUEUE_PAIR_OPERATION_ERROR,
                    // Linux 6.12, if the request is made again just while the wire is mended: a packet that cannot be sent is a fault.
                    Status::WORK_REQUEST_FLUSHED,
                ];
                let count = if kernel() == (6, 1) { 2 } else { 3 };
                assert!(known[..count].contains(&status), "{how:?}: {status}");
            }
            // Long enough for what would come again.
            None => std::thread::sleep(std::time::Duration::from_millis(300)),
        }
        assert!(are_untouched(&others), "{how:?}");
    }
}
