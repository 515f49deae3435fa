//! The package managers of the distributions.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Lists older than this may name packages that are no longer there.
const OLD: Duration = Duration::from_secs(7 * 24 * 3600);

/// A package manager; the order is that of the package table's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manager {
    Apt,
    Dnf,
    Pacman,
    Zypper,
}

impl Manager {
    /// The one of this system.
    pub(crate) fn find(root: &Path) -> Option<Self> {
        let all = [(Self::Apt, "apt-get"), (Self::Dnf, "dnf"), (Self::Pacman, "pacman"), (Self::Zypper, "zypper")];
        all.into_iter().find(|(_, program)| root.join("usr/bin").join(program).exists()).map(|(manager, _)| manager)
    }

    /// The command that brings the package lists up to date, if there is one to give apart from installing.
    pub(crate) fn update(self) -> Option<Vec<String>> {
        (self == Self::Apt).then(|| words(&["apt-get", "update"]))
    }

    /// The command that installs `packages` without asking.
    pub(crate) fn install(self, packages: &[&str]) -> Vec<String> {
        let command: &[&str] = match self {
            Self::Apt => {
                &["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "--no-install-recommends"]
            }
            Self::Dnf => &["dnf", "install", "--assumeyes"],
            Self::Pacman => &["pacman", "--sync", "--refresh", "--needed", "--noconfirm"],
            Self::Zypper => &["zypper", "--non-interactive", "install"],
        };
        words(&[command, packages].concat())
    }

    /// Whether apt's lists under `root` are absent or old.
    pub(crate) fn lists_are_old(self, root: &Path) -> bool {
        if self != Self::Apt {
            return false;
        }
        let entries = fs::read_dir(root.join("var/lib/apt/lists")).into_iter().flatten().flatten();
        let lists = entries.filter(|entry| entry.file_name().to_string_lossy().contains("_Packages"));
        let newest = lists.filter_map(|entry| entry.metadata().ok()).count();
        // The files carry the archive's time; the folder's is that of the last update.
        let updated = fs::metadata(root.join("var/lib/apt/lists/partial")).and_then(|data| data.modified());
        let age = updated.ok().and_then(|time| SystemTime::now().duration_since(time).ok());
        newest == 0 || age.is_none_or(|age| age > OLD)
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_manager_is_recognised_by_its_program() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Manager::find(root.path()), None);
        fs::create_dir_all(root.path().join("usr/bin")).unwrap();
        fs::write(root.path().join("usr/bin/zypper"), "").unwrap();
        assert_eq!(Manager::find(root.path()), Some(Manager::Zypper));
    }

    #[test]
    fn apt_installs_without_questions() {
        let command = Manager::Apt.install(&["gcc", "xz-utils"]).join(" ");
        assert_eq!(
            command,
            "env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends gcc xz-utils"
        );
    }

    #[test]
    fn absent_lists_are_old_and_new_ones_are_not() {
        let root = tempfile::tempdir().unwrap();
        assert!(Manager::Apt.lists_are_old(root.path()));
        fs::create_dir_all(root.path().join("var/lib/apt/lists/partial")).unwrap();
        assert!(Manager::Apt.lists_are_old(root.path()));
        fs::write(root.path().join("var/lib/apt/lists/a_Packages"), "").unwrap();
        assert!(!Manager::Apt.lists_are_old(root.path()));
        assert!(!Manager::Dnf.lists_are_old(Path::new("/nowhere")));
    }
}
