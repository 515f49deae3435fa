//! The active side: all connections take the same step, and when all have, the next one.

use std::collections::HashMap;
use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use cm::{ConnectionParameters, Depth, EventChannel, EventKind, Id, IdKey, PortSpace, TransitionOptions};
use examples::connection::with_port;
use verbs::{QueuePair, Rc};

use crate::{Options, next, queue_pair};

pub(crate) fn run(address: SocketAddr, options: &Options, out: &mut dyn Write) -> Result<()> {
    let channel = EventChannel::create()?;
    let (count, timeout) = (options.connections as usize, Duration::from_millis(options.timeout));
    let address = with_port(address, options.port);
    let mut report = Report { out, count };

    let start = Instant::now();
    let ids = (0..count).map(|_| channel.create_id(PortSpace::TCP)).collect::<cm::Result<Vec<_>>>()?;
    report.step("create id", start)?;

    let start = Instant::now();
    ids.iter().try_for_each(|id| id.resolve_addr(options.bind, address, timeout))?;
    each(&channel, options, count, |_, event| Ok(matches!(event, EventKind::AddressResolved)))?;
    report.step("resolve address", start)?;

    let start = Instant::now();
    ids.iter().try_for_each(|id| id.resolve_route(timeout))?;
    each(&channel, options, count, |_, event| Ok(matches!(event, EventKind::RouteResolved)))?;
    report.step("resolve route", start)?;

    let start = Instant::now();
    let mut cq = None;
    let mut connections: HashMap<IdKey, (Id, QueuePair<Rc>)> = HashMap::new();
    for id in ids {
        let qp = queue_pair(&id, &mut cq)?;
        connections.insert(id.key(), (id, qp));
    }
    report.step("create queue pair", start)?;

    let start = Instant::now();
    for (id, qp) in connections.values() {
        let mut parameters = ConnectionParameters::new(qp.qp_num());
        // No RDMA READs and no atomics are to come.
        parameters.responder_resources = Depth::Exactly(1);
        parameters.initiator_depth = Depth::Exactly(1);
        id.connect(&parameters)?;
    }
    each(&channel, options, count, |key, event| {
        let (EventKind::ConnectResponse(_), Some((id, qp))) = (event, connections.get(&key)) else { return Ok(false) };
        id.connect_queue_pair(qp, &TransitionOptions::default())?;
        id.establish()?;
        Ok(true)
    })?;
    report.step("connect", start)?;

    let start = Instant::now();
    connections.values().try_for_each(|(id, _)| id.disconnect())?;
    each(&channel, options, count, |_, event| Ok(matches!(event, EventKind::Disconnected)))?;
    report.step("disconnect", start)?;

    let start = Instant::now();
    drop(connections);
    report.step("destroy", start)
}

/// Takes events until `count` of them are the awaited ones.
fn each(
    channel: &EventChannel,
    options: &Options,
    count: usize,
    mut is_awaited: impl FnMut(IdKey, &EventKind) -> Result<bool>,
) -> Result<()> {
    let mut done = 0;
    while done < count {
        let (key, event) = next(channel, options)?;
        match is_awaited(key, &event)? {
            true => done += 1,
            // The kernel tells it some time after the end of a connection, when others may still be ending.
            false if matches!(event, EventKind::TimewaitExit) => {}
            false => bail!("{done} of {count} connections came through this step; then: {event}"),
        }
    }
    Ok(())
}

struct Report<'a> {
    out: &'a mut dyn Write,
    count: usize,
}

impl Report<'_> {
    fn step(&mut self, name: &str, start: Instant) -> Result<()> {
        let elapsed = start.elapsed();
        let each = elapsed.as_secs_f64() * 1e6 / self.count as f64;
        Ok(writeln!(self.out, "{name:17} {:9.2} ms, {each:9.2} µs per connection", elapsed.as_secs_f64() * 1e3)?)
    }
}
