//! Development tasks: set-up, tests, examples, and the virtual machine with an RDMA device.
#![deny(unsafe_code)]

mod agent;
mod bench;
mod ci;
mod coverage;
mod device;
mod exec;
mod flags;
mod place;
mod process;
mod run;
mod setup;
mod step;
mod test;
mod vm;
mod wire;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser as _;

use flags::{Flags, Task, VmTask};
use setup::Needs;
use workspace::Workspace;

fn main() -> ExitCode {
    match dispatch(Flags::parse()) {
        // A status outside 0..=255 cannot be told to the shell.
        Ok(status) => ExitCode::from(u8::try_from(status).unwrap_or(255)),
        Err(error) => {
            say!("error: {error:#}");
            match error.downcast_ref() {
                Some(vm::Interrupted(signal)) => ExitCode::from(u8::try_from(128 + signal).unwrap_or(255)),
                None => ExitCode::FAILURE,
            }
        }
    }
}

fn dispatch(flags: Flags) -> Result<i32> {
    match flags.task {
        Task::Setup(setup) => setup::run(setup.check),
        Task::Test(test) => test::run(&test),
        Task::Ci(test) => ci::run(&test),
        Task::Coverage(coverage) => coverage::run(&coverage),
        Task::Run(run) => run::run(&run),
        Task::Bench(bench) => bench::run(&bench),
        Task::Vm(task) => {
            let (machine, command) = match task {
                // The shell of the user, if it is one that the host has; as a login shell it would change folders.
                VmTask::Shell(machine) => {
                    (machine, vec![std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())])
                }
                VmTask::Exec(exec) => (exec.machine, exec.command),
            };
            setup::ensure(Needs::TO_RUN)?;
            let options = machine.options(&Workspace::find()?);
            exec::run(&options, &command, machine.limit(None))
        }
        Task::Agent => agent::serve().map(|()| 0),
    }
}
