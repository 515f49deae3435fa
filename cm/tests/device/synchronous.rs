//! What is bound and not wrapped, called as C does: the calls of librdmacm that wait (`rdma_create_ep`), and its sockets; and objects of
//! librdmacm's that are taken over.

use std::ffi::{CString, c_int, c_void};
use std::mem;
use std::net::SocketAddr;
use std::ptr::{self, NonNull};
use std::thread;

use cm::ffi;
use cm::{EventChannel, EventKind, Id, PortSpace};
use verbs::ffi as verbs_ffi;

use crate::harness::*;

const ROOM: usize = 64;

fn works(code: c_int) {
    assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
}

/// The address as librdmacm has it, to connect to or to listen at.
fn address_info(address: SocketAddr, passive: bool) -> *mut ffi::rdma_addrinfo {
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    let (host, port) = (CString::new(host).unwrap(), CString::new(port).unwrap());
    // SAFETY: all zeroes are a valid structure.
    let mut hints: ffi::rdma_addrinfo = unsafe { mem::zeroed() };
    hints.ai_port_space = ffi::rdma_port_space::RDMA_PS_TCP.0 as c_int;
    hints.ai_flags = if passive { ffi::RAI_PASSIVE as c_int } else { 0 };
    let mut found = ptr::null_mut();
    // SAFETY: the names, the hints and the place for the list outlive the call.
    works(unsafe { ffi::rdma_getaddrinfo(host.as_ptr(), port.as_ptr(), &hints, &mut found) });
    found
}

/// An end that librdmacm makes, with a queue pair of its own.
fn end_point(address: SocketAddr, passive: bool) -> *mut ffi::rdma_cm_id {
    let found = address_info(address, passive);
    // SAFETY: all zeroes are a valid structure.
    let mut attributes: verbs_ffi::ibv_qp_init_attr = unsafe { mem::zeroed() };
    attributes.cap.max_send_wr = 4;
    attributes.cap.max_recv_wr = 4;
    attributes.cap.max_send_sge = 1;
    attributes.cap.max_recv_sge = 1;
    attributes.sq_sig_all = 1;
    let mut id = ptr::null_mut();
    // SAFETY: the list is alive until it is freed, and the structures outlive the call.
    unsafe {
        works(ffi::rdma_create_ep(&mut id, found, ptr::null_mut(), &mut attributes));
        ffi::rdma_freeaddrinfo(found);
    }
    id
}

/// What an end has received, after it has sent a message.
///
/// # Safety
///
/// The id has a queue pair of librdmacm's, which is connected; `room` is registered, and posted.
unsafe fn exchange(id: *mut ffi::rdma_cm_id, text: &mut [u8], room: &[u8; ROOM]) -> Vec<u8> {
    // SAFETY: the memory is registered as long as it is used, and outlives the calls.
    unsafe {
        let message = ffi::rdma_reg_msgs(id, text.as_mut_ptr().cast(), text.len());
        assert!(!message.is_null());
        works(ffi::rdma_post_send(id, ptr::null_mut(), text.as_mut_ptr().cast(), text.len(), message, 0));
        let mut done: verbs_ffi::ibv_wc = mem::zeroed();
        assert_eq!(ffi::rdma_get_send_comp(id, &mut done), 1);
        assert_eq!(done.status, verbs_ffi::ibv_wc_status::IBV_WC_SUCCESS);
        assert_eq!(ffi::rdma_get_recv_comp(id, &mut done), 1);
        assert_eq!(done.status, verbs_ffi::ibv_wc_status::IBV_WC_SUCCESS);
        works(ffi::rdma_dereg_mr(message));
        room[..done.byte_len as usize].to_vec()
    }
}

fn serve(listener: usize) -> Vec<u8> {
    let listener = ptr::with_exposed_provenance_mut::<ffi::rdma_cm_id>(listener);
    let (mut id, mut room) = (ptr::null_mut(), [0u8; ROOM]);
    // SAFETY: the listener is alive until this thread has ended; memory is registered as long as it is used.
    unsafe {
        works(ffi::rdma_get_request(listener, &mut id));
        let region = ffi::rdma_reg_msgs(id, room.as_mut_ptr().cast(), ROOM);
        assert!(!region.is_null());
        works(ffi::rdma_post_recv(id, ptr::null_mut(), room.as_mut_ptr().cast(), ROOM, region));
        works(ffi::rdma_accept(id, ptr::null_mut()));
        let text = exchange(id, &mut b"from the server".to_owned(), &room);
        works(ffi::rdma_disconnect(id));
        works(ffi::rdma_dereg_mr(region));
        ffi::rdma_destroy_ep(id);
        text
    }
}

#[test]
fn calls_that_wait_make_a_connection_move_messages_and_end_it() {
    within(LONG, || {
        let address = address();
        let listener = end_point(address, true);
        // SAFETY: the listener is alive.
        works(unsafe { ffi::rdma_listen(listener, 1) });
        let shared = listener.expose_provenance();
        let server = thread::spawn(move || serve(shared));
        let (id, mut room) = (end_point(address, false), [0u8; ROOM]);
        // SAFETY: the id is alive; memory is registered as long as it is used.
        unsafe {
            let region = ffi::rdma_reg_msgs(id, room.as_mut_ptr().cast(), ROOM);
            assert!(!region.is_null());
            works(ffi::rdma_post_recv(id, ptr::null_mut(), room.as_mut_ptr().cast(), ROOM, region));
            works(ffi::rdma_connect(id, ptr::null_mut()));
            assert_eq!(exchange(id, &mut b"from the client".to_owned(), &room), b"from the server");
            works(ffi::rdma_disconnect(id));
            works(ffi::rdma_dereg_mr(region));
            ffi::rdma_destroy_ep(id);
        }
        assert_eq!(server.join().unwrap(), b"from the client");
        // SAFETY: the server has ended, and nobody else has the listener.
        unsafe { ffi::rdma_destroy_ep(listener) };
    });
}

/// An address as C has it, and its length.
fn raw_address(address: SocketAddr) -> (libc::sockaddr_in, libc::socklen_t) {
    let SocketAddr::V4(address) = address else { panic!("the harness has IPv4 addresses") };
    // SAFETY: all zeroes are a valid structure.
    let mut raw: libc::sockaddr_in = unsafe { mem::zeroed() };
    raw.sin_family = libc::AF_INET as libc::sa_family_t;
    raw.sin_port = address.port().to_be();
    raw.sin_addr.s_addr = u32::from(*address.ip()).to_be();
    (raw, size_of::<libc::sockaddr_in>() as libc::socklen_t)
}

fn send_all(socket: c_int, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        // SAFETY: the buffer is as long as is said.
        let sent = unsafe { ffi::rsend(socket, bytes.as_ptr().cast(), bytes.len(), 0) };
        assert!(sent > 0, "{}", std::io::Error::last_os_error());
        bytes = &bytes[sent as usize..];
    }
}

/// So many bytes, or fewer if the peer ends.
fn receive_all(socket: c_int, count: usize) -> Vec<u8> {
    let mut all = vec![0u8; count];
    let mut filled = 0;
    while filled < count {
        let room = &mut all[filled..];
        // SAFETY: the buffer is as long as is said.
        match unsafe { ffi::rrecv(socket, room.as_mut_ptr().cast::<c_void>(), room.len(), 0) } {
            0 => break,
            got => {
                assert!(got > 0, "{}", std::io::Error::last_os_error());
                filled += got as usize;
            }
        }
    }
    all.truncate(filled);
    all
}

#[test]
fn sockets_over_rdma_carry_bytes_in_both_directions() {
    const BYTES: usize = 100_000;
    within(LONG, || {
        let address = address();
        let (raw, length) = raw_address(address);
        let pointer = (&raw const raw).cast_mut().cast();
        // SAFETY: the address and the buffers outlive the calls, and are as long as is said.
        unsafe {
            let listener = ffi::rsocket(libc::AF_INET, libc::SOCK_STREAM, 0);
            assert!(listener >= 0, "{}", std::io::Error::last_os_error());
            works(ffi::rbind(listener, pointer, length));
            works(ffi::rlisten(listener, 1));
            let server = thread::spawn(move || {
                let socket = ffi::raccept(listener, ptr::null_mut(), ptr::null_mut());
                assert!(socket >= 0, "{}", std::io::Error::last_os_error());
                let got = receive_all(socket, BYTES);
                // Back, reversed.
                send_all(socket, &got.iter().rev().copied().collect::<Vec<_>>());
                // The peer has all, and closes.
                assert!(receive_all(socket, 1).is_empty());
                works(ffi::rclose(socket));
            });
            let socket = ffi::rsocket(libc::AF_INET, libc::SOCK_STREAM, 0);
            assert!(socket >= 0, "{}", std::io::Error::last_os_error());
            works(ffi::rconnect(socket, pointer, length));
            let bytes: Vec<u8> = (0..BYTES).map(|index| (index % 251) as u8).collect();
            send_all(socket, &bytes);
            let back = receive_all(socket, BYTES);
            assert!(back.iter().eq(bytes.iter().rev()), "the bytes came back changed");
            works(ffi::rshutdown(socket, libc::SHUT_RDWR));
            works(ffi::rclose(socket));
            server.join().unwrap();
            works(ffi::rclose(listener));
        }
    });
}

#[test]
fn a_channel_and_an_id_of_librdmacms_can_be_taken_over() {
    let before = possessions_to_keep();
    {
        // SAFETY: nobody else has the channel and the id.
        let (channel, id) = unsafe {
            let channel = EventChannel::from_raw(NonNull::new(ffi::rdma_create_event_channel()).unwrap()).unwrap();
            let mut id = ptr::null_mut();
            let space = ffi::rdma_port_space::RDMA_PS_TCP;
            works(ffi::rdma_create_id(channel.as_raw(), &mut id, ptr::null_mut(), space));
            let id = Id::from_raw(NonNull::new(id).unwrap(), &channel);
            (channel, id)
        };
        assert_eq!(id.port_space(), PortSpace::TCP);
        assert!(channel.try_next_event().unwrap().is_none(), "it does not block");
        id.resolve_addr(None, (ip(), 1).into(), LIMIT).unwrap();
        assert!(matches!(event(&id), EventKind::AddressResolved));
        assert!(matches!(id.reject(b""), Err(cm::Error::WrongState { .. })), "it came with no request");
    }
    has_only(before);
}
