//! Running the loops, and counting their instructions and allocations.
//!
//! # Safety
//!
//! The C loops are given fixtures of live objects.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, fs};

use crate::ROWS;
use crate::loops::allocations;
use crate::loops::ours::Objects;
use crate::loops::theirs::Loops;

/// Names the shared object to the bench that runs under valgrind.
pub(crate) const INSIDE: &str = "VERBS_INSTRUCTIONS_INSIDE";

/// The two lengths of a loop whose difference is taken.
const LENGTHS: [u64; 2] = [1024, 2048];

/// What callgrind counts, by its name: from when it is entered to when it is left.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn verbs_measured_loop(run: &mut &mut dyn FnMut(u64) -> u64, length: u64) -> u64 {
    run(length)
}

/// Runs each loop once to warm up and then at both lengths, ours before C's.
pub(crate) fn run_loops(loops: &Loops) {
    for row in ROWS {
        let objects = Objects::new(row.polls);
        let fixture = objects.for_c();
        let theirs = loops.get(row.theirs);
        let mut sides: [&mut dyn FnMut(u64) -> u64; 2] = [
            &mut |length| (row.ours)(&objects, length).unwrap(),
            // SAFETY: the objects are alive.
            &mut |length| unsafe { theirs(&fixture, length) },
        ];
        for run in &mut sides {
            run(LENGTHS[0]);
            let [short, long] = LENGTHS.map(|length| {
                let before = allocations::count();
                let done = verbs_measured_loop(run, length);
                assert_eq!(done, length * row.done, "{}: the loop did not do what it was to do", row.name);
                allocations::count() - before
            });
            // What is made before a loop begins is in both.
            assert_eq!(short, long, "{}: the loop allocates", row.name);
        }
    }
}

/// The instructions of an operation.
pub(crate) struct Count {
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
}

/// Runs this program under callgrind and returns the counts of each row.
pub(crate) fn under_callgrind(folder: &Path, object: &Path) -> Vec<Count> {
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=callgrind", "--zero-before=verbs_measured_loop", "--dump-after=verbs_measured_loop"])
        .arg(format!("--callgrind-out-file={}", folder.join("counts").display()))
        .arg(env::current_exe().unwrap())
        .env(INSIDE, object)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let output = command.output().unwrap_or_else(|error| panic!("valgrind: {error}; install the package valgrind"));
    assert!(output.status.success(), "{command:?}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    // A file for each time that the function was left.
    let mut files = (1..).map(|number| folder.join(format!("counts.{number}")));
    let mut next = || {
        let path = files.next().expect("there is no end");
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let totals = text.lines().find_map(|line| line.strip_prefix("totals: "));
        totals.and_then(|totals| totals.trim().parse::<u64>().ok()).expect("a line with the total")
    };
    let mut side = |operations: u64| {
        let (short, long) = (next(), next());
        (long - short) as f64 / ((LENGTHS[1] - LENGTHS[0]) * operations) as f64
    };
    ROWS.iter().map(|row| Count { ours: side(row.operations), theirs: side(row.operations) }).collect()
}
