//! The virtual machine, as a user meets it: what comes back, and that nothing is left behind.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// `vm exec` with these arguments; its temporary files, and so QEMU's command line, are told from others' by the folder.
fn vm_exec(folder: &TempDir, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["vm", "exec"]).args(arguments).env("TMPDIR", folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn folder() -> TempDir {
    // Sockets have short names, so their folder must have one, too.
    tempfile::Builder::new().prefix("xt").tempdir_in("/tmp").unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether a QEMU runs whose command line names the folder.
fn qemu_runs(folder: &Path) -> bool {
    let name = folder.to_str().unwrap();
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .any(|line| line.contains("qemu") && line.contains(name))
}

fn nothing_is_left(folder: &TempDir) {
    let deadline = Instant::now() + Duration::from_secs(5);
    while qemu_runs(folder.path()) {
        assert!(Instant::now() < deadline, "QEMU still runs");
        std::thread::sleep(Duration::from_millis(20));
    }
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

/// Waits until the program has printed a line with `text`.
fn await_line(child: &mut Child, text: &str) {
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(text)), "{text} never came");
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn status_output_input_and_files_pass_between_host_and_guest() {
    let folder = folder();
    let shared = tempfile::tempdir_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    let script = "read line; echo \"out $line\"; echo err >&2; id -u; touch /usr/in-memory; echo kept > \"$1/file\"; \
                  rdma link show | grep -c 'state ACTIVE'; exit 7";
    let mut child = vm_exec(&folder, &["--", "sh", "-c", script, "sh", shared.path().to_str().unwrap()]);
    let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"in\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", errors(&output));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "out in\n0\n2\n");
    assert!(errors(&output).lines().any(|line| line == "err"), "{}", errors(&output));
    assert_eq!(fs::read_to_string(shared.path().join("file")).unwrap(), "kept\n");
    assert!(!Path::new("/usr/in-memory").exists());
    nothing_is_left(&folder);
}

#[test]
fn a_panic_of_the_guests_kernel_is_told_with_its_reason() {
    let folder = folder();
    let output = vm_exec(&folder, &["--", "sh", "-c", "echo c > /proc/sysrq-trigger"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("the guest's kernel panicked: sysrq triggered crash"), "{}", errors(&output));
    nothing_is_left(&folder);
}

#[test]
fn a_program_that_hangs_is_ended_at_its_time_limit() {
    let folder = folder();
    let output = vm_exec(&folder, &["--timeout", "1", "--", "sleep", "1000"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("not finished after 1 s, the --timeout"), "{}", errors(&output));
    nothing_is_left(&folder);
}

#[test]
fn an_interrupt_ends_the_program_and_the_machine() {
    let folder = folder();
    let mut child = vm_exec(&folder, &["--", "sh", "-c", "echo started; sleep 1000"]).spawn().unwrap();
    await_line(&mut child, "started");
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", errors(&output));
    assert!(errors(&output).contains("interrupted"), "{}", errors(&output));
    nothing_is_left(&folder);
}

#[test]
fn qemu_does_not_outlive_us_though_we_are_killed() {
    let folder = folder();
    let mut child = vm_exec(&folder, &["--", "sleep", "1000"]).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while !qemu_runs(folder.path()) {
        assert!(Instant::now() < deadline, "QEMU never ran");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while qemu_runs(folder.path()) {
        assert!(Instant::now() < deadline, "QEMU still runs");
        std::thread::sleep(Duration::from_millis(20));
    }
}
