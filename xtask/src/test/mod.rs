//! `test`: builds every test once, runs those that need a device in one boot and the others on this host.

mod objects;
mod sanitize;
mod summary;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::device::Choice;
use crate::flags;
use crate::place::{Ending, Place};
use crate::process::{Input, Program, Stream};
use crate::say;
use crate::setup::{self, Needs};
use crate::vm::{Interrupted, Options};
use crate::workspace::{self, Message, Package, Workspace};
use objects::Watch;
use summary::{Counts, Reader, Row};

/// How long a test binary may run unless `--timeout` says otherwise: one that hangs must not hang CI.
const USUAL_LIMIT: Duration = Duration::from_secs(900);

/// A test binary.
#[derive(Debug)]
struct Binary {
    /// As the summary shows it.
    name: String,
    package: Package,
    path: PathBuf,
    build_output: Option<PathBuf>,
    needs_device: bool,
}

/// `test`
///
/// # Errors
///
/// The build fails, the machine does not boot, the user stops the run, or no test ran.
pub(crate) fn run(flags: &flags::Test) -> Result<i32> {
    setup::ensure(Needs::TO_TEST)?;
    let workspace = Workspace::find()?;
    let binaries = build(flags, &workspace)?;
    let (on_device, on_host): (Vec<_>, Vec<_>) = binaries.iter().partition(|binary| binary.needs_device);
    let mut rows = Vec::new();
    let result = run_all(flags, &workspace, &on_host, &on_device, &mut rows);
    let failed: Vec<&Row> = rows.iter().filter(|row| !row.success()).collect();
    for row in &failed {
        say!("failed: {}{}", row.name, row.problem.as_ref().map(|problem| format!(": {problem}")).unwrap_or_default());
        say!("to repeat it: cargo xtask test {}", repeat(&row.name));
    }
    println!("{}", summary::table(&rows).trim_end());
    result?;
    if failed.is_empty() && rows.iter().all(|row| row.counts.passed == 0) {
        bail!("no test ran: nothing matches");
    }
    Ok(i32::from(!failed.is_empty()))
}

fn run_all(
    flags: &flags::Test,
    workspace: &Workspace,
    on_host: &[&Binary],
    on_device: &[&Binary],
    rows: &mut Vec<Row>,
) -> Result<()> {
    let timeout = flags.machine.vm.limit(Some(USUAL_LIMIT));
    if !on_host.is_empty() || flags.wants_doctests() {
        let mut host = Place::host()?;
        for binary in on_host {
            rows.push(run_one(&mut host, "host", &binary.name, binary.program(flags, &[]), timeout)?);
        }
        if flags.wants_doctests() && has_library(flags, workspace) {
            rows.push(doctests(&mut host, flags, workspace, timeout)?);
        }
    }
    if on_device.is_empty() {
        return Ok(());
    }
    let options = flags.machine.vm.options(workspace);
    let choice = Choice::make(flags.machine.on.as_ref(), options)?;
    let place_name = if matches!(choice, Choice::Host { .. }) { "host" } else { "guest" };
    let mut variables = choice.devices().variables();
    if std::env::var_os("RUST_TEST_THREADS").is_none() {
        // Most tests busy-poll, and so does the device's other half in the kernel: there is a processor for each, but not for
        // two tests at once. Tests that count the device's objects want it for themselves, too.
        variables.push(("RUST_TEST_THREADS", "1".into()));
    }
    let mut place = None;
    for binary in on_device {
        let mut open = match place.take() {
            Some(place) => place,
            None => choice.open()?,
        };
        let program = binary.program(flags, &variables);
        // Of a device of the host, other programs may make use meanwhile.
        let watch = choice.is_ours().then(|| Watch::begin(&mut open));
        let row = match run_watched(&mut open, place_name, &binary.name, program, timeout, watch) {
            Ok(row) => row,
            Err(error) => {
                open.close();
                return Err(error);
            }
        };
        // A machine that died has taken one binary with it; the next one gets another machine.
        let dead = row.problem.as_ref().is_some_and(|problem| problem.starts_with(MACHINE_GONE));
        rows.push(row);
        place = (!dead).then_some(open);
    }
    if let Some(place) = place {
        place.close();
    }
    Ok(())
}

/// The row of the documentation examples of all packages.
const DOCTESTS: &str = "doctests";
/// How the name of a bench ends.
const BENCH: &str = " (bench)";
const MACHINE_GONE: &str = "the machine is gone: ";

/// Runs one binary as [`run_one`] does. It fails as well if it leaves objects on the devices that are watched.
fn run_watched(
    place: &mut Place,
    place_name: &'static str,
    name: &str,
    program: Program,
    timeout: Option<Duration>,
    watch: Option<Watch>,
) -> Result<Row> {
    let mut row = run_one(place, place_name, name, program, timeout)?;
    let gone = row.problem.as_ref().is_some_and(|problem| problem.starts_with(MACHINE_GONE));
    if let Some(left) = watch.filter(|_| !gone).and_then(|watch| watch.end(place)) {
        row.problem = Some(row.problem.map_or(left.clone(), |problem| format!("{problem}; {left}")));
    }
    Ok(row)
}

/// Runs one binary and hands on what it prints.
fn run_one(
    place: &mut Place,
    place_name: &'static str,
    name: &str,
    program: Program,
    timeout: Option<Duration>,
) -> Result<Row> {
    say!("running {name} ({place_name})");
    let mut reader = Reader::default();
    let started = Instant::now();
    let ending = place.run(program, timeout, |stream, bytes| {
        // Nobody may be reading any more, and the summary still wants its numbers.
        let _ = match stream {
            Stream::Output => {
                reader.read(bytes);
                let mut output = std::io::stdout().lock();
                output.write_all(bytes).and_then(|()| output.flush())
            }
            Stream::Error => std::io::stderr().write_all(bytes),
        };
    });
    let time = started.elapsed();
    let counts = reader.counts();
    let (counts, problem) = match ending {
        Ending::Ended(outcome) => judge(name, counts, outcome.success(), || outcome.to_string()),
        Ending::TimedOut => {
            let limit = timeout.unwrap_or_default().as_secs();
            (counts.unwrap_or_default(), Some(format!("not finished after {limit} s, the --timeout: ended")))
        }
        Ending::NotStarted(reason) => (Counts::default(), Some(format!("cannot be started: {reason}"))),
        Ending::MachineGone(reason) => (counts.unwrap_or_default(), Some(format!("{MACHINE_GONE}{reason}"))),
        Ending::Interrupted(signal) => return Err(Interrupted(signal).into()),
    };
    Ok(Row { name: name.to_owned(), place: place_name, counts, time, problem })
}

/// What is counted of a binary that has ended, and what is wrong with it. `counts` is what it has said itself.
fn judge(name: &str, counts: Option<Counts>, success: bool, outcome: impl Fn() -> String) -> (Counts, Option<String>) {
    match counts {
        Some(counts) if success == (counts.failed == 0) => (counts, None),
        Some(counts) => (counts, Some(outcome())),
        // A bench has no harness of libtest's, and counts as one.
        None if success && name.ends_with(BENCH) => (Counts { passed: 1, ..Counts::default() }, None),
        None if success => (Counts::default(), Some("it ended well, but without the result of its tests".to_owned())),
        None => (Counts::default(), Some(outcome())),
    }
}

/// Documentation examples: cargo alone knows how to build and run them. It is given the same packages as for the other tests, so
/// that their features, and with them what is built already, stay the same.
fn doctests(host: &mut Place, flags: &flags::Test, workspace: &Workspace, timeout: Option<Duration>) -> Result<Row> {
    let mut arguments: Vec<OsString> = vec!["test".into(), "--doc".into()];
    arguments.extend(packages(flags).into_iter().map(OsString::from));
    arguments.extend(flags.filter.iter().map(OsString::from));
    if !flags.arguments.is_empty() {
        arguments.push("--".into());
        arguments.extend(flags.arguments.iter().cloned());
    }
    let program = Program {
        path: workspace::cargo().get_program().to_owned(),
        arguments,
        environment: workspace::environment(),
        folder: workspace.root.clone(),
        input: Input::Null,
    };
    run_one(host, "host", DOCTESTS, program, timeout)
}

/// The packages to test, as cargo takes them.
fn packages(flags: &flags::Test) -> Vec<String> {
    if flags.package.is_empty() {
        return vec!["--workspace".into()];
    }
    flags.package.iter().flat_map(|name| ["--package".into(), name.clone()]).collect()
}

fn build(flags: &flags::Test, workspace: &Workspace) -> Result<Vec<Binary>> {
    let mut arguments: Vec<String> = vec!["test".into(), "--no-run".into()];
    arguments.extend(packages(flags));
    for name in &flags.package {
        if workspace.package(name).is_none() {
            let names: Vec<&str> = workspace.packages.iter().map(|package| package.name.as_str()).collect();
            bail!("there is no package {name}; there are {}", names.join(", "));
        }
    }
    for name in &flags.test {
        arguments.extend(["--test".into(), name.clone()]);
    }
    if flags.doc {
        return Ok(Vec::new());
    }
    if flags.sanitize {
        arguments.extend(sanitize::arguments(&workspace.target)?);
    }
    let messages = workspace::build(&arguments, &workspace.root)?;
    let mut outputs = HashMap::new();
    for message in &messages {
        if let Message::BuildScriptExecuted { package_id, out_dir } = message {
            outputs.insert(package_id.clone(), out_dir.clone());
        }
    }
    let mut binaries = Vec::new();
    for message in messages {
        let Message::CompilerArtifact { package_id, target, executable: Some(path) } = message else { continue };
        let Some(package) = workspace.packages.iter().find(|package| package.id == package_id) else { continue };
        // Programs are built along, for the tests that start them.
        if !path.parent().is_some_and(|folder| folder.ends_with("deps")) {
            continue;
        }
        let is = |wanted| target.kind.iter().any(|kind| kind == wanted);
        let is_integration = is("test");
        let kind = match is_integration {
            true => "",
            false if is("bench") => BENCH,
            false => " (unit tests)",
        };
        binaries.push(Binary {
            name: format!("{}: {}{kind}", package.name, target.name),
            package: package.clone(),
            path,
            build_output: outputs.get(&package_id).cloned(),
            needs_device: is_integration && needs_device(&target.name),
        });
    }
    binaries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(binaries)
}

/// Cargo refuses to look for documentation examples where there is no library.
fn has_library(flags: &flags::Test, workspace: &Workspace) -> bool {
    let is_library = |kind: &String| ["lib", "rlib", "proc-macro"].contains(&kind.as_str());
    let chosen = |package: &&Package| flags.package.is_empty() || flags.package.contains(&package.name);
    let targets = workspace.packages.iter().filter(chosen).flat_map(|package| &package.targets);
    targets.flat_map(|target| &target.kind).any(is_library)
}

/// Integration tests that run on a device are named for it.
fn needs_device(target: &str) -> bool {
    target == "device" || target.starts_with("device_")
}

/// What to add to `cargo xtask test` to run this row alone.
fn repeat(name: &str) -> String {
    match name.split_once(": ") {
        Some((package, target)) if !target.ends_with(')') => format!("--package {package} --test {target}"),
        Some((package, _)) => format!("--package {package}"),
        None => "--doc".to_owned(),
    }
}

impl Binary {
    /// As cargo starts it, with more variables.
    fn program(&self, flags: &flags::Test, more: &[(&'static str, String)]) -> Program {
        let mut environment = workspace::environment();
        environment.extend(self.package.variables());
        environment.extend(self.build_output.iter().map(|folder| ("OUT_DIR".into(), folder.into())));
        environment.extend(more.iter().map(|(name, value)| (name.into(), value.into())));
        let mut arguments: Vec<OsString> = flags.filter.iter().map(OsString::from).collect();
        if flags.sanitize {
            environment.extend(sanitize::variables());
            arguments.extend(sanitize::UNFIT.iter().flat_map(|name| ["--skip", name]).map(OsString::from));
        }
        let chosen = flags.arguments.iter().any(|argument| argument.to_string_lossy().starts_with("--color"));
        if std::io::stdout().is_terminal() && !chosen {
            arguments.push("--color=always".into());
        }
        arguments.extend(flags.arguments.iter().cloned());
        let folder = self.package.root().to_owned();
        Program { path: self.path.clone().into(), arguments, environment, folder, input: Input::Null }
    }
}

impl flags::Test {
    /// As with cargo, a choice of other tests is one against these. (Nor would cargo build them with the sanitizer.)
    fn wants_doctests(&self) -> bool {
        self.doc || self.test.is_empty() && !self.sanitize
    }
}

impl flags::VmFlags {
    pub(crate) fn options(&self, workspace: &Workspace) -> Options {
        Options { target: workspace.target.clone(), memory_mib: self.memory, kernel: self.kernel.clone() }
    }

    /// `--timeout`, or else `usual`.
    pub(crate) fn limit(&self, usual: Option<Duration>) -> Option<Duration> {
        self.timeout.map_or(usual, |seconds| (seconds > 0).then(|| Duration::from_secs(seconds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_need_a_device_are_told_by_their_name() {
        assert!(needs_device("device") && needs_device("device_teardown"));
        assert!(!needs_device("devices") && !needs_device("layout"));
    }

    #[test]
    fn what_a_binary_says_and_how_it_ends_have_to_agree() {
        let judge = |name, counts, success| judge(name, counts, success, || "exit status: 101".to_owned());
        let (well, ill) = (Counts { passed: 3, ..Counts::default() }, Counts { failed: 1, ..Counts::default() });
        let ended = Some("exit status: 101".to_owned());
        assert_eq!(judge("verbs: host", Some(well), true), (well, None));
        assert_eq!(judge("verbs: host", Some(ill), false), (ill, None));
        assert_eq!(judge("verbs: host", Some(well), false), (well, ended.clone()));
        assert_eq!(judge("verbs: host", None, false), (Counts::default(), ended));
        let (counts, problem) = judge("verbs: host", None, true);
        assert_eq!(counts, Counts::default());
        assert!(problem.unwrap().contains("without the result of its tests"));
        assert_eq!(judge("verbs: data_path (bench)", None, true), (Counts { passed: 1, ..Counts::default() }, None));
    }

    #[test]
    fn each_row_names_the_command_that_repeats_it() {
        assert_eq!(repeat("verbs: device_rc"), "--package verbs --test device_rc");
        assert_eq!(repeat(DOCTESTS), "--doc");
        assert_eq!(repeat("verbs: verbs (unit tests)"), "--package verbs");
        assert_eq!(repeat("verbs: data_path (bench)"), "--package verbs");
    }
}
