//! What bindgen made of the headers.
#![allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    rustdoc::all,
    clippy::all,
    clippy::doc_markdown,
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks
)]

// Newer releases need more of them than older ones.
#[allow(unused_imports)]
use libc::{
    epoll_event, fd_set, in6_addr, iovec, msghdr, nfds_t, off_t, pollfd, sockaddr, sockaddr_in, sockaddr_in6,
    sockaddr_storage, socklen_t, timeval,
};

use ibverbs_sys::*;

include!(concat!(env!("OUT_DIR"), "/bindings.rs"));
