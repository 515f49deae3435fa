//! `bench`: the program `perf` beside perftest, alternately on one device in one boot; or the instructions of the data path.

mod case;
mod measure;
mod plot;
mod report;
mod statistics;

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::device::Choice;
use crate::flags;
use crate::place::Place;
use crate::process::Outcome;
use crate::say;
use crate::setup::{self, Needs};
use crate::step;
use crate::workspace::{self, Workspace};
use case::Case;
use measure::Measurer;
use report::{Conditions, Report, Row};

/// How many pairs of runs a row has.
const PAIRS: u32 = 5;
const QUICK_PAIRS: u32 = 3;

/// What is not emulated is so much faster that it gets through so many times as many messages in about the same time.
const REAL_FACTOR: u64 = 50;

/// `bench`
///
/// # Errors
///
/// Something does not build, the machine does not boot, or a program fails twice.
pub(crate) fn run(flags: &flags::Bench) -> Result<i32> {
    if flags.instructions {
        return instructions();
    }
    setup::ensure(Needs::TO_BENCH)?;
    let workspace = Workspace::find()?;
    let filter = flags.filter.as_deref().unwrap_or_default();
    let cases: Vec<Case> = case::all(flags.quick).into_iter().filter(|case| case.name().contains(filter)).collect();
    if cases.is_empty() {
        let names: Vec<String> = case::all(false).iter().map(Case::name).collect();
        bail!("no row is named {filter:?}; there are: {}", names.join(", "));
    }
    let program = crate::run::build("perf", &workspace)?;
    let choice = Choice::make(flags.machine.on.as_ref(), flags.machine.vm.options(&workspace))?;
    let pairs = flags.pairs.unwrap_or(if flags.quick { QUICK_PAIRS } else { PAIRS });
    let mut place = choice.open()?;
    let result = compare(&mut place, &choice, &program, &cases, pairs);
    place.close();
    let report = result?;
    report.write(&workspace.target.join("bench"))?;
    println!("{}", report.summary());
    Ok(0)
}

fn compare(place: &mut Place, choice: &Choice, program: &Path, cases: &[Case], pairs: u32) -> Result<Report> {
    let real = matches!(choice, Choice::Host { .. });
    let mut measurer = Measurer::new(place, choice.devices(), program, if real { REAL_FACTOR } else { 1 });
    let (record, kernel) = (measurer.record()?, measurer.kernel()?);
    say!("{} rows, {pairs} pairs of runs each, in turn; a ratio is ours divided by perftest's", cases.len());
    let mut rows = Vec::new();
    for case in cases {
        let row = Row::new(case, measurer.pairs(case, pairs)?);
        say!("{}", row.line());
        rows.push(row);
    }
    let place = if real { "this host" } else { "a virtual machine" };
    Ok(Report { conditions: Conditions::new(place, kernel, record, pairs), rows })
}

/// `bench --instructions`
///
/// # Errors
///
/// Cargo does not start.
pub(crate) fn instructions() -> Result<i32> {
    setup::ensure(Needs::TO_COUNT)?;
    let workspace = Workspace::find()?;
    let mut command = workspace::cargo();
    command.args(["bench", "--package", "verbs", "--bench", "instructions"]).current_dir(&workspace.root);
    say!("$ {}", step::shell(&command));
    let status = command.status().context("starting cargo")?;
    // The status 1 is the bench's own: a row passes its gate.
    Ok(Outcome::from(status).code())
}
