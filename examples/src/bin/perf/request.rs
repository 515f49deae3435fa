//! The requests that move the data.

use anyhow::{Context, Result};
use verbs::{InlineSlice, LocalSlice, RemoteSlice, SendRequest};

use crate::end::End;
use crate::options::{Goal, Operation};
use crate::service::{Action, Data, Service, request};

/// One test of a run: messages of one size, until when, and the peer's memory.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    pub(crate) size: usize,
    pub(crate) goal: Goal,
    pub(crate) memory: RemoteSlice,
}

/// What a queue pair moves, from where to where.
pub(crate) struct Message<'a, T: Service> {
    op: Operation,
    local: [LocalSlice<'a>; 1],
    /// The data, where it is sent inline.
    inline: Option<[InlineSlice<'a>; 1]>,
    remote: RemoteSlice,
    to: &'a T::Peer,
}

impl<'a, T: Service> Message<'a, T> {
    /// The message of the queue pair at `index`.
    pub(crate) fn new(end: &'a End<T>, op: Operation, index: usize, step: Step) -> Result<Self> {
        let Step { size, memory, .. } = step;
        let sends = matches!(op, Operation::Send | Operation::Write);
        // What this end reads is what the peer would send.
        let (from, to) = (end.outgoing(index), end.incoming(index));
        let (local, remote) = if sends { (from, to) } else { (to, from) };
        let remote = memory.slice(remote..remote + size).context("the peer offers too little memory")?;
        let inline = end.inline_data(size).filter(|_| sends).map(|data| [InlineSlice::new(data)]);
        let to = end.peers.get(index).context("the queue pair is not connected")?;
        Ok(Self { op, local: [end.slice(local, size)?], inline, remote, to })
    }

    /// The request, of which as many can be made as are needed.
    pub(crate) fn request(&self) -> Result<SendRequest<'_, T>> {
        self.build(false)
    }

    /// The last request of a test.
    pub(crate) fn last(&self) -> Result<SendRequest<'_, T>> {
        self.build(true)
    }

    fn build(&self, is_last: bool) -> Result<SendRequest<'_, T>> {
        let data = self.inline.as_ref().map_or(Data::Registered(&self.local), |data| Data::Inline(data));
        request(Action { op: self.op, data, remote: self.remote, is_last }, self.to)
    }

    /// A request whose data is sent inline and is not the same each time.
    #[inline]
    pub(crate) fn inline<'b>(&'b self, data: &'b [InlineSlice<'b>]) -> Result<SendRequest<'b, T>> {
        let data = Data::Inline(data);
        request(Action { op: self.op, data, remote: self.remote, is_last: false }, self.to)
    }
}
