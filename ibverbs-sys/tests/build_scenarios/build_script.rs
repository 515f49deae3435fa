//! A crate's build script, run by itself as cargo would run it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::project::{Project, run};

pub(crate) struct BuildScript {
    executable: PathBuf,
    manifest_dir: PathBuf,
    out_dir: PathBuf,
    /// What it takes from the crate that it depends on.
    from_dependency: Vec<(&'static str, String)>,
}

/// What a run printed.
pub(crate) struct Printed {
    pub(crate) lines: Vec<String>,
    pub(crate) stderr: String,
}

impl BuildScript {
    /// Those of `ibverbs-sys` and of `rdmacm-sys`.
    pub(crate) fn both() -> &'static [Self; 2] {
        static BOTH: OnceLock<[BuildScript; 2]> = OnceLock::new();
        BOTH.get_or_init(|| {
            let project = Project::new("build-scripts");
            let output = run(&mut project.cargo(&["build", "--lib", "--message-format=json"]));
            let messages = String::from_utf8(output.stdout).expect("cargo's messages are UTF-8");
            let none = vec![
                ("DEP_IBVERBS_VERSION", "44".to_owned()),
                ("DEP_IBVERBS_CFGS", String::new()),
                ("DEP_IBVERBS_ALL_CFGS", "rdma_core_45".to_owned()),
                ("DEP_IBVERBS_INCLUDE", String::new()),
            ];
            [
                Self::find(&project, "ibverbs-sys", &messages, vec![]),
                Self::find(&project, "rdmacm-sys", &messages, none),
            ]
        })
    }

    fn find(project: &Project, name: &str, messages: &str, from_dependency: Vec<(&'static str, String)>) -> Self {
        let manifest_dir = project.source.join(name);
        let place = manifest_dir.to_str().expect("the path is UTF-8");
        let artifact = messages.lines().find(|line| {
            line.contains("compiler-artifact") && line.contains("\"custom-build\"") && line.contains(place)
        });
        let (_, files) =
            artifact.expect("cargo built the script").split_once("\"filenames\":[\"").expect("it has a file");
        let (file, _) = files.split_once('"').expect("its name ends");
        let out_dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("build-scenarios").join(format!("out-of-{name}"));
        fs::create_dir_all(&out_dir).expect("a folder can be made");
        Self { executable: file.into(), manifest_dir, out_dir, from_dependency }
    }

    /// Runs it with `variables` besides those that cargo sets.
    pub(crate) fn run(&self, variables: &[(&str, &str)]) -> Printed {
        let host = format!("{}-unknown-linux-gnu", env::consts::ARCH);
        let mut command = Command::new(&self.executable);
        command.env_clear().current_dir(&self.manifest_dir).env("CARGO_MANIFEST_DIR", &self.manifest_dir);
        command.env("OUT_DIR", &self.out_dir).env("PATH", env::var_os("PATH").unwrap_or_default());
        command.envs([
            ("HOST", host.as_str()),
            ("TARGET", &host),
            ("OPT_LEVEL", "0"),
            ("DEBUG", "true"),
            ("PROFILE", "debug"),
        ]);
        command.envs([("CARGO_CFG_TARGET_FEATURE", "fxsr,sse,sse2"), ("NUM_JOBS", "1")]);
        command.envs(self.from_dependency.iter().map(|(name, value)| (*name, value)));
        command.envs(variables.iter().copied());
        let output = run(&mut command);
        let stdout = String::from_utf8(output.stdout).expect("the script prints UTF-8");
        let stderr = String::from_utf8(output.stderr).expect("the script prints UTF-8");
        Printed { lines: stdout.lines().map(str::to_owned).collect(), stderr }
    }
}

impl Printed {
    /// What follows `start` in the lines that begin with it.
    pub(crate) fn after<'a>(&'a self, start: &'a str) -> impl Iterator<Item = &'a str> {
        self.lines.iter().filter_map(move |line| line.strip_prefix(start))
    }

    /// The message with which the script ends the build.
    pub(crate) fn message(&self) -> String {
        self.after("cargo::error=").collect::<Vec<_>>().join("\n")
    }
}
