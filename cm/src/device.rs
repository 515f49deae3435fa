//! The devices that librdmacm has opened.
//!
//! # Safety
//!
//! librdmacm opens each device once, when an id first belongs to it, and gives its ids one protection domain. It closes neither while
//! something holds the device: an id of it, or a list of [`ffi::rdma_get_devices`]. `Devices` is such a list.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use verbs::ffi as verbs_ffi;
use verbs::{Context, ProtectionDomain};

use crate::error::{Error, Result};
use crate::ffi;
use crate::returns::{Errno, null_and_errno};

/// A list of [`ffi::rdma_get_devices`]: holds each device that is there at present.
///
/// Its devices are let go one by one, each in a list of its own: librdmacm reads on in a list after it has freed a device that was
/// removed.
struct Devices(NonNull<*mut verbs_ffi::ibv_context>);

// SAFETY: the list does not change.
unsafe impl Send for Devices {}
// SAFETY: as above.
unsafe impl Sync for Devices {}

impl Devices {
    fn get() -> Result<Self, Errno> {
        // SAFETY: the count may be null.
        null_and_errno(unsafe { ffi::rdma_get_devices(std::ptr::null_mut()) }).map(Self)
    }

    fn contexts(&self) -> impl Iterator<Item = NonNull<verbs_ffi::ibv_context>> {
        // SAFETY: the list ends with a null pointer, at which the walk ends.
        (0..).map_while(|index| NonNull::new(unsafe { *self.0.as_ptr().add(index) }))
    }
}

impl Drop for Devices {
    fn drop(&mut self) {
        for context in self.contexts() {
            // SAFETY: the size is not 0.
            let list = unsafe { libc::malloc(2 * size_of::<*mut verbs_ffi::ibv_context>()) };
            let list = list.cast::<*mut verbs_ffi::ibv_context>();
            // Without memory, the device is held on.
            if !list.is_null() {
                // SAFETY: the list has room for a device and for its end. librdmacm lets go of the device, and frees what `malloc` gave.
                unsafe {
                    list.write(context.as_ptr());
                    list.add(1).write(std::ptr::null_mut());
                    ffi::rdma_free_devices(list);
                }
            }
        }
        // SAFETY: librdmacm got it from `malloc`, too, and it is freed only here.
        unsafe { libc::free(self.0.as_ptr().cast()) };
    }
}

/// A device of librdmacm's.
#[derive(Clone, Debug)]
pub(crate) struct CmDevice {
    pub(crate) context: Context,
    /// librdmacm's own; `None`: no id belongs to the device yet.
    pub(crate) pd: Option<ProtectionDomain>,
}

/// The devices that were asked for before. There are as many as librdmacm has ever opened, and like it we keep them.
static KNOWN: Mutex<Vec<CmDevice>> = Mutex::new(Vec::new());

/// The device whose context and protection domain these are.
///
/// # Safety
///
/// `context` and `pd` are an id's, which is alive during the call and as long as `lender` is.
pub(crate) unsafe fn of_id(
    context: NonNull<verbs_ffi::ibv_context>,
    pd: Option<NonNull<verbs_ffi::ibv_pd>>,
    lender: impl Send + Sync + 'static,
) -> Result<CmDevice> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let found = known.iter().position(|device| device.context.as_raw() == context.as_ptr());
    if let Some(index) = found {
        let device = &mut known[index];
        if device.pd.is_none() {
            // SAFETY: librdmacm's domain lives as long as the list that the context holds.
            device.pd = pd.map(|pd| unsafe { ProtectionDomain::lent(pd, &device.context, ()) });
        }
        return Ok(device.clone());
    }
    match Devices::get() {
        // SAFETY: the list holds the device.
        Ok(devices) if devices.contexts().any(|listed| listed == context) => unsafe {
            let context = Context::lent(context, devices)?;
            let pd = pd.map(|pd| ProtectionDomain::lent(pd, &context, ()));
            let device = CmDevice { context, pd };
            known.push(device.clone());
            Ok(device)
        },
        // Another device cannot be opened, or this one is being removed: then the id holds it.
        // SAFETY: the id is alive as long as the lender, and holds the device.
        _ => unsafe {
            let context = Context::lent(context, lender)?;
            let pd = pd.map(|pd| ProtectionDomain::lent(pd, &context, ()));
            Ok(CmDevice { context, pd })
        },
    }
}

/// `rdma_get_devices`: the devices of connections, opened by librdmacm.
///
/// A queue pair that is to be connected here has to be made of one of these contexts, or of that of an [`Id`](crate::Id): the same device
/// opened by [`verbs::Device::open`] is another context, and objects of two contexts do not go together. They are never closed.
///
/// # Errors
///
/// * [`Error::NoDevice`]: there is no RDMA device.
/// * Others: a device cannot be opened.
///
/// # References
///
/// [rdma_get_devices(3)](https://man7.org/linux/man-pages/man3/rdma_get_devices.3.html)
#[doc(alias = "rdma_get_devices")]
#[doc(alias = "rdma_free_devices")]
pub fn devices() -> Result<Vec<Context>> {
    const CALL: &str = "rdma_get_devices";
    let devices = Devices::get().map_err(|errno| match errno.0 {
        libc::ENODEV | libc::ENOENT | libc::ENXIO | libc::ENOSYS => Error::NoDevice { call: CALL, errno: errno.0 },
        _ => errno.of(CALL, ""),
    })?;
    // SAFETY: the list holds the devices during the calls. A device that is not in a later list any more is being removed; then the list
    // is what holds it.
    let contexts: Vec<_> = devices.contexts().collect();
    let devices = std::sync::Arc::new(devices);
    contexts
        .into_iter()
        // SAFETY: as above.
        .map(|context| unsafe { of_id(context, None, std::sync::Arc::clone(&devices)) }.map(|device| device.context))
        .collect()
}
