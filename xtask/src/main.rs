//! Development tasks.

mod agent;
mod exec;
mod flags;
mod process;
mod step;
mod vm;
mod wire;
mod workspace;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser as _;

use flags::{Flags, Task, VmTask};

fn main() -> ExitCode {
    match dispatch(Flags::parse()) {
        // A status outside 0..=255 cannot be told to the shell.
        Ok(status) => ExitCode::from(u8::try_from(status).unwrap_or(255)),
        Err(error) => {
            say!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(flags: Flags) -> anyhow::Result<i32> {
    match flags.task {
        Task::Vm(VmTask::Exec(exec)) => {
            let workspace = workspace::Workspace::find()?;
            let options = vm::Options {
                target: workspace.target,
                memory_mib: exec.machine.memory,
            };
            let vm = vm::Vm::boot(&options)?;
            let timeout =
                (exec.machine.timeout > 0).then(|| Duration::from_secs(exec.machine.timeout));
            exec::run(vm, &exec.command, timeout)
        }
        Task::Agent => agent::serve().map(|()| 0),
    }
}
