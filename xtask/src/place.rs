//! Where programs run: on this host or in a virtual machine, started and watched in the same way.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::process::{self, Event, Outcome, Program, Running, Sink, Stream};
use crate::vm::Vm;
use crate::wire::Order;

/// How long a program may take to end when it is told to.
const GRACE: Duration = Duration::from_secs(3);

/// The next program's number.
static NEXT_ID: AtomicU32 = AtomicU32::new(1);

/// What a place tells.
#[derive(Debug)]
pub(crate) enum News {
    Program(Event),
    /// The machine shows life.
    Alive,
    /// The machine's devices are there.
    Ready,
    /// The machine cannot be furnished.
    Broken(String),
    /// The machine ended.
    Gone,
    /// A signal that was sent to us.
    Signal(i32),
}

/// Where programs run.
#[derive(Debug)]
pub(crate) enum Place {
    Host(Host),
    Guest(Box<Vm>),
}

/// This host.
#[derive(Debug)]
pub(crate) struct Host {
    running: HashMap<u32, Running>,
    tell: Sender<News>,
    news: Receiver<News>,
}

/// How one program's run came out.
#[derive(Debug)]
pub(crate) enum Ending {
    Ended(Outcome),
    NotStarted(String),
    /// It was ended since its time was up.
    TimedOut,
    /// The machine went away under it; why.
    MachineGone(String),
    /// The user wants to stop.
    Interrupted(i32),
}

impl Place {
    /// This host.
    ///
    /// # Errors
    ///
    /// Signals cannot be caught.
    pub(crate) fn host() -> Result<Self> {
        let (tell, news) = channel();
        forward_signals(tell.clone())?;
        Ok(Self::Host(Host { running: HashMap::new(), tell, news }))
    }

    /// Starts a program under a number that is not in use; all else about it comes as news.
    pub(crate) fn start(&mut self, id: u32, program: Program) {
        match self {
            Self::Guest(vm) => vm.order(Order::Start { id, program }),
            Self::Host(host) => {
                let tell = host.tell.clone();
                // Nobody is there to be told once the place is dropped.
                let sink: Sink = Arc::new(move |event| drop(tell.send(News::Program(event))));
                match process::start(id, &program, &sink) {
                    Ok(running) => drop(host.running.insert(id, running)),
                    Err(error) => sink(Event::NotStarted { id, reason: error.to_string() }),
                }
            }
        }
    }

    /// Signals a program and what it started.
    pub(crate) fn signal(&self, id: u32, signal: i32) {
        match self {
            Self::Guest(vm) => vm.order(Order::Signal { id, signal }),
            Self::Host(host) => {
                if let Some(running) = host.running.get(&id) {
                    running.signal(signal);
                }
            }
        }
    }

    /// The next news, if any comes until `deadline`.
    pub(crate) fn news(&mut self, deadline: Option<Instant>) -> Option<News> {
        match self {
            Self::Guest(vm) => vm.news(deadline),
            Self::Host(host) => {
                let news = receive(&host.news, deadline);
                if let Some(News::Program(Event::Ended { id, .. })) = news {
                    // Its number may soon be another's.
                    host.running.remove(&id);
                }
                news
            }
        }
    }

    /// Why the machine went away.
    pub(crate) fn obituary(&mut self) -> String {
        match self {
            Self::Guest(vm) => vm.obituary(),
            Self::Host(_) => "the host went away".to_owned(),
        }
    }

    /// Ends the place in good order.
    pub(crate) fn close(self) {
        if let Self::Guest(vm) = self {
            vm.power_off();
        }
    }

    /// Runs one program to its end, at most for `timeout`, handing on what it prints.
    pub(crate) fn run(
        &mut self,
        program: Program,
        timeout: Option<Duration>,
        mut print: impl FnMut(Stream, &[u8]),
    ) -> Ending {
        // A number of its own, since a program that could not be ended may still be heard of.
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        self.start(id, program);
        let mut deadline = timeout.map(|timeout| Instant::now() + timeout);
        let mut verdict = None;
        loop {
            match self.news(deadline) {
                Some(News::Program(Event::Output { id: from, stream, bytes })) if from == id => print(stream, &bytes),
                Some(News::Program(Event::Ended { id: from, outcome })) if from == id => {
                    return verdict.unwrap_or(Ending::Ended(outcome));
                }
                Some(News::Program(Event::NotStarted { id: from, reason })) if from == id => {
                    return Ending::NotStarted(reason);
                }
                Some(News::Gone) => return Ending::MachineGone(self.obituary()),
                Some(News::Signal(signal)) if is_end(signal) => {
                    self.signal(id, signal);
                    deadline = Some(Instant::now() + GRACE);
                    verdict = Some(Ending::Interrupted(signal));
                }
                Some(_) => {}
                None => match verdict {
                    None => {
                        self.signal(id, signal_hook::consts::SIGKILL);
                        deadline = Some(Instant::now() + GRACE);
                        verdict = Some(Ending::TimedOut);
                    }
                    Some(Ending::TimedOut) => {
                        return Ending::MachineGone("the machine hangs: a program cannot even be killed".to_owned());
                    }
                    Some(verdict) => {
                        self.signal(id, signal_hook::consts::SIGKILL);
                        return verdict;
                    }
                },
            }
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // Whatever is left in a program's process group, and programs that nobody waits for.
        for running in self.running.values() {
            running.signal(signal_hook::consts::SIGKILL);
        }
    }
}

/// Whether this signal asks us to end.
pub(crate) fn is_end(signal: i32) -> bool {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    [SIGINT, SIGTERM, SIGHUP].contains(&signal)
}

/// Waits for news until `deadline`.
pub(crate) fn receive(news: &Receiver<News>, deadline: Option<Instant>) -> Option<News> {
    use std::sync::mpsc::RecvTimeoutError;
    match deadline {
        None => Some(news.recv().unwrap_or(News::Gone)),
        Some(deadline) => match news.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(news) => Some(news),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(News::Gone),
        },
    }
}

/// Turns the signals that a user sends into news, for as long as somebody listens.
///
/// # Errors
///
/// A signal cannot be caught.
pub(crate) fn forward_signals(tell: Sender<News>) -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGWINCH};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGWINCH])?;
    std::thread::spawn(move || {
        let mut ends = 0;
        for signal in signals.forever() {
            ends += i32::from(is_end(signal));
            // Asked for the third time, or with nobody left to ask, we end at once; QEMU goes with us.
            if tell.send(News::Signal(signal)).is_err() && is_end(signal) || ends > 2 {
                std::process::exit(128 + signal);
            }
        }
    });
    Ok(())
}
