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

    /// What is to be sent, message after message.
    ///
    /// # Errors
    ///
    /// None.
    pub fn to_send(&self) -> Result<Vec<[LocalSlice<'_>; 1]>> {
        let slice = |message| Ok([self.outgoing.slice(message * self.size..(message + 1) * self.size)?]);
        (0..self.count).map(slice).collect()
    }

    /// Looks at a message that came in: its length, and with `validate` its bytes, which have to be those that this program sends.
    ///
    /// # Errors
    ///
    /// They are others.
    pub fn check(&self, received: &Success<'_>, validate: bool) -> Result<()> {
        let length = (received.byte_len().unwrap_or(0) as usize).saturating_sub(self.header);
        if length != self.size {
            bail!("a message of {length} bytes arrived; both ends have to use the same --size");
        }
        let message = received.wr_id() as usize;
        let begin = self.place(received.wr_id()) + self.header;
        let bytes = self.incoming.to_vec(begin..begin + length)?;
        match bytes.iter().enumerate().find(|(at, found)| **found != byte(message, *at)) {
            Some((at, found)) if validate => {
                let expected = byte(message, at);
                bail!("byte {at} of message {message} is {found:#04x} instead of {expected:#04x}")
            }
            _ => Ok(()),
        }
    }
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
