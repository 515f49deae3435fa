//! What a test binary printed, counted.

use std::time::Duration;

/// How many tests came out how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

/// One line of the summary.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) place: &'static str,
    pub(crate) counts: Counts,
    pub(crate) time: Duration,
    /// What went wrong beyond single tests.
    pub(crate) problem: Option<String>,
}

impl Row {
    pub(crate) fn success(&self) -> bool {
        self.counts.failed == 0 && self.problem.is_none()
    }
}

/// Adds up libtest's closing lines, of which `cargo test --doc` prints one a package.
///
/// Libtest's closing line is `test result: ok. 5 passed; 0 failed; 1 ignored; …`, with colours in it on a terminal.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    line: Vec<u8>,
    counts: Option<Counts>,
}

impl Reader {
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                if let Some(counts) = closing_line(&String::from_utf8_lossy(&self.line)) {
                    self.counts.get_or_insert_default().add(counts);
                }
                self.line.clear();
            } else {
                self.line.push(byte);
            }
        }
    }

    /// The sum; `None` when no closing line came.
    pub(crate) fn counts(&self) -> Option<Counts> {
        self.counts
    }
}

fn closing_line(line: &str) -> Option<Counts> {
    let rest = line.trim_start().strip_prefix("test result: ")?;
    let number = |what: &str| {
        let before = rest.split(what).next().filter(|before| before.len() < rest.len())?;
        let digits = before.trim_end().rsplit(|c: char| !c.is_ascii_digit()).next()?;
        digits.parse().ok()
    };
    Some(Counts { passed: number(" passed;")?, failed: number(" failed;")?, ignored: number(" ignored;")? })
}

/// The table and, alone on the last line, the total.
pub(crate) fn table(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let mut text = String::from("\n");
    let mut total = Counts::default();
    for row in rows {
        let Counts { passed, failed, ignored } = row.counts;
        let seconds = row.time.as_secs_f64();
        let (name, place) = (&row.name, row.place);
        text += &format!(
            "{name:width$}  {place:5}  {passed:4} passed {failed:3} failed {ignored:3} ignored {seconds:7.2} s"
        );
        if let Some(problem) = &row.problem {
            text += &format!("  {}", problem.lines().next().unwrap_or_default());
        }
        text.push('\n');
        total.add(row.counts);
        // A binary that crashed has failed, whatever its tests said before.
        if row.problem.is_some() && failed == 0 {
            total.failed += 1;
        }
    }
    text + &format!("\n{} passed, {} failed\n", total.passed, total.failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_added_up_though_they_come_in_pieces_and_in_colour() {
        let mut reader = Reader::default();
        reader.read(b"running 3 tests\ntest result: \x1b[32mok\x1b(B\x1b[m. 2 pas");
        assert_eq!(reader.counts(), None);
        reader.read(b"sed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n");
        reader.read(b"test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out\n");
        assert_eq!(reader.counts(), Some(Counts { passed: 14, failed: 3, ignored: 1 }));
    }

    #[test]
    fn other_lines_do_not_count() {
        assert_eq!(closing_line("the test result: 3 passed; 0 failed; 0 ignored;"), None);
        assert_eq!(closing_line("test result: none"), None);
    }

    #[test]
    fn the_total_stands_alone_on_the_last_line_and_counts_a_crash_as_a_failure() {
        let counts = Counts { passed: 4, failed: 0, ignored: 0 };
        let row = |problem: Option<&str>| Row {
            name: "verbs: device".into(),
            place: "guest",
            counts,
            time: Duration::from_secs(1),
            problem: problem.map(str::to_owned),
        };
        let text = table(&[row(None), row(Some("ended by signal 11"))]);
        assert!(text.ends_with("\n8 passed, 1 failed\n"), "{text}");
    }
}
