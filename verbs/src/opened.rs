//! [`Opened`]: what all handles to an open device share.
//!
//! # Safety
//!
//! A context's `ibv_device` is alive as long as the context is open, so its name may be read while the context is.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::device::{Device, devices};
use crate::error::{Error, Result};
use crate::ffi;
use crate::object_id::Objects;
use crate::watch::Watch;

/// The device of an open context, and the objects made in it.
pub(crate) struct Opened {
    pub(crate) device: Device,
    /// The queues and queue pairs that events can be of.
    pub(crate) objects: Objects,
    /// What is handed out in place of the descriptor of asynchronous events.
    pub(crate) watch: Watch,
}

/// The contexts that other libraries lend, by their addresses: one may be lent many times.
static LENT: Mutex<Option<HashMap<usize, Weak<Opened>>>> = Mutex::new(None);

impl Opened {
    /// # Errors
    ///
    /// `EMFILE`: the process has too many open files.
    pub(crate) fn new(device: Device) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { device, objects: Objects::default(), watch: Watch::new()? }))
    }

    /// What the handles to a context that another library lends share.
    ///
    /// # Errors
    ///
    /// As those of [`of`](Self::of).
    ///
    /// # Safety
    ///
    /// The context is open. A handle to it lets go of this before the context may be closed.
    pub(crate) unsafe fn of_lent(context: NonNull<ffi::ibv_context>) -> Result<Arc<Self>> {
        let mut lent = LENT.lock().unwrap_or_else(PoisonError::into_inner);
        let lent = lent.get_or_insert_default();
        if let Some(opened) = lent.get(&context.addr().get()).and_then(Weak::upgrade) {
            return Ok(opened);
        }
        // SAFETY: the context is open.
        let opened = unsafe { Self::of(context) }?;
        lent.retain(|_, opened| opened.strong_count() > 0);
        lent.insert(context.addr().get(), Arc::downgrade(&opened));
        Ok(opened)
    }

    /// What the handles to a context that was opened by other means share.
    ///
    /// # Errors
    ///
    /// * [`Error::NoDevice`]: the device is gone.
    /// * `EMFILE`: the process has too many open files.
    ///
    /// # Safety
    ///
    /// The context is open.
    pub(crate) unsafe fn of(context: NonNull<ffi::ibv_context>) -> Result<Arc<Self>> {
        // SAFETY: the context is open.
        let device = unsafe { context.as_ref().device };
        // libibverbs has one `ibv_device` for each device, however often it is listed.
        let list = devices()?;
        let found = list.iter().find(|listed| listed.as_raw() == device);
        let found = found.ok_or_else(|| Error::NoDevice {
            // SAFETY: the device is alive as long as the context, and its name ends with NUL.
            wanted: Some(unsafe { CStr::from_ptr((*device).name.as_ptr()) }.to_string_lossy().into_owned()),
            available: list.iter().map(|device| device.name().to_owned()).collect(),
            kernel_devices: Box::default(),
            missing_nodes: Box::default(),
        })?;
        Self::new(found)
    }
}
