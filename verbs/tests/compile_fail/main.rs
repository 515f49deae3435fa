//! What the types promise: code that breaks a promise does not compile, and the compiler says why in the words of `messages.txt`.
//!
//! The cases are the examples of the documentation that are not to compile, and each operation on each transport.

mod cases;
mod compiler;

use std::fs;
use std::path::Path;

use cases::{Case, documented, operations};
use compiler::Compiler;

/// What becomes of the cases, a line each: the case, the code of its first error, and what the compiler says.
fn outcomes(compiler: &Compiler, cases: &[Case]) -> Vec<String> {
    let outcome = |case: &Case| match compiler.first_error(&case.code) {
        Some(error) if error.label.is_empty() => format!("{}: {} {}", case.name, error.code, error.message),
        Some(error) => format!("{}: {} {}; {}", case.name, error.code, error.message, error.label),
        None => format!("{}: compiles", case.name),
    };
    cases.iter().map(outcome).collect()
}

/// Compares with the lines of `messages.txt` that begin so. A compiler of another version than its first line names may use other words.
fn must_be_expected(compiler: &Compiler, outcomes: &[String], beginning: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compile_fail/messages.txt");
    let text = fs::read_to_string(path).unwrap();
    let has_these_words = text.lines().next() == Some(compiler.version().as_str());
    let compared = |line: &str| if has_these_words { line.to_owned() } else { case_and_code(line).to_owned() };
    let expected: Vec<_> = text.lines().filter(|line| line.starts_with(beginning)).map(compared).collect();
    let found: Vec<_> = outcomes.iter().map(|line| compared(line)).collect();
    assert!(found == expected, "messages.txt has other lines than these:\n{}", outcomes.join("\n"));
}

/// Such as `on Uc, RDMA READ: E0308`.
fn case_and_code(line: &str) -> &str {
    let (case, outcome) = line.split_once(": ").unwrap();
    let code = outcome.split(' ').next().unwrap();
    &line[..case.len() + 2 + code.len()]
}

#[test]
fn a_transport_has_its_operations_and_no_others() {
    let compiler = Compiler::new("operations");
    let outcomes = outcomes(&compiler, &operations());
    for line in &outcomes {
        let (case, outcome) = line.split_once(": ").unwrap();
        assert_eq!(outcome == "compiles", cases::is_allowed(case), "{line}");
    }
    must_be_expected(&compiler, &outcomes, "on ");
}

#[test]
fn what_the_documentation_says_does_not_compile_fails_with_the_error_that_it_names() {
    let (compiler, cases) = (Compiler::new("documented"), documented());
    let outcomes = outcomes(&compiler, &cases);
    for (case, line) in cases.iter().zip(&outcomes) {
        assert_eq!(case_and_code(line), format!("{}: {}", case.name, case.expected), "{line}\n{}", case.code);
    }
    must_be_expected(&compiler, &outcomes, "src/");
}
