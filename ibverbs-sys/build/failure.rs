//! How the build ends when something is missing: one message that says what to install.

use std::process::exit;

/// What to install, by package manager.
#[derive(Clone, Copy)]
pub(crate) struct Packages {
    pub(crate) apt: &'static str,
    pub(crate) dnf: &'static str,
    pub(crate) pacman: &'static str,
    pub(crate) zypper: &'static str,
}

pub(crate) const PKG_CONFIG: Packages =
    Packages { apt: "pkg-config", dnf: "pkgconf-pkg-config", pacman: "pkgconf", zypper: "pkg-config" };

pub(crate) const LIBCLANG: Packages =
    Packages { apt: "libclang-dev", dnf: "clang-devel", pacman: "clang", zypper: "clang-devel" };

/// A C compiler with the C library's headers and the kernel's.
pub(crate) const C: Packages =
    Packages { apt: "gcc libc6-dev", dnf: "gcc glibc-devel", pacman: "gcc", zypper: "gcc glibc-devel" };

/// Ends the build because something is not installed. `alternative` is what else would help, if anything.
pub(crate) fn missing(problem: &str, packages: &Packages, alternative: &str) -> ! {
    let Packages { apt, dnf, pacman, zypper } = packages;
    let mut message = format!(
        "{problem}\n\
         To install what is missing:\n    \
         Debian, Ubuntu:  apt install {apt}\n    \
         Fedora, RHEL:    dnf install {dnf}\n    \
         Arch Linux:      pacman -S {pacman}\n    \
         openSUSE:        zypper install {zypper}"
    );
    if !alternative.is_empty() {
        message.push('\n');
        message.push_str(alternative);
    }
    stop(&message)
}

/// Ends the build with `message`.
///
/// Cargo shows what comes as `cargo::error` and then fails by itself. Were the status not 0, it would print all our output besides.
pub(crate) fn stop(message: &str) -> ! {
    for line in message.lines() {
        println!("cargo::error={line}");
    }
    exit(0)
}
