//! What wraps a function of a header: what names it in a `#[doc(alias)]`, and the destructors that call it.

use std::fmt;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprLit, Lit, Meta};

use super::{ByFunction, files};

/// A function of a safe crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wrapper {
    /// The type that it belongs to; empty for a free function.
    pub(crate) owner: String,
    pub(crate) name: String,
}

impl fmt::Display for Wrapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.owner.as_str() {
            "" => write!(f, "`{}`", self.name),
            owner => write!(f, "`{owner}::{}`", self.name),
        }
    }
}

/// The wrappers in the sources of a folder.
///
/// # Errors
///
/// A file cannot be read or is not Rust.
pub(crate) fn of(folder: &Path, prefix: &str) -> Result<ByFunction<Wrapper>> {
    let mut found = Finder { prefix, ..Finder::default() };
    for path in files(folder)? {
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let file = syn::parse_file(&text).with_context(|| format!("parsing {}", path.display()))?;
        found.visit_file(&file);
    }
    Ok(found.wrappers)
}

#[derive(Default)]
struct Finder<'p> {
    prefix: &'p str,
    owner: String,
    /// The type whose destructor this is.
    dropped: Option<String>,
    wrappers: ByFunction<Wrapper>,
}

impl Finder<'_> {
    fn add(&mut self, function: String, owner: &str, name: &str) {
        let wrapper = Wrapper { owner: owner.to_owned(), name: name.to_owned() };
        let wrappers = self.wrappers.entry(function).or_default();
        if !wrappers.contains(&wrapper) {
            wrappers.push(wrapper);
        }
    }

    fn add_aliases(&mut self, attributes: &[Attribute], name: &str) {
        let (owner, prefix) = (self.owner.clone(), self.prefix);
        for alias in attributes.iter().filter_map(alias).filter(|alias| alias.starts_with(prefix)) {
            self.add(alias, &owner, name);
        }
    }
}

/// The text of `#[doc(alias = "…")]`.
fn alias(attribute: &Attribute) -> Option<String> {
    if !attribute.path().is_ident("doc") {
        return None;
    }
    match attribute.parse_args::<Meta>().ok()? {
        Meta::NameValue(pair) if pair.path.is_ident("alias") => match pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// The aliases in what a macro is given, each with the name of what it stands at.
fn aliases_in(tokens: &str) -> Vec<(String, String)> {
    const NO_NAMES: &[&str] =
        &["pub", "crate", "unsafe", "const", "fn", "struct", "enum", "type", "doc", "alias", "inline", "cold"];
    let text = |rest: &str| rest.split('"').nth(1).map(str::to_owned);
    let (mut found, mut pending) = (Vec::new(), Vec::new());
    for part in tokens.split("alias").skip(1) {
        let Some(alias) = text(part) else { continue };
        // After the alias come other attributes, whose texts are no names.
        let after = part.splitn(3, '"').nth(2).unwrap_or_default();
        let mut quoted = false;
        let words = after.split_inclusive('"').filter(|piece| {
            let outside = !quoted;
            quoted ^= piece.ends_with('"');
            outside
        });
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let mut names = words.flat_map(|piece| piece.split(|c| !is_word(c))).filter(|word| !word.is_empty());
        pending.push(alias);
        // Where none follows, another alias of the same thing does.
        if let Some(name) = names.find(|word| !NO_NAMES.contains(word)) {
            found.extend(pending.drain(..).map(|alias| (alias, name.to_owned())));
        }
    }
    found
}

/// The name of a type, without its module and arguments.
fn type_name(of: &syn::Type) -> String {
    match of {
        syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default(),
        _ => String::new(),
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of_drop = item.trait_.as_ref().is_some_and(|(path, _)| path.is_ident("Drop"));
        let name = type_name(&item.self_ty);
        self.owner.clone_from(&name);
        self.dropped = of_drop.then_some(name);
        visit::visit_item_impl(self, item);
        self.owner.clear();
        self.dropped = None;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add_aliases(&item.attrs, &item.sig.ident.to_string());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add_aliases(&item.attrs, &item.sig.ident.to_string());
        visit::visit_item_fn(self, item);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        let (owner, prefix) = (self.owner.clone(), self.prefix);
        for (alias, name) in aliases_in(&item.tokens.to_string()) {
            if alias.starts_with(prefix) {
                self.add(alias, &owner, &name);
            }
        }
        visit::visit_macro(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add_aliases(&item.attrs, &item.ident.to_string());
    }

    fn visit_expr_path(&mut self, item: &'ast syn::ExprPath) {
        if let (Some(owner), Some(last)) = (self.dropped.clone(), item.path.segments.last()) {
            let function = last.ident.to_string();
            if function.starts_with(self.prefix) {
                self.add(function, &owner, "drop");
            }
        }
        visit::visit_expr_path(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_are_found_in_macros_too() {
        let source = r#"fields! {
            /// `ibv_wc_read_opcode`: what it did.
            #[doc(alias = "ibv_wc_read_opcode")]
            Opcode: u32 = 0;
            #[doc(alias = "ibv_wc_read_byte_len")]
            #[doc(alias = "ibv_other")]
            /// How many.
            ByteLen: u32 = 1;
        }"#;
        let mut finder = Finder { prefix: "ibv_", ..Finder::default() };
        finder.visit_file(&syn::parse_file(source).unwrap());
        let names: Vec<String> = finder.wrappers.values().map(|wrappers| wrappers[0].to_string()).collect();
        assert_eq!(names, ["`ByteLen`", "`ByteLen`", "`Opcode`"]);
    }

    #[test]
    fn aliases_and_destructors_are_found_with_their_types() {
        let source = r#"
            #[doc(alias = "ibv_qp")]
            struct QueuePair<T>(T);
            impl<T> QueuePair<T> {
                #[doc(alias = "ibv_post_send")]
                #[doc(alias = "send")]
                fn post_send(&self) {}
            }
            impl<T> Drop for QueuePair<T> {
                fn drop(&mut self) { let _ = unsafe { ffi::ibv_destroy_qp(self.0) }; }
            }
            #[doc(alias = "ibv_get_device_list")]
            fn devices() { unsafe { ffi::ibv_other() } }
        "#;
        let mut finder = Finder { prefix: "ibv_", ..Finder::default() };
        finder.visit_file(&syn::parse_file(source).unwrap());
        let names: Vec<(String, String)> =
            finder.wrappers.iter().map(|(function, wrappers)| (function.clone(), wrappers[0].to_string())).collect();
        let pair = |function: &str, wrapper: &str| (function.to_owned(), wrapper.to_owned());
        assert_eq!(
            names,
            [
                pair("ibv_destroy_qp", "`QueuePair::drop`"),
                pair("ibv_get_device_list", "`devices`"),
                pair("ibv_post_send", "`QueuePair::post_send`"),
                pair("ibv_qp", "`QueuePair`"),
            ]
        );
    }
}
