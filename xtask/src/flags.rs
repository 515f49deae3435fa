//! The command line, all of it.

use std::ffi::OsString;

use clap::{Args, Parser, Subcommand};

use crate::device::On;

/// Development tasks of the RDMA workspace: tests and examples on a real device, or on one in a virtual machine where there is none.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
pub(crate) struct Flags {
    #[command(subcommand)]
    pub(crate) task: Task,
}

/// One task each.
#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// Installs what the other tasks need of the system
    ///
    /// Looks for each thing itself (a header, a library, a program). What is missing is installed with apt, dnf, pacman or zypper, as
    /// root or through sudo; each command is printed first. Elsewhere it says what to install.
    Setup(Setup),
    /// Builds and runs all tests: those that need a device on one, the others on this host
    ///
    /// Integration tests named `device` or `device_…` run on the device (see --on), all of them in one boot; unit tests, other
    /// integration tests and documentation examples run on this host. They find the device in `RDMA_TEST_DEVICE`, `RDMA_TEST_NETDEV` and
    /// `RDMA_TEST_ADDRESS`, and the one at the other end of the wire in `RDMA_TEST_PEER_DEVICE`, `…_NETDEV` and `…_ADDRESS`. They run one at
    /// a time unless `-- --test-threads=N` or `RUST_TEST_THREADS` says otherwise.
    Test(Test),
    /// Builds an example and runs both ends of it on the device
    ///
    /// The client is started once the server listens. The status is the worse one of the two.
    Run(Run),
    /// Measures the example `perf` beside perftest, or counts instructions beside C
    ///
    /// Both programs run the same tests on the same device (see --on), in turn and in one boot: SEND, RDMA WRITE and RDMA READ, bandwidth
    /// and latency, of 64 B, 4 KiB, 64 KiB and 1 MiB. Prints the ratios, and writes them as Markdown, JSON and a picture into `bench` in
    /// the workspace's output folder.
    Bench(Bench),
    /// The virtual machine: a shell or one command in it
    #[command(subcommand)]
    Vm(VmTask),
    /// What CI runs: formatting, clippy, documentation, coverage, instruction counts, tests
    Ci(Test),
    /// Which functions of libibverbs are bound, wrapped and tested
    ///
    /// A function is wrapped if a safe crate names it in a `#[doc(alias)]` or calls it in a destructor, and tested if a test calls that
    /// function of ours. The status is 1 if one is not, and no reason is known.
    Coverage(Coverage),
    /// What the guest runs; of no use elsewhere
    #[command(hide = true)]
    Agent,
}

/// `coverage`
#[derive(Debug, Args)]
pub(crate) struct Coverage {
    /// Print only what is wrong
    #[arg(long)]
    pub(crate) check: bool,
}

/// `setup`
#[derive(Debug, Args)]
pub(crate) struct Setup {
    /// Only report what is missing; the status is 1 if anything is
    #[arg(long)]
    pub(crate) check: bool,
}

/// `test` and `ci`
#[derive(Debug, Args)]
pub(crate) struct Test {
    /// Only tests whose name contains this
    pub(crate) filter: Option<String>,
    /// Only this package's tests (may be given again)
    #[arg(short, long, value_name = "NAME")]
    pub(crate) package: Vec<String>,
    /// Only this integration test (may be given again)
    #[arg(long, value_name = "NAME")]
    pub(crate) test: Vec<String>,
    /// Only the documentation examples
    #[arg(long, conflicts_with = "test")]
    pub(crate) doc: bool,
    /// Build with AddressSanitizer, in a folder of its own; without the documentation examples, and without tests that start valgrind
    #[arg(long, conflicts_with = "doc")]
    pub(crate) sanitize: bool,
    #[command(flatten)]
    pub(crate) machine: MachineFlags,
    /// Arguments for the test binaries, as `--nocapture`
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) arguments: Vec<OsString>,
}

/// `run`
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The example, as `rc_pingpong`; a wrong name lists them all
    pub(crate) example: String,
    /// Run the ends in two virtual machines on a wire
    #[arg(long, conflicts_with = "on")]
    pub(crate) two_hosts: bool,
    #[command(flatten)]
    pub(crate) machine: MachineFlags,
    /// Arguments for the example, given to both ends, or to the one that has a use for them, as the sender of `copy`
    #[arg(last = true, value_name = "ARGS")]
    pub(crate) arguments: Vec<OsString>,
}

/// `bench`
#[derive(Debug, Args)]
pub(crate) struct Bench {
    /// Only rows whose name contains this, as `write_lat` or `"send_bw 4k"`
    #[arg(conflicts_with = "instructions")]
    pub(crate) filter: Option<String>,
    /// A glance: two sizes, three pairs of runs
    #[arg(long, conflicts_with = "instructions")]
    pub(crate) quick: bool,
    /// Pairs of runs for each row [default: 5, or 3 with --quick]
    #[arg(long, value_name = "NUMBER", conflicts_with = "instructions", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pairs: Option<u32>,
    /// Count the instructions of the data path beside C's instead, without a device; the status is 1 if one passes its gate
    #[arg(long)]
    pub(crate) instructions: bool,
    #[command(flatten)]
    pub(crate) machine: MachineFlags,
}

/// What to do in the virtual machine.
#[derive(Debug, Subcommand)]
pub(crate) enum VmTask {
    /// Opens a shell in the virtual machine, as root
    ///
    /// The machine sees this host's files: read-only for the host, though it can write over them in its own memory. The workspace's
    /// output folder is writable for real. It ends with the shell; Ctrl-] three times ends it at once.
    Shell(VmFlags),
    /// Runs a command of the host in the virtual machine, as root, and ends with its status
    Exec(Exec),
}

/// `vm exec`
#[derive(Debug, Args)]
pub(crate) struct Exec {
    #[command(flatten)]
    pub(crate) machine: VmFlags,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// How the virtual machine is made.
#[derive(Clone, Debug, Args)]
pub(crate) struct VmFlags {
    /// The machine's kernel: a folder with an unpacked kernel package, a package (linux-image-…), or a Debian suite (trixie) whose
    /// current kernel is taken [default: this host's own if it has `rdma_rxe`, else the distribution's]
    #[arg(long, value_name = "FOLDER|PACKAGE|SUITE")]
    pub(crate) kernel: Option<String>,
    /// The machine's memory in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(256..))]
    pub(crate) memory: u32,
    /// End a program that is not finished after so many seconds; 0 waits for ever
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u64>,
}

/// Where to run, and how.
#[derive(Clone, Debug, Args)]
pub(crate) struct MachineFlags {
    /// The device: host (an active port of this host), rxe:NETDEV (made on an interface of this host, and removed afterwards), vm
    /// [default: host if there is one, else vm]
    #[arg(long, value_name = "DEVICE")]
    pub(crate) on: Option<On>,
    #[command(flatten)]
    pub(crate) vm: VmFlags,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory as _;
        Flags::command().debug_assert();
    }

    #[test]
    fn what_follows_the_dashes_belongs_to_the_program() {
        let flags = Flags::try_parse_from(["xtask", "run", "rc_pingpong", "--two-hosts", "--", "-n", "5"]).unwrap();
        let Task::Run(run) = flags.task else { panic!("{flags:?}") };
        assert!(run.two_hosts);
        assert_eq!(run.arguments, ["-n", "5"]);
        let flags =
            Flags::try_parse_from(["xtask", "vm", "exec", "--timeout", "9", "--", "sh", "-c", "exit 7"]).unwrap();
        let Task::Vm(VmTask::Exec(exec)) = flags.task else { panic!("{flags:?}") };
        assert_eq!(exec.command, ["sh", "-c", "exit 7"]);
        assert_eq!(exec.machine.timeout, Some(9));
    }
}
