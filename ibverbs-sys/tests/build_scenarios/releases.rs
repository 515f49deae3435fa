//! How the release of rdma-core is found.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use crate::build_script::{BuildScript, Printed};
use crate::project::run;

/// What the environment of this test tells of where the library is: the same as the crate itself was built with.
fn given() -> Vec<(&'static str, String)> {
    let names = ["IBVERBS_INCLUDE_DIR", "IBVERBS_LIB_DIR"];
    names.into_iter().filter_map(|name| Some((name, env::var(name).ok()?))).collect()
}

fn release(printed: &Printed) -> (String, String) {
    let value = |key: &str| printed.after(key).next().expect("the script tells the release").to_owned();
    (value("cargo::metadata=VERSION="), value("cargo::metadata=CFGS="))
}

pub(crate) fn folder_of_header() -> PathBuf {
    let given = env::var_os("IBVERBS_INCLUDE_DIR").map(PathBuf::from);
    let folders = given.into_iter().chain(["/usr/local/include".into(), "/usr/include".into()]);
    folders.into_iter().find(|folder| folder.join("infiniband/verbs.h").is_file()).expect("the header is installed")
}

fn folder_of_library() -> PathBuf {
    env::var_os("IBVERBS_LIB_DIR").map(PathBuf::from).unwrap_or_else(|| {
        let output = run(Command::new("pkg-config").args(["--variable=libdir", "libibverbs"]));
        String::from_utf8(output.stdout).expect("the path is UTF-8").trim().into()
    })
}

fn run_with(variables: &[(&str, String)]) -> Printed {
    let variables: Vec<(&str, &str)> = variables.iter().map(|(name, value)| (*name, value.as_str())).collect();
    BuildScript::both()[0].run(&variables)
}

#[test]
fn folders_given_by_hand_tell_the_same_release_as_pkg_config() {
    let text = |path: PathBuf| path.into_os_string().into_string().expect("the path is UTF-8");
    let by_hand = [("IBVERBS_INCLUDE_DIR", text(folder_of_header())), ("IBVERBS_LIB_DIR", text(folder_of_library()))];
    let printed = run_with(&by_hand);
    assert_eq!(release(&printed), release(&run_with(&given())));
    let searched: Vec<_> = printed.after("cargo::rustc-link-search=native=").collect();
    assert!(searched.contains(&by_hand[1].1.as_str()), "{searched:?}");
}

#[test]
fn the_header_alone_tells_the_same_cfgs() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("build-scenarios/header-alone");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(folder.join("lib")).expect("a folder can be made");
    symlink(folder_of_header(), folder.join("include")).expect("a link can be made");
    symlink(folder_of_library().join("libibverbs.so"), folder.join("lib/libibverbs.so")).expect("a link can be made");
    let text = |name| folder.join(name).into_os_string().into_string().expect("the path is UTF-8");
    let printed = run_with(&[("IBVERBS_INCLUDE_DIR", text("include")), ("IBVERBS_LIB_DIR", text("lib"))]);
    let (version, cfgs) = release(&printed);
    let (told, told_cfgs) = release(&run_with(&given()));
    assert_eq!(cfgs, told_cfgs);
    let number = |version: &str| version.parse::<u32>().expect("a release is a number");
    assert!(number(&version) <= number(&told), "{version} {told}");
}

#[test]
fn a_release_that_is_too_old_is_refused_with_the_oldest_that_is_not() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("build-scenarios/too-old");
    fs::create_dir_all(&folder).expect("a folder can be made");
    let description = "Name: libibverbs\nDescription: RDMA\nVersion: 1.14.39.0\nLibs: -libverbs\n";
    fs::write(folder.join("libibverbs.pc"), description).expect("a file can be written");
    let folder = folder.to_str().expect("the path is UTF-8");
    let printed = BuildScript::both()[0].run(&[("PKG_CONFIG_LIBDIR", folder)]);
    let message = printed.message();
    assert!(
        message.starts_with("rdma-core 39 is installed, and these bindings need release 44 or later."),
        "{message}"
    );
}

#[test]
fn the_library_is_linked_after_the_shims() {
    let printed = run_with(&given());
    let libraries: Vec<&str> = printed
        .lines
        .iter()
        .filter_map(|line| line.split_once("rustc-link-lib="))
        .map(|(_, library)| library)
        .collect();
    assert_eq!(libraries, ["static=ibverbs_sys_shims", "dylib=ibverbs"]);
}
