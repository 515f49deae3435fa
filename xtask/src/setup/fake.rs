//! Stand-ins for the tests: a file system with a few files, and a runner that only notes what it is told.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use anyhow::Result;
use tempfile::TempDir;

use super::install::Runner;
use super::probe::{Probe, System};
use crate::step;

/// A file system.
#[derive(Debug)]
pub(crate) struct Root(TempDir);

impl Root {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder can be made"))
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    /// Adds a file.
    pub(crate) fn file(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("it is below the root")).expect("the folder can be made");
        fs::write(&path, content).expect("the file can be written");
        self
    }

    /// Adds a file that can be executed, as far as one can see.
    pub(crate) fn program(&self, path: &str) -> &Self {
        self.executable(path, "")
    }

    pub(crate) fn executable(&self, path: &str, content: impl AsRef<[u8]>) -> &Self {
        self.file(path, content);
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(0o755)).expect("the mode can be changed");
        self
    }

    /// Adds a script that does run. A child writes it: if we did, a program that another test starts meanwhile could hold it open
    /// for writing, and Linux runs no such file.
    pub(crate) fn script(&self, path: &str, content: &str) -> &Self {
        self.program(path);
        let mut shell = Command::new("sh");
        shell.args(["-c", "rm \"$2\" && printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$2\" && chmod 755 \"$2\"", "sh", content]);
        assert!(shell.arg(self.path(path)).status().expect("there is a shell").success());
        self
    }

    pub(crate) fn debian(&self) -> &Self {
        self.file("etc/os-release", "ID=debian\n").program("usr/bin/apt-get")
    }

    pub(crate) fn system(&self) -> System {
        self.system_with([])
    }

    pub(crate) fn system_with<const N: usize>(&self, variables: [(&str, &Path); N]) -> System {
        System::new(self.0.path(), variables.map(|(name, value)| (OsString::from(name), value.as_os_str().to_owned())))
    }

    /// Adds what `probe` looks for.
    pub(crate) fn satisfy(&self, probe: &Probe) {
        match *probe {
            Probe::Program(name) | Probe::Toolchain(name) => self.program(&format!("usr/bin/{name}")),
            Probe::Header(file) | Probe::LibraryHeader { file, .. } => self.file(&format!("usr/include/{file}"), ""),
            Probe::Files(patterns) => self.file(&patterns[0].replace('*', "x"), ""),
            Probe::Libclang => self.file("usr/lib/llvm-19/lib/libclang.so", ""),
            Probe::ClangHeaders => self.file("usr/lib/llvm-19/lib/clang/19/include/stddef.h", ""),
            Probe::StaticBusybox => self.executable("usr/bin/busybox", elf(&[1])),
        };
    }
}

/// The start of an ELF program with program headers of these types.
pub(crate) fn elf(kinds: &[u32]) -> Vec<u8> {
    let mut bytes = b"\x7fELF\x02\x01".to_vec();
    bytes.resize(64, 0);
    bytes[32] = 64;
    bytes[54] = 56;
    bytes[56] = u8::try_from(kinds.len()).expect("there are few");
    for kind in kinds {
        bytes.extend(kind.to_le_bytes());
        bytes.resize(bytes.len() + 52, 0);
    }
    bytes
}

/// A runner that notes commands.
pub(crate) struct Recorder<'a> {
    pub(crate) commands: Vec<String>,
    /// Whether the lists know all packages.
    pub(crate) lists_are_known: bool,
    /// Exit statuses of the commands, in order; 0 from then on.
    pub(crate) statuses: Vec<i32>,
    /// What a command does when it succeeds.
    pub(crate) effect: Box<dyn FnMut(&str) + 'a>,
}

impl Default for Recorder<'_> {
    fn default() -> Self {
        Self { commands: Vec::new(), lists_are_known: true, statuses: Vec::new(), effect: Box::new(|_| ()) }
    }
}

impl Runner for Recorder<'_> {
    fn run(&mut self, command: &mut Command) -> Result<ExitStatus> {
        let text = step::shell(command);
        let status = self.statuses.get(self.commands.len()).copied().unwrap_or(0);
        if status == 0 {
            (self.effect)(&text);
        }
        self.commands.push(text);
        Ok(ExitStatus::from_raw(status << 8))
    }

    fn ask(&mut self, _: &mut Command) -> bool {
        self.lists_are_known
    }
}
