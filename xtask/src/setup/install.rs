//! Installing packages.

use std::io;
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context as _, Result, bail};

use super::manager::{Line, Manager, Privilege};
use crate::say;
use crate::step;

/// The status of apt-get when it fails by itself. sudo, refused, has another.
const APT_FAILED: Option<i32> = Some(100);

/// What runs commands.
pub(crate) trait Runner {
    /// Prints the command and runs it.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    fn run(&mut self, command: &mut Command) -> Result<ExitStatus>;

    /// Whether a command that changes nothing succeeds.
    fn ask(&mut self, command: &mut Command) -> bool;
}

/// The one that does it.
#[derive(Debug)]
pub(crate) struct Shell;

impl Runner for Shell {
    fn run(&mut self, command: &mut Command) -> Result<ExitStatus> {
        let text = step::shell(command);
        say!("$ {text}");
        // Standard output is for what the task itself has to say.
        command.stdin(Stdio::null()).stdout(io::stderr());
        command.status().with_context(|| format!("starting `{text}`"))
    }

    fn ask(&mut self, command: &mut Command) -> bool {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

/// Installs `packages`.
///
/// # Errors
///
/// We are not root and have no way to become it, or the package manager fails.
pub(crate) fn install(
    manager: Manager,
    privilege: Privilege,
    packages: &[&'static str],
    runner: &mut dyn Runner,
) -> Result<()> {
    let install = manager.install(packages);
    let refresh = manager.refresh();
    let unknown = manager.query(packages).is_some_and(|query| !runner.ask(&mut query.command(Privilege::Root)));
    let first = refresh.as_ref().filter(|_| unknown);
    if privilege == Privilege::Nobody {
        let lines: Vec<String> =
            first.into_iter().chain([&install]).map(|line| step::shell(&line.command(Privilege::Root))).collect();
        bail!("installing takes root, and there is no sudo here; as root, type:\n    {}", lines.join("\n    "));
    }
    let mut run = |line: &Line| -> Result<ExitStatus> { runner.run(&mut line.command(privilege)) };
    if let Some(line) = first {
        succeeded(run(line)?, line, privilege)?;
    }
    let mut status = run(&install)?;
    // Lists that are some weeks old know the packages but not where they are by now. (Pacman's are not fetched for that: with new
    // lists the whole system wants an upgrade, which is for its owner to decide.)
    if let (Manager::Apt, false, Some(line)) = (manager, unknown, &refresh) {
        if status.code() == APT_FAILED {
            say!("the lists of packages may be too old; once more with new ones");
            succeeded(run(line)?, line, privilege)?;
            status = run(&install)?;
        }
    }
    succeeded(status, &install, privilege)
}

fn succeeded(status: ExitStatus, line: &Line, privilege: Privilege) -> Result<()> {
    if !status.success() {
        bail!("failed ({status}); to repeat it: {}", step::shell(&line.command(privilege)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::fake::Recorder;

    const UPDATE: &str = "apt-get update";
    const INSTALL: &str = "DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
         --option=DPkg::Lock::Timeout=300 gcc kmod";
    const PACKAGES: &[&str] = &["gcc", "kmod"];

    #[test]
    fn known_packages_are_installed_at_once() {
        let mut runner = Recorder::default();
        install(Manager::Apt, Privilege::Root, PACKAGES, &mut runner).expect("all succeeds");
        assert_eq!(runner.commands, [INSTALL]);
    }

    #[test]
    fn unknown_packages_are_installed_after_the_lists_are_fetched() {
        let mut runner = Recorder { lists_are_known: false, ..Recorder::default() };
        install(Manager::Apt, Privilege::Root, PACKAGES, &mut runner).expect("all succeeds");
        assert_eq!(runner.commands, [UPDATE, INSTALL]);
    }

    #[test]
    fn every_command_goes_through_sudo_when_we_are_not_root() {
        let mut runner = Recorder { lists_are_known: false, ..Recorder::default() };
        install(Manager::Apt, Privilege::Sudo, PACKAGES, &mut runner).expect("all succeeds");
        assert_eq!(runner.commands, [format!("sudo {UPDATE}"), format!("sudo env {INSTALL}")]);
    }

    #[test]
    fn lists_that_turn_out_too_old_are_fetched_and_the_installation_repeated() {
        let mut runner = Recorder { statuses: vec![100], ..Recorder::default() };
        install(Manager::Apt, Privilege::Root, PACKAGES, &mut runner).expect("the second try succeeds");
        assert_eq!(runner.commands, [INSTALL, UPDATE, INSTALL]);
    }

    #[test]
    fn an_installation_that_fails_with_new_lists_is_an_error_with_the_command() {
        let mut runner = Recorder { lists_are_known: false, statuses: vec![0, 100], ..Recorder::default() };
        let error = install(Manager::Apt, Privilege::Root, PACKAGES, &mut runner).expect_err("it failed");
        assert_eq!(runner.commands, [UPDATE, INSTALL]);
        assert_eq!(error.to_string(), format!("failed (exit status: 100); to repeat it: {INSTALL}"));
    }

    #[test]
    fn lists_that_cannot_be_fetched_are_an_error_with_the_command() {
        let mut runner = Recorder { lists_are_known: false, statuses: vec![100], ..Recorder::default() };
        let error = install(Manager::Apt, Privilege::Sudo, PACKAGES, &mut runner).expect_err("it failed");
        assert_eq!(runner.commands, [format!("sudo {UPDATE}")]);
        assert_eq!(error.to_string(), format!("failed (exit status: 100); to repeat it: sudo {UPDATE}"));
    }

    #[test]
    fn a_refusal_by_sudo_is_not_tried_again() {
        let mut runner = Recorder { statuses: vec![1], ..Recorder::default() };
        let error = install(Manager::Apt, Privilege::Sudo, PACKAGES, &mut runner).expect_err("it failed");
        assert_eq!(runner.commands, [format!("sudo env {INSTALL}")]);
        assert_eq!(error.to_string(), format!("failed (exit status: 1); to repeat it: sudo env {INSTALL}"));
    }

    #[test]
    fn without_root_and_sudo_nothing_runs_and_the_error_says_what_to_type() {
        let mut runner = Recorder::default();
        let error = install(Manager::Apt, Privilege::Nobody, PACKAGES, &mut runner).expect_err("it cannot");
        assert!(runner.commands.is_empty());
        assert!(error.to_string().ends_with(&format!("as root, type:\n    {INSTALL}")), "{error}");
    }

    #[test]
    fn what_to_type_begins_with_fetching_the_lists_where_they_lack_a_package() {
        let mut runner = Recorder { lists_are_known: false, ..Recorder::default() };
        let error = install(Manager::Apt, Privilege::Nobody, PACKAGES, &mut runner).expect_err("it cannot");
        assert!(error.to_string().ends_with(&format!("as root, type:\n    {UPDATE}\n    {INSTALL}")), "{error}");
    }

    #[test]
    fn pacman_fetches_lists_for_unknown_packages_but_not_after_a_failure() {
        let install_line = "pacman --sync --needed --noconfirm gcc kmod";
        let mut runner = Recorder { lists_are_known: false, ..Recorder::default() };
        install(Manager::Pacman, Privilege::Root, PACKAGES, &mut runner).expect("all succeeds");
        assert_eq!(runner.commands, ["pacman --sync --refresh", install_line]);

        let mut runner = Recorder { statuses: vec![1], ..Recorder::default() };
        install(Manager::Pacman, Privilege::Root, PACKAGES, &mut runner).expect_err("it failed");
        assert_eq!(runner.commands, [install_line]);
    }

    #[test]
    fn dnf_and_zypper_look_after_their_lists_by_themselves() {
        for (manager, expected) in [
            (Manager::Dnf, "dnf install --assumeyes --setopt=install_weak_deps=False gcc kmod"),
            (Manager::Zypper, "zypper --non-interactive install --no-recommends gcc kmod"),
        ] {
            let mut runner = Recorder { lists_are_known: false, ..Recorder::default() };
            install(manager, Privilege::Root, PACKAGES, &mut runner).expect("all succeeds");
            install(manager, Privilege::Sudo, PACKAGES, &mut runner).expect("all succeeds");
            assert_eq!(runner.commands, [expected.to_owned(), format!("sudo {expected}")]);
        }
    }

    #[test]
    fn the_shell_tells_how_a_command_ended() {
        let status =
            |script: &str| Shell.run(Command::new("sh").args(["-c", script])).expect("there is a shell").code();
        assert_eq!(status("exit 0"), Some(0));
        assert_eq!(status("exit 100"), Some(100));
        let error = Shell.run(&mut Command::new("/nonexistent/program")).expect_err("there is no such program");
        assert_eq!(error.to_string(), "starting `/nonexistent/program`");
        assert!(Shell.ask(Command::new("sh").args(["-c", "exit 0"])));
        assert!(!Shell.ask(Command::new("sh").args(["-c", "exit 1"])));
        assert!(!Shell.ask(&mut Command::new("/nonexistent/program")));
    }
}
