//! Writes a Rust type as the C type that it stands for.

use syn::{GenericArgument, PathArguments, PointerMutability, Type, TypeFnPtr};

use crate::bindings::{last_segment, number, returned};
use crate::compiler::Headers;

/// The C type of `ty`, without a name: `struct ibv_wc *`, `int (*)(void)`.
pub(crate) fn c_type(ty: &Type, headers: &Headers) -> String {
    declaration(ty, "", "", headers)
}

/// The C type of a pointer to a function.
pub(crate) fn c_function_pointer(
    arguments: &[Type],
    is_variadic: bool,
    returns: Option<&Type>,
    headers: &Headers,
) -> String {
    function(arguments, is_variadic, returns, "(*)", headers)
}

/// C declares inside out: `declarator` is what has been wrapped round the name so far.
fn declaration(ty: &Type, qualifier: &str, declarator: &str, headers: &Headers) -> String {
    match ty {
        Type::Ptr(pointer) => {
            let pointee = match pointer.mutability {
                PointerMutability::Const(_) => "const ",
                PointerMutability::Mut(_) => "",
            };
            declaration(&pointer.elem, pointee, &format!("*{qualifier}{declarator}"), headers)
        }
        Type::Array(array) => {
            let length = number(&array.len).expect("the length of an array is a number");
            declaration(&array.elem, qualifier, &format!("{declarator}[{length}]"), headers)
        }
        Type::Path(path) => {
            let last = path.path.segments.last().expect("a path has a segment");
            if last.ident == "Option" {
                let PathArguments::AngleBracketed(inner) = &last.arguments else { panic!("Option has an argument") };
                let Some(GenericArgument::Type(Type::FnPtr(pointer))) = inner.args.first() else {
                    panic!("an Option in the bindings is a function pointer")
                };
                return function_pointer(pointer, declarator, headers);
            }
            format!("{qualifier}{} {declarator}", name(&last.ident.to_string(), headers)).trim_end().to_owned()
        }
        _ => panic!("a type that the bindings should not have"),
    }
}

fn function_pointer(pointer: &TypeFnPtr, declarator: &str, headers: &Headers) -> String {
    let arguments: Vec<Type> = pointer.inputs.iter().map(|argument| argument.ty.clone()).collect();
    let returns = returned(&pointer.output);
    function(&arguments, pointer.variadic.is_some(), returns.as_ref(), &format!("(*{declarator})"), headers)
}

fn function(
    arguments: &[Type],
    is_variadic: bool,
    returns: Option<&Type>,
    declarator: &str,
    headers: &Headers,
) -> String {
    let mut list: Vec<String> = arguments.iter().map(|argument| c_type(argument, headers)).collect();
    if is_variadic {
        list.push("...".to_owned());
    } else if list.is_empty() {
        list.push("void".to_owned());
    }
    let declarator = format!("{declarator}({})", list.join(", "));
    match returns {
        Some(ty) => declaration(ty, "", &declarator, headers),
        None => format!("void {declarator}"),
    }
}

/// The C name of a type that has one.
fn name(rust: &str, headers: &Headers) -> String {
    let c = match rust {
        "c_void" => "void",
        "c_char" => "char",
        "c_schar" => "signed char",
        "c_uchar" => "unsigned char",
        "c_short" => "short",
        "c_ushort" => "unsigned short",
        "c_int" => "int",
        "c_uint" => "unsigned int",
        "c_long" => "long",
        "c_ulong" => "unsigned long",
        "c_longlong" => "long long",
        "c_ulonglong" => "unsigned long long",
        "u8" => "uint8_t",
        "u16" => "uint16_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "i8" => "int8_t",
        "i16" => "int16_t",
        "i32" => "int32_t",
        "i64" => "int64_t",
        "usize" => "size_t",
        "isize" => "ssize_t",
        other => return headers.tagged(other),
    };
    c.to_owned()
}

/// Whether the type, or that of its elements, is one that has no name in C.
pub(crate) fn has_no_c_name(ty: &Type) -> bool {
    last_segment(ty).is_some_and(|name| name.contains("__bindgen_ty_"))
}
