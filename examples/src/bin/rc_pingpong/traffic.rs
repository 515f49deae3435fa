//! The ping-pong itself.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use examples::exchange::Role;
use examples::report::Measurement;
use verbs::{
    CompletionQueue, Mapping, MemoryRegion, QueuePair, Rc, ReceiveRequest, RemoteSlice, SendRequest, WorkCompletion,
    WorkCompletionOpcode,
};

use crate::options::Options;

/// The byte that messages are made of, the C program's.
pub(crate) const FILLING: u8 = 0x7b;

/// How long the C program's pages are: with its option `-c`, the first byte of each is 0.
const C_PAGE: usize = 4096;

/// The `wr_id`s.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// The receives that are posted.
pub(crate) struct Receives {
    depth: u32,
    posted: u32,
}

impl Receives {
    pub(crate) fn post_first(
        qp: &QueuePair<Rc>,
        region: &MemoryRegion<Mapping>,
        size: usize,
        depth: u32,
    ) -> Result<Self> {
        let mut receives = Self { depth, posted: 0 };
        receives.refill(qp, region, size)?;
        Ok(receives)
    }

    /// Posts as many as there is room for, with one doorbell. All of them go to the same place.
    fn refill(&mut self, qp: &QueuePair<Rc>, region: &MemoryRegion<Mapping>, size: usize) -> Result<()> {
        let slices = [region.slice(size..)?];
        let mut requests: Vec<_> = (self.posted..self.depth).map(|_| ReceiveRequest::new(RECEIVE, &slices)).collect();
        qp.post_receive_chain(&mut requests)?;
        self.posted = self.depth;
        Ok(())
    }
}

/// One end, ready to send.
pub(crate) struct End<'a> {
    pub(crate) qp: &'a QueuePair<Rc>,
    pub(crate) cq: &'a CompletionQueue,
    pub(crate) region: &'a MemoryRegion<Mapping>,
    pub(crate) size: usize,
    pub(crate) role: Role,
    pub(crate) options: &'a Options,
}

impl End<'_> {
    /// Messages there and back: by RDMA WRITE with immediate if there is a remote slice to write to, else by SEND. The client
    /// begins; each end answers when its last message has completed and the peer's has arrived.
    pub(crate) fn ping_pong(&self, receives: &mut Receives, remote: Option<RemoteSlice>) -> Result<Measurement> {
        let iterations = self.options.iters;
        let slices = [self.region.slice(..self.size)?];
        let post = |iteration: u32| {
            let request = match remote {
                Some(remote) => SendRequest::rdma_write_with_imm(SEND, &slices, remote, iteration),
                None => SendRequest::send(SEND, &slices),
            };
            self.qp.post_send(&request.signaled())
        };
        let (mut sent, mut received, mut completed) = (0, 0, 0);
        let mut completions = [WorkCompletion::default(); 16];
        let start = Instant::now();
        if self.role == Role::Client {
            post(sent)?;
            sent += 1;
        }
        while received < iterations || completed < iterations {
            for completion in self.completions(&mut completions)? {
                let done = completion.success()?;
                if done.wr_id() == SEND {
                    completed += 1;
                    continue;
                }
                if remote.is_some() && done.imm_data() != Some(received) {
                    bail!("message {received} came with the immediate data {:?}", done.imm_data());
                }
                if done.byte_len() != Some(self.options.size) {
                    let length = done.byte_len().unwrap_or(0);
                    bail!("a message of {length} bytes arrived; both ends have to use the same --size");
                }
                received += 1;
                receives.posted -= 1;
            }
            // One left is enough for the message that may already be on its way.
            if receives.posted <= 1 && received < iterations {
                receives.refill(self.qp, self.region, self.size)?;
            }
            // The client is a message ahead of the server.
            let may_send = if self.role == Role::Client { received + 1 } else { received };
            if sent < iterations && sent < may_send && sent == completed {
                post(sent)?;
                sent += 1;
            }
        }
        Ok(self.measurement(start))
    }

    /// Reads the peer's memory, one request at a time.
    pub(crate) fn read_all(&self, remote: RemoteSlice) -> Result<Measurement> {
        let slices = [self.region.slice(self.size..)?];
        let remote = remote.slice(..self.size).context("both ends have to use the same --size")?;
        let mut completions = [WorkCompletion::default(); 1];
        let start = Instant::now();
        for _ in 0..self.options.iters {
            self.qp.post_send(&SendRequest::rdma_read(SEND, &slices, remote).signaled())?;
            let done = self.completions(&mut completions)?[0].success()?;
            if (done.opcode(), done.byte_len()) != (WorkCompletionOpcode::RDMA_READ, Some(self.options.size)) {
                bail!("unexpected completion {done:?}");
            }
        }
        Ok(self.measurement(start))
    }

    /// At least one completion.
    fn completions<'c>(&self, completions: &'c mut [WorkCompletion]) -> Result<&'c mut [WorkCompletion]> {
        let timeout = self.options.timeout();
        let count = match self.options.events {
            true => self.cq.wait(completions, Some(timeout))?.len(),
            false => self.spin(completions, timeout)?,
        };
        if count == 0 {
            bail!(
                "the peer made no progress for {timeout:?}; it is gone, or runs with other options (--size, --iters)"
            );
        }
        Ok(&mut completions[..count])
    }

    /// Polls until there is something, or the time is over. The clock is read only now and then.
    fn spin(&self, completions: &mut [WorkCompletion], timeout: Duration) -> Result<usize> {
        let start = Instant::now();
        loop {
            for _ in 0..1000 {
                let count = self.cq.poll(completions)?.len();
                if count > 0 {
                    return Ok(count);
                }
            }
            if start.elapsed() > timeout {
                return Ok(0);
            }
        }
    }

    fn measurement(&self, start: Instant) -> Measurement {
        let iterations = u64::from(self.options.iters);
        Measurement { iterations, bytes: 2 * iterations * self.size as u64, elapsed: start.elapsed() }
    }
}

/// Checks what arrived.
pub(crate) fn validate(region: &MemoryRegion<Mapping>, size: usize) -> Result<()> {
    let arrived = region.to_vec(size..)?;
    let wrong = |(offset, byte): &(usize, &u8)| **byte != FILLING && !(**byte == 0 && offset % C_PAGE == 0);
    match arrived.iter().enumerate().find(wrong) {
        None => Ok(()),
        Some((offset, byte)) => bail!("byte {offset} of what arrived is {byte:#04x} instead of {FILLING:#04x}"),
    }
}
