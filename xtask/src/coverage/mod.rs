//! `coverage`: which functions of libibverbs and librdmacm are bound, wrapped and tested.

mod reasons;
mod test_sources;
mod wrappers;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::flags;
use crate::setup::{self, Needs};
use crate::workspace::{self, Message, Workspace};

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
struct Row {
    name: String,
    wrappers: Vec<Wrapper>,
    device: bool,
    host: bool,
    reason: Option<&'static str>,
}

impl Row {
    /// What is wrong with it.
    fn problem(&self) -> Option<String> {
        let Self { name, wrappers, device, host, reason } = self;
        match (wrappers.is_empty(), *device || *host, reason) {
            (true, _, None) => Some(format!("{name} is bound, but not wrapped, and there is no reason why not")),
            (false, false, None) => Some(format!("{name} is wrapped by {}, but not tested", wrappers[0])),
            (false, true, Some(_)) => Some(format!("{name} is wrapped and tested: its reason why not is out of date")),
            _ => None,
        }
    }
}

fn rows(library: &Library, workspace: &Workspace) -> Result<Vec<Row>> {
    let safe = workspace.package(library.safe).with_context(|| format!("there is no package {}", library.safe))?;
    let mut wrappers = wrappers::of(&safe.root().join("src"), library.prefix)?;
    let tests = Tests::of(&safe.root().join("tests"))?;
    let row = |name: String| {
        let wrappers = wrappers.remove(&name).unwrap_or_default();
        let device = wrappers.iter().any(|wrapper| tests.on_device(wrapper));
        let host = wrappers.iter().any(|wrapper| tests.on_host(wrapper));
        let reason = reasons::of(&name);
        Row { name, wrappers, device, host, reason }
    };
    Ok(bound(library, workspace)?.into_iter().map(row).collect())
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
    let wrapped = rows.iter().filter(|row| !row.wrappers.is_empty()).count();
    let tested = rows.iter().filter(|row| row.device || row.host).count();
    println!("{}: {} functions bound, {wrapped} wrapped, {tested} tested.\n", library.header, rows.len());
    println!("| function | wrapped by | tested on | why not |");
    println!("|---|---|---|---|");
    for row in rows {
        let wrapper = row.wrappers.first().map(ToString::to_string).unwrap_or_default();
        let places = [(row.device, "device"), (row.host, "host")];
        let places: Vec<&str> = places.into_iter().filter(|(tested, _)| *tested).map(|(_, place)| place).collect();
        println!("| {} | {wrapper} | {} | {} |", row.name, places.join(", "), row.reason.unwrap_or_default());
    }
    println!();
}

/// What sources are looked through for, by function.
type ByFunction<T> = BTreeMap<String, Vec<T>>;
