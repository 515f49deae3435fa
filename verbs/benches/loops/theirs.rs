//! The loops in C: compiled when the bench runs, as a C program would be, and loaded.
//!
//! # Safety
//!
//! Each function of the C files takes a [`Fixture`] of live objects and a count.
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, ptr};

use verbs::ffi;

/// `struct fixture` of loops.h.
#[repr(C)]
pub(crate) struct Fixture {
    pub(crate) qp: *mut ffi::ibv_qp,
    pub(crate) cq: *mut ffi::ibv_cq,
    pub(crate) extended: *mut ffi::ibv_qp,
    pub(crate) extended_cq: *mut ffi::ibv_cq_ex,
    pub(crate) unreliable: *mut ffi::ibv_qp,
    pub(crate) datagram: *mut ffi::ibv_qp,
    pub(crate) ah: *mut ffi::ibv_ah,
    pub(crate) srq: *mut ffi::ibv_srq,
    pub(crate) buffer: *mut u8,
    pub(crate) remote_addr: u64,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// A loop: how often, and how much was done.
pub(crate) type Loop = unsafe extern "C" fn(&Fixture, u64) -> u64;

/// Compiles the loops into a shared object, with the compiler's flag `optimisation`.
pub(crate) fn compile(folder: &Path, optimisation: &str) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/loops");
    let object = folder.join("loops.so");
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(&compiler);
    command.args(["-std=gnu11", optimisation, "-fPIC", "-shared", "-o"]).arg(&object);
    let names = ["datagrams", "extended", "loops", "posts", "prepared", "shared", "unreliable", "waits"];
    command.args(names.map(|name| sources.join(name).with_extension("c")));
    if let Ok(folder) = env::var("IBVERBS_INCLUDE_DIR") {
        command.arg("-I").arg(folder);
    }
    let status = command.status().unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
    object
}

/// The compiler's name and version, in a line.
pub(crate) fn compiler() -> String {
    let compiler = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(&compiler).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or(&compiler).to_owned()
}

/// The shared object, loaded for as long as the program runs.
pub(crate) struct Loops(ptr::NonNull<std::ffi::c_void>);

impl Loops {
    pub(crate) fn load(object: &Path) -> Self {
        let path = CString::new(object.to_str().expect("a path in UTF-8")).expect("a path without NUL");
        // SAFETY: the object has no initialisers, and `path` outlives the call.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        Self(ptr::NonNull::new(handle).unwrap_or_else(|| panic!("{}: cannot be loaded", object.display())))
    }

    pub(crate) fn get(&self, name: &CStr) -> Loop {
        // SAFETY: the handle is valid, and `name` outlives the call.
        let address = unsafe { libc::dlsym(self.0.as_ptr(), name.as_ptr()) };
        assert!(!address.is_null(), "there is no {name:?} in C");
        // SAFETY: the functions of the C files are of this type.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, Loop>(address) }
    }
}
