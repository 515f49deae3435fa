//! Builds that cannot succeed end with one message that says what to do.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::build_script::BuildScript;
use crate::empty;
use crate::project::Project;
use crate::releases::folder_of_header;

const LIBRARY: [[&str; 4]; 2] = [
    [
        "apt install libibverbs-dev",
        "dnf install rdma-core-devel",
        "pacman -S rdma-core",
        "zypper install rdma-core-devel",
    ],
    [
        "apt install librdmacm-dev",
        "dnf install rdma-core-devel",
        "pacman -S rdma-core",
        "zypper install rdma-core-devel",
    ],
];
const PKG_CONFIG: [&str; 4] =
    ["apt install pkg-config", "dnf install pkgconf-pkg-config", "pacman -S pkgconf", "zypper install pkg-config"];
const LIBCLANG: [&str; 4] =
    ["apt install libclang-dev", "dnf install clang-devel", "pacman -S clang", "zypper install clang-devel"];
const C: [&str; 4] =
    ["apt install gcc libc6-dev", "dnf install gcc glibc-devel", "pacman -S gcc", "zypper install gcc glibc-devel"];

/// Asserts that `script` ends with one message, that it names `what` and the four `remedies`, and that nothing else is said.
#[track_caller]
fn assert_fails(script: &BuildScript, variables: &[(&str, &str)], what: &str, remedies: &[&str]) {
    let printed = script.run(variables);
    let message = printed.message();
    let first = message.lines().next().unwrap_or_default();
    assert!(first.contains(what), "the first line does not name {what}: {message}");
    for remedy in remedies {
        assert!(message.contains(remedy), "{remedy} is not in: {message}");
    }
    assert!(message.lines().count() <= 7, "{message}");
    // What libclang writes to the error stream is not shown: the script ends well, and cargo fails because of the message.
    assert!(printed.stderr.lines().all(|line| line.contains(" fatal error: ")), "{}", printed.stderr);
    assert_eq!(printed.after("cargo::rustc-link-lib=").count(), 0);
}

#[test]
fn a_missing_header_names_the_package() {
    let [ibverbs, rdmacm] = BuildScript::both();
    let folder = empty();
    assert_fails(ibverbs, &[("IBVERBS_INCLUDE_DIR", &folder)], "infiniband/verbs.h", &LIBRARY[0]);
    assert_fails(rdmacm, &[("RDMACM_INCLUDE_DIR", &folder)], "rdma/rdma_cma.h", &LIBRARY[1]);
}

#[test]
fn a_missing_library_names_the_package() {
    let [ibverbs, rdmacm] = BuildScript::both();
    let folder = empty();
    assert_fails(ibverbs, &[("IBVERBS_LIB_DIR", &folder)], "libibverbs.so", &LIBRARY[0]);
    assert_fails(rdmacm, &[("RDMACM_LIB_DIR", &folder)], "librdmacm.so", &LIBRARY[1]);
}

#[test]
fn a_library_that_pkg_config_does_not_know_names_the_package() {
    let [ibverbs, rdmacm] = BuildScript::both();
    let folder = empty();
    assert_fails(ibverbs, &[("PKG_CONFIG_LIBDIR", &folder)], "libibverbs was not found", &LIBRARY[0]);
    assert_fails(rdmacm, &[("PKG_CONFIG_LIBDIR", &folder)], "librdmacm was not found", &LIBRARY[1]);
}

#[test]
fn a_missing_pkg_config_names_its_package() {
    for script in BuildScript::both() {
        assert_fails(script, &[("PATH", &empty())], "pkg-config is not installed", &PKG_CONFIG);
    }
}

#[test]
fn a_missing_libclang_names_its_package() {
    for script in BuildScript::both() {
        assert_fails(script, &[("LIBCLANG_PATH", &empty())], "libclang", &LIBCLANG);
    }
}

#[test]
fn a_libclang_without_its_own_headers_names_its_package() {
    for script in BuildScript::both() {
        assert_fails(script, &[("BINDGEN_EXTRA_CLANG_ARGS", "-nobuiltininc")], "stddef.h is missing", &LIBCLANG);
    }
}

#[test]
fn a_missing_header_of_the_system_names_the_c_librarys_package() {
    let headers = only_our_headers();
    let arguments = [("BINDGEN_EXTRA_CLANG_ARGS", "-nostdlibinc"), ("IBVERBS_INCLUDE_DIR", &headers)];
    let [ibverbs, rdmacm] = BuildScript::both();
    assert_fails(ibverbs, &arguments, ".h was not found", &C);
    let arguments = [arguments[0], ("RDMACM_INCLUDE_DIR", &headers)];
    assert_fails(rdmacm, &arguments, ".h was not found", &C);
}

/// A folder that has the headers of rdma-core and no others.
fn only_our_headers() -> String {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("build-scenarios/only-our-headers");
    if !folder.exists() {
        fs::create_dir_all(&folder).expect("a folder can be made");
        for name in ["infiniband", "rdma"] {
            symlink(folder_of_header().join(name), folder.join(name)).expect("a link can be made");
        }
    }
    folder.into_os_string().into_string().expect("the path is UTF-8")
}

#[test]
fn a_missing_c_compiler_names_its_package() {
    let compiler = format!("{}/cc", empty());
    for script in BuildScript::both() {
        assert_fails(script, &[("CC", &compiler)], "C compiler", &C);
    }
}

#[test]
fn a_static_program_is_refused_with_the_reason() {
    for script in BuildScript::both() {
        let musl = [("TARGET", "x86_64-unknown-linux-musl"), ("CARGO_CFG_TARGET_FEATURE", "crt-static,fxsr")];
        assert_fails(script, &musl, "static", &["dlopen", "x86_64-unknown-linux-gnu", "target-feature=-crt-static"]);
    }
}

#[test]
fn a_cross_build_without_the_targets_library_names_its_package_and_pkg_configs_variables() {
    let target = if cfg!(target_arch = "aarch64") { "x86_64-unknown-linux-gnu" } else { "aarch64-unknown-linux-gnu" };
    let [ibverbs, rdmacm] = BuildScript::both();
    let variables = ["PKG_CONFIG_ALLOW_CROSS=1", "PKG_CONFIG_SYSROOT_DIR"];
    assert_fails(ibverbs, &[("TARGET", target)], target, &[variables[0], variables[1], "libibverbs-dev:arm64"]);
    assert_fails(rdmacm, &[("TARGET", target)], target, &[variables[0], variables[1], "librdmacm-dev:arm64"]);
}

#[test]
fn a_sysroot_without_the_headers_is_not_made_up_for_with_the_hosts() {
    let [ibverbs, rdmacm] = BuildScript::both();
    let sysroot = empty();
    let variables = [("PKG_CONFIG_SYSROOT_DIR", sysroot.as_str())];
    assert_fails(ibverbs, &variables, "infiniband/verbs.h was not found", &LIBRARY[0]);
    assert_fails(rdmacm, &variables, "rdma/rdma_cma.h was not found", &LIBRARY[1]);
}

#[test]
fn cargo_shows_the_message_once_and_nothing_of_the_scripts_output() {
    let project = Project::new("failure");
    let output = project.cargo(&["build", "--lib"]).env("IBVERBS_INCLUDE_DIR", empty()).output().expect("cargo runs");
    assert_eq!(output.status.code(), Some(101));
    let stderr = String::from_utf8(output.stderr).expect("cargo prints UTF-8");
    let lines: Vec<&str> = stderr.lines().filter(|line| line.contains("ibverbs-sys@")).collect();
    assert_eq!(lines.iter().filter(|line| line.contains("infiniband/verbs.h")).count(), 1, "{stderr}");
    assert_eq!(lines.iter().filter(|line| line.contains("apt install libibverbs-dev")).count(), 1, "{stderr}");
    for wall in ["panicked", "backtrace", "--- stdout", "--- stderr", "rerun-if"] {
        assert!(!stderr.contains(wall), "{stderr}");
    }
}
