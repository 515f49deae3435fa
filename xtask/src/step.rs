//! Saying what is done, before it is done.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Prints a line about what xtask does, apart from what programs print.
#[macro_export]
macro_rules! say {
    ($($argument:tt)*) => {
        eprintln!("xtask: {}", format_args!($($argument)*))
    };
}

/// Prints the command, runs it, and fails when it fails.
///
/// # Errors
///
/// It cannot be started, or its status is not 0.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let text = shell(command);
    say!("$ {text}");
    let status = command.status().with_context(|| format!("starting `{text}`"))?;
    if !status.success() {
        bail!("failed ({status}); to repeat it: {text}");
    }
    Ok(())
}

/// As [`run`], for a command that says the same about each of a thousand files: only the end of what it says is told.
///
/// # Errors
///
/// As [`run`]; a full disk is named as such.
pub(crate) fn run_quietly(command: &mut Command) -> Result<()> {
    let text = shell(command);
    say!("$ {text}");
    let output = command.output().with_context(|| format!("starting `{text}`"))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    if words.contains("No space left on device") {
        bail!("the disk is full, as `{text}` says: make room and try again");
    }
    let lines: Vec<&str> = words.lines().collect();
    bail!("failed ({}); to repeat it: {text}\n{}", output.status, lines[lines.len().saturating_sub(5)..].join("\n"));
}

/// The command as one would type it.
pub(crate) fn shell(command: &Command) -> String {
    let mut words = Vec::new();
    if let Some(folder) = command.get_current_dir() {
        words.push(format!("cd {} &&", quote(&folder.to_string_lossy())));
    }
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", name.to_string_lossy(), quote(&value.to_string_lossy())));
        }
    }
    words.push(quote(&command.get_program().to_string_lossy()));
    words.extend(command.get_args().map(|argument| quote(&argument.to_string_lossy())));
    words.join(" ")
}

/// Quotes a word for the shell where it needs it.
pub(crate) fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_in_one_line_and_other_failures_with_their_last_words() {
        let sh = |script: &str| run_quietly(Command::new("sh").args(["-c", script])).map_err(|error| error.to_string());
        sh("echo much >&2").unwrap();
        let full = sh("seq 1000 >&2; echo 'tar: x: Cannot write: No space left on device' >&2; exit 2").unwrap_err();
        assert!(full.starts_with("the disk is full") && full.lines().count() == 1, "{full}");
        let other = sh("seq 1000 >&2; exit 3").unwrap_err();
        assert!(other.starts_with("failed (exit status: 3)"), "{other}");
        assert!(other.ends_with("996\n997\n998\n999\n1000"), "{other}");
    }
}
