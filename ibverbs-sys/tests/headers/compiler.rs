//! The C compiler: what it says of the headers, and whether it agrees with what we claim of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs};

/// The headers of a crate as the C compiler sees them.
pub(crate) struct Headers {
    /// The file that includes them all.
    file: PathBuf,
    include_dirs: Vec<PathBuf>,
    /// The keyword of each tag, such as `struct` of `ibv_wc`.
    tags: BTreeMap<String, &'static str>,
    /// What the bound headers declare.
    pub(crate) declared: Declared,
}

/// Names, each with the place where it is declared.
#[derive(Default)]
pub(crate) struct Declared {
    pub(crate) functions: BTreeMap<String, String>,
    pub(crate) types: BTreeSet<String>,
    pub(crate) enumerators: BTreeSet<String>,
    /// Macros that take arguments.
    pub(crate) function_macros: BTreeSet<String>,
    /// Macros that stand for something.
    pub(crate) object_macros: BTreeSet<String>,
}

impl Headers {
    /// Reads the headers that `file` includes. `bound` are the ends of the paths of those whose names must be bound.
    pub(crate) fn read(file: &str, include_dirs: &str, bound: &[&str]) -> Self {
        let mut headers = Self {
            file: PathBuf::from(file),
            include_dirs: env::split_paths(include_dirs).filter(|dir| !dir.as_os_str().is_empty()).collect(),
            tags: BTreeMap::new(),
            declared: Declared::default(),
        };
        let is_bound = |path: &str| bound.iter().any(|end| path.ends_with(end));
        headers.read_names(is_bound);
        headers.read_functions(is_bound);
        headers
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
        command.args(["-std=gnu11", "-xc"]);
        command.args(self.include_dirs.iter().flat_map(|dir| [Path::new("-I"), dir]));
        command
    }

    /// The assertions among `lines` that the C compiler finds false, by their message.
    pub(crate) fn false_assertions(&self, lines: &[String]) -> Vec<String> {
        let file = scratch_file("c");
        let source = format!("#include \"{}\"\n{}\n", self.file.display(), lines.join("\n"));
        fs::write(&file, source).expect("the probe can be written");
        let output = run(self.command().args(["-fsyntax-only", "-fmax-errors=0"]).arg(&file));
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        let errors: Vec<&str> = messages.lines().filter(|line| line.contains(" error: ")).collect();
        let quoted = errors.iter().map(|line| line.split_once("static assertion failed: "));
        let found: Option<Vec<String>> = quoted.map(|pair| pair.map(|(_, text)| text.replace('"', ""))).collect();
        match found {
            Some(found) if found.is_empty() == output.status.success() => {
                fs::remove_file(&file).expect("the probe can be removed");
                found
            }
            _ => panic!("the C compiler does not understand {}:\n{messages}", file.display()),
        }
    }

    /// The C spelling of a type's name: with its keyword, if it needs one.
    pub(crate) fn tagged(&self, name: &str) -> String {
        self.tags.get(name).map_or_else(|| name.to_owned(), |keyword| format!("{keyword} {name}"))
    }

    fn read_names(&mut self, is_bound: impl Fn(&str) -> bool) {
        let output = run(self.command().args(["-E", "-dD"]).arg(&self.file));
        assert!(output.status.success(), "the headers can be preprocessed");
        let text = String::from_utf8(output.stdout).expect("the headers are UTF-8");
        let mut bound = false;
        let mut code: Vec<(bool, String)> = Vec::new();
        for line in text.lines() {
            if let Some(marker) = line.strip_prefix("# ") {
                bound = marker.split('"').nth(1).is_some_and(&is_bound);
            } else if let Some(definition) = line.strip_prefix("#define ") {
                if bound {
                    self.declared.add_macro(definition);
                }
            } else if !line.starts_with('#') {
                code.extend(tokens(line).map(|token| (bound, token)));
            }
        }
        self.read_tags(&code);
    }

    fn read_tags(&mut self, code: &[(bool, String)]) {
        for (at, (bound, token)) in code.iter().enumerate() {
            let Some(keyword) = ["struct", "union", "enum"].into_iter().find(|keyword| keyword == token) else {
                continue;
            };
            let Some((_, name)) = code.get(at + 1) else {
                continue;
            };
            let opens = |at: usize| code.get(at).is_some_and(|(_, token)| token == "{");
            if name != "{" {
                self.tags.insert(name.clone(), keyword);
                if *bound && opens(at + 2) {
                    self.declared.types.insert(name.clone());
                }
            }
            let body = if name == "{" { at + 2 } else { at + 3 };
            if keyword == "enum" && *bound && opens(body - 1) {
                self.declared.add_enumerators(&code[body..]);
            }
        }
    }

    /// The compiler's own list: `/* PATH:LINE:NC */ extern int name (...);`
    fn read_functions(&mut self, is_bound: impl Fn(&str) -> bool) {
        let list = scratch_file("txt");
        let output = run(self.command().arg("-fsyntax-only").arg("-aux-info").arg(&list).arg(&self.file));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        for line in fs::read_to_string(&list).expect("the compiler wrote its list").lines() {
            let Some((place, declaration)) = line.strip_prefix("/* ").and_then(|line| line.split_once(" */ ")) else {
                continue;
            };
            let path = place.split(':').next().unwrap_or_default();
            if is_bound(path) {
                let (before, _) = declaration.split_once(" (").expect("a function has arguments");
                let name = before.rsplit([' ', '*']).next().expect("a function has a name");
                self.declared.functions.insert(name.to_owned(), place.to_owned());
            }
        }
        fs::remove_file(list).expect("the list can be removed");
    }
}

impl Declared {
    /// `NAME VALUE` or `NAME(ARGUMENTS) VALUE`.
    fn add_macro(&mut self, definition: &str) {
        let end =
            definition.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(definition.len());
        let (name, rest) = definition.split_at(end);
        if rest.starts_with('(') {
            self.function_macros.insert(name.to_owned());
        } else if !rest.trim().is_empty() {
            self.object_macros.insert(name.to_owned());
        }
    }

    /// `body` begins after the opening brace.
    fn add_enumerators(&mut self, body: &[(bool, String)]) {
        let mut depth = 0;
        let mut expects_name = true;
        for (_, token) in body {
            match token.as_str() {
                "(" => depth += 1,
                ")" => depth -= 1,
                "}" => return,
                "," if depth == 0 => expects_name = true,
                name if expects_name => {
                    self.enumerators.insert(name.to_owned());
                    expects_name = false;
                }
                _ => (),
            }
        }
    }
}

/// Words, and each other character by itself.
fn tokens(line: &str) -> impl Iterator<Item = String> {
    let mut rest = line.trim_start();
    std::iter::from_fn(move || {
        let first = rest.chars().next()?;
        let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
        let end =
            if is_word(first) { rest.find(|letter| !is_word(letter)).unwrap_or(rest.len()) } else { first.len_utf8() };
        let (token, after) = rest.split_at(end);
        rest = after.trim_start();
        Some(token.to_owned())
    })
}

fn run(command: &mut Command) -> Output {
    command.env("LC_ALL", "C").output().expect("the C compiler runs: the tests need `cc`, which is gcc's")
}

fn scratch_file(extension: &str) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{}-{}-{count}.{extension}", env!("CARGO_PKG_NAME"), std::process::id());
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}
