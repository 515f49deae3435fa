//! The folder into which the receiver puts what comes, and nothing outside of it.
//!
//! Each name of a path is opened in the folder before it, and never through a symbolic link: neither a path of the sender's nor a link that
//! lies in the destination leads out of it.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use rustix::fs::{self, AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::digest::{Digest, Digester};
use crate::path::{names, shown};

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Not to be kept waiting by a FIFO that has the name.
const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);
/// The longest name of a file.
const NAME_MAX: usize = 255;

/// The destination.
pub(crate) struct Destination {
    root: OwnedFd,
}

impl Destination {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let root = fs::open(path, FOLDER.difference(OFlags::NOFOLLOW), Mode::empty())
            .with_context(|| format!("{} has to be a folder that is there", path.display()))?;
        Ok(Self { root })
    }

    /// The folder in which the last name of a path is, and that name.
    fn place<'a>(&self, path: &'a [u8]) -> Result<(OwnedFd, &'a OsStr)> {
        let names = names(path)?;
        let (last, folders) = names.split_last().context("a path without a name")?;
        let mut folder = self.root.try_clone()?;
        for name in folders {
            folder = fs::openat(&folder, *name, FOLDER, Mode::empty()).with_context(|| not_a_folder(path, name))?;
        }
        Ok((folder, last))
    }

    /// Makes a folder, unless it is there; until its contents have come, its owner may write to it.
    pub(crate) fn folder(&self, path: &[u8]) -> Result<()> {
        let (parent, name) = self.place(path)?;
        match fs::mkdirat(&parent, name, Mode::RWXU) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                let folder =
                    fs::openat(&parent, name, FOLDER, Mode::empty()).with_context(|| not_a_folder(path, name))?;
                let mode = Mode::from_raw_mode(fs::fstat(&folder)?.st_mode & 0o777);
                if !mode.contains(Mode::RWXU) {
                    fs::fchmod(&folder, mode | Mode::RWXU)?;
                }
            }
            Err(error) => return Err(error).with_context(|| format!("cannot make the folder {}", shown(path))),
        }
        Ok(())
    }

    /// Gives a folder its permissions, and has the disk know what is in it.
    pub(crate) fn folder_mode(&self, path: &[u8], mode: u32) -> Result<()> {
        let (parent, name) = self.place(path)?;
        let folder = fs::openat(&parent, name, FOLDER, Mode::empty()).with_context(|| not_a_folder(path, name))?;
        fs::fchmod(&folder, permissions(mode))?;
        Ok(fs::fsync(&folder)?)
    }

    /// Looks for what is there of a file of `size` bytes: the whole of it, or the part that an earlier copy got.
    pub(crate) fn file(&self, path: &[u8], size: u64) -> Result<Incoming> {
        let (folder, name) = self.place(path)?;
        let partial = partial_name(name);
        let what = || format!("cannot write {}", shown(path));
        let file = match fs::openat(&folder, &*partial, FILE | OFlags::RDWR, Mode::empty()) {
            Ok(file) => Some(file),
            Err(Errno::NOENT) => None,
            // It had its permissions already when the earlier copy ended, and may be read-only.
            Err(Errno::ACCESS) => {
                fs::unlinkat(&folder, &*partial, AtFlags::empty()).with_context(what)?;
                None
            }
            Err(error) => return Err(error).with_context(what).context("the part that is there cannot be opened"),
        };
        let mut incoming = Incoming {
            folder,
            name: name.into(),
            partial,
            file: None,
            is_whole: false,
            digester: Digester::default(),
            path: shown(path),
        };
        if let Some(file) = file {
            incoming.take(file)?;
        } else if let Ok(file) = fs::openat(&incoming.folder, name, FILE | OFlags::RDONLY, Mode::empty()) {
            let status = fs::fstat(&file)?;
            if FileType::from_raw_mode(status.st_mode) == FileType::RegularFile && status.st_size as u64 == size {
                incoming.is_whole = true;
                incoming.file = Some(file.into());
            }
        }
        if let Some(file) = &incoming.file {
            incoming.digester.update_from_file(file, u64::MAX)?;
        }
        Ok(incoming)
    }
}

/// A file that comes.
pub(crate) struct Incoming {
    folder: OwnedFd,
    name: OsString,
    /// The name that it has until it is whole.
    partial: OsString,
    file: Option<File>,
    /// It is there, under its name.
    is_whole: bool,
    digester: Digester,
    path: String,
}

impl Incoming {
    /// How much is there, and its checksum.
    pub(crate) fn have(&self) -> (u64, Digest) {
        (self.digester.length(), self.digester.digest())
    }

    /// The file of the part, which no other copy writes to.
    fn take(&mut self, file: OwnedFd) -> Result<()> {
        if FileType::from_raw_mode(fs::fstat(&file)?.st_mode) != FileType::RegularFile {
            bail!("{:?}, beside {}, is no file; remove it", self.partial, self.path);
        }
        match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => bail!("another copy is writing {}; wait for its end", self.path),
            Err(error) => return Err(error).with_context(|| format!("cannot lock {}", self.path)),
        }
        self.file = Some(file.into());
        Ok(())
    }

    /// What follows begins at `offset`: after all that is there, or at 0 with nothing of it.
    pub(crate) fn begin(&mut self, offset: u64) -> Result<()> {
        if offset == self.digester.length() && self.file.is_some() {
            return Ok(());
        }
        if offset != 0 {
            bail!("the sender continues {} at {offset}, where it does not end", self.path);
        }
        self.digester = Digester::default();
        if self.file.is_none() || self.is_whole {
            self.is_whole = false;
            let flags = FILE | OFlags::RDWR | OFlags::CREATE;
            let file = fs::openat(&self.folder, &*self.partial, flags, Mode::RUSR | Mode::WUSR)
                .with_context(|| format!("cannot write {}", self.path))?;
            self.take(file)?;
        }
        Ok(self.file()?.set_len(0)?)
    }

    fn file(&self) -> Result<&File> {
        self.file.as_ref().with_context(|| format!("the sender has not said where {} begins", self.path))
    }

    /// Puts bytes at the end: `write` is given the file and the place, and tells how many it wrote.
    pub(crate) fn append(
        &mut self,
        length: usize,
        mut write: impl FnMut(usize, &File, u64) -> std::io::Result<usize>,
        digest: impl FnOnce(&mut Digester) -> Result<()>,
    ) -> Result<()> {
        let offset = self.digester.length();
        if self.is_whole {
            bail!("the sender sends more of {}, which is whole", self.path);
        }
        let file = self.file()?;
        let mut done = 0;
        while done < length {
            match write(done, file, offset + done as u64) {
                Ok(0) => bail!("cannot write {}: the disk takes no more", self.path),
                Ok(count) => done += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).with_context(|| format!("cannot write {}", self.path)),
            }
        }
        digest(&mut self.digester)
    }

    /// The file is whole: it gets its name if it is what the sender says.
    pub(crate) fn finish(self, length: u64, digest: Digest, mode: u32) -> Result<()> {
        let file = self.file()?;
        if self.have() != (length, digest) {
            bail!(
                "{} has another checksum than at the sender, after {} of {length} bytes; what came is in {:?}: start the copy again",
                self.path,
                self.digester.length(),
                self.partial
            );
        }
        fs::fchmod(file, permissions(mode)).with_context(|| format!("cannot set the permissions of {}", self.path))?;
        if !self.is_whole {
            let what = || format!("cannot give {} its name", self.path);
            file.sync_all().with_context(what)?;
            fs::renameat(&self.folder, &*self.partial, &self.folder, &*self.name).with_context(what)?;
            fs::fsync(&self.folder).with_context(what)?;
        }
        Ok(())
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        // A part of nothing is of no use to the next run.
        let begun = self.file.is_some() && !self.is_whole && self.digester.length() == 0;
        if begun {
            let _ = fs::unlinkat(&self.folder, &*self.partial, AtFlags::empty());
        }
    }
}

/// No more than the permissions: a peer makes no program run as somebody else.
fn permissions(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o777)
}

fn not_a_folder(path: &[u8], name: &OsStr) -> String {
    format!("cannot write {}: {name:?} is no folder of the destination", shown(path))
}

/// The name of a file until it is whole.
fn partial_name(name: &OsStr) -> OsString {
    let readable = [b".", name.as_bytes(), b".partial"].concat();
    match readable.len() <= NAME_MAX {
        true => OsStr::from_bytes(&readable).into(),
        false => format!(".{:032x}.partial", xxhash_rust::xxh3::xxh3_128(name.as_bytes())).into(),
    }
}
