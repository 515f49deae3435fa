//! `setup`: finds what is missing on this system and installs it.
//!
//! Every task that needs something calls [`ensure`] first. It looks for the things themselves, which takes a few milliseconds, so
//! nothing is remembered between runs and nothing can be remembered wrongly.

#[cfg(test)]
mod fake;
mod install;
mod manager;
mod needs;
mod pattern;
pub(crate) mod probe;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::say;
use install::{Runner, Shell};
use manager::{Manager, Privilege};
use needs::Need;
pub(crate) use needs::Needs;
use probe::System;

/// `setup`
///
/// # Errors
///
/// As [`ensure`]; with `check`, none: the status says whether something is missing.
pub(crate) fn run(check: bool) -> Result<i32> {
    if check {
        return Ok(report(&System::host()));
    }
    ensure(Needs::ALL)?;
    say!("all that is needed is installed");
    Ok(0)
}

/// Installs what is missing for `purposes`; says nothing when nothing is.
///
/// # Errors
///
/// Something is missing and cannot be installed: the message says what to do.
pub(crate) fn ensure(purposes: &[Needs]) -> Result<()> {
    let system = System::host();
    ensure_on(&system, Privilege::of_this_process(&system), &mut Shell, purposes)
}

/// A program, in the search path or among the administrator's.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    System::host().program(name)
}

/// The static busybox.
///
/// # Errors
///
/// There is none.
pub(crate) fn busybox() -> Result<PathBuf> {
    System::host().static_busybox().context("there is no static busybox: run `cargo xtask setup`")
}

/// A command that needs root, through sudo when we are not root.
///
/// # Errors
///
/// There is no way to become root.
pub(crate) fn as_root(words: &[&str]) -> Result<Command> {
    let mut words = words.to_vec();
    match Privilege::of_this_process(&System::host()) {
        Privilege::Root => {}
        Privilege::Sudo => words.insert(0, "sudo"),
        Privilege::Nobody => bail!("`{}` needs root, and there is no sudo", words.join(" ")),
    }
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    Ok(command)
}

fn ensure_on(system: &System, privilege: Privilege, runner: &mut dyn Runner, purposes: &[Needs]) -> Result<()> {
    let mut missing = missing(system, purposes);
    missing.retain(|need| need.needs != Needs::Rust);
    if missing.is_empty() {
        return complete(system, purposes);
    }
    for need in &missing {
        say!("missing: {}, for {}", need.what, need.needs.purpose());
    }
    let Some(manager) = Manager::detect(system) else {
        let names: Vec<&str> = missing.iter().map(|need| need.what).collect();
        bail!(
            "none of the package managers known here (apt, dnf, pacman, zypper) is on this system. Install by its own means, then \
             try again: {}",
            names.join("; ")
        );
    };
    let mut packages: Vec<&str> = missing.iter().filter_map(|need| manager.package(need)).collect();
    packages.sort_unstable();
    packages.dedup();
    if !packages.is_empty() {
        install::install(manager, privilege, &packages, runner)?;
    }
    complete(system, purposes)
}

/// Fails when something is missing that no package manager of ours could install.
fn complete(system: &System, purposes: &[Needs]) -> Result<()> {
    let missing = missing(system, purposes);
    if missing.is_empty() {
        return Ok(());
    }
    let manager = Manager::detect(system);
    let list: Vec<String> = missing
        .iter()
        .map(|need| format!("{}, for {}: {}", need.what, need.needs.purpose(), remedy(need, manager)))
        .collect();
    bail!("still missing:\n    {}", list.join("\n    "))
}

/// Says of each need whether it is there; the status is 1 if one is missing.
fn report(system: &System) -> i32 {
    let manager = Manager::detect(system);
    let mut missing = 0;
    for need in needs::ALL {
        match system.find(&need.probe) {
            Some(path) => say!("present  {}: {}", need.what, path.display()),
            None => {
                missing += 1;
                say!("MISSING  {}, for {}: {}", need.what, need.needs.purpose(), remedy(need, manager));
            }
        }
    }
    if missing == 0 {
        say!("all {} are present", needs::ALL.len());
        return 0;
    }
    say!("{missing} of {} are missing; to install them: cargo xtask setup", needs::ALL.len());
    1
}

/// What would bring it.
fn remedy(need: &Need, manager: Option<Manager>) -> String {
    if need.needs == Needs::Rust {
        let package = manager.and_then(|manager| manager.package(need)).unwrap_or(need.what);
        return format!(
            "`rustup component add {}`, or the distribution's package {package} if Rust is from there",
            need.what
        );
    }
    match manager {
        Some(manager) => match manager.package(need) {
            Some(package) => format!("package {package}"),
            None => "this distribution has no package of it; build it from its source".to_owned(),
        },
        None => format!("Debian's package {}", need.packages.apt),
    }
}

fn missing(system: &System, purposes: &[Needs]) -> Vec<&'static Need> {
    needs::ALL.iter().filter(|need| purposes.contains(&need.needs) && system.find(&need.probe).is_none()).collect()
}

#[cfg(test)]
mod tests {
    use super::fake::{Recorder, Root};
    use super::*;

    /// A Debian system with all that is needed, except what `lacks` says.
    fn debian(lacks: impl Fn(&Need) -> bool) -> Root {
        let root = Root::new();
        root.debian();
        add(&root, |need| !lacks(need));
        root
    }

    fn add(root: &Root, wanted: impl Fn(&Need) -> bool) {
        needs::ALL.iter().filter(|need| wanted(need)).for_each(|need| root.satisfy(&need.probe));
    }

    fn packages(command: &str) -> Vec<&str> {
        command
            .split(' ')
            .skip_while(|word| *word != "install")
            .filter(|word| !word.starts_with("--"))
            .skip(1)
            .collect()
    }

    #[test]
    fn nothing_runs_when_nothing_is_missing() {
        let root = debian(|_| false);
        let mut runner = Recorder::default();
        ensure_on(&root.system(), Privilege::Nobody, &mut runner, Needs::ALL).expect("all is there");
        assert!(runner.commands.is_empty());
        assert_eq!(report(&root.system()), 0);
    }

    #[test]
    fn a_bare_system_gets_every_package_once() {
        let root = debian(|need| need.needs != Needs::Rust);
        let mut runner =
            Recorder { effect: Box::new(|_| add(&root, |need| need.needs != Needs::Rust)), ..Recorder::default() };
        ensure_on(&root.system(), Privilege::Root, &mut runner, Needs::ALL).expect("all gets installed");
        assert_eq!(runner.commands.len(), 1);
        assert_eq!(
            packages(&runner.commands[0]),
            [
                "binutils",
                "busybox-static",
                "cpio",
                "gcc",
                "gzip",
                "ibverbs-providers",
                "ibverbs-utils",
                "iproute2",
                "kmod",
                "libc6-dev",
                "libclang-dev",
                "libibverbs-dev",
                "librdmacm-dev",
                "lld",
                "perftest",
                "pkg-config",
                "qemu-system-data",
                "qemu-system-x86",
                "rdmacm-utils",
                "util-linux",
                "valgrind",
                "xz-utils",
                "zstd"
            ]
        );
    }

    #[test]
    fn only_what_the_task_needs_is_installed() {
        let root = debian(|need| matches!(need.what, "zstd" | "valgrind" | "pkg-config"));
        let mut runner =
            Recorder { effect: Box::new(|_| add(&root, |need| need.what == "zstd")), ..Recorder::default() };
        ensure_on(&root.system(), Privilege::Root, &mut runner, &[Needs::Machine]).expect("it gets installed");
        assert_eq!(packages(&runner.commands[0]), ["zstd"]);
        ensure_on(&root.system(), Privilege::Root, &mut runner, &[Needs::Machine]).expect("all is there by now");
        assert_eq!(runner.commands.len(), 1);
    }

    #[test]
    fn what_installing_did_not_bring_is_named() {
        let root = debian(|need| need.what == "zstd");
        let error = ensure_on(&root.system(), Privilege::Root, &mut Recorder::default(), Needs::ALL)
            .expect_err("it is not there");
        assert_eq!(error.to_string(), "still missing:\n    zstd, for the virtual machine: package zstd");
    }

    #[test]
    fn a_failing_package_manager_ends_it() {
        let root = debian(|need| need.what == "zstd");
        let mut runner = Recorder { lists_are_known: false, statuses: vec![100], ..Recorder::default() };
        let error = ensure_on(&root.system(), Privilege::Root, &mut runner, Needs::ALL).expect_err("it failed");
        assert_eq!(error.to_string(), "failed (exit status: 100); to repeat it: apt-get update");
    }

    #[test]
    fn parts_of_rust_are_asked_for_and_not_installed() {
        let root = debian(|need| need.what == "clippy");
        let mut runner = Recorder::default();
        let error = ensure_on(&root.system(), Privilege::Root, &mut runner, Needs::ALL).expect_err("it is not there");
        assert!(runner.commands.is_empty());
        assert!(
            error.to_string().contains("`rustup component add clippy`, or the distribution's package rust-clippy "),
            "{error}"
        );
        ensure_on(&root.system(), Privilege::Root, &mut runner, &[Needs::Build, Needs::Machine, Needs::Tests])
            .expect("these do without");
    }

    #[test]
    fn a_system_with_an_unknown_package_manager_is_told_what_to_install() {
        let root = Root::new();
        add(&root, |need| !matches!(need.what, "zstd" | "valgrind"));
        let mut runner = Recorder::default();
        let error = ensure_on(&root.system(), Privilege::Root, &mut runner, Needs::ALL).expect_err("it cannot");
        assert!(runner.commands.is_empty());
        assert!(error.to_string().ends_with("try again: zstd; valgrind"), "{error}");
    }

    #[test]
    fn what_a_distribution_has_no_package_of_does_not_keep_the_rest_away() {
        let root = Root::new();
        root.file("etc/os-release", "ID=arch\n").program("usr/bin/pacman");
        add(&root, |need| !matches!(need.what, "zstd" | "perftest (ib_send_bw)"));
        let mut runner =
            Recorder { effect: Box::new(|_| add(&root, |need| need.what == "zstd")), ..Recorder::default() };
        let error =
            ensure_on(&root.system(), Privilege::Root, &mut runner, Needs::ALL).expect_err("perftest is not there");
        assert_eq!(runner.commands, ["pacman --sync --needed --noconfirm zstd"]);
        assert!(
            error.to_string().contains(
                "perftest (ib_send_bw), for the tests and `cargo xtask bench`: this distribution has no package"
            ),
            "{error}"
        );
    }

    #[test]
    fn check_runs_no_package_manager_and_its_status_says_that_something_is_missing() {
        let root = debian(|need| need.what == "zstd");
        let trace = root.path("trace");
        for program in ["apt-get", "apt-cache", "sudo"] {
            root.script(&format!("usr/bin/{program}"), &format!("echo {program} >>'{}'", trace.display()));
        }
        assert_eq!(report(&root.system()), 1);
        assert!(!trace.exists());
        add(&root, |need| need.what == "zstd");
        assert_eq!(report(&root.system()), 0);
    }
}
