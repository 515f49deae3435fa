//! Names that the headers make with `#define` out of other names, which bindgen cannot see.

#![allow(non_camel_case_types, non_upper_case_globals)]

use std::ffi::c_void;
use std::ptr;

use crate::{
    ib_uverbs_access_flags, ib_uverbs_advise_mr_advice, ib_uverbs_advise_mr_flag, ib_uverbs_flow_action_esp,
    ib_uverbs_flow_action_esp_encap, ib_uverbs_flow_action_esp_flags, ib_uverbs_flow_action_esp_keymat,
    ib_uverbs_flow_action_esp_keymat_aes_gcm, ib_uverbs_flow_action_esp_keymat_aes_gcm_iv_algo,
    ib_uverbs_flow_action_esp_replay, ib_uverbs_flow_action_esp_replay_bmp, ib_uverbs_query_port_flags,
    ibv_access_flags,
};

/// `abi_compat` of every context that has a `verbs_context` around it.
pub const __VERBS_ABI_IS_EXTENDED: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// What a parent domain's allocator returns to have the default one used.
pub const IBV_ALLOCATOR_USE_DEFAULT: *mut c_void = ptr::without_provenance_mut(usize::MAX);

/// The lowest of the access flags that a device may ignore.
pub const IBV_ACCESS_OPTIONAL_FIRST: u32 = ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0;

/// All the access flags that a device may ignore.
pub const IBV_ACCESS_OPTIONAL_RANGE: u32 = ib_uverbs_access_flags::IB_UVERBS_ACCESS_OPTIONAL_RANGE.0;

macro_rules! types {
    ($($alias:ident = $name:ident;)*) => {$(
        #[doc = concat!("The C name of [`", stringify!($name), "`].")]
        pub type $alias = $name;
    )*};
}

types! {
    ibv_advise_mr_advice = ib_uverbs_advise_mr_advice;
    ibv_flow_action_esp = ib_uverbs_flow_action_esp;
    ibv_flow_action_esp_encap = ib_uverbs_flow_action_esp_encap;
    ibv_flow_action_esp_flags = ib_uverbs_flow_action_esp_flags;
    ibv_flow_action_esp_keymat = ib_uverbs_flow_action_esp_keymat;
    ibv_flow_action_esp_keymat_aes_gcm = ib_uverbs_flow_action_esp_keymat_aes_gcm;
    ibv_flow_action_esp_keymat_aes_gcm_iv_algo = ib_uverbs_flow_action_esp_keymat_aes_gcm_iv_algo;
    ibv_flow_action_esp_replay = ib_uverbs_flow_action_esp_replay;
    ibv_flow_action_esp_replay_bmp = ib_uverbs_flow_action_esp_replay_bmp;
}

macro_rules! constants {
    ($($alias:ident: $enumeration:ident = $name:ident;)*) => {$(
        #[doc = concat!("The C name of [`", stringify!($enumeration), "::", stringify!($name), "`].")]
        pub const $alias: $enumeration = $enumeration::$name;
    )*};
}

constants! {
    IBV_ADVISE_MR_ADVICE_PREFETCH: ib_uverbs_advise_mr_advice = IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH;
    IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE: ib_uverbs_advise_mr_advice = IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT: ib_uverbs_advise_mr_advice = IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
    IBV_ADVISE_MR_FLAG_FLUSH: ib_uverbs_advise_mr_flag = IB_UVERBS_ADVISE_MR_FLAG_FLUSH;
    IBV_FLOW_ACTION_ESP_KEYMAT_AES_GCM: ib_uverbs_flow_action_esp_keymat = IB_UVERBS_FLOW_ACTION_ESP_KEYMAT_AES_GCM;
    IBV_FLOW_ACTION_IV_ALGO_SEQ: ib_uverbs_flow_action_esp_keymat_aes_gcm_iv_algo = IB_UVERBS_FLOW_ACTION_IV_ALGO_SEQ;
    IBV_FLOW_ACTION_ESP_REPLAY_NONE: ib_uverbs_flow_action_esp_replay = IB_UVERBS_FLOW_ACTION_ESP_REPLAY_NONE;
    IBV_FLOW_ACTION_ESP_REPLAY_BMP: ib_uverbs_flow_action_esp_replay = IB_UVERBS_FLOW_ACTION_ESP_REPLAY_BMP;
    IBV_FLOW_ACTION_ESP_FLAGS_INLINE_CRYPTO: ib_uverbs_flow_action_esp_flags = IB_UVERBS_FLOW_ACTION_ESP_FLAGS_INLINE_CRYPTO;
    IBV_FLOW_ACTION_ESP_FLAGS_FULL_OFFLOAD: ib_uverbs_flow_action_esp_flags = IB_UVERBS_FLOW_ACTION_ESP_FLAGS_FULL_OFFLOAD;
    IBV_FLOW_ACTION_ESP_FLAGS_TUNNEL: ib_uverbs_flow_action_esp_flags = IB_UVERBS_FLOW_ACTION_ESP_FLAGS_TUNNEL;
    IBV_FLOW_ACTION_ESP_FLAGS_TRANSPORT: ib_uverbs_flow_action_esp_flags = IB_UVERBS_FLOW_ACTION_ESP_FLAGS_TRANSPORT;
    IBV_FLOW_ACTION_ESP_FLAGS_DECRYPT: ib_uverbs_flow_action_esp_flags = IB_UVERBS_FLOW_ACTION_ESP_FLAGS_DECRYPT;
    IBV_FLOW_ACTION_ESP_FLAGS_ENCRYPT: ib_uverbs_flow_action_esp_flags = IB_UVERBS_FLOW_ACTION_ESP_FLAGS_ENCRYPT;
    IBV_FLOW_ACTION_ESP_FLAGS_ESN_NEW_WINDOW: ib_uverbs_flow_action_esp_flags = IB_UVERBS_FLOW_ACTION_ESP_FLAGS_ESN_NEW_WINDOW;
    IBV_QPF_GRH_REQUIRED: ib_uverbs_query_port_flags = IB_UVERBS_QPF_GRH_REQUIRED;
}
