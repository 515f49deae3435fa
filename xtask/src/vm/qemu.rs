//! QEMU's command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::accelerator::Accelerator;
use super::network::Wire;
use crate::agent;

/// What differs from machine to machine.
#[derive(Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) accelerator: Accelerator,
    pub(crate) image: &'a Path,
    pub(crate) initramfs: &'a Path,
    /// The socket that carries the kernel's console.
    pub(crate) console: &'a Path,
    /// The socket that carries the agent's port.
    pub(crate) agent: &'a Path,
    pub(crate) writable: &'a Path,
    pub(crate) memory_mib: u32,
    /// The host's time-stamp counter, for a guest that has no other way to know.
    pub(crate) tsc_khz: Option<u64>,
    /// The wire to another machine.
    pub(crate) wire: Option<&'a Wire>,
}

/// QEMU's arguments.
pub(crate) fn arguments(machine: &Machine<'_>) -> Vec<OsString> {
    let mut arguments = Arguments::default();
    arguments.add(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    // The small machine: no PCI, no firmware tables to build, no option ROMs to wait for.
    arguments.add(["-machine", "microvm,acpi=on,rtc=on"]);
    match machine.accelerator {
        Accelerator::Kvm => arguments.add(["-accel", "kvm", "-cpu", "max"]),
        // Two processors each on a thread of its own, or two busy-polling programs wait for each other's time slices. Without
        // 5-level page tables each walk is a level shorter; emulated carry-less multiplication is slower than rxe's plain CRC.
        Accelerator::Tcg => arguments.add(["-accel", "tcg,thread=multi", "-cpu", "max,-la57,-pclmulqdq"]),
    }
    arguments.add(["-smp", "2", "-m", &format!("{}M", machine.memory_mib)]);
    arguments.path("-kernel", "", machine.image, "");
    arguments.path("-initrd", "", machine.initramfs, "");
    let tsc = machine.tsc_khz.map(|khz| format!(" tsc_early_khz={khz} lpj={}", khz * 4)).unwrap_or_default();
    arguments.add(["-append", &format!("{KERNEL_ARGUMENTS}{tsc}")]);
    arguments.path("-chardev", "socket,id=console,path=", machine.console, "");
    arguments.add(["-serial", "chardev:console"]);
    arguments.path("-chardev", "socket,id=agent,path=", machine.agent, "");
    arguments.add(["-device", "virtio-serial-device"]);
    arguments.add(["-device", &format!("virtserialport,chardev=agent,name={}", agent::PORT)]);
    // One 9p share shows all of the host's file systems, whose inode numbers may clash.
    arguments.add(["-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"]);
    arguments.add(["-device", "virtio-9p-device,fsdev=root,mount_tag=root"]);
    arguments.path("-fsdev", "local,id=writable,path=", machine.writable, ",security_model=none,multidevs=remap");
    arguments.add(["-device", &format!("virtio-9p-device,fsdev=writable,mount_tag={}", agent::WRITABLE_TAG)]);
    if let Some(wire) = machine.wire {
        let server = if wire.listens { "on" } else { "off" };
        let before = format!("stream,id=wire,server={server},addr.type=unix,addr.path=");
        arguments.path("-netdev", &before, &wire.path, "");
        arguments.add(["-device", "virtio-net-device,netdev=wire"]);
    }
    arguments.0
}

/// `panic=-1` restarts at once, which `-no-reboot` turns into the end of QEMU; an oops counts as a panic, since rxe would limp on.
/// The rest saves time at boot: self-tests, security layers and protections that nobody attacks here, waits for other processors
/// to notice a change.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet loglevel=4 panic=-1 oops=panic mitigations=off nokaslr random.trust_cpu=on \
     tsc=reliable no_timer_check pci=off cryptomgr.notests lsm= audit=0 rodata=off rcupdate.rcu_expedited=1 \
     initcall_blacklist=init_kprobe_trace,crypto_kdf108_init,slab_sysfs_init,jent_mod_init";

/// Where QEMU is.
///
/// # Errors
///
/// It is not installed.
pub(crate) fn program() -> Result<PathBuf> {
    match crate::setup::find_program("qemu-system-x86_64") {
        Some(path) => Ok(path),
        None => bail!("qemu-system-x86_64 is not installed: run `cargo xtask setup`"),
    }
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn add<'a>(&mut self, more: impl IntoIterator<Item = &'a str>) {
        self.0.extend(more.into_iter().map(OsString::from));
    }

    /// Adds `flag` and a value with a path in it, in which QEMU wants commas doubled where the value is a list of options.
    fn path(&mut self, flag: &str, before: &str, path: &Path, after: &str) {
        use std::os::unix::ffi::{OsStrExt, OsStringExt};
        let mut value = before.as_bytes().to_vec();
        for &byte in path.as_os_str().as_bytes() {
            if byte == b',' && !before.is_empty() {
                value.push(b',');
            }
            value.push(byte);
        }
        value.extend(after.as_bytes());
        self.0.push(flag.into());
        self.0.push(OsString::from_vec(value));
    }
}
