//! `setup`: finds what the system lacks for the other tasks, and installs it.

mod manager;
mod needs;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::say;
use crate::step;
use crate::workspace;
use manager::Manager;
use needs::{NEEDS, Need};
pub(crate) use needs::{Purpose, find_program};

/// `setup [--check]`
///
/// # Errors
///
/// Something is missing and cannot be installed.
pub(crate) fn run(check: bool) -> Result<i32> {
    report_toolchain();
    let missing = missing(Purpose::Test);
    if missing.is_empty() {
        say!("all is there that the tasks need of the system");
        return Ok(0);
    }
    report(&missing);
    if check {
        say!("to install it: cargo xtask setup");
        return Ok(1);
    }
    install(&missing, Purpose::Test)?;
    Ok(0)
}

/// Sees to it that a task finds what it needs.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn ensure(purpose: Purpose) -> Result<()> {
    let missing = missing(purpose);
    if missing.is_empty() {
        return Ok(());
    }
    report(&missing);
    install(&missing, purpose)
}

/// The static busybox.
///
/// # Errors
///
/// There is none.
pub(crate) fn busybox() -> Result<PathBuf> {
    needs::static_busybox().context("there is no static busybox: run `cargo xtask setup`")
}

fn missing(purpose: Purpose) -> Vec<&'static Need> {
    NEEDS.iter().filter(|need| need.purpose <= purpose && !need.is_met()).collect()
}

fn report(missing: &[&Need]) {
    for need in missing {
        let tasks = if need.purpose == Purpose::Run { "run, vm, test and ci" } else { "test and ci" };
        say!("missing: {} (for {tasks})", need.what);
    }
}

/// The parts of the Rust toolchain come from rustup or the distribution's Rust packages: they are reported only.
fn report_toolchain() {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot =
        output.map(|output| PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())).unwrap_or_default();
    for (program, component) in [("cargo-clippy", "clippy"), ("rustfmt", "rustfmt")] {
        // Distributions put them beside their rustc, rustup into each toolchain.
        if !sysroot.join("bin").join(program).exists()
            && (sysroot.as_os_str().is_empty() || find_program(program).is_none())
        {
            say!("note: {program} is not there, which only `cargo xtask ci` wants: rustup component add {component}");
        }
    }
}

fn install(missing: &[&Need], purpose: Purpose) -> Result<()> {
    let root = Path::new("/");
    let Some(manager) = Manager::find(root) else {
        let names: Vec<&str> = missing.iter().filter_map(|need| need.package(Manager::Apt)).collect();
        bail!(
            "this system has none of apt, dnf, pacman and zypper: install what is missing (Debian's packages: {})",
            names.join(" ")
        );
    };
    for need in missing.iter().filter(|need| need.package(manager).is_none()) {
        say!("note: this distribution has no package of {}; some tests will fail without it", need.what);
    }
    let mut packages: Vec<&str> = missing.iter().filter_map(|need| need.package(manager)).collect();
    packages.sort_unstable();
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    let install = manager.install(&packages);
    let Some(prefix) = privilege() else {
        let update = manager.update().map(|words| words.join(" ") + " && ").unwrap_or_default();
        bail!(
            "installing needs root, and there is no sudo; have this run as root, then try again:\n    {update}{}",
            install.join(" ")
        );
    };
    let updated = manager.lists_are_old(root);
    if updated {
        update(manager, &prefix)?;
    }
    if let Err(error) = perform(&prefix, &install) {
        // The lists may name versions that the archive no longer has.
        if updated || manager.update().is_none() {
            return Err(error);
        }
        update(manager, &prefix)?;
        perform(&prefix, &install)?;
    }
    let still: Vec<&str> =
        self::missing(purpose).iter().filter(|need| need.package(manager).is_some()).map(|need| need.what).collect();
    if !still.is_empty() {
        bail!("still missing after the installation: {}", still.join(", "));
    }
    say!("all is there now");
    Ok(())
}

fn update(manager: Manager, prefix: &[&str]) -> Result<()> {
    manager.update().map_or(Ok(()), |words| perform(prefix, &words))
}

fn perform(prefix: &[&str], words: &[String]) -> Result<()> {
    let words: Vec<&str> = prefix.iter().copied().chain(words.iter().map(String::as_str)).collect();
    let mut command = Command::new(words[0]);
    workspace::without_cargos_variables(&mut command);
    step::run(command.args(&words[1..]))
}

/// What to put before a command that only root may give; `None` when there is no way to become root.
fn privilege() -> Option<Vec<&'static str>> {
    if rustix::process::geteuid().is_root() {
        return Some(Vec::new());
    }
    find_program("sudo")?;
    // Without a terminal sudo cannot ask for a password.
    if std::io::stdin().is_terminal() {
        return Some(vec!["sudo"]);
    }
    let allowed =
        Command::new("sudo").args(["--non-interactive", "true"]).output().is_ok_and(|output| output.status.success());
    allowed.then(|| vec!["sudo", "--non-interactive"])
}

/// A command that needs root, through sudo when we are not root.
///
/// # Errors
///
/// There is no way to become root.
pub(crate) fn as_root(words: &[&str]) -> Result<Command> {
    let prefix = privilege().with_context(|| format!("`{}` needs root, and there is no sudo", words.join(" ")))?;
    let words: Vec<&str> = prefix.into_iter().chain(words.iter().copied()).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    Ok(command)
}
