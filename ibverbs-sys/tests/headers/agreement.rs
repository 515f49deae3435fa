//! The assertions that the C compiler has to prove, one of the bindings' claims each.

use std::collections::{BTreeMap, BTreeSet};

use syn::Type;

use crate::bindings::{Bindings, Enumeration, Function, Record, last_segment};
use crate::c_types::{c_function_pointer, c_type, has_no_c_name};
use crate::compiler::Headers;

/// Offsets that bindgen does not tell: of members without a name, by `record.member`.
pub(crate) type Unnamed = BTreeMap<&'static str, usize>;

fn assertion(condition: &str, claim: &str) -> String {
    format!("_Static_assert({condition}, \"{claim}\");")
}

/// Sizes, alignments, and the offset and type of each field.
pub(crate) fn of_records(bindings: &Bindings, headers: &Headers, unnamed: &Unnamed) -> Vec<String> {
    let by_name: BTreeMap<&str, &Record> =
        bindings.records.iter().map(|record| (record.name.as_str(), record)).collect();
    let mut lines = Vec::new();
    let mut seen = BTreeSet::new();
    for record in bindings.records.iter().filter(|record| !record.name.contains("__bindgen_ty_")) {
        let c = headers.tagged(&record.name);
        lines.push(assertion(&format!("sizeof({c}) == {}", record.size), &format!("size of {}", record.name)));
        lines.push(assertion(&format!("_Alignof({c}) == {}", record.align), &format!("alignment of {}", record.name)));
        let place = Place { root: c, path: String::new(), base: 0 };
        fields(record, &place, &by_name, headers, unnamed, &mut seen, &mut lines);
    }
    let all: BTreeSet<&str> = bindings.records.iter().map(|record| record.name.as_str()).collect();
    let missed: Vec<_> = all.difference(&seen).collect();
    assert!(missed.is_empty(), "no way leads to {missed:?}");
    lines
}

/// Where a record without a name is in the one that has one.
struct Place {
    root: String,
    /// Names that lead to it, each with its dot.
    path: String,
    base: u64,
}

fn fields<'a>(
    record: &'a Record,
    place: &Place,
    records: &BTreeMap<&str, &'a Record>,
    headers: &Headers,
    unnamed: &Unnamed,
    seen: &mut BTreeSet<&'a str>,
    lines: &mut Vec<String>,
) {
    seen.insert(&record.name);
    for field in &record.fields {
        let name = c_name(&field.name);
        let is_unnamed = name.starts_with("__bindgen_anon_");
        let label = format!("{}.{name}", record.name);
        let offset = field.offset.or_else(|| unnamed.get(label.as_str()).map(|offset| *offset as u64));
        let offset = place.base + offset.unwrap_or_else(|| panic!("list the offset of {label} among the unnamed ones"));
        let root = &place.root;
        let path = format!("{}{name}", place.path);
        if !is_unnamed {
            lines.push(assertion(
                &format!("__builtin_offsetof({root}, {path}) == {offset}"),
                &format!("offset of {label}"),
            ));
        }
        if has_no_c_name(&field.ty) {
            let inner = records[last_segment(&field.ty).expect("a record").as_str()];
            if !is_unnamed {
                let expression = format!("(({root} *)0)->{path}");
                lines.push(assertion(&format!("sizeof({expression}) == {}", inner.size), &format!("size of {label}")));
                let alignment = format!("_Alignof(__typeof__({expression})) == {}", inner.align);
                lines.push(assertion(&alignment, &format!("alignment of {label}")));
            }
            let path = if is_unnamed { place.path.clone() } else { format!("{path}.") };
            let inside = Place { root: root.clone(), path, base: offset };
            fields(inner, &inside, records, headers, unnamed, seen, lines);
        } else {
            let c = c_type(&field.ty, headers);
            lines
                .push(assertion(&same_type(&format!("(({root} *)0)->{path}"), &c), &format!("type of {label} is {c}")));
        }
    }
}

fn same_type(expression: &str, c: &str) -> String {
    format!("__builtin_types_compatible_p(__typeof__({expression}), {c})")
}

/// Without what bindgen adds to a name that Rust has reserved.
fn c_name(rust: &str) -> &str {
    const RESERVED: [&str; 8] = ["abstract", "final", "in", "match", "move", "priv", "ref", "type"];
    rust.strip_suffix('_').filter(|name| RESERVED.contains(name)).unwrap_or(rust)
}

/// The integer of each enum and the value of each member.
pub(crate) fn of_enumerations(bindings: &Bindings, headers: &Headers) -> Vec<String> {
    bindings.enumerations.iter().flat_map(|enumeration| of_enumeration(enumeration, headers)).collect()
}

fn of_enumeration(enumeration: &Enumeration, headers: &Headers) -> Vec<String> {
    let name = &enumeration.name;
    let c = headers.tagged(name);
    let integer = c_type(&enumeration.integer, headers);
    assert!(c.starts_with("enum "), "{name} is a newtype but no enum");
    let condition = format!("sizeof({c}) == sizeof({integer}) && (({c})-1 < 0) == (({integer})-1 < 0)");
    let mut lines = vec![assertion(&condition, &format!("{name} is {integer}"))];
    lines.extend(enumeration.members.iter().map(|(name, value)| of_value(name, *value)));
    lines
}

/// The enums of which each member is a bit, as far as one can tell, but which lack a set's operators.
pub(crate) fn unlike_sets(bindings: &Bindings) -> Vec<&str> {
    let like_sets = bindings.enumerations.iter().filter(|enumeration| {
        let members = enumeration.members.iter().map(|(_, value)| *value);
        members.clone().all(|value| value >= 0 && value & (value - 1).max(0) == 0) && members.max() >= Some(4)
    });
    like_sets.filter(|enumeration| !enumeration.is_set).map(|enumeration| enumeration.name.as_str()).collect()
}

/// The value of each constant.
pub(crate) fn of_constants(bindings: &Bindings) -> Vec<String> {
    bindings.constants.iter().map(|(name, value)| of_value(name, *value)).collect()
}

/// C compares a negative number with an unsigned one as if it were unsigned: the sign is asserted too.
pub(crate) fn of_value(name: &str, value: i128) -> String {
    let (literal, is_negative) = match value {
        ..0 => (format!("({value}LL)"), 1),
        0.. => (format!("{value}ULL"), 0),
    };
    assertion(&format!("({name}) == {literal} && (({name}) < 0) == {is_negative}"), &format!("{name} is {value}"))
}

/// What each type's other name stands for.
pub(crate) fn of_aliases(bindings: &Bindings, headers: &Headers) -> Vec<String> {
    let named = bindings.aliases.iter().filter(|(name, _)| !name.starts_with("_bindgen_ty_"));
    named.map(|(name, ty)| of_alias(name, ty, headers)).collect()
}

pub(crate) fn of_alias(name: &str, ty: &Type, headers: &Headers) -> String {
    let c = c_type(ty, headers);
    let condition = format!("__builtin_types_compatible_p({}, {c})", headers.tagged(name));
    assertion(&condition, &format!("{name} is {c}"))
}

/// Arguments and result of each function.
pub(crate) fn of_functions(functions: &[Function], headers: &Headers) -> Vec<String> {
    functions.iter().map(|function| of_function(&function.name, function, headers)).collect()
}

/// That the C function `name` is of the type of `function`.
pub(crate) fn of_function(name: &str, function: &Function, headers: &Headers) -> String {
    let c = c_function_pointer(&function.arguments, function.is_variadic, function.returns.as_ref(), headers);
    // To gcc a function that depends on its arguments only is of another type.
    let pure = format!("__attribute__((const)) extern __typeof__(*({c})0) pure_{name};");
    let condition = format!(
        "{} || {}",
        same_type(&format!("&{name}"), &c),
        same_type(&format!("&{name}"), &format!("__typeof__(&pure_{name})"))
    );
    format!("{pure} {}", assertion(&condition, &format!("type of {name} is {c}")))
}
