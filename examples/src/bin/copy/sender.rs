//! The sending end.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::digest::Digester;
use crate::link::Link;
use crate::message::{Reply, Request};
use crate::offer::Shape;
use crate::path::shown;
use crate::source::{Entry, entries};
use crate::summary::Summary;
use crate::to_peer;

pub(crate) fn run(source: &Path, address: &str, shape: Shape, out: &mut dyn Write) -> Result<()> {
    let entries = entries(source)?;
    let sizes = entries.iter().filter_map(|entry| match entry {
        Entry::File { size, .. } => Some(*size),
        _ => None,
    });
    let (files, bytes) = sizes.fold((0, 0), |(files, bytes), size| (files + 1, bytes + size));
    let skipped = entries.iter().filter(|entry| matches!(entry, Entry::Skipped { .. })).count() as u64;
    let link = Link::connect(address, shape)?;
    let mut sender = Sender { link, answered: 0, refused: false, summary: Summary::new(bytes, skipped) };
    match sender.send_all(&entries, Request::Start { files, bytes, skipped }) {
        Ok(()) => {
            sender.summary.finish();
            writeln!(out, "sent to {}: {}", sender.link.peer(), sender.summary)?;
            sender.link.hang_up()
        }
        Err(error) => {
            sender.summary.finish();
            if !sender.refused {
                // The receiver is told why, if it is still there.
                let _ = sender.request(&Request::Failed { reason: to_peer(&error) }).and_then(|()| sender.settle(0));
            }
            Err(error)
        }
    }
}

struct Sender {
    link: Link,
    /// How many messages the receiver has answered.
    answered: u64,
    /// It has given up.
    refused: bool,
    summary: Summary,
}

impl Sender {
    fn send_all(&mut self, entries: &[Entry], start: Request) -> Result<()> {
        self.request(&start)?;
        for entry in entries {
            match entry {
                Entry::Folder { path } => self.request(&Request::Folder { path: path.clone() })?,
                Entry::Mode { path, mode } => self.request(&Request::FolderMode { path: path.clone(), mode: *mode })?,
                Entry::File { from, path, size } => self.file(from, path, *size)?,
                Entry::Skipped { from, reason } => self.summary.note(&format!("skipped {}: {reason}", from.display())),
            }
        }
        self.request(&Request::Finish)?;
        self.settle(0)
    }

    /// Sends a record, once there is a slot for it.
    fn request(&mut self, request: &Request) -> Result<()> {
        self.settle(self.link.slots() - 1)?;
        self.link.send_record(request)
    }

    /// Waits until at most so many messages have no answer.
    fn settle(&mut self, most: u64) -> Result<()> {
        while self.link.sent() - self.answered > most {
            match self.reply()? {
                Reply::Done => {}
                reply => bail!("the receiver answers what was not asked: {reply:?}"),
            }
        }
        Ok(())
    }

    fn reply(&mut self) -> Result<Reply> {
        let arrived = self.link.receive()?;
        self.answered += 1;
        match self.link.record(&arrived)? {
            Reply::Failed { reason } => {
                self.refused = true;
                bail!("the receiver gave up: {reason}")
            }
            reply => Ok(reply),
        }
    }

    fn file(&mut self, from: &Path, path: &[u8], size: u64) -> Result<()> {
        let file = File::open(from).with_context(|| format!("cannot read {}", from.display()))?;
        self.request(&Request::File { path: path.into(), size })?;
        self.settle(1)?;
        let Reply::Have { length, digest } = self.reply()? else { bail!("the receiver does not say what it has") };

        // What is there can stay if it is how our file begins.
        let mut digester = Digester::default();
        if length > 0 && length <= size {
            digester.update_from_file(&file, length)?;
        }
        if (digester.length(), digester.digest()) != (length, digest) {
            digester = Digester::default();
        }
        let mut offset = digester.length();
        self.request(&Request::From { offset })?;
        self.summary.name(&shown(path));
        self.summary.file(offset, size);

        // The file may grow meanwhile; its first bytes, as many as it had, are sent.
        while offset < size {
            self.settle(self.link.slots() - 1)?;
            let (memory, slot) = self.link.next_slot()?;
            let room = slot.start..slot.start + slot.len().min(usize::try_from(size - offset).unwrap_or(usize::MAX));
            let count = match memory.read_file_at(room.clone(), &file, offset) {
                Ok(0) => {
                    bail!("{} changed while it was copied: it had {size} bytes, and now has {offset}", from.display())
                }
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).with_context(|| format!("cannot read {}", from.display())),
            };
            // On its way while we look at it.
            self.link.send_chunk(count)?;
            digester.update_from(self.link.outgoing(), room.start..room.start + count)?;
            self.summary.chunk(count);
            offset += count as u64;
        }
        let mode = file.metadata()?.mode();
        self.request(&Request::End { length: offset, digest: digester.digest(), mode })
    }
}
