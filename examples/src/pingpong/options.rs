//! The options that all of the programs have, in the habit of the C ones.

use std::io::Write;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use verbs::{CompletionQueue, CompletionQueueBuilder, Context, GidFilter, LocalEndpoint, Mtu, QueuePair, Transport};

use crate::exchange::Exchange;

/// Whom to talk with, through which device, and how often.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// The server's host name or address; without it this is the server
    pub host: Option<String>,

    /// TCP port by which the ends find each other
    #[arg(short, long, default_value_t = 18515, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,

    /// RDMA device [default: the first one]
    #[arg(short = 'd', long, value_name = "DEVICE")]
    pub ib_dev: Option<String>,

    /// Port of the device, from 1
    #[arg(short, long, value_name = "PORT", default_value_t = 1)]
    pub ib_port: u8,

    /// Receives to have posted at a time
    #[arg(short, long, value_name = "REQUESTS", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    pub rx_depth: u32,

    /// Iterations
    #[arg(short = 'n', long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub iters: u32,

    /// Service level
    #[arg(short = 'l', long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(..=15))]
    pub sl: u8,

    /// Sleep until a completion event instead of polling
    #[arg(short, long)]
    pub events: bool,

    /// Look at each message that arrives, instead of the last one; both ends have to be given it
    #[arg(short, long)]
    pub chk: bool,

    /// Index of the local GID [default: RoCE v2, IPv4 before IPv6, link-local ones last]
    #[arg(short, long, value_name = "INDEX")]
    pub gid_idx: Option<u32>,

    /// Seconds without progress after which to give up
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,
}

impl Common {
    /// How long to wait for the peer at a time.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }

    /// A completion queue, with a channel if events are wanted.
    ///
    /// # Errors
    ///
    /// It is too large for the device.
    pub fn create_completion_queue(&self, context: &Context, entries: u32) -> Result<CompletionQueue> {
        let builder = CompletionQueueBuilder::new(context, entries);
        Ok(match self.events {
            true => builder.channel(&context.create_completion_channel()?).build()?,
            false => builder.build()?,
        })
    }

    /// The local end of what `qp` sends and receives.
    ///
    /// # Errors
    ///
    /// There is no such port, or it has no such GID.
    pub fn local_endpoint<T: Transport>(&self, qp: &QueuePair<T>) -> Result<LocalEndpoint> {
        Ok(match self.gid_idx {
            Some(index) => qp.local_endpoint_with_gid_index(self.ib_port, index)?,
            None => qp.local_endpoint(self.ib_port, &GidFilter::default())?,
        })
    }

    /// Waits for a client, or connects to the server.
    ///
    /// # Errors
    ///
    /// The TCP port is taken, or nobody answers there.
    pub fn find_peer(&self, out: &mut dyn Write) -> Result<Exchange> {
        match &self.host {
            None => {
                writeln!(out, "waiting for a client at TCP port {}", self.port)?;
                out.flush()?;
                Exchange::accept(self.port, self.timeout())
            }
            Some(host) => Exchange::connect(host, self.port, self.timeout()),
        }
    }
}

/// Refuses a path MTU that the local port does not have.
///
/// # Errors
///
/// It is above the active MTU.
pub fn check_mtu(mtu: Mtu, local: &LocalEndpoint) -> Result<()> {
    let active = local.port_attributes.active_mtu();
    if mtu > active {
        bail!("--mtu is {mtu}, but the active MTU of port {} is {active}", local.port);
    }
    Ok(())
}
