//! Compiling a few lines that depend on `verbs`.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use serde_json::Value;

pub(crate) struct Compiler {
    /// Where the libraries are with which this test was built.
    libraries: PathBuf,
    verbs: PathBuf,
    /// Where it puts what it makes of what compiles.
    results: PathBuf,
}

pub(crate) struct CompileError {
    pub(crate) code: String,
    pub(crate) message: String,
    /// What is written below the place.
    pub(crate) label: String,
}

impl Compiler {
    /// One whose results are in a folder of that name.
    pub(crate) fn new(results: &str) -> Self {
        let libraries = env::current_exe().unwrap().parent().unwrap().to_owned();
        let verbs = newest(&libraries, "libverbs-", ".rlib");
        let results = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compile_fail").join(results);
        fs::create_dir_all(&results).unwrap();
        Self { libraries, verbs, results }
    }

    /// Such as `rustc 1.95.0`.
    pub(crate) fn version(&self) -> String {
        let output = rustc().arg("--version").output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.split(' ').take(2).collect::<Vec<_>>().join(" ")
    }

    /// The first error of a program, or `None` if it compiles.
    pub(crate) fn first_error(&self, code: &str) -> Option<CompileError> {
        let mut with_verbs = OsString::from("verbs=");
        with_verbs.push(&self.verbs);
        let mut compiler = rustc()
            .args(["-", "--edition=2024", "--crate-name=case", "--emit=metadata", "--error-format=json", "--out-dir"])
            .arg(&self.results)
            .arg("--extern")
            .arg(with_verbs)
            .arg("-L")
            .arg(&self.libraries)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        compiler.stdin.take().unwrap().write_all(code.as_bytes()).unwrap();
        let output = compiler.wait_with_output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        let errors = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let error = errors.into_iter().find(|message| message["level"] == "error");
        assert_eq!(error.is_none(), output.status.success(), "{text}");
        error.map(|error| CompileError {
            code: error["code"]["code"].as_str().unwrap_or("no code").to_owned(),
            message: error["message"].as_str().unwrap().to_owned(),
            label: label(&error).unwrap_or_default().to_owned(),
        })
    }
}

fn rustc() -> Command {
    Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}

fn label(error: &Value) -> Option<&str> {
    let place = error["spans"].as_array()?.iter().find(|span| span["is_primary"] == true)?;
    place["label"].as_str()
}

/// The library that was built last: others may be there, of other features.
fn newest(folder: &Path, beginning: &str, end: &str) -> PathBuf {
    let matches = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with(beginning) && name.ends_with(end)
    };
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(matches);
    paths.max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap()).unwrap()
}
