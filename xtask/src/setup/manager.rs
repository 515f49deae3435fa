//! The package managers, and what one types to them.

use std::process::Command;

use super::needs::Need;
use super::probe::System;

/// A package manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manager {
    /// Debian, Ubuntu.
    Apt,
    /// Fedora, RHEL.
    Dnf,
    /// Arch Linux.
    Pacman,
    /// openSUSE.
    Zypper,
}

/// Who runs the package manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privilege {
    /// We are root.
    Root,
    /// We may become it, perhaps.
    Sudo,
    /// We cannot.
    Nobody,
}

impl Privilege {
    /// What this process may do.
    pub(crate) fn of_this_process(system: &System) -> Self {
        Self::decide(rustix::process::geteuid().is_root(), system.program("sudo").is_some())
    }

    fn decide(root: bool, sudo: bool) -> Self {
        match (root, sudo) {
            (true, _) => Self::Root,
            (false, true) => Self::Sudo,
            (false, false) => Self::Nobody,
        }
    }
}

/// A command of a package manager.
#[derive(Debug)]
pub(crate) struct Line {
    environment: &'static [(&'static str, &'static str)],
    words: Vec<&'static str>,
}

impl Line {
    /// The command as `privilege` runs it; for [`Privilege::Nobody`], as root would.
    pub(crate) fn command(&self, privilege: Privilege) -> Command {
        let mut command;
        if privilege == Privilege::Sudo {
            command = Command::new("sudo");
            // sudo drops the caller's variables.
            if !self.environment.is_empty() {
                command.arg("env");
                command.args(self.environment.iter().map(|(name, value)| format!("{name}={value}")));
            }
            command.args(&self.words);
        } else {
            command = Command::new(self.words[0]);
            command.args(&self.words[1..]).envs(self.environment.iter().copied());
        }
        command
    }
}

impl Manager {
    /// All of them.
    pub(crate) const ALL: &[Self] = &[Self::Apt, Self::Dnf, Self::Pacman, Self::Zypper];

    /// The one that this system is made with.
    pub(crate) fn detect(system: &System) -> Option<Self> {
        // A system may have a stranger's package manager too (Debian packs dnf and zypper, and a game called pacman), so the
        // distribution's family goes first.
        let family = system.read("etc/os-release").or_else(|| system.read("usr/lib/os-release")).unwrap_or_default();
        let ids: Vec<&str> = family
            .lines()
            .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")))
            .flat_map(|value| value.trim_matches(['"', '\'']).split_whitespace())
            .collect();
        let related = |manager: &Self| ids.iter().any(|id| manager.families().contains(id));
        let installed = |manager: &Self| system.program(manager.program()).is_some();
        let all = || Self::ALL.iter().copied().filter(installed);
        all().find(related).or_else(|| all().next())
    }

    fn program(self) -> &'static str {
        match self {
            Self::Apt => "apt-get",
            Self::Dnf => "dnf",
            Self::Pacman => "pacman",
            Self::Zypper => "zypper",
        }
    }

    fn families(self) -> &'static [&'static str] {
        match self {
            Self::Apt => &["debian", "ubuntu"],
            Self::Dnf => &["fedora", "rhel", "centos"],
            Self::Pacman => &["arch"],
            Self::Zypper => &["suse", "opensuse"],
        }
    }

    /// The package that has what is needed, if this manager's distributions have one.
    pub(crate) fn package(self, need: &Need) -> Option<&'static str> {
        let package = match self {
            Self::Apt => need.packages.apt,
            Self::Dnf => need.packages.dnf,
            Self::Pacman => need.packages.pacman,
            Self::Zypper => need.packages.zypper,
        };
        (!package.is_empty()).then_some(package)
    }

    /// Asks whether the lists here know these packages: it succeeds if so, changes nothing and needs no rights. `None` for those
    /// who look after their lists by themselves.
    pub(crate) fn query(self, packages: &[&'static str]) -> Option<Line> {
        let words: &[_] = match self {
            Self::Apt => &["apt-get", "install", "--simulate", "--no-install-recommends"],
            Self::Pacman => &["pacman", "--sync", "--info"],
            Self::Dnf | Self::Zypper => return None,
        };
        Some(Line { environment: &[], words: [words, packages].concat() })
    }

    /// Fetches the lists of packages.
    pub(crate) fn refresh(self) -> Option<Line> {
        let words: &[_] = match self {
            Self::Apt => &["apt-get", "update"],
            Self::Pacman => &["pacman", "--sync", "--refresh"],
            Self::Dnf | Self::Zypper => return None,
        };
        Some(Line { environment: &[], words: words.to_vec() })
    }

    /// Installs, without questions and without what is only recommended.
    pub(crate) fn install(self, packages: &[&'static str]) -> Line {
        let words: &[_] = match self {
            // A machine that has just started may be upgrading itself; wait for it.
            Self::Apt => {
                &["apt-get", "install", "--yes", "--no-install-recommends", "--option=DPkg::Lock::Timeout=300"]
            }
            Self::Dnf => &["dnf", "install", "--assumeyes", "--setopt=install_weak_deps=False"],
            Self::Pacman => &["pacman", "--sync", "--needed", "--noconfirm"],
            Self::Zypper => &["zypper", "--non-interactive", "install", "--no-recommends"],
        };
        let environment: &[_] = if self == Self::Apt { &[("DEBIAN_FRONTEND", "noninteractive")] } else { &[] };
        Line { environment, words: [words, packages].concat() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::fake::Root;

    #[test]
    fn root_needs_no_sudo_and_others_cannot_do_without() {
        assert_eq!(Privilege::decide(true, true), Privilege::Root);
        assert_eq!(Privilege::decide(true, false), Privilege::Root);
        assert_eq!(Privilege::decide(false, true), Privilege::Sudo);
        assert_eq!(Privilege::decide(false, false), Privilege::Nobody);
    }

    #[test]
    fn the_distribution_says_which_manager_is_its_own() {
        for (release, expected) in [
            ("PRETTY_NAME=\"Debian GNU/Linux 13 (trixie)\"\nID=debian\n", Manager::Apt),
            ("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", Manager::Apt),
            ("ID=fedora\n", Manager::Dnf),
            ("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", Manager::Dnf),
            ("ID=arch\n", Manager::Pacman),
            ("ID='manjaro'\nID_LIKE=arch\n", Manager::Pacman),
            ("ID=\"opensuse-tumbleweed\"\nID_LIKE=\"opensuse suse\"\n", Manager::Zypper),
        ] {
            let root = Root::new();
            root.file("etc/os-release", release);
            for manager in Manager::ALL {
                root.program(&format!("usr/bin/{}", manager.program()));
            }
            assert_eq!(Manager::detect(&root.system()), Some(expected), "{release}");
        }
    }

    #[test]
    fn a_distribution_that_names_no_relative_has_the_manager_that_is_there() {
        let root = Root::new();
        assert_eq!(Manager::detect(&root.system()), None);
        root.program("usr/bin/zypper");
        assert_eq!(Manager::detect(&root.system()), Some(Manager::Zypper));
        root.file("usr/lib/os-release", "ID=nameless\n");
        assert_eq!(Manager::detect(&root.system()), Some(Manager::Zypper));
    }

    #[test]
    fn a_relative_without_its_manager_has_the_manager_that_is_there() {
        let root = Root::new();
        root.file("etc/os-release", "ID=fedora\n").program("usr/bin/apt-get");
        assert_eq!(Manager::detect(&root.system()), Some(Manager::Apt));
    }
}
