//! `run`: an example, both ends of it, on the device.

mod recipe;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

pub(crate) use recipe::Recipe;
use recipe::{Port, recipes};

use crate::device::{Choice, Devices};
use crate::flags;
use crate::place::{News, Place, is_end};
use crate::process::{Event, Input, Outcome, Program, Stream};
use crate::say;
use crate::setup::{self, Needs};
use crate::vm::{Interrupted, Vm};
use crate::workspace::{self, Message, Workspace};

/// The package whose programs are run.
const PACKAGE: &str = "examples";
/// How long a server may take to listen; the client is started then all the same.
const LISTEN_DEADLINE: Duration = Duration::from_secs(20);
/// How long one end may go on when the other has ended.
const GRACE: Duration = Duration::from_secs(10);

const SERVER: u32 = 1;
const CLIENT: u32 = 2;
/// Waits for the server's port.
const WAITER: u32 = 3;

/// `run`
///
/// # Errors
///
/// There is no such example, it does not build, or the machine does not boot or dies.
pub(crate) fn run(flags: &flags::Run) -> Result<i32> {
    let workspace = Workspace::find()?;
    let recipes = recipes(&workspace);
    let Some(recipe) = recipes.get(&flags.example) else {
        let mut names: Vec<&str> = recipes.keys().map(String::as_str).collect();
        names.sort_unstable();
        bail!("there is no example {}; there are: {}", flags.example, names.join(", "));
    };
    setup::ensure(Needs::TO_RUN)?;
    let [server_program, client_program] = match &recipe.programs {
        Some([server, client]) => [build(server, &workspace)?, build(client, &workspace)?],
        None => {
            let program = build(&flags.example, &workspace)?;
            [program.clone(), program]
        }
    };
    let options = flags.machine.vm.options(&workspace);
    let deadline = flags.machine.vm.limit(None).map(|timeout| Instant::now() + timeout);
    let line =
        |words: &Option<Vec<String>>, devices: &Devices| recipe.line(words.as_deref(), &flags.arguments, devices);
    if flags.two_hosts {
        let devices = Devices::in_two_guests();
        let (Some(server), Some(client)) = (line(&recipe.server, &devices)?, line(&recipe.client, &devices)?) else {
            bail!("{} has no second end: leave out --two-hosts", flags.example);
        };
        say!("device: rxe0 in each of two virtual machines on a wire, since --two-hosts asks for it");
        let [one, other] = Vm::boot_two(&options)?;
        let places = vec![Place::Guest(Box::new(one)), Place::Guest(Box::new(other))];
        let ends = vec![end("server", server, &server_program)?, end("client", client, &client_program)?];
        return Session { places, port: recipe.listens_at(), deadline }.run(ends);
    }
    let choice = Choice::make(flags.machine.on.as_ref(), options)?;
    let devices = choice.devices();
    let ends = match (line(&recipe.server, &devices)?, line(&recipe.client, &devices)?) {
        (Some(server), Some(client)) => {
            vec![end("server", server, &server_program)?, end("client", client, &client_program)?]
        }
        _ => vec![end("", line(&recipe.single, &devices)?.unwrap_or_default(), &server_program)?],
    };
    Session { places: vec![choice.open()?], port: recipe.listens_at(), deadline }.run(ends)
}

/// Builds an example and tells where it is.
///
/// # Errors
///
/// It does not build.
pub(crate) fn build(example: &str, workspace: &Workspace) -> Result<PathBuf> {
    let arguments = ["build", "--release", "--package", PACKAGE, "--bin", example].map(str::to_owned);
    let messages = workspace::build(&arguments, &workspace.root)?;
    let found = messages.into_iter().find_map(|message| match message {
        Message::CompilerArtifact { target, executable: Some(path), .. } if target.name == example => Some(path),
        _ => None,
    });
    found.context("cargo built no program")
}

fn end(name: &'static str, arguments: Vec<OsString>, program: &Path) -> Result<(&'static str, Program)> {
    let folder = std::env::current_dir().context("finding the current folder")?;
    let environment = workspace::environment();
    Ok((name, Program { path: program.into(), arguments, environment, folder, input: Input::Null }))
}

/// A run of one or both ends, in one place or in two.
struct Session {
    places: Vec<Place>,
    port: Option<Port>,
    deadline: Option<Instant>,
}

impl Session {
    fn run(mut self, ends: Vec<(&'static str, Program)>) -> Result<i32> {
        let mut printer = Printer::new(&ends);
        for (name, program) in &ends {
            let words: Vec<String> =
                program.arguments.iter().map(|word| crate::step::quote(&word.to_string_lossy())).collect();
            let name = if name.is_empty() { String::new() } else { format!("{name}: ") };
            say!("{name}{} {}", Path::new(&program.path).display(), words.join(" "));
        }
        let mut ends = ends.into_iter();
        let (_, server) = ends.next().context("an end to start")?;
        let mut waiting = ends.next().map(|(_, client)| client);
        let waiter = self.port.filter(|_| waiting.is_some()).map(|port| wait_for(port, &server));
        let count = 1 + usize::from(waiting.is_some());
        self.places[0].start(SERVER, server);
        let mut listen_deadline = Instant::now() + LISTEN_DEADLINE;
        match waiter {
            Some(waiter) => self.places[0].start(WAITER, waiter),
            None => listen_deadline = Instant::now() + Duration::from_secs(1),
        }
        let mut outcomes: HashMap<u32, Outcome> = HashMap::new();
        let mut grace = None;
        let result = loop {
            if let Some(client) = waiting.take_if(|_| Instant::now() >= listen_deadline) {
                self.places.last_mut().context("a place")?.start(CLIENT, client);
            }
            let news = self.next(waiting.is_some().then_some(listen_deadline), grace);
            match news {
                Some((_, News::Program(Event::Output { id: WAITER, .. } | Event::NotStarted { id: WAITER, .. }))) => {}
                Some((_, News::Program(Event::Ended { id: WAITER, .. }))) => listen_deadline = Instant::now(),
                Some((_, News::Program(Event::Output { id, stream, bytes }))) => printer.print(id, stream, &bytes),
                Some((_, News::Program(Event::Ended { id, outcome }))) => {
                    printer.end(id);
                    outcomes.insert(id, outcome);
                    if id == SERVER && waiting.is_some() {
                        break Err(anyhow::anyhow!("the server ended before the client was started ({outcome})"));
                    }
                    if outcomes.len() == count {
                        break Ok(());
                    }
                    grace = Some(Instant::now() + GRACE);
                }
                Some((_, News::Program(Event::NotStarted { reason, .. }))) => {
                    break Err(anyhow::anyhow!("the program cannot be started: {reason}"));
                }
                Some((_, News::Signal(signal))) if is_end(signal) => break Err(Interrupted(signal).into()),
                Some((index, News::Gone)) => break Err(anyhow::anyhow!("{}", self.places[index].obituary())),
                Some(_) => {}
                None if grace.is_some_and(|grace| Instant::now() >= grace) => {
                    let (left, ended) =
                        if outcomes.contains_key(&SERVER) { ("client", "server") } else { ("server", "client") };
                    break Err(anyhow::anyhow!(
                        "the {left} was still running {GRACE:?} after the end of the {ended}, and was ended"
                    ));
                }
                None if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) => {
                    break Err(anyhow::anyhow!("not finished within the --timeout: ended"));
                }
                None => {}
            }
        };
        printer.flush();
        for place in self.places {
            place.close();
        }
        for (id, outcome) in &outcomes {
            if !outcome.success() {
                say!("{}: {outcome}", printer.name(*id));
            }
        }
        // An error on one end is the cause of whatever the other one did.
        let worst = outcomes.values().map(|outcome| outcome.code()).max().unwrap_or_default();
        match result {
            Err(error) if worst != 0 && !error.is::<Interrupted>() => {
                say!("{error:#}");
                Ok(worst)
            }
            result => result.map(|()| worst),
        }
    }

    /// The next news of any place, with the place's index.
    fn next(&mut self, listen: Option<Instant>, grace: Option<Instant>) -> Option<(usize, News)> {
        let deadline = [listen, grace, self.deadline].into_iter().flatten().min();
        if let [place] = &mut self.places[..] {
            return place.news(deadline).map(|news| (0, news));
        }
        loop {
            for (index, place) in self.places.iter_mut().enumerate() {
                if let Some(news) = place.news(Some(Instant::now() + Duration::from_millis(5))) {
                    return Some((index, news));
                }
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return None;
            }
        }
    }
}

/// A program that ends once somebody listens on `port`.
fn wait_for(port: Port, like: &Program) -> Program {
    let script = match port {
        // The local address, no remote one, and the state LISTEN.
        Port::Tcp(port) => until(&format!("grep -qsE ':{port:04X} [0-9A-F]+:0000 0A' /proc/net/tcp /proc/net/tcp6")),
        Port::Cm(port) => {
            let listens = format!("rdma resource show cm_id | grep -qE 'state LISTEN .*:{port}( |$)'");
            // Where there is no such command, a little while has to do.
            format!("command -v rdma >/dev/null || exec sleep 1; {}", until(&listens))
        }
    };
    Program { path: "/bin/sh".into(), arguments: vec!["-c".into(), script.into()], input: Input::Null, ..like.clone() }
}

/// A script that ends once a command succeeds.
fn until(command: &str) -> String {
    format!("until {command}; do sleep 0.05; done")
}

/// Puts the end's name before each line of what it prints.
struct Printer {
    names: Vec<&'static str>,
    colour: bool,
    partial: HashMap<(u32, bool), Vec<u8>>,
}

impl Printer {
    fn new(ends: &[(&'static str, Program)]) -> Self {
        let names = ends.iter().map(|(name, _)| *name).collect();
        Self { names, colour: std::io::stdout().is_terminal(), partial: HashMap::new() }
    }

    fn name(&self, id: u32) -> &'static str {
        self.names.get(id as usize - 1).copied().filter(|name| !name.is_empty()).unwrap_or("the program")
    }

    fn print(&mut self, id: u32, stream: Stream, bytes: &[u8]) {
        let error = stream == Stream::Error;
        if self.names.len() == 1 {
            write(error, bytes);
            return;
        }
        let mut rest = self.partial.remove(&(id, error)).unwrap_or_default();
        rest.extend(bytes);
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=at).collect();
            self.line(id, error, &line);
        }
        self.partial.insert((id, error), rest);
    }

    fn line(&self, id: u32, error: bool, line: &[u8]) {
        let name = self.names[id as usize - 1];
        let mut text = if self.colour {
            format!("\x1b[{}m{name}|\x1b[0m ", if id == SERVER { 36 } else { 35 }).into_bytes()
        } else {
            format!("{name}| ").into_bytes()
        };
        text.extend(line);
        write(error, &text);
    }

    /// The program has ended: a last line without its end is one all the same.
    fn end(&mut self, id: u32) {
        for error in [false, true] {
            if let Some(mut line) = self.partial.remove(&(id, error)).filter(|line| !line.is_empty()) {
                line.push(b'\n');
                self.line(id, error, &line);
            }
        }
    }

    fn flush(&mut self) {
        for id in [SERVER, CLIENT] {
            self.end(id);
        }
    }
}

fn write(error: bool, bytes: &[u8]) {
    // A reader that is gone is no reason to stop the run.
    let _ = if error {
        std::io::stderr().write_all(bytes)
    } else {
        let mut output = std::io::stdout().lock();
        output.write_all(bytes).and_then(|()| output.flush())
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_waits_for_a_port_of_tcp_or_of_the_connection_manager() {
        let server = Program {
            path: "/x".into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: "/".into(),
            input: Input::Null,
        };
        let script = |recipe: &Recipe| {
            let port = recipe.listens_at()?;
            Some(wait_for(port, &server).arguments[1].to_string_lossy().into_owned())
        };
        let tcp = script(&Recipe { port: Some(18515), ..Recipe::default() }).unwrap();
        assert!(tcp.starts_with("until grep -qsE ':4853 "), "{tcp}");
        let cm = script(&Recipe { cm_port: Some(7174), ..Recipe::default() }).unwrap();
        assert!(cm.contains("grep -qE 'state LISTEN .*:7174( |$)'"), "{cm}");
        assert_eq!(script(&Recipe::default()), None);
    }
}
