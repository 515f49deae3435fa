//! [`EspAction`]: encryption and decryption of packets by the device.
//!
//! # Safety
//!
//! `Inner::action` came from `ibv_create_flow_action_esp`, is destroyed only when `Inner` is dropped, and every flow with it holds the
//! `Inner`. Attributes and what they point to outlive the call that is given them.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::context::{Context, must_be_made_of};
use crate::error::{Error, Result};
use crate::ffi;
use crate::ffi::ib_uverbs_flow_action_esp_flags as F;
use crate::returns::{null_and_errno, zero_or_errno};

const VERB: &str = "ibv_create_flow_action_esp";

bitflags::bitflags! {
    /// `enum ibv_flow_action_esp_flags`: what the device does with a packet.
    #[doc(alias = "ibv_flow_action_esp_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct EspFlags: u32 {
        /// The device does all of ESP, and not the cipher only.
        const FULL_OFFLOAD = F::IB_UVERBS_FLOW_ACTION_ESP_FLAGS_FULL_OFFLOAD.0;
        /// Tunnel mode; without it transport mode.
        const TUNNEL = F::IB_UVERBS_FLOW_ACTION_ESP_FLAGS_TUNNEL.0;
        /// It encrypts; without it, it decrypts.
        const ENCRYPT = F::IB_UVERBS_FLOW_ACTION_ESP_FLAGS_ENCRYPT.0;
        /// The extended sequence number is in its upper half of the window.
        const ESN_NEW_WINDOW = F::IB_UVERBS_FLOW_ACTION_ESP_FLAGS_ESN_NEW_WINDOW.0;
    }
}

/// `struct ibv_flow_action_esp_attr` for AES-GCM: the security association that the device encrypts or decrypts for.
#[doc(alias = "ibv_flow_action_esp_attr")]
#[derive(Clone)]
#[non_exhaustive]
pub struct EspAttributes {
    /// The security parameters index.
    pub spi: u32,
    /// The sequence number to begin with.
    pub sequence: u32,
    /// The upper half of the extended sequence number; `None`: it is not extended.
    pub extended_sequence: Option<u32>,
    /// What the device does.
    pub flags: EspFlags,
    /// The key of AES: 16, 24 or 32 bytes.
    pub key: Vec<u8>,
    /// The salt of the key.
    pub salt: u32,
    /// The initialization vector to begin with.
    pub initialization_vector: u64,
    /// How many bytes the integrity check value has: 8, 12 or 16.
    pub integrity_check_length: u32,
    /// For how many packets back the device refuses one that came already; `None`: it does not look.
    pub replay_window: Option<u32>,
}

impl EspAttributes {
    /// An association of this index and AES-GCM key, which decrypts in transport mode, with 16 bytes of integrity check.
    pub fn new(spi: u32, key: &[u8]) -> Self {
        Self {
            spi,
            sequence: 0,
            extended_sequence: None,
            flags: EspFlags::empty(),
            key: key.to_vec(),
            salt: 0,
            initialization_vector: 0,
            integrity_check_length: 16,
            replay_window: None,
        }
    }

    /// Calls `use_it` with the attributes in libibverbs' terms.
    fn with_raw<T>(&self, use_it: impl FnOnce(&mut ffi::ibv_flow_action_esp_attr) -> T) -> Result<T> {
        if !matches!(self.key.len(), 16 | 24 | 32) {
            return Err(Error::invalid(VERB, "key_len", self.key.len(), "a key of AES has 16, 24 or 32 bytes"));
        }
        let mut esp = ffi::ib_uverbs_flow_action_esp {
            spi: self.spi,
            seq: self.sequence,
            tfc_pad: 0,
            flags: self.flags.bits(),
            hard_limit_pkts: 0,
        };
        // SAFETY: all zeroes are a valid structure.
        let mut keymat: ffi::ib_uverbs_flow_action_esp_keymat_aes_gcm = unsafe { std::mem::zeroed() };
        keymat.iv = self.initialization_vector;
        keymat.iv_algo = ffi::IBV_FLOW_ACTION_IV_ALGO_SEQ.0;
        keymat.salt = self.salt;
        keymat.icv_len = self.integrity_check_length;
        keymat.key_len = self.key.len() as u32;
        for (word, bytes) in keymat.aes_key.iter_mut().zip(self.key.chunks_exact(4)) {
            *word = u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        let mut window = ffi::ib_uverbs_flow_action_esp_replay_bmp { size: self.replay_window.unwrap_or(0) };
        // SAFETY: all zeroes are a valid structure.
        let mut attributes: ffi::ibv_flow_action_esp_attr = unsafe { std::mem::zeroed() };
        attributes.esp_attr = &mut esp;
        attributes.keymat_proto = ffi::IBV_FLOW_ACTION_ESP_KEYMAT_AES_GCM;
        attributes.keymat_len = size_of_val(&keymat) as u16;
        attributes.keymat_ptr = ptr::from_mut(&mut keymat).cast();
        if self.replay_window.is_some() {
            attributes.replay_proto = ffi::IBV_FLOW_ACTION_ESP_REPLAY_BMP;
            attributes.replay_len = size_of_val(&window) as u16;
            attributes.replay_ptr = ptr::from_mut(&mut window).cast();
        }
        if let Some(esn) = self.extended_sequence {
            attributes.comp_mask = ffi::ibv_flow_action_esp_mask::IBV_FLOW_ACTION_ESP_MASK_ESN.0;
            attributes.esn = esn;
        }
        Ok(use_it(&mut attributes))
    }
}

impl fmt::Debug for EspAttributes {
    /// Without the key and its salt.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EspAttributes")
            .field("spi", &self.spi)
            .field("sequence", &self.sequence)
            .field("extended_sequence", &self.extended_sequence)
            .field("flags", &self.flags)
            .field("key_length", &self.key.len())
            .field("integrity_check_length", &self.integrity_check_length)
            .field("replay_window", &self.replay_window)
            .finish_non_exhaustive()
    }
}

struct Inner {
    action: NonNull<ffi::ibv_flow_action>,
    // Closed after the action is destroyed.
    context: Context,
}

// SAFETY: an action is only passed to libibverbs, which takes its own locks.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the action is alive, is destroyed only here, and no flow has it: each held us and is gone.
        let _ = unsafe { ffi::ibv_destroy_flow_action(self.action.as_ptr()) };
    }
}

/// `struct ibv_flow_action` of ESP: has the device encrypt or decrypt the packets of a [flow](crate::FlowRule::esp).
///
/// A clone is another handle to the same action.
#[doc(alias = "ibv_flow_action")]
#[derive(Clone)]
pub struct EspAction {
    inner: Arc<Inner>,
}

impl Context {
    /// `ibv_create_flow_action_esp`: makes an action.
    ///
    /// # Errors
    ///
    /// * [`Error::InvalidArgument`]: the key has another length than 16, 24 or 32 bytes.
    /// * [`Error::Unsupported`]: the provider has none (rxe), or lacks what is asked for.
    ///
    /// # References
    ///
    /// [ibv_create_flow_action_esp(3)](https://man7.org/linux/man-pages/man3/ibv_create_flow_action.3.html)
    #[doc(alias = "ibv_create_flow_action_esp")]
    pub fn create_esp_action(&self, attributes: &EspAttributes) -> Result<EspAction> {
        // SAFETY: the context is open, and the attributes outlive the call.
        let create = |raw: &mut _| null_and_errno(unsafe { ffi::ibv_create_flow_action_esp(self.as_raw(), raw) });
        let action = attributes.with_raw(create)?.map_err(|errno| errno.of(VERB, format_args!("{attributes:?}")))?;
        Ok(EspAction { inner: Arc::new(Inner { action, context: self.clone() }) })
    }
}

impl EspAction {
    /// Takes over an action of ESP that was made by other means. It is destroyed when the last handle, and the last object that holds it,
    /// are gone.
    ///
    /// # Safety
    ///
    /// * `action` is alive, and nobody else destroys it.
    /// * Flows that have it by other means are gone before the last handle is.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`](crate::Error::InvalidArgument): it was made in another context. It then still belongs to the caller.
    pub unsafe fn from_raw(action: NonNull<ffi::ibv_flow_action>, context: &Context) -> Result<Self> {
        // SAFETY: the caller says that it is alive.
        let own = unsafe { action.as_ref().context };
        must_be_made_of("ibv_create_flow_action_esp", &[("context", own == context.as_raw())])?;
        Ok(Self { inner: Arc::new(Inner { action, context: context.clone() }) })
    }

    /// `ibv_modify_flow_action_esp`: changes the action, and with it all flows that have it.
    ///
    /// # Errors
    ///
    /// As those of [`create_esp_action`](Context::create_esp_action).
    ///
    /// # References
    ///
    /// [ibv_modify_flow_action_esp(3)](https://man7.org/linux/man-pages/man3/ibv_create_flow_action.3.html)
    #[doc(alias = "ibv_modify_flow_action_esp")]
    pub fn modify(&self, attributes: &EspAttributes) -> Result<()> {
        // SAFETY: the action is alive, and the attributes outlive the call.
        let modify = |raw: &mut _| zero_or_errno(unsafe { ffi::ibv_modify_flow_action_esp(self.as_raw(), raw) });
        let arguments = format_args!("{attributes:?}");
        attributes.with_raw(modify)?.map_err(|errno| errno.of("ibv_modify_flow_action_esp", arguments))
    }

    /// The context in which the action was made.
    pub fn context(&self) -> &Context {
        &self.inner.context
    }

    /// The action in libibverbs' terms; valid as long as `self`, and not to be destroyed.
    pub fn as_raw(&self) -> *mut ffi::ibv_flow_action {
        self.inner.action.as_ptr()
    }
}

impl fmt::Debug for EspAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EspAction").field("device", &self.context().device().name()).finish()
    }
}
