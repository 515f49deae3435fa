//! What the programs on `cm` share: waiting for a connection's completions, and noticing its end.

use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use cm::{Connection, EventChannel};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbs::{CompletionQueue, Notify, WorkCompletion, WorkCompletionStatus};

/// The address of a command line, such as `192.0.2.1`, or `fe80::1%eth0` with the interface that a link-local one needs. The port is 0.
///
/// # Errors
///
/// There is no such address.
pub fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let mut addresses = (text, 0).to_socket_addrs().map_err(|error| error.to_string())?;
    addresses.next().ok_or_else(|| "it has no address".to_owned())
}

/// Any address of this host, with any port.
pub const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// An address with another port.
pub fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// Takes a connection's completions off its queue.
///
/// A peer that goes away, or dies, sends nothing more, and its end is no completion but an event of the connection manager. So both
/// file descriptors are watched.
#[derive(Debug)]
pub struct Completions<'a> {
    connection: &'a Connection,
    events: EventChannel,
    timeout: Duration,
    is_over: bool,
}

impl<'a> Completions<'a> {
    /// Of a connection whose queue has a channel, as it has by default. The peer has `timeout` for each step.
    pub fn new(connection: &'a Connection, timeout: Duration) -> Self {
        Self { connection, events: connection.id().channel(), timeout, is_over: false }
    }

    /// The next completion, which is that of a success. `None`: the connection has ended.
    ///
    /// # Errors
    ///
    /// A request has failed, or nothing came in time.
    pub fn take(&mut self) -> Result<Option<WorkCompletion>> {
        let cq = self.connection.completion_queue();
        let deadline = Instant::now() + self.timeout;
        loop {
            if let Some(completion) = poll_one(cq)? {
                return self.judge(completion);
            }
            if self.is_over {
                return Ok(None);
            }
            // Moves the queue pair to ERROR if the peer has ended the connection, so that what was posted is flushed.
            if self.connection.wait_disconnected(Some(Duration::ZERO))? {
                self.is_over = true;
                continue;
            }
            // What came before the queue was armed makes no event.
            cq.arm(Notify::Any)?;
            if let Some(completion) = poll_one(cq)? {
                return self.judge(completion);
            }
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                bail!("the peer said nothing for {:?}; see what it printed", self.timeout);
            }
            self.sleep(cq, remaining)?;
        }
    }

    fn judge(&self, completion: WorkCompletion) -> Result<Option<WorkCompletion>> {
        match completion.status() {
            WorkCompletionStatus::WORK_REQUEST_FLUSHED => {
                // At the end all that was posted is flushed.
                if self.is_over || self.connection.wait_disconnected(Some(Duration::ZERO))? {
                    return Ok(None);
                }
                bail!(
                    "the connection has failed, though the peer has not ended it: a queue pair does when its peer uses memory to which it \
                     has no right"
                )
            }
            _ => match completion.success() {
                Ok(_) => Ok(Some(completion)),
                Err(error) => Err(error.into()),
            },
        }
    }

    /// Until either descriptor is readable, or the time is over.
    fn sleep(&self, cq: &CompletionQueue, timeout: Duration) -> Result<()> {
        let channel = cq.channel().context("the completion queue has no channel")?;
        let mut descriptors = [
            PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.events.as_fd(), PollFlags::IN),
        ];
        match poll(&mut descriptors, Some(&Timespec::try_from(timeout)?)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        cq.take_event()?;
        Ok(())
    }
}

fn poll_one(cq: &CompletionQueue) -> Result<Option<WorkCompletion>> {
    let mut one = [WorkCompletion::default()];
    Ok(cq.poll(&mut one)?.first().copied())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_have_an_interface() {
        assert_eq!(parse_address("192.0.2.1").unwrap(), "192.0.2.1:0".parse().unwrap());
        assert_eq!(parse_address("fe80::1%lo").unwrap(), "[fe80::1%1]:0".parse().unwrap());
        assert!(parse_address("fe80::1%no_such_interface").is_err());
        assert_eq!(with_port(ANY, 7).to_string(), "0.0.0.0:7");
    }
}
