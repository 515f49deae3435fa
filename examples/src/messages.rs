//! The messages of `ucmatose`, `udaddy` and `mckey`.

use std::time::Duration;

use anyhow::{Result, bail};
use verbs::{AccessFlags, CompletionQueue, LocalSlice, MemoryRegion, ProtectionDomain, ReceiveQueue, ReceiveRequest};
use verbs::{Success, WorkCompletion};

/// The `wr_id` of each send; that of a receive is the message's number.
pub const SEND: u64 = u64::MAX;

/// Messages that come in and go out, each with a place of its own.
#[derive(Debug)]
pub struct Messages {
    count: usize,
    size: usize,
    /// How many bytes the device puts before each message.
    header: usize,
    incoming: MemoryRegion<Vec<u8>>,
    outgoing: MemoryRegion<Vec<u8>>,
}

impl Messages {
    /// As many each way, each of `size` bytes. What comes in has `header` bytes before it.
    ///
    /// # Errors
    ///
    /// There is no memory for them.
    pub fn new(pd: &ProtectionDomain, count: u32, size: u32, header: usize) -> Result<Self> {
        let (count, size) = (count as usize, size as usize);
        let incoming = pd.register(vec![0; count * (header + size)], AccessFlags::LOCAL_WRITE)?;
        let bytes = (0..count).flat_map(|message| (0..size).map(move |at| byte(message, at))).collect();
        let outgoing = pd.register(bytes, AccessFlags::empty())?;
        Ok(Self { count, size, header, incoming, outgoing })
    }

    /// Where a message comes in, with its header first.
    pub fn place(&self, message: u64) -> usize {
        message as usize * (self.header + self.size)
    }

    /// The memory that messages come into.
    pub fn incoming(&self) -> &MemoryRegion<Vec<u8>> {
        &self.incoming
    }

    /// Posts a receive for each message, with one doorbell.
    ///
    /// # Errors
    ///
    /// The queue is smaller.
    pub fn post_receives(&self, queue: &impl ReceiveQueue) -> Result<()> {
        let place = |message| Ok([self.incoming.slice(self.place(message)..self.place(message + 1))?]);
        let places = (0..self.count as u64).map(place).collect::<Result<Vec<_>>>()?;
        let mut requests: Vec<_> =
            (0..).zip(&places).map(|(message, place)| ReceiveRequest::new(message, place)).collect();
        Ok(queue.post_receive_chain(&mut requests)?)
    }

    /// Posts the receive of a message again: a stranger's has used it up.
    ///
    /// # Errors
    ///
    /// The queue is full.
    pub fn post_again(&self, queue: &impl ReceiveQueue, message: u64) -> Result<()> {
        let place = [self.incoming.slice(self.place(message)..self.place(message + 1))?];
        Ok(queue.post_receive_chain(&mut [ReceiveRequest::new(message, &place)])?)
    }

    /// What is to be sent, message after message.
    ///
    /// # Errors
    ///
    /// None.
    pub fn to_send(&self) -> Result<Vec<[LocalSlice<'_>; 1]>> {
        let slice = |message| Ok([self.outgoing.slice(message * self.size..(message + 1) * self.size)?]);
        (0..self.count).map(slice).collect()
    }

    /// Looks at a message that came in as the one of this number: its length, and with `validate` its bytes, which have to be those that
    /// this program sends.
    ///
    /// # Errors
    ///
    /// They are others, or those of a later message: then the ones between got lost.
    pub fn check(&self, received: &Success<'_>, number: u64, validate: bool) -> Result<()> {
        let length = (received.byte_len().unwrap_or(0) as usize).saturating_sub(self.header);
        if length != self.size {
            bail!("a message of {length} bytes arrived; both ends have to use the same --size");
        }
        let begin = self.place(received.wr_id()) + self.header;
        let bytes = self.incoming.to_vec(begin..begin + length)?;
        if validate { self.compare(&bytes, number as usize) } else { Ok(()) }
    }

    fn compare(&self, bytes: &[u8], number: usize) -> Result<()> {
        let differs = |message: usize| {
            let mut places = bytes.iter().enumerate();
            places.find(move |(at, found)| **found != byte(message, *at))
        };
        let Some((at, found)) = differs(number) else { return Ok(()) };
        match (number + 1..self.count).find(|later| differs(*later).is_none()) {
            Some(later) => bail!("message {number} got lost: message {later} came instead"),
            None => bail!("byte {at} of message {number} is {found:#04x} instead of {:#04x}", byte(number, at)),
        }
    }
}

/// Whether a datagram is one of these programs', from `sender` if that is known: they have their sender's number as immediate data.
/// Anybody may send to a queue pair of whose number and Q_Key they know.
pub fn is_ours(received: &Success<'_>, sender: Option<u32>) -> bool {
    let from = received.datagram().map(|datagram| datagram.source_qp_num());
    from.is_some() && received.imm_data() == from && sender.is_none_or(|sender| from == Some(sender))
}

/// A byte of a message.
fn byte(message: usize, at: usize) -> u8 {
    (31 * message + at) as u8
}

/// The next completion of a queue with a channel; `None`: nothing came in time.
///
/// # Errors
///
/// The request failed.
pub fn next(cq: &CompletionQueue, timeout: Option<Duration>) -> Result<Option<WorkCompletion>> {
    let mut completions = [WorkCompletion::default()];
    match cq.wait(&mut completions, timeout)? {
        [completion] => {
            completion.success()?;
            Ok(Some(*completion))
        }
        _ => Ok(None),
    }
}
