//! Counts the instructions of the data path, ours beside C's, on the null provider.
//!
//! ```text
//! cargo bench -p verbs --bench instructions
//! ```
//!
//! The loops of `loops/ours.rs` and `loops/loops.c` do the same; the C ones are compiled by `cc -O2` when the bench runs (the environment
//! variable `CC` names another compiler). The bench runs itself under `valgrind --tool=callgrind`, which counts each loop at
//! two lengths; the difference is what an operation costs, without what comes before and after the loop. The provider's own
//! instructions are in both figures. An allocator that counts shows that ours allocate nothing.
//!
//! The exit status is 1 if a row costs more than its gate allows. Run by `cargo test`, it only does what each loop does.

#[path = "../../tests/null_provider/mod.rs"]
mod null_provider;

#[path = "../loops/mod.rs"]
mod loops;

mod count;
mod rows;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs, process};

use loops::theirs;
use rows::ROWS;

fn main() -> ExitCode {
    if let Some(object) = env::var_os(count::INSIDE) {
        count::run_loops(&theirs::Loops::load(&PathBuf::from(object)));
        return ExitCode::SUCCESS;
    }
    let folder = env::temp_dir().join(format!("verbs-instructions-{}", process::id()));
    fs::create_dir_all(&folder).unwrap();
    let object = theirs::compile(&folder, "-O2");
    let ok = if env::args().any(|argument| argument == "--bench") {
        let counts = count::under_callgrind(&folder, &object);
        table::print(&counts)
    } else {
        count::run_loops(&theirs::Loops::load(&object));
        true
    };
    fs::remove_dir_all(&folder).unwrap();
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
