use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use verbs::*;

use crate::harness::*;

#[test]
fn deregistering_gives_the_same_buffer_back() {
    let side = Side::new();
    let mut buffer = pattern(5000);
    buffer.reserve(100);
    let (address, capacity) = (buffer.as_ptr(), buffer.capacity());
    let mut region = side.pd.register(buffer, RW).unwrap();
    region.write_at(1, b"written").unwrap();
    let buffer = region.deregister().unwrap();
    assert_eq!((buffer.as_ptr(), buffer.capacity(), buffer.len()), (address, capacity, 5000));
    assert_eq!(&buffer[1..8], b"written");
    assert_eq!(buffer[8..], pattern(5000)[8..]);
}

#[test]
fn read_only_memory_registers_and_can_be_sent_and_never_written() {
    let (a, b) = pair();
    static MESSAGE: &[u8] = b"a constant of the program";
    let error = a.pd.register(MESSAGE, AccessFlags::LOCAL_WRITE).unwrap_err();
    assert_eq!(error.buffer, MESSAGE);
    assert!(error.error.to_string().contains("the buffer is read-only"), "{}", error.error);
    let source = a.pd.register(MESSAGE, AccessFlags::empty()).unwrap();
    let target = b.region(64, RW);
    b.qp.post_receive(&ReceiveRequest::new(1, &[target.slice(..).unwrap()])).unwrap();
    a.qp.post_send(&SendRequest::send(2, &[source.slice(..).unwrap()]).signaled()).unwrap();
    assert_eq!(a.completion().status(), WorkCompletionStatus::SUCCESS);
    assert_eq!(b.completion().success().unwrap().byte_len(), Some(MESSAGE.len() as u32));
    assert_eq!(target.to_vec(..MESSAGE.len()).unwrap(), MESSAGE);
}

#[test]
fn what_cannot_be_registered_comes_back_with_the_reason() {
    let side = Side::new();
    let reason = |buffer: Vec<u8>, access| {
        let length = buffer.len();
        let error = side.pd.register(buffer, access).unwrap_err();
        assert_eq!(error.buffer.len(), length);
        error.error
    };
    let empty = reason(vec![], AccessFlags::LOCAL_WRITE);
    assert_eq!(empty.to_string(), "ibv_reg_mr: the length of the buffer is 0, but a region has at least one byte");
    let no_local_write = reason(vec![0; 64], AccessFlags::REMOTE_WRITE);
    assert!(no_local_write.to_string().contains("need LOCAL_WRITE too"), "{no_local_write}");
    // rxe has no on-demand paging: EINVAL on kernel 6.1, EOPNOTSUPP on 6.12.
    let on_demand = reason(vec![0; 64], AccessFlags::ON_DEMAND);
    let told = match kernel() {
        (6, 1) => &[libc::EINVAL][..],
        later if later >= LATER => &[libc::EOPNOTSUPP],
        _ => &[libc::EINVAL, libc::EOPNOTSUPP],
    };
    assert!(told.contains(&on_demand.raw_os_error().unwrap()), "{on_demand}");
    for access in [AccessFlags::empty(), AccessFlags::REMOTE_READ] {
        side.pd.register(vec![0; 64], access).unwrap();
    }
}

#[test]
fn a_region_without_rights_for_peers_hands_out_no_rkey() {
    let side = Side::new();
    let private = side.region(64, AccessFlags::LOCAL_WRITE);
    assert_eq!(private.rkey(), None);
    assert!(private.remote_slice(..).unwrap_err().to_string().contains("a peer needs REMOTE_READ"));
    let shared = side.region(64, RW);
    let slice = shared.remote_slice(16..).unwrap();
    assert_eq!((slice.address(), slice.len()), (shared.as_ptr() as u64 + 16, 48));
    assert_eq!(Some(slice.rkey()), shared.rkey());
}

#[test]
fn ranges_outside_the_region_are_refused_and_lose_nothing() {
    let side = Side::new();
    let mut region = side.region(100, RW);
    region.fill(7);
    let out_of_range = |result: Result<()>| matches!(result, Err(Error::OutOfRange { length: 100, .. }));
    assert!(out_of_range(region.write_at(99, &[1, 2])));
    assert!(out_of_range(region.write_at(usize::MAX, &[1])));
    assert!(out_of_range(region.read_at(101, &mut [])));
    assert!(out_of_range(region.slice(50..101).map(drop)));
    assert!(out_of_range(region.remote_slice(101..).map(drop)));
    assert_eq!(region.to_vec(..).unwrap(), [7; 100]);
    assert_eq!(region.slice(100..).unwrap().len(), 0);
}

#[test]
fn parts_of_a_region_can_be_filled_by_several_threads() {
    let side = Side::new();
    let mut region = side.region(1000, RW);
    let (mut front, mut back) = region.as_local_mut().split_at_mut(400).unwrap();
    thread::scope(|scope| {
        scope.spawn(move || front.fill(1));
        scope.spawn(move || back.write_at(0, &[2; 600]).unwrap());
    });
    assert_eq!(region.to_vec(..).unwrap(), [[1; 400].as_slice(), &[2; 600]].concat());
}

#[test]
fn atomics_are_seen_by_the_program_while_a_peer_writes_them() {
    let (a, b) = pair();
    let flags: Box<[AtomicU64]> = (0..4).map(AtomicU64::new).collect();
    let flags = b.pd.register(flags, RW).unwrap();
    let mut source = a.region(8, RW);
    source.write_at(0, &77u64.to_ne_bytes()).unwrap();
    let remote = flags.remote_slice(16..24).unwrap();
    a.qp.post_send(&SendRequest::rdma_write(1, &[source.slice(..).unwrap()], remote).signaled()).unwrap();
    a.completion().success().unwrap();
    let values: Vec<u64> = flags.as_atomics().iter().map(|value| value.load(Ordering::Acquire)).collect();
    assert_eq!(values, [0, 1, 77, 3]);
    assert_eq!(flags.deregister().unwrap()[2].load(Ordering::Relaxed), 77);
}

#[test]
fn page_aligned_memory_carries_a_megabyte() {
    let (a, b) = pair();
    let length = 1 << 20;
    let mut source = a.pd.register(Mapping::new(length).unwrap(), RW).unwrap();
    let target = b.pd.register(Mapping::new(length).unwrap(), RW).unwrap();
    source.write_at(0, &pattern(length)).unwrap();
    let remote = target.remote_slice(..).unwrap();
    a.qp.post_send(&SendRequest::rdma_write(1, &[source.slice(..).unwrap()], remote).signaled()).unwrap();
    a.completion().success().unwrap();
    assert_eq!(target.to_vec(..).unwrap(), pattern(length));
}

/// Set for the child of the test below.
const LIMITED: &str = "RDMA_TEST_LIMITED";

#[test]
fn too_much_locked_memory_is_an_error_with_the_limit_and_the_remedy() {
    if std::env::var_os(LIMITED).is_some() {
        let side = Side::new();
        let error = side.pd.register(vec![0; 1 << 20], RW).unwrap_err();
        assert_eq!((error.buffer.len(), error.error.raw_os_error()), (1 << 20, Some(libc::ENOMEM)));
        println!("error: {}", error.error);
        // The limit is one on the sum.
        let half = side.region(32 << 10, RW);
        let error = side.pd.register(vec![0; 48 << 10], RW).unwrap_err();
        assert_eq!((error.buffer.len(), error.error.raw_os_error()), (48 << 10, Some(libc::ENOMEM)));
        drop(half);
        side.region(48 << 10, RW);
        side.context.create_completion_queue(4096).unwrap();
        // Everything else still works.
        let (a, b) = pair();
        let (source, target) = (a.region(64, RW), b.region(64, RW));
        b.qp.post_receive(&ReceiveRequest::new(1, &[target.slice(..).unwrap()])).unwrap();
        a.qp.post_send(&SendRequest::send(2, &[source.slice(..).unwrap()]).signaled()).unwrap();
        a.completion().success().unwrap();
        return;
    }
    // Without CAP_IPC_LOCK, since with it any amount may be locked; a user other than root does not have it.
    let mut words = vec!["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"];
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        words.clear();
    }
    words.extend(["sh", "-c", "ulimit -l 64 && exec \"$0\" \"$@\""]);
    let output = Command::new(words[0])
        .args(&words[1..])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("memory::too_much_locked_memory_is_an_error_with_the_limit_and_the_remedy")
        .env(LIMITED, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("error: ibv_reg_mr(1048576 bytes, "), "{text}");
    assert!(
        text.contains("this process may lock 65536 bytes of memory (RLIMIT_MEMLOCK): raise it with `ulimit -l`"),
        "{text}"
    );
}
