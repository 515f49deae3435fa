//! Each shim is called, on objects with operation tables of the test's own, and does what the inline function in the header does.

mod exported;
mod extended;
mod operations;
mod pure;
mod recorder;
mod world;
mod wrappers;

use std::collections::BTreeSet;

/// The Rust names of the functions whose symbol is a shim's.
fn shims() -> BTreeSet<&'static str> {
    let sources = [include_str!(concat!(env!("OUT_DIR"), "/bindings.rs")), include_str!("../../src/macros.rs")];
    let lines = sources.into_iter().flat_map(str::lines).map(str::trim);
    lines.filter_map(|line| line.strip_prefix("#[link_name = \"")?.strip_suffix("__ibverbs_sys\"]")).collect()
}

#[test]
fn each_shim_has_a_test() {
    let lists = [operations::BASIC, operations::OF_OBJECTS, operations::OF_COMPLETION_QUEUES, operations::BUILDERS];
    let cases = lists.into_iter().flatten().map(|(name, _)| *name);
    let others = [wrappers::NAMES, pure::NAMES].into_iter().flatten().copied();
    let tested: BTreeSet<&str> = cases.chain(others).chain(extended::names()).collect();
    assert_eq!(shims().difference(&tested).collect::<Vec<_>>(), [&""; 0]);
    assert_eq!(tested.difference(&shims()).collect::<Vec<_>>(), [&""; 0], "no shim");
    assert!(tested.len() >= 98, "{}", tested.len());
}
