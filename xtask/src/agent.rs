//! The guest's side: this program, started by the guest's `/init` from the host's file system, runs what the host orders.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::process::{self, Event, Running, Sink};
use crate::wire::{self, Furniture, Order, Report};

/// The port's name on the host's side of QEMU.
pub(crate) const PORT: &str = "xtask.agent";
/// The tag of the folder that the host shares for writing.
pub(crate) const WRITABLE_TAG: &str = "writable";

/// Serves the host until it says to switch off or hangs up.
///
/// # Errors
///
/// The port is missing or broken.
pub(crate) fn serve() -> Result<()> {
    let path = find_port()?;
    let port = OpenOptions::new().read(true).write(true).open(&path);
    let port = port.with_context(|| format!("opening {}", path.display()))?;
    let writer = Arc::new(Mutex::new(port.try_clone()?));
    let send = move |report: &Report| {
        // The host is gone when this fails; the reading side notices and ends.
        let _ = wire::report(&mut *writer.lock().unwrap_or_else(|poison| poison.into_inner()), report);
    };
    let send = Arc::new(send);
    let events = Arc::clone(&send);
    let sink: Sink = Arc::new(move |event| events(&Report::Program(event)));

    let mut port = PatientPort { port, heard: false };
    let mut running: HashMap<u32, Running> = HashMap::new();
    let mut furnished = None;
    while let Some(order) = wire::receive_order(&mut port)? {
        match order {
            Order::Furnish(furniture) => match furnish(&furniture).and_then(|()| await_devices()) {
                Ok(()) => {
                    furnished = Some(furniture);
                    send(&Report::Ready);
                }
                Err(error) => send(&Report::Broken(format!("{error:#}"))),
            },
            Order::Start { id, program } => match process::start(id, &program, &sink) {
                Ok(program) => {
                    running.insert(id, program);
                }
                Err(error) => send(&Report::Program(Event::NotStarted { id, reason: error.to_string() })),
            },
            Order::Feed { id, bytes } => {
                if let Some(program) = running.get_mut(&id) {
                    program.feed(&bytes);
                }
            }
            Order::Resize { id, rows, columns } => {
                if let Some(program) = running.get(&id) {
                    program.resize(rows, columns);
                }
            }
            Order::Signal { id, signal } => {
                if let Some(program) = running.get(&id) {
                    program.signal(signal);
                }
            }
            Order::PowerOff => break,
        }
    }
    rustix::fs::sync();
    if let Some(furniture) = furnished {
        // Whatever still writes there loses its mount, but what was written reaches the host.
        let _ = rustix::mount::unmount(&furniture.writable, UnmountFlags::DETACH);
        rustix::fs::sync();
    }
    Ok(())
}

/// Until the host has opened its end, reading yields 0: that is not yet the end.
struct PatientPort {
    port: File,
    heard: bool,
}

impl Read for PatientPort {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let length = self.port.read(buffer)?;
            if length > 0 || self.heard {
                self.heard = true;
                return Ok(length);
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn find_port() -> Result<PathBuf> {
    let ports = Path::new("/sys/class/virtio-ports");
    for entry in fs::read_dir(ports).with_context(|| format!("reading {}", ports.display()))? {
        let entry = entry?;
        let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if name.trim() == PORT {
            return Ok(Path::new("/dev").join(entry.file_name()));
        }
    }
    bail!("no virtio port is called {PORT}")
}

/// How long `/init` may take over the devices, which it makes while this program starts.
const DEVICES_DEADLINE: Duration = Duration::from_secs(60);

/// Waits until `/init` has made the devices.
fn await_devices() -> Result<()> {
    let path = "/run/xtask.devices";
    let deadline = Instant::now() + DEVICES_DEADLINE;
    while Instant::now() < deadline {
        match fs::read_to_string(path).unwrap_or_default().trim() {
            "" => thread::sleep(Duration::from_millis(5)),
            "ready" => return Ok(()),
            problem => bail!("{problem}"),
        }
    }
    bail!("the RDMA devices were not there after {DEVICES_DEADLINE:?}")
}

/// Mounts the writable share over the same folder of the read-only root.
fn furnish(furniture: &Furniture) -> Result<()> {
    // Programs must hear of a full disk when they write, so writes go straight to the host. Kernels from 6.4 on call that
    // `readahead`; older ones do it under `mmap` and do not know the other word.
    let mut result = Ok(());
    for cache in ["readahead", "mmap"] {
        let options = format!("trans=virtio,version=9p2000.L,msize=512000,cache={cache}");
        let options = std::ffi::CString::new(options)?;
        let flags = MountFlags::NOATIME;
        result = rustix::mount::mount(WRITABLE_TAG, &furniture.writable, "9p", flags, options.as_c_str());
        if result.is_ok() {
            break;
        }
    }
    result.with_context(|| format!("mounting the shared folder {}", furniture.writable.display()))
}
