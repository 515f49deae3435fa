//! The virtual machine: a distribution's kernel under QEMU, with the host's root in it and RDMA devices on a wire.

mod accelerator;
mod apt;
mod clock;
mod console;
mod cpio;
mod fetch;
mod image;
mod initramfs;
mod kernel;
pub(crate) mod network;
mod qemu;

use std::fs;
use std::io::{BufReader, ErrorKind};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use crate::place::{self, News};
use crate::say;
use crate::wire::{self, Furniture, Order, Report};
use accelerator::Accelerator;
use console::Console;
use kernel::Kernel;
use network::Network;

/// How long a guest on the host's processor may take to show life before it is given up.
const KVM_DEADLINE: Duration = Duration::from_secs(5);
/// How long a boot may take, on a host that is busy with other things.
const BOOT_DEADLINE: Duration = Duration::from_secs(90);
/// How long the guest may take to switch off.
const OFF_DEADLINE: Duration = Duration::from_secs(5);
/// How long to wait for the console's last words once the machine is gone.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long QEMU may take to open its ends of the sockets.
const QEMU_DEADLINE: Duration = Duration::from_secs(30);

/// How to make a machine.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The workspace's output folder, writable in the guest.
    pub(crate) target: PathBuf,
    pub(crate) memory_mib: u32,
    /// As `--kernel` has it.
    pub(crate) kernel: Option<String>,
}

/// A running machine. Dropping it ends QEMU.
#[derive(Debug)]
pub(crate) struct Vm {
    qemu: Child,
    orders: Sender<Order>,
    news: Receiver<News>,
    console: Console,
    started: Instant,
    /// Holds the sockets and QEMU's messages.
    folder: TempDir,
}

impl Vm {
    /// Boots a machine with two devices on a wire, and waits until they are ready.
    ///
    /// # Errors
    ///
    /// There is no kernel to be had, QEMU does not start, or the guest does not come up.
    pub(crate) fn boot(options: &Options) -> Result<Self> {
        let kernel = fetch::kernel(&options.target, options.kernel.as_deref())?;
        let mut machines = Self::boot_machines(options, &kernel, &[Network::pair()])?;
        machines.pop().context("one machine was asked for")
    }

    /// Boots two machines with a device each, on a wire between them.
    ///
    /// # Errors
    ///
    /// As [`boot`](Self::boot).
    pub(crate) fn boot_two(options: &Options) -> Result<[Self; 2]> {
        let kernel = fetch::kernel(&options.target, options.kernel.as_deref())?;
        let folder = tempfile::Builder::new().prefix("xtask-wire-").tempdir().context("making a temporary folder")?;
        let networks = Network::two_hosts(&folder.path().join("wire"));
        let machines = Self::boot_machines(options, &kernel, &networks)?;
        machines.try_into().ok().context("two machines were asked for")
    }

    fn boot_machines(options: &Options, kernel: &Kernel, networks: &[Network]) -> Result<Vec<Self>> {
        let memory = accelerator::Memory::new(&options.target.join("vm"), &kernel.release, &qemu::program()?);
        let mut accelerator = memory.first_choice();
        loop {
            say!("booting Linux {} in QEMU ({})", kernel.release, accelerator.name());
            // Until KVM has worked once, the guest must show life soon.
            let patience = (accelerator == Accelerator::Kvm && memory.recall().is_none()).then_some(KVM_DEADLINE);
            let result = networks.iter().map(|network| Self::start(options, kernel, network, accelerator));
            let result = result.collect::<Result<Vec<_>>>().and_then(|mut machines| {
                for machine in &mut machines {
                    machine.await_ready(patience)?;
                }
                Ok(machines)
            });
            match result {
                Ok(machines) => {
                    if accelerator == Accelerator::Kvm {
                        memory.keep(true);
                    }
                    let seconds =
                        machines.iter().map(|vm| vm.started.elapsed()).max().unwrap_or_default().as_secs_f64();
                    say!("ready {seconds:.1} s after the start of QEMU");
                    return Ok(machines);
                }
                Err(error) if accelerator == Accelerator::Kvm && !error.is::<Interrupted>() => {
                    let reason = format!("{error:#}");
                    say!(
                        "KVM does not work here ({}); software emulation from now on",
                        reason.lines().next().unwrap_or_default()
                    );
                    memory.keep(false);
                    accelerator = Accelerator::Tcg;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts QEMU.
    fn start(options: &Options, kernel: &Kernel, network: &Network, accelerator: Accelerator) -> Result<Self> {
        let clock = clock::Measurement::begin();
        let folder = tempfile::Builder::new().prefix("xtask-vm-").tempdir().context("making a temporary folder")?;
        let archive = initramfs::build(&crate::setup::busybox()?, kernel, network, &own_path()?)?;
        let place = |name: &str| folder.path().join(name);
        fs::write(place("initramfs"), archive).with_context(|| format!("writing {}", place("initramfs").display()))?;
        let listen = |path: &Path| UnixListener::bind(path).with_context(|| format!("listening on {}", path.display()));
        let (console_end, agent_end) = (listen(&place("console"))?, listen(&place("agent"))?);
        let machine = qemu::Machine {
            accelerator,
            image: &kernel.image,
            initramfs: &place("initramfs"),
            console: &place("console"),
            agent: &place("agent"),
            writable: &options.target,
            memory_mib: options.memory_mib,
            tsc_khz: (accelerator == Accelerator::Tcg).then(|| clock.khz()),
            wire: network.wire.as_ref(),
        };
        let errors =
            fs::File::create(place("qemu.log")).with_context(|| format!("creating {}", place("qemu.log").display()))?;
        let mut command = Command::new(qemu::program()?);
        command.args(qemu::arguments(&machine)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        // Ctrl-C at the terminal is for us: the guest is to be switched off in good order.
        command.process_group(0);
        let started = Instant::now();
        let qemu = die_with_us(&mut command).spawn().context("starting QEMU")?;

        let (tell, news) = channel();
        let (orders, outbox) = channel();
        let mut vm = Self { qemu, orders, news, console: Console::default(), started, folder };
        // From here on, an early return ends QEMU.
        let console_stream = vm.accept(&console_end)?;
        vm.console.follow(console_stream, tell.clone());
        let stream = vm.accept(&agent_end)?;
        hand_on_reports(stream.try_clone()?, tell.clone());
        hand_on_orders(stream, outbox);
        place::forward_signals(tell)?;
        if let Some(path) = network.wire.as_ref().filter(|wire| wire.listens).map(|wire| &wire.path) {
            // The other machine's QEMU does not wait for this one.
            vm.await_file(path)?;
        }
        vm.order(Order::Furnish(Furniture { writable: options.target.clone() }));
        Ok(vm)
    }

    fn accept(&mut self, listener: &UnixListener) -> Result<UnixStream> {
        listener.set_nonblocking(true)?;
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false)?;
                    return Ok(stream);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.still_starting()?,
                Err(error) => return Err(error).context("waiting for QEMU"),
            }
        }
    }

    fn await_file(&mut self, path: &Path) -> Result<()> {
        while !path.exists() {
            self.still_starting()?;
        }
        Ok(())
    }

    /// Waits a moment for QEMU to get ready.
    fn still_starting(&mut self) -> Result<()> {
        if let Some(status) = self.qemu.try_wait()? {
            bail!("QEMU ended at once ({status}): {}", self.qemus_words());
        }
        if self.started.elapsed() > QEMU_DEADLINE {
            bail!("QEMU was not up within {QEMU_DEADLINE:?}");
        }
        thread::sleep(Duration::from_millis(2));
        Ok(())
    }

    fn qemus_words(&self) -> String {
        fs::read_to_string(self.folder.path().join("qemu.log")).unwrap_or_default().trim().to_owned()
    }

    /// Waits until the guest's devices are ready; with `patience`, for the first sign of life no longer than that.
    fn await_ready(&mut self, patience: Option<Duration>) -> Result<()> {
        let mut deadline = self.started + patience.unwrap_or(BOOT_DEADLINE);
        loop {
            match self.news(Some(deadline)) {
                Some(News::Ready) => return Ok(()),
                Some(News::Alive) => deadline = self.started + BOOT_DEADLINE,
                Some(News::Broken(reason)) => bail!("the guest cannot be set up: {reason}"),
                Some(News::Gone) => bail!("{}", self.obituary()),
                Some(News::Signal(signal)) if place::is_end(signal) => return Err(Interrupted(signal).into()),
                Some(News::Program(_) | News::Signal(_)) => {}
                None => {
                    let seconds = self.started.elapsed().as_secs();
                    match self.console.tail() {
                        words if words.is_empty() => bail!("the guest printed nothing in {seconds} s"),
                        words => bail!("the guest was not up after {seconds} s; its console says:\n{words}"),
                    }
                }
            }
        }
    }

    /// Tells the guest to do something; a guest that is gone reports so as news.
    pub(crate) fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    /// A handle to order from other threads.
    pub(crate) fn orders(&self) -> Sender<Order> {
        self.orders.clone()
    }

    /// The next news, if any comes until `deadline`.
    pub(crate) fn news(&self, deadline: Option<Instant>) -> Option<News> {
        place::receive(&self.news, deadline)
    }

    /// Why the machine ended when nobody asked it to.
    pub(crate) fn obituary(&mut self) -> String {
        // The console's last words travel on a socket of their own, and QEMU may yet be ending.
        let deadline = Instant::now() + LAST_WORDS;
        while Instant::now() < deadline && !(self.console.has_ended() && matches!(self.qemu.try_wait(), Ok(Some(_)))) {
            thread::sleep(Duration::from_millis(5));
        }
        let status = self.qemu.try_wait().ok().flatten();
        let what = match (self.console.panic(), status) {
            (Some(reason), _) => format!("the guest's kernel panicked: {reason}"),
            (None, Some(status)) if !status.success() => {
                format!("QEMU ended by itself ({status}): {}", self.qemus_words())
            }
            (None, _) => "the guest switched itself off".to_owned(),
        };
        format!("{what}; its console said:\n{}", self.console.tail())
    }

    /// Switches the machine off in good order, so that all files written reach the host.
    pub(crate) fn power_off(mut self) {
        self.order(Order::PowerOff);
        let deadline = Instant::now() + OFF_DEADLINE;
        while Instant::now() < deadline {
            if !matches!(self.qemu.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        say!("the guest did not switch off within {OFF_DEADLINE:?}: ending QEMU");
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// The user wants to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interrupted(pub(crate) i32);

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "interrupted by signal {}", self.0)
    }
}

impl std::error::Error for Interrupted {}

/// This program, which is the agent in the guest as well.
fn own_path() -> Result<PathBuf> {
    let path = std::env::current_exe().context("finding this program")?;
    // Cargo may have built it anew since it was started; the new one lies in its place.
    let there = path.to_str().and_then(|path| path.strip_suffix(" (deleted)")).map_or(path.clone(), PathBuf::from);
    if there.is_file() { Ok(there) } else { bail!("{} is gone: start xtask again", there.display()) }
}

fn hand_on_reports(stream: UnixStream, tell: Sender<News>) {
    thread::spawn(move || {
        let mut from = BufReader::with_capacity(256 << 10, stream);
        while let Ok(Some(report)) = wire::receive_report(&mut from) {
            let news = match report {
                Report::Ready => News::Ready,
                Report::Broken(reason) => News::Broken(reason),
                Report::Program(event) => News::Program(event),
            };
            if tell.send(news).is_err() {
                return;
            }
        }
        let _ = tell.send(News::Gone);
    });
}

fn hand_on_orders(mut stream: UnixStream, outbox: Receiver<Order>) {
    thread::spawn(move || {
        while let Ok(order) = outbox.recv() {
            if wire::send(&mut stream, &order).is_err() {
                return;
            }
        }
    });
}

/// Has the kernel kill the child when we die, whatever we die of.
#[allow(unsafe_code)]
fn die_with_us(command: &mut Command) -> &mut Command {
    let parent = rustix::process::getpid();
    let arm = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // We may have died before the line above.
        if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec only calls that are safe in a signal handler are allowed; `arm` makes two system calls and
    // neither allocates nor takes a lock.
    unsafe { command.pre_exec(arm) }
}
