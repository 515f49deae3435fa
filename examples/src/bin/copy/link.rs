//! The connection, with a ring of slots at each end into which the peer writes.
//!
//! The message of number `n` is gathered in slot `n` of the local ring (counted round), and one RDMA WRITE with immediate puts it into the
//! same slot of the peer's ring. The immediate says how long it is, and whether it is a chunk or a record; the receive that it uses up
//! names no memory, and only tells that it has come.
//!
//! A slot may be written to again once the peer has answered the message that was in it, and the device has completed it. So no end ever
//! has more messages under way than the other has slots and receives for, and none is ever told to wait (RNR).
//!
//! How an end learns that the other is gone:
//!
//! * The peer's program ends, whatever way: its kernel tells the connection manager, and the manager's event comes.
//! * The peer's host is gone, or the cable: while nothing comes, an empty RDMA WRITE is under way now and then. The peer's device answers
//!   that without its program, however long that is busy; and if it does not, the write fails.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use cm::{Connection, ConnectionOptions, ConnectionRequest};
use serde::{Serialize, de::DeserializeOwned};
use verbs::{
    AccessFlags, AckTimeout, HugePageSize, LocalSlice, Mapping, MemoryRegion, ProtectionDomain, ReceiveRequest,
    RemoteSlice, SendRequest, WorkCompletion, WorkCompletionStatus,
};

use crate::offer::{Offer, Shape};

/// Room for a reply.
pub(crate) const REPLY_SLOT: usize = 8 << 10;
/// How long nothing may come before the peer is looked for.
const QUIET: Duration = Duration::from_millis(500);
/// How long a peer that has nothing left to say may take to end the connection.
const PARTING: Duration = Duration::from_secs(60);
/// In the immediate: it is a chunk. The rest is the length.
const CHUNK: u32 = 1 << 31;

const MESSAGE: u64 = 1;
const PROBE: u64 = 2;
const RECEIVE: u64 = 3;

/// Slots of one size in registered memory.
struct Ring {
    memory: MemoryRegion<Mapping>,
    slot: usize,
    slots: usize,
}

impl Ring {
    fn new(pd: &ProtectionDomain, slot: usize, slots: usize, access: AccessFlags) -> Result<Self> {
        let length = slot * slots;
        // A device needs fewer translations for huge pages; where none are reserved, ordinary ones do.
        let memory = match Mapping::in_huge_pages(length, HugePageSize::MIB_2) {
            Ok(memory) => memory,
            Err(_) => Mapping::new(length).context("cannot get memory for the chunks")?,
        };
        let memory = pd.register(memory, AccessFlags::LOCAL_WRITE | access).map_err(verbs::Error::from)?;
        Ok(Self { memory, slot, slots })
    }

    /// The first `length` bytes of the slot of a message.
    fn range(&self, number: u64, length: usize) -> Range<usize> {
        let start = (number % self.slots as u64) as usize * self.slot;
        start..start + length
    }

    fn whole(&self) -> Result<RemoteSlice> {
        Ok(self.memory.remote_slice(..self.slot * self.slots)?)
    }
}

/// What came.
#[derive(Clone, Debug)]
pub(crate) struct Arrived {
    /// Where it is in [`Link::incoming`].
    pub(crate) range: Range<usize>,
    pub(crate) is_chunk: bool,
}

/// One end.
pub(crate) struct Link {
    connection: Connection,
    outgoing: Ring,
    incoming: Ring,
    /// The peer's ring.
    remote: RemoteSlice,
    /// How many messages were posted, are complete, and have come.
    sent: u64,
    completed: u64,
    received: u64,
    arrived: VecDeque<Arrived>,
    probing: bool,
    ended: bool,
}

fn options(slots: usize) -> ConnectionOptions {
    let mut options = ConnectionOptions::default();
    // Room for a probe besides the messages.
    options.capabilities.max_send_wr = slots as u32 + 1;
    options.capabilities.max_recv_wr = slots as u32;
    options.access = AccessFlags::REMOTE_WRITE;
    options.signal_all = true;
    // Seven times that, and the peer's host is taken for gone. (One retry more would do too, but rxe takes 7 for "for ever".)
    options.ack_timeout = AckTimeout::at_least(Duration::from_millis(500)).ok();
    options.retry_count = 6;
    options
}

impl Link {
    /// Connects to a receiver.
    pub(crate) fn connect(address: &str, shape: Shape) -> Result<Self> {
        let mut prepared = options(shape.slots).prepare(address)?;
        let pd = prepared.protection_domain();
        let outgoing = Ring::new(pd, shape.chunk, shape.slots, AccessFlags::empty())?;
        let incoming = Ring::new(pd, REPLY_SLOT, shape.slots, AccessFlags::REMOTE_WRITE)?;
        for _ in 0..shape.slots {
            prepared.queue_pair().post_receive(&ReceiveRequest::new(RECEIVE, &[]))?;
        }
        prepared.options_mut().private_data = Offer { shape, memory: incoming.whole()? }.to_bytes();
        let connection = prepared.connect().map_err(refused)?;
        let remote = Offer::from_bytes(connection.private_data())?.memory;
        ensure!(remote.len() == (shape.chunk * shape.slots) as u64, "the receiver has another ring than was asked for");
        Ok(Self::new(connection, outgoing, incoming, remote))
    }

    /// Accepts a sender.
    pub(crate) fn accept(request: ConnectionRequest) -> Result<Self> {
        let offer = match Offer::from_bytes(request.private_data()) {
            Ok(offer) => offer,
            Err(error) => {
                let mut reason = format!("{error:#}");
                reason.truncate(140);
                request.reject(reason.as_bytes())?;
                return Err(error);
            }
        };
        let Offer { shape, memory: remote } = offer;
        let mut prepared = request.prepare(&options(shape.slots))?;
        let pd = prepared.protection_domain();
        let outgoing = Ring::new(pd, REPLY_SLOT, shape.slots, AccessFlags::empty())?;
        let incoming = Ring::new(pd, shape.chunk, shape.slots, AccessFlags::REMOTE_WRITE)?;
        for _ in 0..shape.slots {
            prepared.queue_pair().post_receive(&ReceiveRequest::new(RECEIVE, &[]))?;
        }
        prepared.options_mut().private_data = Offer { shape, memory: incoming.whole()? }.to_bytes();
        Ok(Self::new(prepared.accept()?, outgoing, incoming, remote))
    }

    fn new(connection: Connection, outgoing: Ring, incoming: Ring, remote: RemoteSlice) -> Self {
        let arrived = VecDeque::new();
        let (sent, completed, received) = (0, 0, 0);
        Self {
            connection,
            outgoing,
            incoming,
            remote,
            sent,
            completed,
            received,
            arrived,
            probing: false,
            ended: false,
        }
    }

    /// Who is at the other end.
    pub(crate) fn peer(&self) -> String {
        self.connection.peer_addr().map_or_else(|| "somebody".to_owned(), |address| address.ip().to_string())
    }

    /// How many messages were sent.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// How many the peer has room for at once.
    pub(crate) fn slots(&self) -> u64 {
        self.outgoing.slots as u64
    }

    /// The memory in which the next message is to be gathered. Its last message has to be answered.
    pub(crate) fn next_slot(&mut self) -> Result<(&mut MemoryRegion<Mapping>, Range<usize>)> {
        while self.sent - self.completed >= self.slots() {
            self.turn()?;
        }
        let range = self.outgoing.range(self.sent, self.outgoing.slot);
        Ok((&mut self.outgoing.memory, range))
    }

    /// The memory in which messages are gathered.
    pub(crate) fn outgoing(&self) -> &MemoryRegion<Mapping> {
        &self.outgoing.memory
    }

    /// The memory into which the peer writes.
    pub(crate) fn incoming(&self) -> &MemoryRegion<Mapping> {
        &self.incoming.memory
    }

    /// Sends the first bytes of the next slot.
    pub(crate) fn send_chunk(&mut self, length: usize) -> Result<()> {
        self.send(length, CHUNK)
    }

    pub(crate) fn send_record(&mut self, record: &impl Serialize) -> Result<()> {
        let text = serde_json::to_vec(record)?;
        let (memory, slot) = self.next_slot()?;
        ensure!(text.len() <= slot.len(), "a message of {} bytes does not fit its slot", text.len());
        memory.write_at(slot.start, &text)?;
        self.send(text.len(), 0)
    }

    fn send(&mut self, length: usize, kind: u32) -> Result<()> {
        let range = self.outgoing.range(self.sent, length);
        let remote = self.remote.slice(range.clone())?;
        let local = [self.outgoing.memory.slice(range)?];
        let local: &[LocalSlice<'_>] = if length == 0 { &[] } else { &local };
        let request = SendRequest::rdma_write_with_imm(MESSAGE, local, remote, kind | length as u32);
        self.connection.queue_pair().post_send(&request)?;
        self.sent += 1;
        Ok(())
    }

    /// Waits for the next message.
    pub(crate) fn receive(&mut self) -> Result<Arrived> {
        loop {
            if let Some(arrived) = self.arrived.pop_front() {
                return Ok(arrived);
            }
            self.turn()?;
        }
    }

    /// A record that has come.
    pub(crate) fn record<T: DeserializeOwned>(&self, arrived: &Arrived) -> Result<T> {
        ensure!(!arrived.is_chunk, "the peer sent a chunk where a record belongs");
        let text = self.incoming.memory.to_vec(arrived.range.clone())?;
        serde_json::from_slice(&text).context("the peer sent what is no record of this version of the program")
    }

    /// Takes what has completed; waits until something has.
    fn turn(&mut self) -> Result<()> {
        ensure!(!self.ended, "the peer has ended the connection before the copy was finished");
        let mut completions = [WorkCompletion::default(); 32];
        let queue = self.connection.completion_queue();
        let mut found: &[WorkCompletion] = queue.wait(&mut completions, Some(QUIET))?;
        if found.is_empty() {
            if self.connection.wait_disconnected(Some(Duration::ZERO))? {
                self.ended = true;
                // What came before the end counts.
                found = queue.poll(&mut completions)?;
            } else if !self.probing {
                let nothing = RemoteSlice::new(0, 0, 0).context("nothing")?;
                self.connection.queue_pair().post_send(&SendRequest::rdma_write(PROBE, &[], nothing))?;
                self.probing = true;
            }
        }
        for completion in found {
            let done = match completion.success() {
                Ok(done) => done,
                Err(error) if error.status == WorkCompletionStatus::WORK_REQUEST_FLUSHED => {
                    self.ended = true;
                    break;
                }
                Err(error) => {
                    // Nothing comes after it but what is flushed, of which some may be among what was found here.
                    self.ended = true;
                    bail!("the peer cannot be reached any more: {error}");
                }
            };
            match done.wr_id() {
                PROBE => self.probing = false,
                MESSAGE => self.completed += 1,
                _ => {
                    let imm_data = done.imm_data().context("the peer sent a message without its length")?;
                    let length = (imm_data & !CHUNK) as usize;
                    ensure!(length <= self.incoming.slot, "the peer sent a message that is longer than its slot");
                    let range = self.incoming.range(self.received, length);
                    self.received += 1;
                    self.arrived.push_back(Arrived { range, is_chunk: imm_data & CHUNK != 0 });
                    self.connection.queue_pair().post_receive(&ReceiveRequest::new(RECEIVE, &[]))?;
                }
            }
        }
        Ok(())
    }

    /// Ends the connection when all has been said.
    pub(crate) fn hang_up(self) -> Result<()> {
        Ok(self.connection.disconnect()?)
    }

    /// Lets the peer hear the last word, and end the connection.
    pub(crate) fn wait_for_end(mut self) -> Result<()> {
        while self.completed < self.sent && !self.ended {
            self.turn()?;
        }
        // A connection that has failed may never be ended by the peer.
        ensure!(
            self.ended || self.connection.wait_disconnected(Some(PARTING))?,
            "the peer has heard the last word, and has not ended the connection for {PARTING:?}"
        );
        Ok(())
    }
}

/// The error of a connection that was not made, with what the receiver had to say.
fn refused(error: cm::Error) -> anyhow::Error {
    let said = match &error {
        cm::Error::Rejected { rejection, .. } => String::from_utf8_lossy(&rejection.private_data).into_owned(),
        _ => String::new(),
    };
    match said.trim_end_matches('\0') {
        "" => anyhow::Error::from(error).context("no receiver; start it first: copy --listen ADDRESS:PORT FOLDER"),
        said => anyhow::Error::from(error).context(format!("the receiver says: {said}")),
    }
}
