//! These tests once more, on a processor that notices each access to memory that is freed or was never there.

use std::process::Command;

/// Tests that try more orders or rounds than such a processor goes through in minutes; what they try, others try with fewer.
const LONG_ONES: [&str; 4] = ["a_hundred_thousand", "ten_thousand", "in_any_order", "random_orders"];

/// Itself.
const NAME: &str = "all_of_these_tests_touch_no_freed_memory";

#[test]
fn all_of_these_tests_touch_no_freed_memory() {
    let report = std::env::temp_dir().join(format!("valgrind-all-{}", std::process::id()));
    let output = Command::new("valgrind")
        // Some tests leak on purpose; the provider counts what is left.
        .args(["--error-exitcode=99", "--leak-check=no"])
        .arg(format!("--log-file={}", report.display()))
        .arg(std::env::current_exe().unwrap())
        .args(LONG_ONES.into_iter().chain([NAME]).flat_map(|name| ["--skip", name]))
        .output()
        .expect("valgrind");
    let found = std::fs::read_to_string(&report).unwrap();
    std::fs::remove_file(report).unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && printed.contains(" 0 failed"), "{printed}\n{found}");
    assert!(found.contains("ERROR SUMMARY: 0 errors"), "{found}");
}
