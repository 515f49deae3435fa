//! Each shim is called, on an id of the test's own, and does what the inline function in the header does.

mod id;

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::ptr::{null_mut, without_provenance_mut as at};

use ibverbs_sys::{ibv_access_flags, ibv_mr, ibv_send_flags, ibv_sge, ibv_wc, ibv_wr_opcode};
use id::{Call, DOMAIN, Id, Posted, RECEIVE_CHANNEL, REGION, SEND_CHANNEL, answer_with, calls, errno};
use libc::{EAGAIN, EINVAL, ENOMEM};
use rdmacm_sys::{self as ffi, ib_addr, rdma_cm_id};

const SIGNALED: c_int = ibv_send_flags::IBV_SEND_SIGNALED.0 as c_int;

const TESTED: [&str; 22] = [
    "ib_addr_any",
    "ib_addr_cmp",
    "ib_addr_loopback",
    "ib_addr_set",
    "rdma_dereg_mr",
    "rdma_get_local_addr",
    "rdma_get_peer_addr",
    "rdma_get_recv_comp",
    "rdma_get_send_comp",
    "rdma_post_read",
    "rdma_post_readv",
    "rdma_post_recv",
    "rdma_post_recvv",
    "rdma_post_send",
    "rdma_post_sendv",
    "rdma_post_ud_send",
    "rdma_post_write",
    "rdma_post_writev",
    "rdma_reg_msgs",
    "rdma_reg_read",
    "rdma_reg_write",
    "rdma_seterrno",
];

#[test]
fn each_shim_has_a_test() {
    let lines = include_str!(concat!(env!("OUT_DIR"), "/bindings.rs")).lines().map(str::trim);
    let shims: BTreeSet<&str> =
        lines.filter_map(|line| line.strip_prefix("#[link_name = \"")?.strip_suffix("__rdmacm_sys\"]")).collect();
    assert_eq!(shims, BTreeSet::from(TESTED));
}

#[test]
fn an_error_code_becomes_errno_and_minus_one() {
    // SAFETY: it only sets errno.
    unsafe {
        assert_eq!((ffi::rdma_seterrno(ENOMEM), errno()), (-1, ENOMEM));
        assert_eq!(ffi::rdma_seterrno(0), 0);
    }
}

#[test]
fn memory_is_registered_in_the_ids_domain_with_the_rights_of_its_use() {
    let id = Id::new();
    let local = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
    let expected = |access: ibv_access_flags| Call::Register {
        pd: at(DOMAIN),
        addr: 0x1000,
        length: 64,
        access: access.0 as c_int,
    };
    // SAFETY: the id is alive, and the library's functions are ours, which follow no pointer.
    unsafe {
        assert_eq!(ffi::rdma_reg_msgs(id.id, at(0x1000), 64), at(REGION));
        assert_eq!(ffi::rdma_reg_read(id.id, at(0x1000), 64), at(REGION));
        assert_eq!(ffi::rdma_reg_write(id.id, at(0x1000), 64), at(REGION));
    }
    let read = local | ibv_access_flags::IBV_ACCESS_REMOTE_READ;
    let write = local | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE;
    assert_eq!(calls(), [expected(local), expected(read), expected(write)]);
}

#[test]
fn deregistering_turns_the_code_into_errno() {
    let region: *mut ibv_mr = at(8);
    answer_with(&[EINVAL, 0]);
    // SAFETY: the library's function is ours, which follows no pointer.
    unsafe {
        assert_eq!((ffi::rdma_dereg_mr(region), errno()), (-1, EINVAL));
        assert_eq!(ffi::rdma_dereg_mr(region), 0);
    }
    assert_eq!(calls(), [Call::Deregister(region); 2]);
}

fn posted(lkey: u32, count: c_int, operation: Option<(u32, u32)>, target: [u64; 3]) -> Posted {
    Posted { id: 5, first: (0x1010, 32, lkey), count, operation, target }
}

const FLAGS: u32 = ibv_send_flags::IBV_SEND_SIGNALED.0;
const WRITE: Option<(u32, u32)> = Some((ibv_wr_opcode::IBV_WR_RDMA_WRITE.0, FLAGS));
const READ: Option<(u32, u32)> = Some((ibv_wr_opcode::IBV_WR_RDMA_READ.0, FLAGS));

#[test]
fn rdma_requests_carry_the_remote_address_and_key() {
    let id = Id::new();
    let mut elements = [ibv_sge { addr: 0x1010, length: 32, lkey: 9 }; 2];
    let list = elements.as_mut_ptr();
    // SAFETY: the id, its region and the elements are alive; the operations follow the request only.
    let codes = unsafe {
        [
            ffi::rdma_post_write(id.id, at(5), at(0x1010), 32, id.region, SIGNALED, 70, 80),
            ffi::rdma_post_write(id.id, at(5), at(0x1010), 32, null_mut(), SIGNALED, 70, 80),
            ffi::rdma_post_read(id.id, at(5), at(0x1010), 32, id.region, SIGNALED, 70, 80),
            ffi::rdma_post_writev(id.id, at(5), list, 2, SIGNALED, 70, 80),
            ffi::rdma_post_readv(id.id, at(5), list, 2, SIGNALED, 70, 80),
        ]
    };
    assert_eq!(codes, [0; 5]);
    let target = [70, 80, 0];
    let expected = [
        posted(77, 1, WRITE, target),
        posted(0, 1, WRITE, target),
        posted(77, 1, READ, target),
        posted(9, 2, WRITE, target),
        posted(9, 2, READ, target),
    ];
    assert_eq!(calls(), expected.map(|posted| Call::Send(id.qp, posted)));
}

#[test]
fn sends_carry_their_elements_and_flags() {
    let id = Id::new();
    let mut elements = [ibv_sge { addr: 0x1010, length: 32, lkey: 9 }; 2];
    answer_with(&[0, 0, ENOMEM]);
    // SAFETY: the id, its region and the elements are alive; the operations follow the request only.
    unsafe {
        assert_eq!(ffi::rdma_post_send(id.id, at(5), at(0x1010), 32, id.region, SIGNALED), 0);
        assert_eq!(ffi::rdma_post_send(id.id, at(5), at(0x1010), 32, null_mut(), SIGNALED), 0);
        assert_eq!(ffi::rdma_post_sendv(id.id, at(5), elements.as_mut_ptr(), 2, SIGNALED), -1);
        assert_eq!(errno(), ENOMEM);
    }
    let sent: Vec<_> = calls().into_iter().map(|call| without_target(call, id.qp)).collect();
    let send = Some((ibv_wr_opcode::IBV_WR_SEND.0, FLAGS));
    assert_eq!(sent, [posted(77, 1, send, [0; 3]), posted(0, 1, send, [0; 3]), posted(9, 2, send, [0; 3])]);
}

/// What a connected send says of its target is undefined.
fn without_target(call: Call, qp: *mut ibverbs_sys::ibv_qp) -> Posted {
    let Call::Send(to, posted) = call else { panic!("{call:?} is no send") };
    assert_eq!(to, qp);
    Posted { target: [0; 3], ..posted }
}

#[test]
fn datagrams_carry_the_address_handle_and_the_connection_managers_key() {
    let id = Id::new();
    // SAFETY: the id and its region are alive; the operation follows the request only.
    let code = unsafe { ffi::rdma_post_ud_send(id.id, at(5), at(0x1010), 32, id.region, SIGNALED, at(6), 7) };
    assert_eq!(code, 0);
    let send = Some((ibv_wr_opcode::IBV_WR_SEND.0, FLAGS));
    assert_eq!(calls(), [Call::Send(id.qp, posted(77, 1, send, [6, 7, u64::from(ffi::RDMA_UDP_QKEY)]))]);
}

#[test]
fn receives_go_to_the_shared_queue_where_there_is_one() {
    let id = Id::new();
    let mut elements = [ibv_sge { addr: 0x1010, length: 32, lkey: 9 }; 2];
    // SAFETY: the id, its region and the elements are alive; the operations follow the request only.
    unsafe {
        assert_eq!(ffi::rdma_post_recv(id.id, at(5), at(0x1010), 32, id.region), 0);
        assert_eq!(ffi::rdma_post_recvv(id.id, at(5), elements.as_mut_ptr(), 2), 0);
        (*id.id).srq = id.srq;
        assert_eq!(ffi::rdma_post_recv(id.id, at(5), at(0x1010), 32, id.region), 0);
        assert_eq!(ffi::rdma_post_recvv(id.id, at(5), elements.as_mut_ptr(), 2), 0);
    }
    let (one, two) = (posted(77, 1, None, [0; 3]), posted(9, 2, None, [0; 3]));
    let own = [one, two].map(|posted| Call::Receive(id.qp, posted));
    let shared = [one, two].map(|posted| Call::ReceiveShared(id.srq, posted));
    assert_eq!(calls(), [own, shared].concat());
}

type GetCompletion = unsafe extern "C" fn(*mut rdma_cm_id, *mut ibv_wc) -> c_int;

#[test]
fn a_completion_is_polled_then_waited_for_and_its_event_acknowledged() {
    let id = Id::new();
    let cases: [(GetCompletion, _, usize); 2] =
        [(ffi::rdma_get_send_comp, id.send_cq, SEND_CHANNEL), (ffi::rdma_get_recv_comp, id.recv_cq, RECEIVE_CHANNEL)];
    for (get, cq, channel) in cases {
        let mut wc = std::mem::MaybeUninit::<ibv_wc>::uninit();
        id.tell_event_of(cq);
        let waits = [Call::Poll(cq), Call::RequestNotification(cq, 0), Call::Poll(cq), Call::GetEvent(at(channel))];

        // Empty, armed, still empty, an event, its acknowledgement, and then there is one.
        answer_with(&[0, 0, 0, 0, 0, 1]);
        // SAFETY: id and completion are alive; the operations write no completion.
        assert_eq!(unsafe { get(id.id, wc.as_mut_ptr()) }, 1);
        assert_eq!(calls(), [&waits[..], &[Call::Acknowledge(cq, 1), Call::Poll(cq)]].concat());

        // The channel has none and does not block: errno is the library's.
        answer_with(&[0, 0, 0, -1]);
        // SAFETY: as above.
        assert_eq!(unsafe { get(id.id, wc.as_mut_ptr()) }, -1);
        assert_eq!(calls(), waits);

        // It cannot be armed.
        answer_with(&[0, EAGAIN]);
        // SAFETY: as above.
        assert_eq!((unsafe { get(id.id, wc.as_mut_ptr()) }, errno()), (-1, EAGAIN));
        assert_eq!(calls(), waits[..2]);

        // It cannot be polled.
        answer_with(&[-EINVAL]);
        // SAFETY: as above.
        assert_eq!(unsafe { get(id.id, wc.as_mut_ptr()) }, -1);
        assert_eq!(calls(), waits[..1]);
    }
}

#[test]
fn the_addresses_of_an_id_are_those_of_its_route() {
    let id = Id::new();
    // SAFETY: the id is alive, and only addresses are taken.
    unsafe {
        let addr = &raw mut (*id.id).route.addr;
        assert_eq!(ffi::rdma_get_local_addr(id.id), (&raw mut (*addr).__bindgen_anon_1).cast());
        assert_eq!(ffi::rdma_get_peer_addr(id.id), (&raw mut (*addr).__bindgen_anon_2).cast());
    }
}

#[test]
fn an_infiniband_address_is_set_and_compared_in_network_order() {
    // SAFETY: zeros are an address, and the functions only read and write the two.
    unsafe {
        let mut addr: ib_addr = std::mem::zeroed();
        let unspecified = addr;
        assert_eq!((ffi::ib_addr_any(&raw const addr), ffi::ib_addr_loopback(&raw const addr)), (1, 0));
        ffi::ib_addr_set(&raw mut addr, 0, 0, 0, 1u32.to_be());
        assert_eq!((ffi::ib_addr_any(&raw const addr), ffi::ib_addr_loopback(&raw const addr)), (0, 1));
        assert_eq!(addr.ib_u.uib_addr8, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(ffi::ib_addr_cmp(&raw const addr, &raw const addr), 0);
        assert!(ffi::ib_addr_cmp(&raw const addr, &raw const unspecified) > 0);
    }
}
