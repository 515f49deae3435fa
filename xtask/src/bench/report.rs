//! The comparison, as text, Markdown, JSON and a picture.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::case::{Case, DEPTH, Figure, INTERVAL, size};
use super::measure::{Pair, Record};
use super::plot;
use super::statistics::Spread;
use crate::say;

/// Under what was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Conditions {
    place: &'static str,
    kernel: String,
    #[serde(flatten)]
    record: Record,
    tx_depth: u32,
    cq_mod: u32,
    inline_size: u32,
    pairs: u32,
}

impl Conditions {
    pub(crate) fn new(place: &'static str, kernel: String, record: Record, pairs: u32) -> Self {
        Self { place, kernel, record, tx_depth: DEPTH, cq_mod: INTERVAL, inline_size: 0, pairs }
    }

    fn sentence(&self) -> String {
        let Record { device, link_layer, gid_index, gid_type, mtu } = &self.record;
        let gid = match (gid_index, gid_type) {
            (Some(index), Some(gid_type)) => format!(", GID index {index} ({gid_type})"),
            _ => String::new(),
        };
        format!(
            "Device {device} ({link_layer}{gid}, MTU {mtu}) in {}, Linux {}. Bandwidth: {} requests under way, up to 8 KiB every \
             {}th signaled, larger ones each; latency: one at a time; nothing inline. {} pairs of runs a row, in turn.",
            self.place, self.kernel, self.tx_depth, self.cq_mod, self.pairs
        )
    }
}

/// What was measured of one case.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    op: &'static str,
    connection: &'static str,
    test: &'static str,
    size: u64,
    unit: &'static str,
    /// Ours divided by perftest's.
    pub(crate) ratio: Option<Spread>,
    ours: Option<Spread>,
    perftest: Option<Spread>,
    goal_met: bool,
    pairs: Vec<Pair>,
    #[serde(skip)]
    title: String,
    #[serde(skip)]
    pub(crate) figure: Figure,
}

impl Row {
    pub(crate) fn new(case: &Case, pairs: Vec<Pair>) -> Self {
        let ratio = Spread::of(pairs.iter().map(|pair| pair.ours / pair.theirs));
        Self {
            name: case.name(),
            op: case.op,
            connection: case.connection.letters(),
            test: case.figure.word(),
            size: case.size,
            unit: case.figure.unit(),
            ratio,
            ours: Spread::of(pairs.iter().map(|pair| pair.ours)),
            perftest: Spread::of(pairs.iter().map(|pair| pair.theirs)),
            goal_met: ratio.is_some_and(|ratio| case.figure.is_met(ratio.median)),
            pairs,
            title: case.test(),
            figure: case.figure,
        }
    }

    /// Whether the median is as good as perftest's.
    pub(crate) fn goal_met(&self) -> bool {
        self.goal_met
    }

    /// The row's cells: test, size, perf, perftest, the ratio's median and its spread.
    fn cells(&self) -> [String; 6] {
        let median = |spread: Option<Spread>| {
            spread.map_or("?".to_owned(), |spread| format!("{} {}", figure(spread.median), self.unit))
        };
        let (ratio, spread) = match self.ratio {
            Some(Spread { min, lower, median, upper, max }) => {
                (format!("{median:.2}"), format!("{lower:.2} to {upper:.2} ({min:.2} to {max:.2})"))
            }
            None => ("?".to_owned(), "?".to_owned()),
        };
        [self.title.clone(), size(self.size), median(self.ours), median(self.perftest), ratio, spread]
    }

    /// The row while the comparison goes on.
    pub(crate) fn line(&self) -> String {
        let [_, _, ours, theirs, ratio, spread] = self.cells();
        let verdict = if self.goal_met { "" } else { "  short of the goal" };
        format!("{:16} {ours:>15}, perftest {theirs:>15}: {ratio} x, {spread}{verdict}", self.name)
    }
}

/// Four digits that matter.
fn figure(value: f64) -> String {
    let digits = (3 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
    format!("{value:.digits$}")
}

/// All of it.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) conditions: Conditions,
    pub(crate) rows: Vec<Row>,
}

const GOAL: &str =
    "The goal: bandwidth at least 1.00 times, latency at most 1.00 times perftest's, in the median of every row.";

impl Report {
    /// The table for a terminal, and what falls short.
    pub(crate) fn summary(&self) -> String {
        let head = ["test", "size", "perf", "perftest", "ratio", "quarters (all)"].map(str::to_owned);
        let rows: Vec<[String; 6]> = [head].into_iter().chain(self.rows.iter().map(Row::cells)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 6] = std::array::from_fn(width);
        let mut text = String::new();
        for row in &rows {
            let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text + &self.verdict()
    }

    fn verdict(&self) -> String {
        let short: Vec<&str> = self.rows.iter().filter(|row| !row.goal_met).map(|row| row.name.as_str()).collect();
        match short[..] {
            [] => format!("{GOAL} All {} rows meet it.", self.rows.len()),
            _ => format!("{GOAL} {} of {} rows fall short: {}.", short.len(), self.rows.len(), short.join(", ")),
        }
    }

    fn markdown(&self) -> String {
        let mut text = format!("# perf beside perftest\n\n{}\n\n", self.conditions.sentence());
        text.push_str("| test | size | perf | perftest | ratio, median | quarters (all) | goal |\n");
        text.push_str("|---|--:|--:|--:|--:|---|---|\n");
        for row in &self.rows {
            let goal = if row.goal_met { "met" } else { "**missed**" };
            // A string takes all that is written to it.
            let _ = writeln!(text, "| {} | {goal} |", row.cells().join(" | "));
        }
        text + "\n" + &self.verdict() + "\n\n![ratios](perftest.svg)\n"
    }

    /// Writes the files into `folder`.
    ///
    /// # Errors
    ///
    /// They cannot be written.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        let json = serde_json::to_string_pretty(self).context("writing JSON")? + "\n";
        let picture = plot::draw(&self.rows)?;
        for (name, text) in [("perftest.md", self.markdown()), ("perftest.json", json), ("perftest.svg", picture)] {
            let path = folder.join(name);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
            say!("written: {}", path.display());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::Connection;
    use super::*;

    fn report() -> Report {
        let pair = |ours, theirs| Pair { ours, theirs };
        let case = |op, figure, size| Case { op, connection: Connection::Uc, srq: false, figure, size, iterations: 1 };
        let record = Record {
            device: "rxe1".into(),
            link_layer: "Ethernet".into(),
            gid_index: Some(1),
            gid_type: Some("RoCE v2".into()),
            mtu: 4096,
        };
        Report {
            conditions: Conditions::new("a virtual machine", "6.1.0".into(), record, 3),
            rows: vec![
                Row::new(
                    &case("write", Figure::Bandwidth, 4096),
                    vec![pair(0.2, 0.1), pair(0.11, 0.1), pair(0.12, 0.1)],
                ),
                Row::new(
                    &case("send", Figure::Latency, 64),
                    vec![pair(50.0, 40.0), pair(44.0, 40.0), pair(36.0, 40.0)],
                ),
            ],
        }
    }

    #[test]
    fn a_row_has_the_median_and_the_spread_of_the_ratio_and_its_verdict() {
        let report = report();
        let ratio = report.rows[0].ratio.unwrap();
        assert!((ratio.median - 1.2).abs() < 1e-9 && (ratio.max - 2.0).abs() < 1e-9, "{ratio:?}");
        assert!(report.rows[0].goal_met && !report.rows[1].goal_met);
        let summary = report.summary();
        assert!(
            summary.contains("uc_write_bw    4k  0.1200 Gbit/s  0.1000 Gbit/s   1.20  1.15 to 1.60 (1.10 to 2.00)"),
            "{summary}"
        );
        assert!(summary.ends_with("1 of 2 rows fall short: uc_send_lat 64."), "{summary}");
    }

    #[test]
    fn the_files_hold_what_was_measured() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("bench");
        report().write(&folder).unwrap();
        let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        let markdown = read("perftest.md");
        assert!(
            markdown
                .contains("Device rxe1 (Ethernet, GID index 1 (RoCE v2), MTU 4096) in a virtual machine, Linux 6.1.0.")
        );
        assert!(
            markdown.contains(
                "| uc_send_lat | 64 | 44.00 µs | 40.00 µs | 1.10 | 1.00 to 1.18 (0.90 to 1.25) | **missed** |"
            )
        );
        let json: serde_json::Value = serde_json::from_str(&read("perftest.json")).unwrap();
        assert_eq!(json["conditions"]["mtu"], 4096);
        assert_eq!(json["rows"][1]["ratio"]["median"], 1.1);
        assert_eq!(json["rows"][0]["pairs"].as_array().unwrap().len(), 3);
        assert_eq!(json["rows"][0]["goal_met"], true);
        assert_eq!(json["rows"][0]["connection"], "UC");
        let picture = read("perftest.svg");
        assert!(
            picture.starts_with("<svg") && picture.contains("uc_send_lat 64") && picture.contains("uc_write_bw 4k")
        );
        assert!(picture.contains("\n0.85\n") && picture.contains("\n1\n"), "the scale");
    }

    #[test]
    fn figures_have_four_digits() {
        for (value, text) in [(0.007_586, "0.007586"), (1.234_56, "1.235"), (56.789, "56.79"), (12345.6, "12346")] {
            assert_eq!(figure(value), text);
        }
    }
}
