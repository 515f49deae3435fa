//! Bandwidth and latency between two queue pairs of RC, UC or UD, as perftest measures them.

#![forbid(unsafe_code)]

mod agreement;
mod bandwidth;
mod completions;
mod end;
mod latency;
mod options;
mod progress;
mod receives;
mod record;
mod request;
mod row;
mod samples;
mod service;
mod size;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use examples::exchange::{Exchange, Role};
use examples::report;
use verbs::{Rc, Uc, Ud};

use agreement::swap;
use end::{End, Hello};
use options::{Goal, Operation, Options, Test};
use progress::Progress;
use receives::Receives;
use record::Record;
use request::Step;
use row::{Row, Share};
use service::{Connection, Service};

fn main() -> ExitCode {
    let options = Options::parse();
    report::run(|out| {
        options.check()?;
        match options.connection {
            Connection::Rc => run::<Rc>(&options, out),
            Connection::Uc => run::<Uc>(&options, out),
            Connection::Ud => run::<Ud>(&options, out),
        }
    })
}

fn run<T: Service>(options: &Options, out: &mut dyn Write) -> Result<()> {
    let timeout = Some(options.timeout());
    // The server is ready before anybody can ask for it. A client that cannot get ready tells the server so.
    let (mut exchange, end) = match &options.host {
        None => {
            let end = End::<T>::open(options)?;
            if !options.json {
                writeln!(out, "waiting for a client at TCP port {}", options.port)?;
                out.flush()?;
            }
            (Exchange::accept(options.port, options.timeout())?, Ok(end))
        }
        Some(host) => {
            let exchange = Exchange::connect(host, options.port, options.timeout())?;
            (exchange, End::open(options))
        }
    };
    let role = exchange.role();
    let ready = end.and_then(|end| Ok((end.hello(options)?, end)));
    let (hello, mut end) = match ready {
        Ok((hello, end)) => (hello, end),
        Err(error) => return swap::<Hello>(&mut exchange, Err(error), timeout).map(drop),
    };
    let (here, there) = swap(&mut exchange, Ok(hello), timeout)?;
    here.plan.must_equal(&there.plan)?;
    let (memory, mtu) = match end.connect(options, &there) {
        Ok(connected) => connected,
        Err(error) => return swap::<()>(&mut exchange, Err(error), timeout).map(drop),
    };
    let end = &end;
    let mut receives = Receives::post(end, if options.op == Operation::Send { options.rx_depth } else { 0 })?;
    let mut record = Record::new(options, end, role, mtu);
    if !options.json {
        record.print_head(out)?;
    }

    for size in options.sizes() {
        let mut test = |goal| measure(&mut exchange, end, &mut receives, options, Step { size, goal, memory });
        if options.warm_up > 0 {
            test(Goal::Iterations(options.warm_up))?;
        }
        record.add(test(options.goal())?);
    }
    if options.json { record.print_json(out) } else { record.print_table(out) }
}

/// Both ends run one test at the same time; both know the outcome.
fn measure<T: Service>(
    exchange: &mut Exchange,
    end: &End<T>,
    receives: &mut Receives<'_, T>,
    options: &Options,
    step: Step,
) -> Result<Row> {
    let Step { size, goal, .. } = step;
    let role = exchange.role();
    latency::doorstep(end, size).set(0);
    let counters = end.counters();
    swap(exchange, Ok(()), Some(options.timeout()))?;

    let progress = match role {
        Role::Client => Progress::start(size, goal, options.qps.into()),
        Role::Server => Progress::default(),
    };
    let client = role == Role::Client;
    let share = match options.test {
        Test::Lat => latency::run(end, receives, options, step, role, &progress),
        Test::Bw => {
            let sends = client || options.bidirectional;
            let receives_too = options.op == Operation::Send && (!client || options.bidirectional);
            let part = bandwidth::Part { sends, receives: receives_too };
            bandwidth::run(end, receives, options, step, &part, &progress)
        }
    };
    drop(progress);
    // An end that has nothing to do waits here until the other one is done, however long that takes.
    let (here, there): (Share, Share) = swap(exchange, share, None)?;
    let added = end.counters().wrapping_sub(counters);
    ensure!(
        options.op != Operation::Atomic || added == there.messages,
        "the peer's {} atomics have added {added} to this end's counters",
        there.messages
    );
    let (client, server) = if client { (here, there) } else { (there, here) };
    Row::new(options, size, &client, &server)
}
