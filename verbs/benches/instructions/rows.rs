//! What is compared, and what each may cost.

use std::ffi::CStr;

use crate::loops::{datagrams, extended_polls, ours, shared, unreliable};
use crate::null_provider::Polls;

/// What a row may cost.
#[derive(Clone, Copy)]
pub(crate) enum Gate {
    /// At most this many times C's instructions.
    Ratio(f64),
    /// At most this many instructions more than C.
    More(f64),
}

/// An operation, in Rust and in C.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) polls: Polls,
    /// How many operations a turn of the loop is.
    pub(crate) operations: u64,
    /// How much a turn of the loop is to do.
    pub(crate) done: u64,
    pub(crate) ours: ours::Loop,
    pub(crate) theirs: &'static CStr,
    pub(crate) gate: Gate,
}

const fn post(name: &'static str, ours: ours::Loop, theirs: &'static CStr, ratio: f64) -> Row {
    Row { name, polls: Polls::Posted, operations: 1, done: 1, ours, theirs, gate: Gate::Ratio(ratio) }
}

/// A turn of the loop is a chain.
const fn chain(name: &'static str, ours: ours::Loop, theirs: &'static CStr, ratio: f64) -> Row {
    Row { operations: ours::CHAIN as u64, done: ours::CHAIN as u64, ..post(name, ours, theirs, ratio) }
}

pub(crate) const ROWS: &[Row] = &[
    post("post SEND and poll", ours::send, c"c_send", 0.95),
    post("post RDMA WRITE and poll", ours::write, c"c_write", 0.95),
    post("post RDMA WRITE with immediate and poll", ours::write_with_imm, c"c_write_with_imm", 0.95),
    post("post RDMA READ and poll", ours::read, c"c_read", 0.95),
    post("post fetch-and-add and poll", ours::fetch_and_add, c"c_fetch_and_add", 0.95),
    post("post SEND inline and poll", ours::send_inline, c"c_send_inline", 0.95),
    post("post RDMA WRITE, every 16th signaled", ours::selective, c"c_selective", 1.00),
    chain("chain of 16, each", ours::chain, c"c_chain", 0.95),
    chain("chain of 16 in a batch, each", ours::batch, c"c_chain", 0.95),
    post("prepared: new identifier (C: fresh)", ours::prepared, c"c_write", 0.80),
    post("prepared: identifier, range, remote (C: fresh)", ours::prepared_range, c"c_write", 0.95),
    chain("prepared: chain of 16, each (C: fresh)", ours::prepared_chain, c"c_chain", 0.80),
    post("prepared: new identifier (C: reused)", ours::prepared, c"c_reused", 1.10),
    // Ours look whether the datagram fits into a packet, and whose the address handle is.
    post("post a datagram and poll", datagrams::datagram, c"c_datagram", 1.00),
    chain("chain of 16 datagrams, each", datagrams::datagram_chain, c"c_datagram_chain", 1.00),
    post("prepared datagram: new identifier (C: fresh)", datagrams::prepared_datagram, c"c_datagram", 1.00),
    post("UC: post SEND and poll", unreliable::send, c"c_unreliable_send", 0.95),
    post("UC: post RDMA WRITE and poll", unreliable::write, c"c_unreliable_write", 0.95),
    post("post a receive and poll", ours::receive, c"c_receive", 1.00),
    post("post a receive to a shared queue", shared::receive, c"c_shared_receive", 1.00),
    chain("chain of 16 receives to a shared queue, each", shared::receive_chain, c"c_shared_receive_chain", 1.00),
    // The difference is what it costs to know of each slot where it is; the C program trusts itself.
    chain("receives in slots, 16 refilled, each", ours::receive_slots, c"c_receive_slots", 1.30),
    post("extended: post RDMA WRITE and poll", extended_polls::write, c"c_wr_write_polled", 1.05),
    // The difference is that each entry is copied, so that none of the program's code runs while the provider holds the queue's lock.
    Row {
        polls: Polls::Full,
        done: 16,
        ..post("extended: poll of 16 completions", extended_polls::poll_full::<16>, c"c_extended_poll_16", 1.40)
    },
    Row { polls: Polls::Full, done: 16, ..post("poll of 16 completions", ours::poll_full::<16>, c"c_poll_16", 1.00) },
    Row {
        polls: Polls::Empty,
        gate: Gate::More(4.0),
        ..post("poll of an empty queue", ours::poll_empty, c"c_poll_empty", 1.00)
    },
];
