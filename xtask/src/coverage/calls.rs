//! Which functions of C the sources of a crate call.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::files;

/// The words of the sources, without those of comments and texts.
#[derive(Debug, Default)]
pub(crate) struct Calls(HashSet<String>);

impl Calls {
    /// Those in the sources of a folder.
    ///
    /// # Errors
    ///
    /// A file cannot be read.
    pub(crate) fn of(folder: &Path) -> Result<Self> {
        let mut words = HashSet::new();
        for path in files(folder)? {
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            words.extend(words_of_code(&text));
        }
        Ok(Self(words))
    }

    /// Whether a function is called: by its name, or as the entry of a provider's table that C's inline function calls.
    pub(crate) fn include(&self, function: &str) -> bool {
        let entry = function.trim_start_matches("ibv_").replacen("wc_read_", "read_", 1);
        const ENTRIES: [&str; 9] = [
            "wr_",
            "read_",
            "start_poll",
            "next_poll",
            "end_poll",
            "post_recv",
            "post_srq_recv",
            "memcpy_from_dm",
            "memcpy_to_dm",
        ];
        let is_entry = ENTRIES.iter().any(|start| entry.starts_with(start));
        self.0.contains(function)
            || (is_entry && self.0.contains(&entry))
            || self.0.contains(&format!("dispatch::{entry}"))
    }
}

fn words_of_code(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    // Tests call what they like.
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or(text);
    for line in code.lines() {
        let line = line.split("//").next().unwrap_or(line);
        if line.trim_start().starts_with("#[") {
            continue;
        }
        // Every other piece is a text.
        for piece in line.split('"').step_by(2) {
            words.extend(piece.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).map(word));
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The last part of a path; of one in `dispatch`, that too.
fn word(path: &str) -> String {
    let mut parts = path.rsplit("::");
    let last = parts.next().unwrap_or_default().trim_matches(':');
    if parts.next() == Some("dispatch") { format!("dispatch::{last}") } else { last.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_counts_by_its_name_or_as_an_entry_of_a_table() {
        let code = r#"
            // ffi::ibv_in_a_comment(x)
            #[doc(alias = "ibv_in_an_alias")]
            fn f() -> Error { unsafe { ffi::ibv_alloc_pd(context) }; Error::of("ibv_in_a_text"); call!(cq.start_poll(x)); }
            fn g() { dispatch::post_send(qp); call!(cq.read_imm_data()) }
            #[cfg(test)]
mod tests {
            fn h() { ffi::ibv_in_a_test() } }"#;
        let calls = Calls(words_of_code(code).into_iter().collect());
        for called in ["ibv_alloc_pd", "ibv_start_poll", "ibv_post_send", "ibv_wc_read_imm_data"] {
            assert!(calls.include(called), "{called}");
        }
        for not in
            ["ibv_in_a_comment", "ibv_in_an_alias", "ibv_in_a_text", "ibv_in_a_test", "ibv_next_poll", "ibv_poll_cq"]
        {
            assert!(!calls.include(not), "{not}");
        }
    }
}
