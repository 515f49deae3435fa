//! A program outside the workspace that depends on copies of the two crates, as a user's does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

pub(crate) struct Project {
    /// Where the copies of the crates are.
    pub(crate) source: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) target: PathBuf,
}

/// Calls into both libraries and into shims of both crates.
const PROGRAM: &str = r#"
fn main() {
    let mut count = -1;
    unsafe {
        let devices = ibverbs_sys::ibv_get_device_list(&mut count);
        if !devices.is_null() {
            ibverbs_sys::ibv_free_device_list(devices);
        }
        let event = rdmacm_sys::rdma_event_str(rdmacm_sys::rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED);
        println!(
            "shims {} {}, {}, devices counted: {}",
            ibverbs_sys::ibv_inc_rkey(0x1ff),
            rdmacm_sys::rdma_seterrno(0),
            std::ffi::CStr::from_ptr(event).to_str().unwrap(),
            count >= 0,
        );
    }
}
"#;

/// What the program prints, wherever it runs: without devices or the kernel's part the list is empty or null.
pub(crate) const PRINTS: &str = "shims 256 0, RDMA_CM_EVENT_ESTABLISHED, devices counted: true\n";

/// The same for a program in C that links a static library in Rust.
const LIBRARY: &str = r#"
#[unsafe(no_mangle)]
pub extern "C" fn next_key(key: u32) -> u32 {
    unsafe { ibverbs_sys::ibv_inc_rkey(key) }
}

#[unsafe(no_mangle)]
pub extern "C" fn event_name() -> *const std::ffi::c_char {
    unsafe { rdmacm_sys::rdma_event_str(rdmacm_sys::rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED) }
}
"#;

impl Project {
    /// Makes a project in a folder of its own, `path` of it, which lasts until the next run: cargo then has less to build.
    pub(crate) fn new(path: &str) -> Self {
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("build-scenarios").join(path);
        if root.exists() {
            run(Command::new("chmod").args(["-R", "u+w"]).arg(&root));
            fs::remove_dir_all(&root).expect("the folder of the last run can be removed");
        }
        let (source, program) = (root.join("source"), root.join("program"));
        fs::create_dir_all(&source).expect("a folder can be made");
        fs::create_dir_all(program.join("src")).expect("a folder can be made");

        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a workspace");
        let copied = ["Cargo.toml", "ibverbs-sys", "rdmacm-sys"].map(|name| workspace.join(name));
        run(Command::new("cp").arg("-a").args(copied).arg(&source));
        fs::copy(workspace.join("Cargo.lock"), program.join("Cargo.lock")).expect("the lock file can be copied");
        fs::write(program.join("Cargo.toml"), MANIFEST).expect("the manifest can be written");
        fs::write(program.join("src/main.rs"), PROGRAM).expect("the program can be written");
        fs::write(program.join("src/lib.rs"), LIBRARY).expect("the library can be written");

        // The dependencies that the tests themselves were built with are there already.
        let shared = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("it is in the target folder");
        let target = root.join("target");
        std::os::unix::fs::symlink(shared, &target).expect("a link can be made");
        Self { source, program, target }
    }

    /// A call of cargo in the program's folder.
    pub(crate) fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into()));
        command.arg("--offline").args(arguments).current_dir(&self.program).env("CARGO_TARGET_DIR", &self.target);
        command.env("CARGO_TERM_COLOR", "never");
        // What cargo has set for this test is not for another crate's build.
        for (name, _) in env::vars_os() {
            let is_ours =
                name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"));
            if is_ours {
                command.env_remove(name);
            }
        }
        command
    }

    /// Each file of the copies, with its length and when it was written.
    pub(crate) fn state_of_source(&self) -> BTreeMap<PathBuf, (u64, std::time::SystemTime)> {
        let mut state = BTreeMap::new();
        let mut folders = vec![self.source.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a folder can be read").flatten() {
                let about = entry.metadata().expect("a file is there");
                if about.is_dir() {
                    folders.push(entry.path());
                }
                state.insert(entry.path(), (about.len(), about.modified().expect("a file has a time")));
            }
        }
        state
    }
}

const MANIFEST: &str = r#"
[package]
name = "build-scenario"
version = "0.0.0"
edition = "2024"

[lib]
name = "build_scenario_library"
crate-type = ["staticlib"]

[dependencies]
ibverbs-sys = { path = "../source/ibverbs-sys" }
rdmacm-sys = { path = "../source/rdmacm-sys" }

[workspace]
"#;

/// Runs a command that must succeed.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{stdout}\n{stderr}");
    output
}
