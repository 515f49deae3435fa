//! What the headers declare and the bindings lack.

use std::collections::BTreeSet;

use crate::compiler::Declared;

/// Names that are left out, each with the reason.
pub(crate) struct Exceptions {
    pub(crate) functions: &'static [(&'static str, &'static str)],
    pub(crate) types: &'static [(&'static str, &'static str)],
    pub(crate) macros: &'static [(&'static str, &'static str)],
}

/// Each name that is declared, not bound and not excepted, and each exception that is none.
pub(crate) fn missing(declared: &Declared, bound: &[&str], exceptions: &Exceptions) -> Vec<String> {
    let bound: BTreeSet<&str> = bound.iter().copied().collect();
    let functions: BTreeSet<&str> = declared.functions.keys().map(String::as_str).collect();
    let types = strings(&declared.types).chain(strings(&declared.enumerators)).collect();
    let macros = strings(&declared.function_macros).chain(strings(&declared.object_macros)).collect();
    let mut report = compare("function", &functions, &bound, exceptions.functions);
    report.extend(compare("type or enumerator", &types, &bound, exceptions.types));
    report.extend(compare("macro", &macros, &bound, exceptions.macros));
    report
}

fn strings(set: &BTreeSet<String>) -> impl Iterator<Item = &str> {
    set.iter().map(String::as_str)
}

fn compare(kind: &str, declared: &BTreeSet<&str>, bound: &BTreeSet<&str>, exceptions: &[(&str, &str)]) -> Vec<String> {
    let excepted: BTreeSet<&str> = exceptions.iter().map(|(name, _)| *name).collect();
    let missing = declared.iter().filter(|name| !bound.contains(*name) && !excepted.contains(*name));
    let idle = excepted.iter().filter(|name| bound.contains(*name) || !declared.contains(*name));
    let missing = missing.map(|name| format!("{kind} {name} is not bound"));
    missing.chain(idle.map(|name| format!("{kind} {name} needs no exception"))).collect()
}
