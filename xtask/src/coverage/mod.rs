//! `coverage`: which functions of libibverbs and librdmacm are bound, wrapped and tested.

mod calls;
mod reasons;
mod rxe;
mod test_sources;
mod wrappers;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::flags;
use crate::setup::{self, Needs};
use crate::workspace::{self, Message, Workspace};

use calls::Calls;
use test_sources::Tests;
use wrappers::Wrapper;

/// A header's functions, and the crate that wraps them.
struct Library {
    header: &'static str,
    /// What its functions' names begin with.
    prefix: &'static str,
    sys: &'static str,
    safe: &'static str,
}

const LIBRARIES: &[Library] = &[
    Library { header: "infiniband/verbs.h", prefix: "ibv_", sys: "ibverbs-sys", safe: "verbs" },
    Library { header: "rdma/rdma_cma.h and rdma/rdma_verbs.h", prefix: "rdma_", sys: "rdmacm-sys", safe: "cm" },
];

/// `coverage`
///
/// # Errors
///
/// The crates do not build, or their sources cannot be read.
pub(crate) fn run(flags: &flags::Coverage) -> Result<i32> {
    setup::ensure(Needs::TO_BUILD)?;
    let workspace = Workspace::find()?;
    let mut lost = Vec::new();
    for library in LIBRARIES {
        let rows = rows(library, &workspace)?;
        if !flags.check {
            print(library, &rows);
        }
        lost.extend(rows.iter().filter_map(Row::problem));
    }
    for problem in &lost {
        crate::say!("{problem}");
    }
    Ok(i32::from(!lost.is_empty()))
}

/// A function.
#[derive(Debug)]
struct Row {
    name: String,
    wrappers: Vec<Wrapper>,
    /// Whether one of the crate's sources calls it.
    called: bool,
    /// Whether it is tested on the device, which may lack it, and without one.
    device: bool,
    host: bool,
    reason: Option<&'static str>,
}

impl Row {
    /// What is wrong with it.
    fn problem(&self) -> Option<String> {
        let Self { name, called, device, host, reason, .. } = self;
        let Some(wrapper) = self.wrappers.first() else {
            return reason
                .is_none()
                .then(|| format!("{name} is bound, but not wrapped, and there is no reason why not"));
        };
        match (reason, *called) {
            (None, false) => return Some(format!("{name} is named by {wrapper}, but nothing calls it")),
            (Some(_), true) => return Some(format!("{name} is wrapped: its reason why not is out of date")),
            (Some(_), false) => return None,
            (None, true) => {}
        }
        // What the device has is tested there. What it lacks is tested for its error there, unless nobody can get so far, and for what it
        // does on the host.
        let (place, tested) = if rxe::lacks(name) { ("the host", host) } else { ("the device", device) };
        (!tested).then(|| format!("{name} is wrapped by {wrapper}, but not tested on {place}"))
    }

    fn is_wrapped(&self) -> bool {
        !self.wrappers.is_empty() && self.called
    }

    fn places(&self) -> String {
        let device = match (self.device, rxe::lacks(&self.name)) {
            (true, true) => Some("device (unsupported)"),
            (true, false) => Some("device"),
            (false, _) => None,
        };
        device.into_iter().chain(self.host.then_some("host")).collect::<Vec<_>>().join(", ")
    }
}

fn rows(library: &Library, workspace: &Workspace) -> Result<Vec<Row>> {
    let safe = workspace.package(library.safe).with_context(|| format!("there is no package {}", library.safe))?;
    let mut wrappers = wrappers::of(&safe.root().join("src"), library.prefix)?;
    let calls = Calls::of(&safe.root().join("src"))?;
    let tests = Tests::of(&safe.root().join("tests"))?;
    let row = |name: String| {
        let wrappers = wrappers.remove(&name).unwrap_or_default();
        let device = wrappers.iter().any(|wrapper| tests.on_device(wrapper));
        let host = wrappers.iter().any(|wrapper| tests.on_host(wrapper));
        let (called, reason) = (calls.include(&name), reasons::of(&name));
        Row { name, wrappers, called, device, host, reason }
    };
    let mut rows: Vec<Row> = bound(library, workspace)?.into_iter().map(row).collect();
    take_over_places(&mut rows);
    Ok(rows)
}

/// Whoever makes an object drops it: a destructor is tested where what it destroys can be made.
fn take_over_places(rows: &mut [Row]) {
    let places: BTreeMap<String, (bool, bool)> =
        rows.iter().map(|row| (row.name.clone(), (row.device && !rxe::lacks(&row.name), row.host))).collect();
    for row in rows.iter_mut().filter(|row| row.wrappers.iter().any(|wrapper| wrapper.name == "drop")) {
        let creator = rxe::creator(&row.name).and_then(|creator| places.get(&creator));
        let (device, host) = creator.copied().unwrap_or_default();
        (row.device, row.host) = (row.device || device, row.host || host);
    }
}

/// The functions that the raw crate binds: what it generates, and what it has by hand.
fn bound(library: &Library, workspace: &Workspace) -> Result<BTreeSet<String>> {
    let package = workspace.package(library.sys).with_context(|| format!("there is no package {}", library.sys))?;
    let arguments = ["check", "--package", library.sys].map(str::to_owned);
    let generated = workspace::build(&arguments, &workspace.root)?.into_iter().find_map(|message| match message {
        Message::BuildScriptExecuted { package_id, out_dir } if package_id == package.id => Some(out_dir),
        _ => None,
    });
    let Some(generated) = generated else { bail!("cargo ran no build script of {}", library.sys) };
    let mut names = BTreeSet::new();
    for file in files(&generated)?.into_iter().chain(files(&package.root().join("src"))?) {
        let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        let functions = text.lines().filter_map(|line| line.trim_start().strip_prefix("pub fn "));
        let name = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
        names.extend(functions.map(name).filter(|name| name.starts_with(library.prefix)));
    }
    Ok(names)
}

/// The Rust files of a folder and those below it.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        match path.extension() {
            _ if path.is_dir() => files.extend(self::files(&path)?),
            Some(extension) if extension == "rs" => files.push(path),
            _ => {}
        }
    }
    files.sort();
    Ok(files)
}

fn print(library: &Library, rows: &[Row]) {
    let wrapped: Vec<&Row> = rows.iter().filter(|row| row.is_wrapped()).collect();
    let lacking = wrapped.iter().filter(|row| rxe::lacks(&row.name)).count();
    let on_device = wrapped.iter().filter(|row| row.device && !rxe::lacks(&row.name)).count();
    println!(
        "{}: {} functions bound, {} wrapped; of those, {on_device} do their work on the device in the tests, and {lacking} are what rxe lacks.\n",
        library.header,
        rows.len(),
        wrapped.len()
    );
    println!("| function | wrapped by | tested on | why not |");
    println!("|---|---|---|---|");
    for row in rows {
        let wrapper = row.wrappers.first().map(ToString::to_string).unwrap_or_default();
        println!("| {} | {wrapper} | {} | {} |", row.name, row.places(), row.reason.unwrap_or_default());
    }
    println!();
}

/// What sources are looked through for, by function.
type ByFunction<T> = BTreeMap<String, Vec<T>>;
