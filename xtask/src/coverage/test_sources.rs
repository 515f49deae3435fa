//! Which functions the tests call.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::files;
use super::wrappers::Wrapper;

/// Names that many types have for a function: to call one counts only where the type is named too.
const COMMON: &[&str] = &["build", "new", "poll", "wait", "close", "start", "query"];

/// The words of the tests: of each file, all, and those that are called.
#[derive(Debug, Default)]
pub(crate) struct Tests {
    device: Vec<Words>,
    host: Vec<Words>,
}

#[derive(Debug, Default)]
struct Words {
    all: HashSet<String>,
    called: HashSet<String>,
}

impl Tests {
    /// The tests in a folder: those of a target named `device…`, and the others.
    ///
    /// # Errors
    ///
    /// A file cannot be read.
    pub(crate) fn of(folder: &Path) -> Result<Self> {
        let mut tests = Self::default();
        for path in files(folder)? {
            let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            let target = path.strip_prefix(folder).ok().and_then(|path| path.iter().next()?.to_str());
            match target {
                // What others stand on.
                Some("null_provider") => {}
                Some(target) if target.starts_with("device") || target == "harness" => tests.device.push(words(&text)),
                _ => tests.host.push(words(&text)),
            }
        }
        Ok(tests)
    }

    pub(crate) fn on_device(&self, wrapper: &Wrapper) -> bool {
        self.device.iter().any(|words| words.call(wrapper))
    }

    pub(crate) fn on_host(&self, wrapper: &Wrapper) -> bool {
        self.host.iter().any(|words| words.call(wrapper))
    }
}

impl Words {
    fn call(&self, wrapper: &Wrapper) -> bool {
        let Wrapper { owner, name } = wrapper;
        match name.as_str() {
            // Nobody calls it.
            "drop" => false,
            // A field of a completion is named, not called.
            name if name.starts_with(char::is_uppercase) => self.all.contains(name),
            name if COMMON.contains(&name) => self.called.contains(name) && self.all.contains(owner),
            name => self.called.contains(name),
        }
    }
}

/// The words of a source; a word is called if a dot, colons or nothing but space comes before it and a parenthesis, colons or the end
/// of an argument after it.
fn words(text: &str) -> Words {
    let mut words = Words::default();
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut rest = text;
    while let Some(start) = rest.find(is_word) {
        let before = rest[..start].trim_end();
        let end = rest[start..].find(|c| !is_word(c)).map_or(rest.len(), |length| start + length);
        let (word, after) = (&rest[start..end], rest[end..].trim_start());
        if after.starts_with('(') || after.starts_with("::<") || before.ends_with("::") {
            words.called.insert(word.to_owned());
        }
        words.all.insert(word.to_owned());
        rest = &rest[end..];
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_called_as_a_function_a_method_or_by_its_path() {
        let words = words("let qp = builder.build().unwrap(); pd.register::<u8>(x); map(SendRequest::signaled); poll;");
        for called in ["build", "unwrap", "register", "map", "signaled"] {
            assert!(words.called.contains(called), "{called}");
        }
        for word in ["qp", "builder", "poll", "SendRequest"] {
            assert!(words.all.contains(word) && !words.called.contains(word), "{word}");
        }
    }

    #[test]
    fn a_common_name_counts_only_with_its_type() {
        let words = words("CompletionQueueBuilder::new(&context, 4).build()");
        let wrapper = |owner: &str| Wrapper { owner: owner.to_owned(), name: "build".to_owned() };
        assert!(words.call(&wrapper("CompletionQueueBuilder")));
        assert!(!words.call(&wrapper("QueuePairBuilder")));
    }
}
