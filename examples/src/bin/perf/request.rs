//! The requests that move the data.

use anyhow::{Context, Result};
use verbs::{InlineSlice, LocalSlice, RemoteSlice, SendRequest};

use crate::end::End;
use crate::options::{Goal, Operation};

/// One test of a run: messages of one size, until when, and the peer's memory.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) size: usize,
    pub(crate) goal: Goal,
    pub(crate) memory: RemoteSlice,
}

/// What a queue pair moves, from where to where.
pub(crate) struct Message<'a> {
    op: Operation,
    local: [LocalSlice<'a>; 1],
    /// The data, where it is sent inline.
    inline: Option<[InlineSlice<'a>; 1]>,
    remote: RemoteSlice,
}

impl<'a> Message<'a> {
    /// The message of the queue pair at `index`.
    pub(crate) fn new(end: &'a End, op: Operation, index: usize, step: Step) -> Result<Self> {
        let Step { size, memory, .. } = step;
        let sends = matches!(op, Operation::Send | Operation::Write);
        // What this end reads is what the peer would send.
        let (from, to) = (end.outgoing(index), end.incoming(index));
        let (local, remote) = if sends { (from, to) } else { (to, from) };
        let remote = memory.slice(remote..remote + size).context("the peer offers too little memory")?;
        let inline = end.inline_data(size).map(|data| [InlineSlice::new(data)]);
        Ok(Self { op, local: [end.slice(local, size)?], inline, remote })
    }

    /// The request, of which as many can be made as are needed.
    pub(crate) fn request(&self) -> SendRequest<'_> {
        match (self.op, &self.inline) {
            (Operation::Send, Some(data)) => SendRequest::send_inline(0, data),
            (Operation::Send, None) => SendRequest::send(0, &self.local),
            (Operation::Write, Some(data)) => SendRequest::rdma_write_inline(0, data, self.remote),
            (Operation::Write, None) => SendRequest::rdma_write(0, &self.local, self.remote),
            (Operation::Read, _) => SendRequest::rdma_read(0, &self.local, self.remote),
            (Operation::Atomic, _) => SendRequest::fetch_and_add(0, &self.local, self.remote, 1),
        }
    }

    /// The last request of a test. Only a SEND tells the peer, and does so by its immediate data.
    pub(crate) fn last(&self) -> SendRequest<'_> {
        match (self.op, &self.inline) {
            (Operation::Send, Some(data)) => SendRequest::send_inline_with_imm(0, data, 0),
            (Operation::Send, None) => SendRequest::send_with_imm(0, &self.local, 0),
            _ => self.request(),
        }
    }

    /// An RDMA WRITE whose data is sent inline and is not the same each time.
    pub(crate) fn inline_write<'b>(&self, data: &'b [InlineSlice<'b>]) -> SendRequest<'b> {
        SendRequest::rdma_write_inline(0, data, self.remote)
    }
}
