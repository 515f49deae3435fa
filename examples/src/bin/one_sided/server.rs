//! The end that has the table, and sleeps.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use cm::{Connection, ConnectionOptions, ConnectionRequest, Listener};
use examples::report;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use verbs::{AccessFlags, MemoryRegion};

use crate::layout::{MAGIC, SLOT, Word};

/// What clients may do, and nothing else.
const ACCESS: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_ATOMIC);

type Table = MemoryRegion<Box<[AtomicU64]>>;

struct Client {
    /// It marks the client's locks.
    number: u16,
    connection: Connection,
}

pub(crate) fn run(address: &str, slots: usize, last: Option<u64>, out: &mut dyn Write) -> Result<()> {
    let mut options = ConnectionOptions::default();
    options.access = ACCESS;
    let listener =
        Listener::bind_with(address, &options, 128).with_context(|| format!("cannot listen at {address}"))?;
    let local = listener.local_addr().map(|address| address.to_string());
    writeln!(out, "{slots} slots, {} bytes, served at {}", slots * SLOT, local.as_deref().unwrap_or(address))?;
    out.flush()?;
    // It is registered when the first client has told, by coming, which device it is.
    let mut table = None;
    let mut clients: Vec<Client> = Vec::new();
    let mut gone = 0;
    while last.is_none_or(|last| gone < last) {
        sleep(&listener, &clients)?;
        while let Some(request) = listener.next_request(Some(Duration::ZERO))? {
            let from = request.peer_addr().map_or_else(|| "somewhere".to_owned(), |address| address.ip().to_string());
            match accept(request, &options, &mut table, slots, &clients) {
                Ok(client) => {
                    writeln!(out, "client {} has come, from {from}", client.number)?;
                    clients.push(client);
                }
                Err(error) => report::note(&format!("not accepted, from {from}: {error:#}")),
            }
        }
        let mut here = Vec::new();
        for client in clients {
            if !client.connection.wait_disconnected(Some(Duration::ZERO))? {
                here.push(client);
                continue;
            }
            // The queue pair is in ERROR: nothing of this client's is under way any more.
            gone += 1;
            let locks = table.as_ref().map_or(0, |table| release(table, client.number));
            writeln!(out, "client {} has gone, and left {locks} locks", client.number)?;
        }
        clients = here;
        out.flush()?;
    }
    Ok(())
}

/// Until somebody comes or goes.
fn sleep(listener: &Listener, clients: &[Client]) -> Result<()> {
    let channels: Vec<_> = clients.iter().map(|client| client.connection.id().channel()).collect();
    let mut fds = vec![PollFd::new(listener, PollFlags::IN)];
    fds.extend(channels.iter().map(|channel| PollFd::new(channel, PollFlags::IN)));
    match poll(&mut fds, None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error).context("cannot wait for clients"),
    }
}

fn accept(
    request: ConnectionRequest,
    options: &ConnectionOptions,
    table: &mut Option<Table>,
    slots: usize,
    clients: &[Client],
) -> Result<Client> {
    let number = (1..=u16::MAX).find(|number| clients.iter().all(|client| client.number != *number));
    let number = number.context("there are as many clients as a lock can tell apart")?;
    let mut prepared = request.prepare(options)?;
    let pd = prepared.protection_domain();
    if table.as_ref().is_some_and(|table| table.protection_domain().context().as_raw() != pd.context().as_raw()) {
        let reason = "the table is on another device; use the address with which the first client came";
        prepared.reject(reason.as_bytes())?;
        anyhow::bail!(reason);
    }
    let table = match table {
        Some(table) => table,
        None => {
            let memory: Box<[AtomicU64]> = (0..slots * SLOT / 8).map(|_| AtomicU64::new(0)).collect();
            table.insert(pd.register(memory, AccessFlags::LOCAL_WRITE | ACCESS).map_err(verbs::Error::from)?)
        }
    };
    let remote = table.remote_slice(..)?;
    let mut told = Vec::new();
    for value in [MAGIC, u64::from(number), remote.address(), remote.len(), remote.rkey().into()] {
        told.extend(value.to_ne_bytes());
    }
    prepared.options_mut().private_data = told;
    Ok(Client { number, connection: prepared.accept()? })
}

/// Takes the locks of a client back: what it has not published has never been.
fn release(table: &Table, number: u16) -> usize {
    let words = table.as_atomics().iter().step_by(SLOT / 8);
    words
        .filter(|word| {
            let raw = word.load(Ordering::Acquire);
            let lock = Word::from_raw(raw);
            // Other clients change no word that is locked, so this one succeeds.
            lock.owner == number
                && word.compare_exchange(raw, lock.locked(0).to_raw(), Ordering::AcqRel, Ordering::Acquire).is_ok()
        })
        .count()
}
