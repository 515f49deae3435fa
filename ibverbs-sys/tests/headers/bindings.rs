//! The generated bindings, read as text: what they say, in a form that can be told to the C compiler.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Expr, Fields, FnArg, ForeignItem, ImplItem, Item, Lit, ReturnType, Stmt, Type, UnOp};

/// A struct or a union.
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) align: u64,
    pub(crate) fields: Vec<Field>,
}

pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) ty: Type,
    /// Not told for a member without a name.
    pub(crate) offset: Option<u64>,
}

/// A C enum: a newtype over an integer.
pub(crate) struct Enumeration {
    pub(crate) name: String,
    pub(crate) integer: Type,
    pub(crate) members: Vec<(String, i128)>,
    /// Whether it has the operators of a set of bits.
    pub(crate) is_set: bool,
}

pub(crate) struct Function {
    pub(crate) name: String,
    /// The symbol, where it is not the name: a shim's.
    pub(crate) link_name: Option<String>,
    pub(crate) arguments: Vec<Type>,
    pub(crate) is_variadic: bool,
    pub(crate) returns: Option<Type>,
}

#[derive(Default)]
pub(crate) struct Bindings {
    pub(crate) records: Vec<Record>,
    /// Types of which C code only has pointers.
    pub(crate) opaque: Vec<String>,
    pub(crate) enumerations: Vec<Enumeration>,
    pub(crate) constants: Vec<(String, i128)>,
    pub(crate) aliases: Vec<(String, Type)>,
    pub(crate) functions: Vec<Function>,
}

impl Bindings {
    pub(crate) fn read(text: &str) -> Self {
        let file = syn::parse_file(text).expect("the bindings are Rust");
        let layout = file.items.iter().flat_map(assertions).collect();
        let members = members(&file.items);
        let mut bindings = Self::default();
        for item in &file.items {
            bindings.add(item, &layout, &members);
        }
        let sets: BTreeSet<String> = file.items.iter().filter_map(set).collect();
        for enumeration in &mut bindings.enumerations {
            enumeration.is_set = sets.contains(&enumeration.name);
        }
        bindings
    }

    fn add(&mut self, item: &Item, layout: &Numbers, members: &BTreeMap<String, Vec<(String, i128)>>) {
        match item {
            Item::Struct(item) => match &item.fields {
                Fields::Unnamed(fields) => {
                    let name = item.ident.to_string();
                    let members = members.get(&name).cloned().unwrap_or_default();
                    let integer = fields.unnamed[0].ty.clone();
                    self.enumerations.push(Enumeration { name, integer, members, is_set: false });
                }
                fields => self.add_record(item.ident.to_string(), fields, layout),
            },
            Item::Union(item) => self.add_record(item.ident.to_string(), &Fields::Named(item.fields.clone()), layout),
            Item::Const(item) if item.ident != "_" => {
                self.constants.push((item.ident.to_string(), number(&item.expr).expect("a constant is a number")));
            }
            Item::Type(item) => self.aliases.push((item.ident.to_string(), (*item.ty).clone())),
            Item::ForeignMod(item) => self.functions.extend(item.items.iter().map(function)),
            _ => (),
        }
    }

    fn add_record(&mut self, name: String, fields: &Fields, layout: &Numbers) {
        let Some(&size) = layout.get(&format!("Size of {name}")) else {
            assert!(
                fields
                    .iter()
                    .all(|field| field.ident.as_ref().is_some_and(|name| name == "_unused" || name == "_address")),
                "{name}"
            );
            self.opaque.push(name);
            return;
        };
        let align = layout[&format!("Alignment of {name}")];
        let fields = fields.iter().map(|field| {
            let field_name = field.ident.as_ref().expect("a field of a struct has a name").to_string();
            let offset = layout.get(&format!("Offset of field: {name}::{field_name}")).copied();
            Field { name: field_name, ty: field.ty.clone(), offset }
        });
        let fields = fields.collect();
        self.records.push(Record { name, size, align, fields });
    }

    /// Every name that a Rust program can use.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let records = self.records.iter().map(|record| &record.name);
        let enumerations = self.enumerations.iter().map(|enumeration| &enumeration.name);
        let members = self.enumerations.iter().flat_map(|enumeration| &enumeration.members).map(|(name, _)| name);
        let constants = self.constants.iter().map(|(name, _)| name);
        let aliases = self.aliases.iter().map(|(name, _)| name);
        let functions = self.functions.iter().map(|function| &function.name);
        let types = records.chain(&self.opaque).chain(enumerations).chain(aliases);
        types.chain(members).chain(constants).chain(functions).map(String::as_str)
    }
}

type Numbers = BTreeMap<String, u64>;

/// The layout that bindgen wrote down as assertions, which rustc proved when it compiled the crate:
/// `["Size of ibv_wc"][size_of::<ibv_wc>() - 48usize];`
fn assertions(item: &Item) -> Vec<(String, u64)> {
    let Item::Const(item) = item else {
        return Vec::new();
    };
    let Expr::Block(block) = &*item.expr else {
        return Vec::new();
    };
    let statements = block.block.stmts.iter();
    let pairs = statements.filter_map(|statement| {
        let Stmt::Expr(Expr::Index(index), _) = statement else {
            return None;
        };
        let Expr::Array(label) = &*index.expr else {
            return None;
        };
        let Expr::Lit(label) = label.elems.first()? else {
            return None;
        };
        let Lit::Str(label) = &label.lit else {
            return None;
        };
        let Expr::Binary(difference) = &*index.index else {
            return None;
        };
        let number = u64::try_from(number(&difference.right)?).ok()?;
        Some((label.value(), number))
    });
    pairs.collect()
}

/// The members of each enum: associated constants.
fn members(items: &[Item]) -> BTreeMap<String, Vec<(String, i128)>> {
    let mut members: BTreeMap<String, Vec<_>> = BTreeMap::new();
    for item in items {
        let Item::Impl(item) = item else { continue };
        let name = last_segment(&item.self_ty).expect("an impl of a named type");
        for item in &item.items {
            if let ImplItem::Const(item) = item {
                let value = number(&item.expr).expect("a member is a number");
                members.entry(name.clone()).or_default().push((item.ident.to_string(), value));
            }
        }
    }
    members
}

/// The type that the item gives the `|` of sets.
fn set(item: &Item) -> Option<String> {
    let Item::Impl(item) = item else { return None };
    let (of, _) = item.trait_.as_ref()?;
    (of.segments.last()?.ident == "BitOr").then(|| last_segment(&item.self_ty))?
}

fn function(item: &ForeignItem) -> Function {
    let ForeignItem::Fn(item) = item else { panic!("the libraries export functions only") };
    let link_name = item.attrs.iter().find(|attribute| attribute.path().is_ident("link_name")).map(|attribute| {
        let value = &attribute.meta.require_name_value().expect("link_name has a value").value;
        let Expr::Lit(value) = value else { panic!("link_name is a literal") };
        let Lit::Str(value) = &value.lit else { panic!("link_name is a string") };
        value.value()
    });
    let arguments = item.sig.inputs.iter().map(|argument| match argument {
        FnArg::Typed(argument) => (*argument.ty).clone(),
        FnArg::Receiver(_) => panic!("a C function has no receiver"),
    });
    Function {
        name: item.sig.ident.to_string(),
        link_name,
        arguments: arguments.collect(),
        is_variadic: item.sig.variadic.is_some(),
        returns: returned(&item.sig.output),
    }
}

pub(crate) fn returned(output: &ReturnType) -> Option<Type> {
    match output {
        ReturnType::Default => None,
        ReturnType::Type(_, ty) => Some((**ty).clone()),
    }
}

/// `3`, `-3` or `newtype(3)`.
pub(crate) fn number(expression: &Expr) -> Option<i128> {
    match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(literal) => literal.base10_parse().ok(),
            _ => None,
        },
        Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => number(&unary.expr).map(|number| -number),
        Expr::Call(call) => call.args.first().and_then(number),
        _ => None,
    }
}

pub(crate) fn last_segment(ty: &Type) -> Option<String> {
    let Type::Path(path) = ty else { return None };
    path.path.segments.last().map(|segment| segment.ident.to_string())
}
