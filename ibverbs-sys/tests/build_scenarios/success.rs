//! Builds that must succeed.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::project::{PRINTS, Project, run};

/// A project whose every path is long and has spaces, and whose source may not be written; built.
fn project() -> &'static Project {
    static PROJECT: OnceLock<Project> = OnceLock::new();
    PROJECT.get_or_init(|| {
        let part = format!("a folder with spaces and a long name {}", "x".repeat(70));
        let project = Project::new(&format!("{part}/{part}"));
        run(Command::new("chmod").args(["-R", "a-w"]).arg(&project.source));
        let before = project.state_of_source();
        run(&mut project.cargo(&["build", "--bins"]));
        assert_eq!(project.state_of_source(), before, "the build wrote into the source");
        project
    })
}

/// Links the program with a further argument for the linker, runs it, and returns what it needs.
fn link_with(argument: &str) -> String {
    // All links have one output.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let project = project();
    let _lock = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    run(&mut project.cargo(&["rustc", "--bin", "build-scenario", "--", "-C", &format!("link-arg={argument}")]));
    let program = project.target.join("debug/build-scenario");
    let output = run(&mut Command::new(&program));
    assert_eq!(String::from_utf8_lossy(&output.stdout), PRINTS);
    let output = run(Command::new("readelf").args(["--dynamic", "--string-dump=.comment"]).arg(&program));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn assert_needs_both_libraries(needs: &str) {
    for library in ["[libibverbs.so.1]", "[librdmacm.so.1]"] {
        assert!(needs.contains(library), "{library} is not in {needs}");
    }
}

#[test]
fn a_long_path_with_spaces_and_a_source_that_may_not_be_written_are_no_obstacle() {
    let project = project();
    for path in [&project.source, &project.program, &project.target] {
        assert!(path.as_os_str().len() > 200, "{}", path.display());
    }
    assert_needs_both_libraries(&link_with("-Wl,--no-as-needed"));
}

#[test]
fn a_linker_that_drops_what_is_not_needed_keeps_both_libraries() {
    assert_needs_both_libraries(&link_with("-Wl,--as-needed"));
}

#[test]
fn lld_links_both_libraries() {
    let needs = link_with("-fuse-ld=lld");
    assert_needs_both_libraries(&needs);
    assert!(needs.contains("LLD"), "another linker was used: {needs}");
}

#[test]
fn a_c_program_links_a_static_library_that_has_the_shims() {
    const PROGRAM: &str = r#"
#include <stdint.h>
#include <stdio.h>
uint32_t next_key(uint32_t key);
const char *event_name(void);
int main(void) { printf("%u %s\n", next_key(0x1ff), event_name()); return 0; }
"#;
    let project = project();
    run(&mut project.cargo(&["build", "--lib"]));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("build-scenarios");
    let (source, program) = (folder.join("program.c"), folder.join("program"));
    fs::write(&source, PROGRAM).expect("the program can be written");
    let archive = project.target.join("debug/libbuild_scenario_library.a");
    let mut compiler = Command::new("cc");
    compiler.arg(&source).arg(&archive).args([
        "-Wl,--as-needed",
        "-lrdmacm",
        "-libverbs",
        "-lpthread",
        "-ldl",
        "-lm",
        "-o",
    ]);
    run(compiler.arg(&program));
    let output = run(&mut Command::new(&program));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "256 RDMA_CM_EVENT_ESTABLISHED\n");
}
