//! What the example programs share.
//!
//! Each program is a file of `src/bin`; the names, options and wire protocols are those of the C programs.

#![forbid(unsafe_code)]

pub mod connection;
pub mod exchange;
pub mod greeting;
pub mod messages;
pub mod pingpong;
pub mod report;

#[cfg(test)]
mod tests {
    /// The programs that a reader sees in the README and on the crate page of `verbs` are the one that is tested.
    #[test]
    fn readme_and_crate_page_show_the_program_that_runs() {
        let file = include_str!("bin/loopback.rs");
        let program = file.split_once("\n\n").map(|(_, program)| program).unwrap();
        assert!(include_str!("../../README.md").contains(program));
        let page: String = include_str!("../../verbs/src/lib.rs")
            .lines()
            .filter_map(|line| line.strip_prefix("//!"))
            .map(|line| line.strip_prefix(' ').unwrap_or(line).to_owned() + "\n")
            .collect();
        assert!(page.contains(program));
    }
}
