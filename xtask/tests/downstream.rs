//! A crate outside of the workspace that depends on `verbs` and `cm`, as a user's does: it builds here, and its tests pass in the virtual
//! machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Of an older edition than ours, without any of the workspace's settings, and in a workspace of its own.
const MANIFEST: &str = r#"
[package]
name = "downstream"
version = "0.0.0"
edition = "2021"

[dependencies]
cm = { path = "ROOT/cm" }
verbs = { path = "ROOT/verbs" }

[workspace]
"#;

const LIBRARY: &str = r#"
#![forbid(unsafe_code)]
#![deny(warnings)]

use verbs::{AccessFlags, MemoryRegion, ReceiveRequest, SendRequest, WorkCompletion};

/// What a user builds of ours: in a structure, without a lifetime.
pub struct Mailbox {
    connection: cm::Connection,
    memory: MemoryRegion<Vec<u8>>,
}

impl Mailbox {
    pub fn new(connection: cm::Connection) -> cm::Result<Self> {
        let memory = connection.protection_domain().register(vec![0; 64], AccessFlags::LOCAL_WRITE)?;
        Ok(Self { connection, memory })
    }

    pub fn send(&mut self, message: &[u8]) -> cm::Result<()> {
        self.memory.write_at(0, message)?;
        let slices = [self.memory.slice(..message.len())?];
        self.connection.queue_pair().post_send(&SendRequest::send(1, &slices).signaled())?;
        self.completed().map(drop)
    }

    pub fn receive(&mut self) -> cm::Result<Vec<u8>> {
        self.connection.queue_pair().post_receive(&ReceiveRequest::new(2, &[self.memory.slice(..)?]))?;
        let length = self.completed()?;
        Ok(self.memory.to_vec(..length)?)
    }

    fn completed(&self) -> cm::Result<usize> {
        let mut completions = [WorkCompletion::default(); 1];
        let found = self.connection.completion_queue().wait(&mut completions, None)?;
        Ok(found[0].success()?.byte_len().unwrap_or(0) as usize)
    }
}
"#;

const TEST: &str = r#"
#![forbid(unsafe_code)]
#![deny(warnings)]

use std::thread;

use downstream::Mailbox;

#[test]
fn a_message_goes_from_one_thread_to_another() -> Result<(), Box<dyn std::error::Error>> {
    let listener = cm::Listener::bind((std::env::var("ADDRESS")?, 0))?;
    let address = listener.local_addr().ok_or("no address")?;
    let receiver = thread::spawn(move || Mailbox::new(listener.accept()?)?.receive());
    Mailbox::new(cm::connect(address)?)?.send(b"from another crate")?;
    assert_eq!(receiver.join().unwrap()?, b"from another crate");
    Ok(())
}

#[test]
fn an_error_can_be_told_from_others() {
    let error = verbs::devices().unwrap().find(Some("no_such_device")).unwrap_err();
    assert!(matches!(error, verbs::Error::NoDevice { .. }), "{error}");
    assert!(!verbs::devices().unwrap().is_empty());
}
"#;

/// The program of a test, from what cargo says of its build.
fn test_program(messages: &[u8]) -> PathBuf {
    let lines = messages.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines
        .filter_map(|line| serde_json::from_slice::<serde_json::Value>(line).ok())
        .find(|message| message["target"]["name"] == "mailbox" && message["executable"].is_string())
        .and_then(|message| message["executable"].as_str().map(PathBuf::from))
        .unwrap_or_else(|| panic!("cargo built no test: {}", String::from_utf8_lossy(messages)))
}

#[test]
fn a_crate_outside_of_the_workspace_builds_and_passes_its_tests_on_the_device() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    // Where the workspace is built, so that what the two have in common is not built twice.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("Cargo.toml", &MANIFEST.replace("ROOT", root.to_str().unwrap()));
    write("src/lib.rs", LIBRARY);
    write("tests/mailbox.rs", TEST);
    // The versions that are here already: nothing has to be downloaded.
    fs::copy(root.join("Cargo.lock"), folder.path().join("Cargo.lock")).unwrap();

    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--no-run", "--offline", "--test", "mailbox", "--message-format=json-render-diagnostics"]);
    let output = cargo
        .current_dir(folder.path())
        .env("CARGO_TARGET_DIR", target)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "the crate does not build");
    let program = test_program(&output.stdout);

    let mut machine = Command::new(env!("CARGO_BIN_EXE_xtask"));
    machine.args(["vm", "exec", "--", "env", "ADDRESS=192.0.2.1"]).arg(program).stdin(Stdio::null());
    let output = machine.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("test result: ok. 2 passed; 0 failed;"), "{text}");
}
