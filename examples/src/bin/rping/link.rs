//! A connection that has one receive posted, and sends one message at a time.

use std::time::Duration;

use anyhow::{Result, bail};
use cm::Connection;
use examples::connection::Completions;
use verbs::{AccessFlags, LocalSlice, MemoryRegion, ProtectionDomain, QueuePair, Rc, ReceiveRequest, SendRequest};
use verbs::{RemoteSlice, WorkCompletion};

use crate::message;

const RECEIVE: u64 = 1;
const REQUEST: u64 = 2;

/// Where messages are put together and where they arrive.
pub(crate) struct Mailbox {
    /// The first half is for the peer's message, the second one for ours.
    region: MemoryRegion<Vec<u8>>,
}

impl Mailbox {
    pub(crate) fn new(pd: &ProtectionDomain) -> Result<Self> {
        Ok(Self { region: pd.register(vec![0; 2 * message::LEN], AccessFlags::LOCAL_WRITE)? })
    }

    /// Has room for the peer's next message. The first time, before the connection stands: the peer may send as soon as it does.
    pub(crate) fn post(&self, qp: &QueuePair<Rc>) -> Result<()> {
        let room = [self.region.slice(..message::LEN)?];
        Ok(qp.post_receive(&ReceiveRequest::new(RECEIVE, &room))?)
    }
}

pub(crate) struct Link<'a> {
    connection: &'a Connection,
    completions: Completions<'a>,
    mailbox: Mailbox,
    arrived: Option<[u8; message::LEN]>,
}

impl<'a> Link<'a> {
    pub(crate) fn new(connection: &'a Connection, mailbox: Mailbox, timeout: Duration) -> Self {
        Self { connection, completions: Completions::new(connection, timeout), mailbox, arrived: None }
    }

    /// The peer's next message. `None`: the peer has ended the connection.
    pub(crate) fn receive(&mut self) -> Result<Option<[u8; message::LEN]>> {
        while self.arrived.is_none() {
            match self.completions.take()? {
                Some(completion) => self.note(&completion)?,
                None => return Ok(None),
            }
        }
        Ok(self.arrived.take())
    }

    /// As [`receive`](Self::receive), in the middle of a ping, where a peer does not go.
    pub(crate) fn expect(&mut self) -> Result<[u8; message::LEN]> {
        match self.receive()? {
            Some(message) => Ok(message),
            None => bail!(GONE),
        }
    }

    pub(crate) fn send(&mut self, message: &[u8; message::LEN]) -> Result<()> {
        self.mailbox.region.write_at(message::LEN, message)?;
        let slices = [self.mailbox.region.slice(message::LEN..)?];
        self.connection.queue_pair().post_send(&SendRequest::send(REQUEST, &slices).signaled())?;
        self.wait()
    }

    /// RDMA READ: the peer's memory comes here.
    pub(crate) fn read(&mut self, from: RemoteSlice, into: LocalSlice<'_>) -> Result<()> {
        let slices = [into];
        self.connection.queue_pair().post_send(&SendRequest::rdma_read(REQUEST, &slices, from).signaled())?;
        self.wait()
    }

    /// RDMA WRITE: ours goes there.
    pub(crate) fn write(&mut self, from: LocalSlice<'_>, to: RemoteSlice) -> Result<()> {
        let slices = [from];
        self.connection.queue_pair().post_send(&SendRequest::rdma_write(REQUEST, &slices, to).signaled())?;
        self.wait()
    }

    /// Until the request is done. The peer's answer may come before the word that our message has arrived.
    fn wait(&mut self) -> Result<()> {
        loop {
            match self.completions.take()? {
                Some(completion) if completion.wr_id() == REQUEST => return Ok(()),
                Some(completion) => self.note(&completion)?,
                None => bail!(GONE),
            }
        }
    }

    /// Takes a message out, and has room for the next one before the peer can send it.
    fn note(&mut self, completion: &WorkCompletion) -> Result<()> {
        let length = completion.success()?.byte_len().unwrap_or(0) as usize;
        if length != message::LEN {
            bail!("the peer sent a message of {length} bytes instead of {}; is it another program?", message::LEN);
        }
        let mut message = [0; message::LEN];
        self.mailbox.region.read_at(0, &mut message)?;
        self.arrived = Some(message);
        self.mailbox.post(self.connection.queue_pair())
    }
}

const GONE: &str = "the peer has ended the connection in the middle of a ping; see what it printed";
