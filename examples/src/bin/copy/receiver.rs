//! The receiving end.

use std::io::Write;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use cm::Listener;
use examples::report;

use crate::destination::{Destination, Incoming};
use crate::link::Link;
use crate::message::{Reply, Request};
use crate::path::shown;
use crate::summary::Summary;
use crate::to_peer;

pub(crate) fn run(address: &str, folder: &Path, out: &mut dyn Write) -> Result<()> {
    let destination = Destination::open(folder)?;
    let listener = Listener::bind(address).with_context(|| format!("cannot listen at {address}"))?;
    let local = listener.local_addr().map(|address| address.to_string());
    writeln!(out, "waiting for a sender at {}", local.as_deref().unwrap_or(address))?;
    out.flush()?;
    let link = loop {
        let Some(request) = listener.next_request(None)? else { continue };
        match Link::accept(request) {
            Ok(link) => break link,
            Err(error) => report::note(&format!("not accepted: {error:#}")),
        }
    };
    // One sender; others hear that nobody listens.
    drop(listener);
    let mut receiver = Receiver { link, destination, current: None, announced: None, summary: Summary::new(0, 0) };
    let result = receiver.receive_all();
    receiver.summary.finish();
    match result {
        Ok(()) => {
            writeln!(out, "received from {}: {}", receiver.link.peer(), receiver.summary)?;
            receiver.link.wait_for_end()
        }
        Err(error) => {
            // The sender is told why, if it is still there.
            let told = receiver.link.send_record(&Reply::Failed { reason: to_peer(&error) });
            let _ = told.and_then(|()| receiver.link.wait_for_end());
            Err(error)
        }
    }
}

struct Receiver {
    link: Link,
    destination: Destination,
    /// The file that comes, with its size.
    current: Option<(Incoming, u64)>,
    /// How many files come, and how many bytes they have.
    announced: Option<(u64, u64)>,
    summary: Summary,
}

impl Receiver {
    fn receive_all(&mut self) -> Result<()> {
        loop {
            let arrived = self.link.receive()?;
            let mut reply = Reply::Done;
            if arrived.is_chunk {
                let (incoming, _) = self.current.as_mut().context("the sender sends a chunk of no file")?;
                let (memory, range) = (self.link.incoming(), arrived.range);
                incoming.append(
                    range.len(),
                    |done, file, offset| memory.write_file_at(range.start + done..range.end, file, offset),
                    |digester| digester.update_from(memory, range.clone()),
                )?;
                self.summary.chunk(range.len());
            } else {
                let request = self.link.record(&arrived)?;
                let is_last = request == Request::Finish;
                reply = self.answer(request)?;
                if is_last {
                    return self.link.send_record(&reply);
                }
            }
            // From here on, the sender may write to the slot again.
            self.link.send_record(&reply)?;
        }
    }

    fn answer(&mut self, request: Request) -> Result<Reply> {
        if let Request::Failed { reason } = request {
            bail!("the sender gave up: {reason}");
        }
        let starts = matches!(request, Request::Start { .. });
        ensure!(starts == self.announced.is_none(), "the sender says how much comes twice, or too late");
        let goes_on = matches!(request, Request::From { .. } | Request::End { .. });
        ensure!(goes_on == self.current.is_some(), "the sender goes on before the end of a file, or after it");
        match request {
            Request::Start { files, bytes, skipped } => {
                self.announced = Some((files, bytes));
                self.summary = Summary::new(bytes, skipped);
            }
            Request::Folder { path } => self.destination.folder(&path)?,
            Request::FolderMode { path, mode } => self.destination.folder_mode(&path, mode)?,
            Request::File { path, size } => {
                let incoming = self.destination.file(&path, size)?;
                let (length, digest) = incoming.have();
                self.summary.name(&shown(&path));
                self.current = Some((incoming, size));
                return Ok(Reply::Have { length, digest });
            }
            Request::From { offset } => {
                let (incoming, size) = self.current.as_mut().context("the sender continues no file")?;
                incoming.begin(offset)?;
                self.summary.file(offset, *size);
            }
            Request::End { length, digest, mode } => {
                let (incoming, size) = self.current.take().context("the sender ends no file")?;
                ensure!(length == size, "the sender sent {length} bytes of a file that it said has {size}");
                incoming.finish(length, digest, mode)?;
            }
            Request::Finish => {
                let came = self.summary.total();
                ensure!(
                    self.announced == Some(came),
                    "{} files of {} bytes came, and others were announced",
                    came.0,
                    came.1
                );
            }
            Request::Failed { .. } => {}
        }
        Ok(Reply::Done)
    }
}
