//! The host's processor or software emulation: which of them works here is found out once and remembered.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::fetch::write_whole;
use crate::say;

/// What runs the guest's processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accelerator {
    /// The host's processor.
    Kvm,
    /// Software emulation.
    Tcg,
}

impl Accelerator {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kvm => "KVM",
            Self::Tcg => "software emulation",
        }
    }
}

/// What is known of KVM on this host, for this kernel, until the host restarts or QEMU changes.
#[derive(Debug)]
pub(crate) struct Memory {
    path: PathBuf,
    key: String,
}

impl Memory {
    /// `cache` is `target/vm`, `release` the guest's kernel.
    pub(crate) fn new(cache: &Path, release: &str, qemu: &Path) -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let built = fs::metadata(qemu).and_then(|data| data.modified()).ok();
        let built = built.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default().as_secs();
        Self {
            path: cache.join(format!("accelerator-{release}")),
            key: format!("host boot {} qemu {built}", boot.trim()),
        }
    }

    /// What to try first: KVM, unless it is out of reach or has failed before.
    pub(crate) fn first_choice(&self) -> Accelerator {
        let open = fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
        if open.is_err() || self.recall() == Some(false) { Accelerator::Tcg } else { Accelerator::Kvm }
    }

    /// Whether KVM worked, if that was tried.
    pub(crate) fn recall(&self) -> Option<bool> {
        let text = fs::read_to_string(&self.path).ok()?;
        let (key, answer) = text.trim().rsplit_once(": ")?;
        (key == self.key).then_some(answer == "works")
    }

    /// Keeps the answer.
    pub(crate) fn keep(&self, works: bool) {
        if self.recall() == Some(works) {
            return;
        }
        let answer = if works { "works" } else { "does not work" };
        if let Err(error) = write_whole(&self.path, format!("{}: {answer}\n", self.key).as_bytes()) {
            // The next run finds out anew.
            say!("{error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_out_of_kvm_is_remembered_for_this_qemu_alone() {
        let cache = tempfile::tempdir().unwrap();
        let (qemu, other) = (cache.path().join("qemu"), cache.path().join("none"));
        fs::write(&qemu, "").unwrap();
        let memory = Memory::new(cache.path(), "6.1", &qemu);
        assert_eq!(memory.recall(), None);
        memory.keep(false);
        assert_eq!(memory.recall(), Some(false));
        assert_eq!(memory.first_choice(), Accelerator::Tcg);
        assert_eq!(Memory::new(cache.path(), "6.1", &other).recall(), None);
        memory.keep(true);
        assert_eq!(memory.recall(), Some(true));
    }
}
