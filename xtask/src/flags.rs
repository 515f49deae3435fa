//! The command line, all of it.

use std::ffi::OsString;

use clap::{Args, Parser, Subcommand};

/// Development tasks of the RDMA workspace.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    version,
    max_term_width = 110
)]
pub(crate) struct Flags {
    #[command(subcommand)]
    pub(crate) task: Task,
}

/// One task each.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// The virtual machine: a shell or one command in it
    #[command(subcommand)]
    Vm(VmTask),
    /// What the guest runs; of no use elsewhere
    #[command(hide = true)]
    Agent,
}

/// What to do in the virtual machine.
#[derive(Debug, Subcommand)]
pub(crate) enum VmTask {
    /// Runs a command of the host in the virtual machine, as root, and ends with its exit status
    Exec(Exec),
}

/// `vm exec`
#[derive(Debug, Args)]
pub(crate) struct Exec {
    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND"
    )]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) machine: MachineFlags,
}

/// How the virtual machine is made.
#[derive(Clone, Debug, Args)]
pub(crate) struct MachineFlags {
    /// End the run after this many seconds; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    pub(crate) timeout: u64,
    /// The machine's memory
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    pub(crate) memory: u32,
}
