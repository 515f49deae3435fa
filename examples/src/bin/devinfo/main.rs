//! What RDMA devices this machine has, as `ibv_devinfo` has it, and a doctor: what keeps RDMA from working here, and the remedy.

#![forbid(unsafe_code)]

mod details;
mod doctor;
mod fields;
mod inventory;
mod machine;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;
use examples::report;
use serde::Serialize;

use doctor::{Finding, Level};
use inventory::{Device, PortFacts};

/// Tells of the RDMA devices of this machine, and of what keeps RDMA from working.
///
/// Names of values are those of `ibv_devinfo`. The doctor has a remedy for each finding; if it finds a problem, the status is 1.
#[derive(Debug, Parser)]
struct Options {
    /// Only this device
    #[arg(short = 'd', long, value_name = "DEVICE")]
    ib_dev: Option<String>,

    /// Only this port of each device, from 1
    #[arg(short, long, value_name = "PORT")]
    ib_port: Option<u8>,

    /// Only the names of the devices
    #[arg(short, long, conflicts_with_all = ["verbose", "json"])]
    list: bool,

    /// All attributes of devices and ports, and all GIDs
    #[arg(short, long)]
    verbose: bool,

    /// All of it as JSON
    #[arg(long)]
    json: bool,
}

/// All that is reported.
#[derive(Serialize)]
struct Report {
    devices: Vec<Device>,
    doctor: Vec<Finding>,
}

fn main() -> ExitCode {
    let options = Options::parse();
    report::run(|out| run(&options, out))
}

fn run(options: &Options, out: &mut dyn Write) -> Result<()> {
    let found = verbs::devices();
    let wanted = |device: &verbs::Device| options.ib_dev.as_deref().is_none_or(|name| name == device.name());
    let handles: Vec<_> = found.iter().flat_map(|list| list.iter()).filter(wanted).collect();
    if options.list {
        for device in &handles {
            writeln!(out, "{}", device.name())?;
        }
        return Ok(found.and_then(|list| list.find(options.ib_dev.as_deref())).map(drop)?);
    }
    let devices: Vec<_> = handles.iter().map(|device| Device::of(device, options.ib_port)).collect();
    let ports: Vec<PortFacts> = devices.iter().flat_map(|device| device.facts.iter().cloned()).collect();
    let missing = found.and_then(|list| list.find(options.ib_dev.as_deref())).err();
    let unopened = devices.iter().filter_map(Device::refusal).collect();
    let silent = devices.iter().filter_map(Device::silence).collect();
    let machine = machine::Machine::look(missing.map(Into::into), unopened, silent);
    let report = Report { doctor: doctor::examine(&machine, &ports), devices };
    if options.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        print(&report, options.verbose, out)?;
    }
    out.flush()?;
    match report.doctor.iter().filter(|finding| finding.level == Level::Problem).count() {
        0 => Ok(()),
        1 => bail!("the doctor found 1 problem; its remedy is above"),
        count => bail!("the doctor found {count} problems; their remedies are above"),
    }
}

fn print(report: &Report, verbose: bool, out: &mut dyn Write) -> Result<()> {
    for device in &report.devices {
        device.print(verbose, out)?;
    }
    writeln!(out, "doctor:")?;
    for finding in &report.doctor {
        writeln!(out, "  {:8} {}: {}", finding.level.to_string(), finding.check, finding.finding)?;
        if let Some(remedy) = &finding.remedy {
            writeln!(out, "           remedy: {remedy}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_options_are_those_of_the_c_program() {
        Options::command().debug_assert();
        let options = Options::parse_from("devinfo -d rxe0 -i 2 -v".split(' '));
        assert_eq!((options.ib_dev.as_deref(), options.ib_port, options.verbose), (Some("rxe0"), Some(2), true));
        assert!(Options::parse_from(["devinfo", "-l"]).list);
    }
}
