//! The figures as a table for people.

use crate::ROWS;
use crate::count::Count;
use crate::loops::theirs;
use crate::rows::Gate;

/// Prints the table. `false`: a row costs more than it may.
pub(crate) fn print(counts: &[Count]) -> bool {
    println!(
        "Instructions of one operation on the null provider, whose own are in both figures; C: {}.",
        theirs::compiler()
    );
    println!("Allocations of ours: 0 in each row.\n");
    println!("| operation | Rust | C | Rust / C | gate | |");
    println!("|---|--:|--:|--:|--:|---|");
    let mut ok = true;
    for (row, Count { ours, theirs }) in ROWS.iter().zip(counts) {
        let ratio = ours / theirs;
        let (holds, gate) = match row.gate {
            Gate::Ratio(most) => (ratio <= most, format!("{most:.2}")),
            Gate::More(most) => (ours - theirs <= most, format!("C + {most}")),
        };
        ok &= holds;
        let verdict = if holds { "ok" } else { "TOO MANY" };
        println!("| {} | {ours:.1} | {theirs:.1} | {ratio:.3} | {gate} | {verdict} |", row.name);
    }
    ok
}
