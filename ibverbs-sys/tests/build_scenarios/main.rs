//! Builds as they go on other people's machines: something is missing, the path is long, the source may not be written, the linker
//! drops what it does not need.

mod build_script;
mod failures;
mod project;
mod releases;
mod success;

/// An empty folder.
fn empty() -> String {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("build-scenarios/empty");
    std::fs::create_dir_all(&folder).expect("a folder can be made");
    folder.into_os_string().into_string().expect("the path is UTF-8")
}
