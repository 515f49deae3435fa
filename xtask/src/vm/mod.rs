//! The virtual machine: a distribution's kernel under QEMU, with the host's root in it and two RDMA devices on a wire.

mod clock;
mod cpio;
mod fetch;
mod image;
mod initramfs;
mod kernel;
mod network;
mod qemu;

use std::collections::VecDeque;
use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use crate::process::{Event, Program};
use crate::say;
use crate::wire::{self, Furniture, Order, Report};
use network::Network;
use qemu::Accelerator;

/// How long a guest on the host's processor may take to show life before it is given up.
const KVM_DEADLINE: Duration = Duration::from_secs(5);
/// How long a boot may take.
const BOOT_DEADLINE: Duration = Duration::from_secs(20);
/// How long the guest may take to switch off.
const OFF_DEADLINE: Duration = Duration::from_secs(10);

/// How to make a machine.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The workspace's output folder, writable in the guest.
    pub(crate) target: PathBuf,
    pub(crate) memory_mib: u32,
}

/// What a machine tells.
#[derive(Debug)]
pub(crate) enum News {
    Program(Event),
    Ready,
    Alive,
    Broken(String),
    /// QEMU's end of the agent's port closed.
    Gone,
    /// A signal that the user sent us.
    Signal(i32),
}

/// A running machine. Dropping it ends QEMU.
#[derive(Debug)]
pub(crate) struct Vm {
    qemu: Child,
    orders: Sender<Order>,
    news: Receiver<News>,
    console: Arc<Mutex<Console>>,
    _folder: TempDir,
}

/// The kernel's last words.
#[derive(Debug, Default)]
struct Console {
    lines: VecDeque<String>,
    partial: Vec<u8>,
}

impl Console {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            if byte == b'\n' {
                let line = String::from_utf8_lossy(&self.partial).trim_end().to_owned();
                self.partial.clear();
                self.lines.push_back(line);
                if self.lines.len() > 200 {
                    self.lines.pop_front();
                }
            } else {
                self.partial.push(byte);
            }
        }
    }

    fn panicked(&self) -> bool {
        self.lines
            .iter()
            .any(|line| line.contains("Kernel panic - not syncing"))
    }

    fn tail(&self) -> String {
        let skip = self.lines.len().saturating_sub(60);
        let mut text: Vec<&str> = self.lines.iter().skip(skip).map(String::as_str).collect();
        let partial = String::from_utf8_lossy(&self.partial);
        text.push(&partial);
        text.iter()
            .filter(|line| !line.is_empty())
            .map(|line| format!("  | {line}\n"))
            .collect()
    }
}

impl Vm {
    /// Boots a machine and waits until its devices are ready.
    ///
    /// # Errors
    ///
    /// There is no kernel to be had, QEMU does not start, or the guest does not come up.
    pub(crate) fn boot(options: &Options) -> Result<Self> {
        let clock = clock::Measurement::begin();
        let kernel = fetch::kernel(&options.target)?;
        let network = Network::pair();
        let folder = tempfile::Builder::new()
            .prefix("xtask-vm-")
            .tempdir()
            .context("making a temporary folder")?;
        let agent = std::env::current_exe().context("finding this program")?;
        let archive = initramfs::build(Path::new("/usr/bin/busybox"), &kernel, &network, &agent)?;
        let initramfs = folder.path().join("initramfs");
        fs::write(&initramfs, archive)
            .with_context(|| format!("writing {}", initramfs.display()))?;

        let (console_path, agent_path) =
            (folder.path().join("console"), folder.path().join("agent"));
        let machine = qemu::Machine {
            accelerator: Accelerator::Tcg,
            image: &kernel.image,
            initramfs: &initramfs,
            console: &console_path,
            agent: &agent_path,
            writable: &options.target,
            memory_mib: options.memory_mib,
            tsc_khz: Some(clock.khz()),
        };
        say!(
            "booting Linux {} in QEMU (software emulation)",
            kernel.release
        );
        let started = Instant::now();
        let mut vm = Self::start(&machine, folder)?;
        vm.order(Order::Furnish(Furniture {
            writable: options.target.clone(),
        }));
        loop {
            match vm.news(Some(BOOT_DEADLINE.saturating_sub(started.elapsed()))) {
                Some(News::Ready) => break,
                Some(News::Broken(reason)) => bail!("the guest cannot be set up: {reason}"),
                Some(News::Gone) => return Err(vm.obituary()),
                Some(_) => {}
                None => bail!(
                    "the guest was not ready after {BOOT_DEADLINE:?}; its console said:\n{}",
                    vm.console_tail()
                ),
            }
        }
        say!("ready after {:.1} s", started.elapsed().as_secs_f64());
        Ok(vm)
    }

    fn start(machine: &qemu::Machine<'_>, folder: TempDir) -> Result<Self> {
        let listen = |path: &Path| {
            UnixListener::bind(path).with_context(|| format!("listening on {}", path.display()))
        };
        let (console_end, agent_end) = (listen(machine.console)?, listen(machine.agent)?);
        let errors_path = folder.path().join("qemu.log");
        let errors = fs::File::create(&errors_path)
            .with_context(|| format!("creating {}", errors_path.display()))?;
        let mut command = Command::new(qemu::program());
        command
            .args(qemu::arguments(machine))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors);
        // Ctrl-C at the terminal is for us: the guest is to be switched off in good order.
        command.process_group(0);
        let mut qemu = die_with_us(&mut command)
            .spawn()
            .context("starting qemu-system-x86_64")?;

        let console = Arc::new(Mutex::new(Console::default()));
        let (tell, news) = channel();
        let connect =
            |listener: &UnixListener, qemu: &mut Child| accept(listener, qemu, &errors_path);
        let console_stream = connect(&console_end, &mut qemu)?;
        let agent_stream = connect(&agent_end, &mut qemu)?;
        {
            let (console, tell) = (Arc::clone(&console), tell.clone());
            thread::spawn(move || listen_to_console(console_stream, &console, &tell));
        }
        let mut from_agent = agent_stream.try_clone()?;
        let signals = tell.clone();
        thread::spawn(move || {
            let mut from = std::io::BufReader::with_capacity(256 << 10, &mut from_agent);
            loop {
                let item = match wire::receive_report(&mut from) {
                    Ok(Some(Report::Ready)) => News::Ready,
                    Ok(Some(Report::Broken(reason))) => News::Broken(reason),
                    Ok(Some(Report::Program(event))) => News::Program(event),
                    Ok(None) | Err(_) => break,
                };
                if tell.send(item).is_err() {
                    return;
                }
            }
            let _ = tell.send(News::Gone);
        });
        let (orders, outbox) = channel::<Order>();
        let mut to_agent = agent_stream;
        thread::spawn(move || {
            while let Ok(order) = outbox.recv() {
                if wire::send(&mut to_agent, &order).is_err() {
                    return;
                }
            }
        });
        forward_signals(signals)?;
        Ok(Self {
            qemu,
            orders,
            news,
            console,
            _folder: folder,
        })
    }

    /// Tells the guest to do something; a guest that is gone reports so as news.
    pub(crate) fn order(&self, order: Order) {
        let _ = self.orders.send(order);
    }

    /// A handle to order from other threads.
    pub(crate) fn orders(&self) -> Sender<Order> {
        self.orders.clone()
    }

    /// The next news, if any comes within `patience`.
    pub(crate) fn news(&self, patience: Option<Duration>) -> Option<News> {
        match patience {
            Some(patience) => match self.news.recv_timeout(patience) {
                Ok(news) => Some(news),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => Some(News::Gone),
            },
            None => Some(self.news.recv().unwrap_or(News::Gone)),
        }
    }

    /// Starts a program in the guest.
    pub(crate) fn run(&self, id: u32, program: Program) {
        self.order(Order::Start { id, program });
    }

    /// Why the machine ended when nobody asked it to.
    pub(crate) fn obituary(&mut self) -> anyhow::Error {
        // The console's last words travel on a socket of their own.
        thread::sleep(Duration::from_millis(200));
        let console = self
            .console
            .lock()
            .unwrap_or_else(|poison| poison.into_inner());
        let what = if console.panicked() {
            "the guest's kernel panicked"
        } else {
            "the guest ended by itself"
        };
        anyhow::anyhow!("{what}; its console said:\n{}", console.tail())
    }

    fn console_tail(&self) -> String {
        self.console
            .lock()
            .unwrap_or_else(|poison| poison.into_inner())
            .tail()
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

fn listen_to_console(mut stream: UnixStream, console: &Mutex<Console>, tell: &Sender<News>) {
    let mut buffer = [0; 4096];
    let mut alive = false;
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => console
                .lock()
                .unwrap_or_else(|poison| poison.into_inner())
                .add(&buffer[..length]),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(_) => return,
        }
        if !alive {
            alive = true;
            let _ = tell.send(News::Alive);
        }
    }
}

fn accept(listener: &UnixListener, qemu: &mut Child, errors: &Path) -> Result<UnixStream> {
    listener.set_nonblocking(true)?;
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error).context("waiting for QEMU"),
        }
        if let Some(status) = qemu.try_wait()? {
            bail!(
                "QEMU ended at once ({status}): {}",
                fs::read_to_string(errors).unwrap_or_default().trim()
            );
        }
        if Instant::now() > deadline {
            let _ = qemu.kill();
            bail!("QEMU did not start within 30 s");
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Has the kernel kill the child when we die, whatever we die of.
fn die_with_us(command: &mut Command) -> &mut Command {
    let parent = rustix::process::getpid();
    let arm = move || {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        // We may have died before the line above.
        if rustix::process::getppid() == Some(parent) {
            Ok(())
        } else {
            Err(ErrorKind::BrokenPipe.into())
        }
    };
    // SAFETY: between fork and exec only calls that are safe in a signal handler are allowed; `arm` makes two system calls and
    // neither allocates nor takes a lock.
    unsafe { command.pre_exec(arm) }
}

fn forward_signals(tell: Sender<News>) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGWINCH])?;
    thread::spawn(move || {
        for signal in signals.forever() {
            if tell.send(News::Signal(signal)).is_err() {
                // Nobody listens any more, so the signal does what it always did.
                let _ = signal_hook::low_level::emulate_default_handler(signal);
            }
        }
    });
    Ok(())
}
