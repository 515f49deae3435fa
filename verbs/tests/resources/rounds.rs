//! Everything is made, used and dropped, again and again.

use std::fs;
use std::process::Command;

use crate::null_provider::NullProvider;
use crate::null_provider::handles::handles;
use crate::{allocator, one_at_a_time};

/// How many rounds there are, if not the usual number.
const ROUNDS: &str = "RDMA_TEST_ROUNDS";

fn round() {
    let provider = NullProvider::new();
    drop(handles(&provider));
    provider.assert_clean();
}

#[derive(Debug, PartialEq, Eq)]
struct Used {
    allocations: i64,
    descriptors: usize,
    mappings: usize,
}

fn used() -> Used {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    // The sanitizer keeps freed memory for a while, in mappings of its own.
    let is_sanitized = std::env::var_os("ASAN_OPTIONS").is_some();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mappings = if is_sanitized { 0 } else { maps.lines().count() };
    Used { allocations: allocator::live(), descriptors, mappings }
}

#[test]
fn after_10_000_rounds_there_is_as_much_as_before() {
    let _alone = one_at_a_time();
    let rounds = std::env::var(ROUNDS).map_or(10_000, |rounds| rounds.parse().unwrap());
    // What is made once, as the first error message, or a table that grows.
    (0..10).for_each(|_| round());
    let before = used();
    (0..rounds).for_each(|_| round());
    let mut after = used();
    // The tests beside this one wait on threads of their own, each with a stack and a heap, and may begin to do so meanwhile.
    if after.mappings > before.mappings && after.mappings <= before.mappings + 16 {
        after.mappings = before.mappings;
    }
    assert_eq!(after, before);
}

#[test]
fn rounds_touch_no_freed_memory() {
    let _alone = one_at_a_time();
    let report = std::env::temp_dir().join(format!("valgrind-rounds-{}", std::process::id()));
    let output = Command::new("valgrind")
        .args(["--error-exitcode=99", "--leak-check=full", "--errors-for-leak-kinds=definite"])
        .arg(format!("--log-file={}", report.display()))
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "rounds::after_10_000_rounds_there_is_as_much_as_before"])
        .env(ROUNDS, "3")
        .output()
        .expect("valgrind");
    let report = fs::read_to_string(report).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains("1 passed"), "{printed}\n{report}");
    assert!(report.contains("ERROR SUMMARY: 0 errors"), "{report}");
}
