//! What is compared.

use std::ffi::CStr;

use crate::loops::ours::{self, CHAIN};
use crate::loops::{datagrams, extended_polls, posts, prepared, shared, unreliable, waits};
use crate::null_provider::Polls;

/// An operation, in Rust and in C.
pub(crate) struct Row {
    /// Also that of Criterion's group.
    pub(crate) name: &'static str,
    pub(crate) polls: Polls,
    /// How many operations a turn of the loop is.
    pub(crate) operations: u64,
    /// How much a turn of the loop is to do.
    pub(crate) done: u64,
    pub(crate) ours: ours::Loop,
    pub(crate) theirs: &'static CStr,
}

const fn row(name: &'static str, polls: Polls, ours: ours::Loop, theirs: &'static CStr) -> Row {
    Row { name, polls, operations: 1, done: 1, ours, theirs }
}

/// A post, and nobody polls.
const fn post(name: &'static str, ours: ours::Loop, theirs: &'static CStr) -> Row {
    row(name, Polls::Posted, ours, theirs)
}

/// A post of many requests at once.
const fn chain(name: &'static str, ours: ours::Loop, theirs: &'static CStr) -> Row {
    Row { operations: CHAIN as u64, ..post(name, ours, theirs) }
}

/// A post of many requests at once, each of which counts.
const fn polled_chain(name: &'static str, ours: ours::Loop, theirs: &'static CStr) -> Row {
    Row { done: CHAIN as u64, ..chain(name, ours, theirs) }
}

pub(crate) const ROWS: &[Row] = &[
    post("post SEND", posts::send, c"c_post_send"),
    chain("post SEND, chain of 16, each", posts::send_chain, c"c_post_send_chain"),
    post("post inline SEND", posts::inline_send, c"c_post_inline_send"),
    chain("post inline SEND, chain of 16, each", posts::inline_send_chain, c"c_post_inline_send_chain"),
    post("post RDMA WRITE", posts::write, c"c_post_write"),
    chain("post RDMA WRITE, chain of 16, each", posts::write_chain, c"c_post_write_chain"),
    post("post inline RDMA WRITE", posts::inline_write, c"c_post_inline_write"),
    chain("post inline RDMA WRITE, chain of 16, each", posts::inline_write_chain, c"c_post_inline_write_chain"),
    post("post RDMA READ", posts::read, c"c_post_read"),
    chain("post RDMA READ, chain of 16, each", posts::read_chain, c"c_post_read_chain"),
    post("post atomic compare-and-swap", posts::atomic, c"c_post_atomic"),
    chain("post atomic compare-and-swap, chain of 16, each", posts::atomic_chain, c"c_post_atomic_chain"),
    post("post receive", posts::receive, c"c_post_receive"),
    chain("post receive, chain of 16, each", posts::receive_chain, c"c_post_receive_chain"),
    post("post SEND, prepared", prepared::send, c"c_prepared_send"),
    chain("post SEND, prepared, chain of 16, each", prepared::send_chain, c"c_prepared_send_chain"),
    post("post RDMA WRITE, prepared", prepared::write, c"c_prepared_write"),
    chain("post RDMA WRITE, prepared, chain of 16, each", prepared::write_chain, c"c_prepared_write_chain"),
    post("post RDMA READ, prepared", prepared::read, c"c_prepared_read"),
    chain("post RDMA READ, prepared, chain of 16, each", prepared::read_chain, c"c_prepared_read_chain"),
    post("post atomic compare-and-swap, prepared", prepared::atomic, c"c_prepared_atomic"),
    chain(
        "post atomic compare-and-swap, prepared, chain of 16, each",
        prepared::atomic_chain,
        c"c_prepared_atomic_chain",
    ),
    post("post receive, prepared", prepared::receive, c"c_prepared_receive"),
    chain("post receive, prepared, chain of 16, each", prepared::receive_chain, c"c_prepared_receive_chain"),
    post("post SEND, extended", posts::extended::send, c"c_wr_send"),
    chain("post SEND, extended, chain of 16, each", posts::extended::send_chain, c"c_wr_send_chain"),
    post("post inline SEND, extended", posts::extended::inline_send, c"c_wr_inline_send"),
    chain(
        "post inline SEND, extended, chain of 16, each",
        posts::extended::inline_send_chain,
        c"c_wr_inline_send_chain",
    ),
    post("post RDMA WRITE, extended", posts::extended::write, c"c_wr_write"),
    chain("post RDMA WRITE, extended, chain of 16, each", posts::extended::write_chain, c"c_wr_write_chain"),
    post("post inline RDMA WRITE, extended", posts::extended::inline_write, c"c_wr_inline_write"),
    chain(
        "post inline RDMA WRITE, extended, chain of 16, each",
        posts::extended::inline_write_chain,
        c"c_wr_inline_write_chain",
    ),
    post("post RDMA READ, extended", posts::extended::read, c"c_wr_read"),
    chain("post RDMA READ, extended, chain of 16, each", posts::extended::read_chain, c"c_wr_read_chain"),
    post("post atomic compare-and-swap, extended", posts::extended::atomic, c"c_wr_atomic"),
    chain(
        "post atomic compare-and-swap, extended, chain of 16, each",
        posts::extended::atomic_chain,
        c"c_wr_atomic_chain",
    ),
    post("post SEND, prepared, extended", prepared::extended::send, c"c_wr_send"),
    chain("post SEND, prepared, extended, chain of 16, each", prepared::extended::send_chain, c"c_wr_send_chain"),
    post("post RDMA WRITE, prepared, extended", prepared::extended::write, c"c_wr_write"),
    chain(
        "post RDMA WRITE, prepared, extended, chain of 16, each",
        prepared::extended::write_chain,
        c"c_wr_write_chain",
    ),
    post("post RDMA READ, prepared, extended", prepared::extended::read, c"c_wr_read"),
    chain("post RDMA READ, prepared, extended, chain of 16, each", prepared::extended::read_chain, c"c_wr_read_chain"),
    post("post atomic compare-and-swap, prepared, extended", prepared::extended::atomic, c"c_wr_atomic"),
    chain(
        "post atomic compare-and-swap, prepared, extended, chain of 16, each",
        prepared::extended::atomic_chain,
        c"c_wr_atomic_chain",
    ),
    row("poll empty queue", Polls::Empty, ours::poll_empty, c"c_poll_empty"),
    row("poll 1", Polls::Full, ours::poll_full::<1>, c"c_poll_1"),
    Row { done: 16, ..row("poll 16", Polls::Full, ours::poll_full::<16>, c"c_poll_16") },
    Row { done: 64, ..row("poll 64", Polls::Full, ours::poll_full::<64>, c"c_poll_64") },
    row("poll empty queue, extended", Polls::Empty, extended_polls::poll_empty, c"c_extended_poll_empty"),
    row("poll 1, extended", Polls::Full, extended_polls::poll_full::<1>, c"c_extended_poll_1"),
    Row { done: 16, ..row("poll 16, extended", Polls::Full, extended_polls::poll_full::<16>, c"c_extended_poll_16") },
    Row { done: 64, ..row("poll 64, extended", Polls::Full, extended_polls::poll_full::<64>, c"c_extended_poll_64") },
    row("post SEND and poll", Polls::Posted, ours::send, c"c_send"),
    row("post RDMA WRITE and poll", Polls::Posted, ours::write, c"c_write"),
    row("post RDMA WRITE and poll, extended", Polls::Posted, extended_polls::write, c"c_wr_write_polled"),
    row("post RDMA READ and poll", Polls::Posted, ours::read, c"c_read"),
    row("post fetch-and-add and poll", Polls::Posted, ours::fetch_and_add, c"c_fetch_and_add"),
    row("post inline SEND and poll", Polls::Posted, ours::send_inline, c"c_send_inline"),
    row("post receive and poll", Polls::Posted, ours::receive, c"c_receive"),
    polled_chain("post RDMA WRITE and poll, chain of 16, each", ours::chain, c"c_chain"),
    polled_chain("post RDMA WRITE and poll, batch of 16, each", ours::batch, c"c_chain"),
    polled_chain("post receive and poll, 16 slots refilled, each", ours::receive_slots, c"c_receive_slots"),
    row("UC: post SEND and poll", Polls::Posted, unreliable::send, c"c_unreliable_send"),
    row("UC: post RDMA WRITE and poll", Polls::Posted, unreliable::write, c"c_unreliable_write"),
    row("UD: post SEND and poll", Polls::Posted, datagrams::datagram, c"c_datagram"),
    polled_chain("UD: post SEND and poll, chain of 16, each", datagrams::datagram_chain, c"c_datagram_chain"),
    post("SRQ: post receive", shared::receive, c"c_shared_receive"),
    polled_chain("SRQ: post receive, chain of 16, each", shared::receive_chain, c"c_shared_receive_chain"),
    row("arm and wait, completion is there", Polls::Armed, waits::wait, c"c_wait"),
    row("arm and wait, event through channel", Polls::Told, waits::wait, c"c_wait"),
];
