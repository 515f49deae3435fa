//! `ci`: what must pass before a change is taken.
//!
//! What is timed is not among it: on a machine that others use, times say little. Instructions and allocations are counted.

use anyhow::Result;

use crate::bench;
use crate::coverage;
use crate::flags;
use crate::setup::{self, Needs};
use crate::step;
use crate::test;
use crate::workspace::{self, Workspace};

/// `ci`
///
/// # Errors
///
/// A step fails.
pub(crate) fn run(flags: &flags::Test) -> Result<i32> {
    setup::ensure(Needs::ALL)?;
    let workspace = Workspace::find()?;
    let steps: [(&str, &[&str]); 3] = [
        ("", &["fmt", "--all", "--check"]),
        ("", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        ("-D warnings", &["doc", "--workspace", "--no-deps"]),
    ];
    for (rustdoc_flags, arguments) in steps {
        let mut command = workspace::cargo();
        command.args(arguments).current_dir(&workspace.root);
        if !rustdoc_flags.is_empty() {
            command.env("RUSTDOCFLAGS", rustdoc_flags);
        }
        step::run(&mut command)?;
    }
    let mut worst = coverage::run(&flags::Coverage { check: true })?;
    if worst == 0 {
        worst = bench::instructions()?;
    }
    if worst == 0 { test::run(flags) } else { Ok(worst) }
}
