//! Counts up keys at random, and checks what it reads: that it is of one piece, and that no count ever goes back.

use std::io::Write;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use crate::client::{Retries, Table};
use crate::layout::MAX_VALUE;

/// How often a value holds its count.
const COPIES: usize = MAX_VALUE / 8;

pub(crate) fn run(mut table: Table, keys: u32, updates: u64, out: &mut dyn Write) -> Result<()> {
    let mut seen = vec![0; keys as usize];
    let mut random = u64::from(std::process::id());
    let mut pick = || {
        // Steele and Vigna's SplitMix64.
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (random ^ random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % u64::from(keys)) as usize
    };
    let start = Instant::now();
    for _ in 0..updates {
        let index = pick();
        let mut new = 0;
        table.update(key(index).as_bytes(), |old| {
            new = count(old)? + 1;
            Ok(Some(value(new)))
        })?;
        check(&mut seen[index], new, index)?;
        let index = pick();
        let read = table.get(key(index).as_bytes())?;
        check(&mut seen[index], count(read.as_deref())?, index)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let Retries { torn, locked, overtaken } = table.retries;
    writeln!(
        out,
        "{updates} updates and reads in {seconds:.3} s, {:.0} of each a second; done again: {torn} torn reads, {locked} waits for a lock, \
         {overtaken} locks that others got first",
        updates as f64 / seconds
    )?;
    Ok(())
}

fn check(seen: &mut u64, count: u64, index: usize) -> Result<()> {
    ensure!(count >= *seen, "{} went back, from {seen} to {count}: an update was lost", key(index));
    *seen = count;
    Ok(())
}

fn key(index: usize) -> String {
    format!("counter-{index}")
}

fn value(count: u64) -> Vec<u8> {
    format!("{count:08x}").repeat(COPIES).into_bytes()
}

/// The count that a value holds.
fn count(bytes: Option<&[u8]>) -> Result<u64> {
    let Some(bytes) = bytes else { return Ok(0) };
    let digits = bytes.get(..8).and_then(|digits| std::str::from_utf8(digits).ok());
    let count = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    let count = count.with_context(|| format!("the value {:?} is no count", String::from_utf8_lossy(bytes)))?;
    ensure!(bytes == value(count), "the value {:?} is not of one piece", String::from_utf8_lossy(bytes));
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_comes_back_and_a_mixture_does_not() {
        assert_eq!(count(Some(&value(0xabc))).unwrap(), 0xabc);
        assert_eq!(count(None).unwrap(), 0);
        let mut torn = value(7);
        torn[71] = b'8';
        assert!(count(Some(&torn)).unwrap_err().to_string().contains("is not of one piece"));
        assert!(count(Some(b"seven")).is_err());
        let mut seen = 5;
        assert!(check(&mut seen, 4, 1).unwrap_err().to_string().contains("counter-1 went back, from 5 to 4"));
        check(&mut seen, 6, 1).unwrap();
        assert_eq!(seen, 6);
    }
}
