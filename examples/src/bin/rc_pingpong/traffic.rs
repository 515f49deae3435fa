//! The ping-pong itself.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use examples::exchange::Role;
use examples::pingpong::{Buffer, Completions, Receives, SEND};
use examples::report::Measurement;
use verbs::{CompletionQueue, QueuePair, Rc, RemoteSlice, SendRequest, WorkCompletionOpcode};

use crate::options::Options;

/// What can be wrong when nothing comes.
const CAUSES: &str = "it is gone, or runs with other options (--size, --iters)";

/// One end, ready to send.
pub(crate) struct End<'a> {
    pub(crate) qp: &'a QueuePair<Rc>,
    pub(crate) cq: &'a CompletionQueue,
    pub(crate) buffer: &'a mut Buffer,
    pub(crate) role: Role,
    pub(crate) options: &'a Options,
}

impl End<'_> {
    /// Messages there and back: by RDMA WRITE with immediate if there is a remote slice to write to, else by SEND. The client
    /// begins; each end answers when its last message has completed and the peer's has arrived.
    pub(crate) fn ping_pong(&mut self, receives: &mut Receives, remote: Option<RemoteSlice>) -> Result<Measurement> {
        let iterations = self.options.common.iters;
        let qp = self.qp;
        let post = |buffer: &Buffer, iteration: u32| -> Result<()> {
            let slices = buffer.outgoing()?;
            let request = match remote {
                Some(remote) => SendRequest::rdma_write_with_imm(SEND, &slices, remote, iteration),
                None => SendRequest::send(SEND, &slices),
            };
            Ok(qp.post_send(&request.signaled())?)
        };
        let (mut sent, mut received, mut completed) = (0, 0, 0);
        let mut completions = Completions::new(self.cq, &self.options.common, CAUSES);
        let start = Instant::now();
        if self.role == Role::Client {
            post(self.buffer, sent)?;
            sent += 1;
        }
        while received < iterations || completed < iterations {
            for completion in completions.take()? {
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
                // An RDMA WRITE comes to the first place, whichever receive it uses up.
                self.buffer.check(if remote.is_some() { 0 } else { done.wr_id() }, false)?;
                received += 1;
                receives.used(done.wr_id());
            }
            if received < iterations {
                // One left is enough for the message that may already be on its way.
                receives.keep_above(1, self.qp, self.buffer)?;
            }
            // The client is a message ahead of the server.
            let may_send = if self.role == Role::Client { received + 1 } else { received };
            if sent < iterations && sent < may_send && sent == completed {
                post(self.buffer, sent)?;
                sent += 1;
            }
        }
        Ok(Measurement::of_ping_pong(self.options.common.iters, self.options.size, start))
    }

    /// Reads the peer's memory, one request at a time.
    pub(crate) fn read_all(&mut self, remote: RemoteSlice) -> Result<Measurement> {
        let remote = remote.slice(..self.options.size as usize).context("both ends have to use the same --size")?;
        let mut completions = Completions::new(self.cq, &self.options.common, CAUSES);
        let start = Instant::now();
        for _ in 0..self.options.common.iters {
            self.qp.post_send(&SendRequest::rdma_read(SEND, &self.buffer.place(0)?, remote).signaled())?;
            let done = completions.take()?[0].success()?;
            if (done.opcode(), done.byte_len()) != (WorkCompletionOpcode::RDMA_READ, Some(self.options.size)) {
                bail!("unexpected completion {done:?}");
            }
            self.buffer.check(0, false)?;
        }
        Ok(Measurement::of_ping_pong(self.options.common.iters, self.options.size, start))
    }
}
