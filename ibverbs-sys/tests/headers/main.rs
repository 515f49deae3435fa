//! The bindings against the headers: what the C compiler says of them, and whether anything is missing.

mod agreement;
mod bindings;
mod c_types;
mod compiler;
mod coverage;
mod symbols;

use std::ffi::c_void;
use std::mem::offset_of;

use agreement::Unnamed;
use bindings::Bindings;
use compiler::Headers;
use coverage::Exceptions;
use ibverbs_sys as ffi;

fn bindings() -> Bindings {
    Bindings::read(include_str!(concat!(env!("OUT_DIR"), "/bindings.rs")))
}

/// What the crate has by hand, in `src/macros.rs`.
fn hand_written_functions() -> Vec<bindings::Function> {
    Bindings::read(include_str!("../../src/macros.rs")).functions
}

fn headers() -> Headers {
    Headers::read(
        concat!(env!("CARGO_MANIFEST_DIR"), "/shims/macros.h"),
        env!("IBVERBS_SYS_INCLUDE_DIRS"),
        &[
            "/infiniband/verbs.h",
            "/infiniband/verbs_api.h",
            "/infiniband/ib_user_ioctl_verbs.h",
            "/infiniband/sa.h",
            "/infiniband/opcode.h",
        ],
    )
}

macro_rules! unnamed {
    ($($record:ident.$member:ident),* $(,)?) => {
        Unnamed::from([$((concat!(stringify!($record), ".", stringify!($member)), offset_of!(ffi::$record, $member))),*])
    };
}

fn unnamed() -> Unnamed {
    unnamed![
        ib_uverbs_flow_action_esp_encap.__bindgen_anon_1,
        ib_uverbs_flow_action_esp_encap.__bindgen_anon_2,
        ibv_flow_spec.__bindgen_anon_1,
        ibv_send_wr.__bindgen_anon_1,
        ibv_send_wr.__bindgen_anon_2,
        ibv_wc.__bindgen_anon_1,
    ]
}

macro_rules! values {
    ($($name:ident = $value:expr),* $(,)?) => { vec![$((stringify!($name), i128::from($value))),*] };
}

/// The constants that the crate has by hand.
fn hand_written_constants() -> Vec<(&'static str, i128)> {
    values![
        IBV_ACCESS_OPTIONAL_FIRST = ffi::IBV_ACCESS_OPTIONAL_FIRST,
        IBV_ACCESS_OPTIONAL_RANGE = ffi::IBV_ACCESS_OPTIONAL_RANGE,
        IBV_ADVISE_MR_ADVICE_PREFETCH = ffi::IBV_ADVISE_MR_ADVICE_PREFETCH.0,
        IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE = ffi::IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE.0,
        IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT = ffi::IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT.0,
        IBV_ADVISE_MR_FLAG_FLUSH = ffi::IBV_ADVISE_MR_FLAG_FLUSH.0,
        IBV_FLOW_ACTION_ESP_KEYMAT_AES_GCM = ffi::IBV_FLOW_ACTION_ESP_KEYMAT_AES_GCM.0,
        IBV_FLOW_ACTION_IV_ALGO_SEQ = ffi::IBV_FLOW_ACTION_IV_ALGO_SEQ.0,
        IBV_FLOW_ACTION_ESP_REPLAY_NONE = ffi::IBV_FLOW_ACTION_ESP_REPLAY_NONE.0,
        IBV_FLOW_ACTION_ESP_REPLAY_BMP = ffi::IBV_FLOW_ACTION_ESP_REPLAY_BMP.0,
        IBV_FLOW_ACTION_ESP_FLAGS_INLINE_CRYPTO = ffi::IBV_FLOW_ACTION_ESP_FLAGS_INLINE_CRYPTO.0,
        IBV_FLOW_ACTION_ESP_FLAGS_FULL_OFFLOAD = ffi::IBV_FLOW_ACTION_ESP_FLAGS_FULL_OFFLOAD.0,
        IBV_FLOW_ACTION_ESP_FLAGS_TUNNEL = ffi::IBV_FLOW_ACTION_ESP_FLAGS_TUNNEL.0,
        IBV_FLOW_ACTION_ESP_FLAGS_TRANSPORT = ffi::IBV_FLOW_ACTION_ESP_FLAGS_TRANSPORT.0,
        IBV_FLOW_ACTION_ESP_FLAGS_DECRYPT = ffi::IBV_FLOW_ACTION_ESP_FLAGS_DECRYPT.0,
        IBV_FLOW_ACTION_ESP_FLAGS_ENCRYPT = ffi::IBV_FLOW_ACTION_ESP_FLAGS_ENCRYPT.0,
        IBV_FLOW_ACTION_ESP_FLAGS_ESN_NEW_WINDOW = ffi::IBV_FLOW_ACTION_ESP_FLAGS_ESN_NEW_WINDOW.0,
        IBV_QPF_GRH_REQUIRED = ffi::IBV_QPF_GRH_REQUIRED.0,
    ]
}

/// Constants that are pointers in C.
fn hand_written_pointers() -> Vec<(&'static str, i128)> {
    vec![
        ("__VERBS_ABI_IS_EXTENDED", ffi::__VERBS_ABI_IS_EXTENDED.addr() as i128),
        ("IBV_ALLOCATOR_USE_DEFAULT", ffi::IBV_ALLOCATOR_USE_DEFAULT.addr() as i128),
    ]
}

macro_rules! types {
    ($($alias:ident),* $(,)?) => { vec![$((stringify!($alias), size_of::<ffi::$alias>())),*] };
}

/// The types that the crate has by hand.
fn hand_written_types() -> Vec<(&'static str, usize)> {
    types![
        __be16,
        __be32,
        __be64,
        ibv_advise_mr_advice,
        ibv_flow_action_esp,
        ibv_flow_action_esp_encap,
        ibv_flow_action_esp_flags,
        ibv_flow_action_esp_keymat,
        ibv_flow_action_esp_keymat_aes_gcm,
        ibv_flow_action_esp_keymat_aes_gcm_iv_algo,
        ibv_flow_action_esp_replay,
        ibv_flow_action_esp_replay_bmp,
    ]
}

#[test]
fn each_struct_has_the_size_and_offsets_and_field_types_the_c_compiler_gives_it() {
    let lines = agreement::of_records(&bindings(), &headers(), &unnamed());
    assert!(lines.len() > 1200, "{}", lines.len());
    assert_eq!(headers().false_assertions(&lines), [""; 0]);
}

#[test]
fn each_enum_has_the_integer_and_the_values_the_c_compiler_gives_it() {
    let lines = agreement::of_enumerations(&bindings(), &headers());
    assert!(lines.len() > 500, "{}", lines.len());
    assert_eq!(headers().false_assertions(&lines), [""; 0]);
}

#[test]
fn each_enum_of_flags_has_the_operators_of_a_set() {
    assert_eq!(agreement::unlike_sets(&bindings()), [""; 0]);
}

#[test]
fn each_constant_has_the_value_the_c_compiler_gives_it() {
    let mut lines = agreement::of_constants(&bindings());
    assert!(lines.len() > 20, "{}", lines.len());
    lines.extend(hand_written_constants().into_iter().map(|(name, value)| agreement::of_value(name, value)));
    let pointers = hand_written_pointers().into_iter();
    lines.extend(pointers.map(|(name, value)| agreement::of_value(&format!("(uintptr_t)({name})"), value)));
    assert_eq!(headers().false_assertions(&lines), [""; 0]);
}

#[test]
fn each_other_name_of_a_type_is_the_c_compilers() {
    let headers = headers();
    let mut lines = agreement::of_aliases(&bindings(), &headers);
    let by_hand = hand_written_types().into_iter();
    // A name that is a macro needs the keyword of what it stands for.
    lines.extend(by_hand.map(|(name, size)| {
        let c = headers.tagged(&name.replacen("ibv_", "ib_uverbs_", 1)).replacen("ib_uverbs_", "ibv_", 1);
        format!("_Static_assert(sizeof({c}) == {size}, \"{name}\");")
    }));
    assert_eq!(headers.false_assertions(&lines), [""; 0]);
}

#[test]
fn each_function_has_the_arguments_and_the_result_the_c_compiler_gives_it() {
    let headers = headers();
    let functions = bindings().functions;
    assert!(functions.len() > 150, "{}", functions.len());
    let mut lines = agreement::of_functions(&functions, &headers);
    for function in hand_written_functions() {
        let symbol = function.link_name.clone().expect("a hand-written function is a shim");
        lines.push(agreement::of_function(&symbol, &function, &headers));
    }
    assert_eq!(headers.false_assertions(&lines), [""; 0]);
}

#[test]
fn a_wrong_claim_is_found() {
    let wrong = [
        "_Static_assert(sizeof(struct ibv_wc) == 47, \"size\");".to_owned(),
        agreement::of_value("IBV_WC_SUCCESS", 1),
        agreement::of_value("IBV_NODE_UNKNOWN", i128::from(u64::MAX)),
        "_Static_assert(__builtin_types_compatible_p(__typeof__(&ibv_create_ah), struct ibv_ah *(*)(struct ibv_pd *, void *)), \"type\");"
            .to_owned(),
        agreement::of_value("IBV_WC_SUCCESS", 0),
    ];
    let expected = ["size", "IBV_WC_SUCCESS is 1", "IBV_NODE_UNKNOWN is 18446744073709551615", "type"];
    assert_eq!(headers().false_assertions(&wrong), expected);
}

/// What the crate has by hand besides: Rust macros, and a function that is no binding.
const OTHERS: [&str; 3] = ["verbs_get_ctx_op", "vext_field_avail", "ibv_wr_opcode_str"];

const EXCEPTIONS: Exceptions = Exceptions {
    functions: &[],
    types: &[],
    macros: &[
        ("RDMA_UAPI_PTR", "declares a member, for the header's own use"),
        ("IBV_OPCODE", "makes an enumerator of two names, and every enumerator is bound"),
        ("__attribute_const", "an attribute for the compiler"),
    ],
};

#[test]
fn each_public_function_type_constant_and_macro_is_bound() {
    let bindings = bindings();
    let by_hand = hand_written_functions();
    let mut bound: Vec<&str> = bindings.names().collect();
    bound.extend(by_hand.iter().map(|function| function.name.as_str()));
    bound.extend(hand_written_constants().iter().map(|(name, _)| *name));
    bound.extend(hand_written_pointers().iter().map(|(name, _)| *name));
    bound.extend(hand_written_types().iter().map(|(name, _)| *name));
    bound.extend(OTHERS);
    let headers = headers();
    assert!(headers.declared.functions.len() >= 160, "{}", headers.declared.functions.len());
    assert!(headers.declared.types.len() >= 140, "{}", headers.declared.types.len());
    assert!(headers.declared.enumerators.len() >= 500, "{}", headers.declared.enumerators.len());
    assert_eq!(coverage::missing(&headers.declared, &bound, &EXCEPTIONS), [""; 0]);
}

#[test]
fn each_function_that_is_no_shim_is_exported_under_a_public_version() {
    let function: unsafe extern "C" fn(*mut std::ffi::c_int) -> *mut *mut ffi::ibv_device = ffi::ibv_get_device_list;
    let exported =
        symbols::exported("libibverbs.so", env!("IBVERBS_SYS_LIB_DIRS"), function as *const c_void, "IBVERBS_1.");
    let bindings = bindings();
    let plain = bindings.functions.iter().filter(|function| function.link_name.is_none());
    let missing: Vec<_> =
        plain.filter(|function| !exported.contains(&function.name)).map(|function| &function.name).collect();
    assert_eq!(missing, [""; 0]);
}
