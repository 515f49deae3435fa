//! The end that does the work.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use cm::{Connection, ConnectionOptions};
use verbs::{AccessFlags, AckTimeout, Mapping, MemoryRegion, RemoteSlice, SendRequest, WorkCompletion};

use crate::layout::{BODY, Content, MAGIC, SLOT, Word, body, check_key, places, read};

/// Where in the local memory the device puts a slot, finds a body, and puts the outcome of an atomic operation.
const READ: usize = 0;
const WRITE: usize = SLOT;
const OLD: usize = 2 * SLOT;
const LENGTH: usize = OLD + 8;

/// How long nothing may complete before the server is looked for.
const QUIET: Duration = Duration::from_millis(500);

/// How often something had to be done again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retries {
    /// A READ brought a mixture of two versions.
    pub(crate) torn: u64,
    /// Somebody else had the lock.
    pub(crate) locked: u64,
    /// Somebody else was quicker.
    pub(crate) overtaken: u64,
}

/// A table at a server.
pub(crate) struct Table {
    connection: Connection,
    memory: MemoryRegion<Mapping>,
    remote: RemoteSlice,
    /// Our number, which marks our locks.
    number: u16,
    slots: usize,
    /// How long a lock of somebody else's may last, and how long a slot may be torn.
    patience: Duration,
    pub(crate) retries: Retries,
}

impl Table {
    pub(crate) fn connect(server: &str, patience: Duration) -> Result<Self> {
        let mut options = ConnectionOptions::default();
        // The server reads and writes nothing here.
        options.access = AccessFlags::empty();
        // Seven times that, and the server's host is taken for gone; with 7 retries rxe would never give up.
        options.ack_timeout = AckTimeout::at_least(Duration::from_millis(500)).ok();
        options.retry_count = 6;
        let connection = options
            .connect(server)
            .with_context(|| format!("no table at {server}; start the server first: one_sided serve ADDRESS:PORT"))?;
        let told = connection.private_data();
        let number = |index: usize| {
            let bytes = told.get(index * 8..).and_then(|rest| rest.first_chunk());
            bytes.map(|bytes| u64::from_ne_bytes(*bytes)).context("the server says too little")
        };
        ensure!(number(0)? == MAGIC, "the server is another program, or a machine with another byte order");
        let remote = RemoteSlice::new(number(2)?, number(3)?, number(4)? as u32).context("the server's table")?;
        let memory = connection.protection_domain().register(Mapping::new(LENGTH)?, AccessFlags::LOCAL_WRITE);
        Ok(Self {
            memory: memory.map_err(verbs::Error::from)?,
            remote,
            number: number(1)? as u16,
            slots: remote.len() as usize / SLOT,
            connection,
            patience,
            retries: Retries::default(),
        })
    }

    /// The value of a key.
    pub(crate) fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        for place in places(key, self.slots) {
            match self.read_slot(place)?.1 {
                Content::Empty => return Ok(None),
                Content::Key { key: found, value } if found == key => return Ok(value),
                Content::Key { .. } => {}
            }
        }
        Ok(None)
    }

    /// Gives a key the value that `change` makes of the one it has (`None`: none), and returns it. `change` is asked again if somebody else
    /// has changed the value meanwhile.
    pub(crate) fn update(
        &mut self,
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>) -> Result<Option<Vec<u8>>>,
    ) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        let mut places = places(key, self.slots);
        let mut place = places.next().context("the server's table has no slots")?;
        let mut waiting: Option<(Word, Instant)> = None;
        loop {
            let (word, content) = self.read_slot(place)?;
            let old = match content {
                Content::Key { key: found, .. } if found != key => {
                    place = places.next().context("the table is full; start the server with more --slots")?;
                    continue;
                }
                Content::Key { value, .. } => value,
                Content::Empty => None,
            };
            if word.owner != 0 {
                self.retries.locked += 1;
                let since = waiting.filter(|(known, _)| *known == word).map_or_else(Instant::now, |(_, since)| since);
                if since.elapsed() > self.patience {
                    bail!("client {} has locked the key, and does not let go", word.owner);
                }
                waiting = Some((word, since));
                thread::sleep(Duration::from_micros(100));
                continue;
            }
            let new = change(old.as_deref())?;
            let next = word.next();
            let body = body(next.version, key, new.as_deref())?;
            let locked = word.locked(self.number);
            // It succeeds only if the slot is as we have read it.
            if !self.lock(place, word, locked)? {
                self.retries.overtaken += 1;
                continue;
            }
            self.publish(place, &body, locked, next)?;
            return Ok(new);
        }
    }

    /// Where a slot is at the server.
    fn slot(&self, place: usize) -> Result<RemoteSlice> {
        Ok(self.remote.slice(place * SLOT..(place + 1) * SLOT)?)
    }

    /// Reads a slot, until it is of one version.
    fn read_slot(&mut self, place: usize) -> Result<(Word, Content)> {
        let start = Instant::now();
        loop {
            let local = [self.memory.slice(READ..READ + SLOT)?];
            let request = SendRequest::rdma_read(1, &local, self.slot(place)?).signaled();
            self.connection.queue_pair().post_send(&request)?;
            self.wait()?;
            let mut bytes = [0; SLOT];
            self.memory.read_at(READ, &mut bytes)?;
            if let Some(found) = read(&bytes) {
                return Ok(found);
            }
            // Each time another writer was at it; but if no version of it ever fits its checksum, somebody else has written there.
            if start.elapsed() > self.patience {
                bail!("slot {place} of the table was of no single version for {:?}: is it damaged?", self.patience);
            }
            self.retries.torn += 1;
        }
    }

    fn lock(&mut self, place: usize, word: Word, locked: Word) -> Result<bool> {
        let local = [self.memory.slice(OLD..OLD + 8)?];
        let slot = self.slot(place)?;
        let request = SendRequest::compare_and_swap(1, &local, slot, word.to_raw(), locked.to_raw()).signaled();
        self.connection.queue_pair().post_send(&request)?;
        self.wait()?;
        Ok(self.old()? == word.to_raw())
    }

    /// Writes a body, then the word that makes it valid: one doorbell for both, and the device keeps the order.
    fn publish(&mut self, place: usize, body: &[u8; BODY], locked: Word, next: Word) -> Result<()> {
        self.memory.write_at(WRITE, body)?;
        let slot = self.slot(place)?;
        let (from, old) = ([self.memory.slice(WRITE..WRITE + BODY)?], [self.memory.slice(OLD..OLD + 8)?]);
        let mut requests = [
            SendRequest::rdma_write(1, &from, slot.slice(next.body()..next.body() + BODY)?),
            SendRequest::compare_and_swap(1, &old, slot, locked.to_raw(), next.to_raw()).signaled(),
        ];
        self.connection.queue_pair().post_send_chain(&mut requests)?;
        self.wait()?;
        ensure!(self.old()? == locked.to_raw(), "the server has taken our lock back: it thinks that we are gone");
        Ok(())
    }

    /// What the word was before the last atomic operation.
    fn old(&self) -> Result<u64> {
        let mut bytes = [0; 8];
        self.memory.read_at(OLD, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Waits for the request that is signaled.
    fn wait(&self) -> Result<()> {
        let mut completions = [WorkCompletion::default(); 1];
        loop {
            if let [completion] = self.connection.completion_queue().wait(&mut completions, Some(QUIET))? {
                completion.success().context("the server cannot be reached any more")?;
                return Ok(());
            }
            if self.connection.wait_disconnected(Some(Duration::ZERO))? {
                bail!("the server has gone");
            }
        }
    }
}
