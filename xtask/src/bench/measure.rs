//! Runs both ends of a program, and reads what it says.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use super::case::{Case, Figure};
use crate::device::{Device, Devices};
use crate::place::{Ending, Place};
use crate::process::{Input, Program, Stream};
use crate::say;
use crate::step::quote;
use crate::vm::Interrupted;
use crate::workspace;

/// Where the ends find each other.
const PORT: u16 = 18519;
/// How long one run may take.
const LIMIT: Duration = Duration::from_secs(120);
/// How often a run that fails is tried. perftest now and then measures nothing on an emulated device.
const ATTEMPTS: u32 = 3;

/// Starts the server, waits until it listens, runs the client; prints what the client prints, and after a line with this what the
/// server does. Words: the port in hexadecimal digits, the server's command, the client's. The shell does all by itself: starting a
/// program takes long on an emulated processor.
const BOTH: &str = r#"
out=/tmp/xtask-bench.$$
trap 'rm -f $out' EXIT
show() { while IFS= read -r line; do printf '%s\n' "$line"; done <"$out"; }
listens() {
    for file in /proc/net/tcp /proc/net/tcp6; do
        while read -r _ address _ state _; do
            case $address,$state in *":$1,0A") return 0 ;; esac
        done <"$file"
    done 2>/dev/null
    return 1
}
eval "exec $2" >"$out" 2>&1 &
server=$!
until listens "$1"; do
    kill -0 $server 2>/dev/null || { show >&2; exit 1; }
done
(eval "exec $3")
status=$?
[ $status = 0 ] || kill $server 2>/dev/null
wait $server || [ $status != 0 ] || status=1
echo "=== server"
show
exit $status
"#;

/// What perf says of the device, at one end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) device: String,
    pub(crate) link_layer: String,
    pub(crate) gid_index: Option<u32>,
    pub(crate) gid_type: Option<String>,
    pub(crate) mtu: u32,
}

/// What one pair of runs measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Pair {
    pub(crate) ours: f64,
    pub(crate) theirs: f64,
}

/// Runs both programs in one place.
pub(crate) struct Measurer<'a> {
    place: &'a mut Place,
    devices: Devices,
    program: String,
    factor: u64,
    /// Both ends' records: the server's, the client's.
    records: Option<[Record; 2]>,
}

impl<'a> Measurer<'a> {
    /// Runs `program`, our own, and perftest on `devices`, with `factor` times as many messages as the cases say.
    pub(crate) fn new(place: &'a mut Place, devices: Devices, program: &Path, factor: u64) -> Self {
        Self { place, devices, program: program.to_string_lossy().into_owned(), factor, records: None }
    }

    /// What the device is like. It is found by a short run.
    pub(crate) fn record(&mut self) -> Result<Record> {
        let words = ["send", "bw", "--json", "-s", "64", "-n", "100"].map(str::to_owned);
        let text = self.run(&self.program.clone(), &words, [&[], &[]])?;
        let (client, server) = text.split_once("=== server").context("the server printed nothing")?;
        let read = |text: &str| serde_json::from_str::<Record>(text).context("reading what perf says of the device");
        let client = read(client)?;
        self.records = Some([read(server)?, client.clone()]);
        Ok(client)
    }

    /// The kernel's release.
    pub(crate) fn kernel(&mut self) -> Result<String> {
        Ok(self.sh("uname -r", &[])?.trim().to_owned())
    }

    /// Runs each program `count` times, in turn.
    pub(crate) fn pairs(&mut self, case: &Case, count: u32) -> Result<Vec<Pair>> {
        let mut pairs = Vec::new();
        for index in 0..count {
            // Who goes first changes, so that neither gains by it.
            let (ours, theirs);
            if index % 2 == 0 {
                ours = self.figure(case, true)?;
                theirs = self.figure(case, false)?;
            } else {
                theirs = self.figure(case, false)?;
                ours = self.figure(case, true)?;
            }
            pairs.push(Pair { ours, theirs });
        }
        Ok(pairs)
    }

    fn figure(&mut self, case: &Case, ours: bool) -> Result<f64> {
        let mut attempt = 1;
        loop {
            match self.measure(case, ours) {
                Err(error) if attempt < ATTEMPTS && !error.is::<Interrupted>() => {
                    say!("{}: {error:#}; once more", case.name());
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    fn measure(&mut self, case: &Case, ours: bool) -> Result<f64> {
        let [server, client] = self.records.clone().context("the device is not yet known")?;
        let mtu = ["-m".to_owned(), server.mtu.min(client.mtu).to_string()];
        let iterations = case.iterations * self.factor;
        if ours {
            let mut words = case.ours(iterations);
            words.extend(mtu);
            let text = self.run(&self.program.clone(), &words, [&[], &[]])?;
            return our_figure(&text, case.figure);
        }
        let (program, mut words) = case.theirs(iterations);
        words.extend(mtu);
        // perftest has to be told the GID.
        let gid = |record: &Record| {
            let index = record.gid_index.filter(|_| record.link_layer == "Ethernet");
            index.map(|index| vec!["-x".to_owned(), index.to_string()]).unwrap_or_default()
        };
        let text = self.run(&program, &words, [&gid(&server), &gid(&client)])?;
        their_figure(&text, case.size).with_context(|| format!("{program} printed no figure:\n{text}"))
    }

    /// Runs both ends, each with `words` and its own more, and returns what they printed.
    fn run(&mut self, program: &str, words: &[String], more: [&[String]; 2]) -> Result<String> {
        let Devices { first, peer } = &self.devices;
        let peer: &Device = peer.as_ref().unwrap_or(first);
        let address = first.address.clone().unwrap_or_else(|| "127.0.0.1".to_owned());
        let command = |device: &Device, more: &[String], host: Option<&String>| {
            let port = PORT.to_string();
            let place = ["-d", &device.name, "-p", &port].map(str::to_owned);
            let all = words.iter().chain(&place).chain(more).chain(host);
            [quote(program)].into_iter().chain(all.map(|word| quote(word))).collect::<Vec<_>>().join(" ")
        };
        let (server, client) = (command(first, more[0], None), command(peer, more[1], Some(&address)));
        let text = self.sh(BOTH, &[&format!("{PORT:04X}"), &server, &client]);
        text.with_context(|| format!("both ends of `{server}`, the client with {address}"))
    }

    fn sh(&mut self, script: &str, words: &[&str]) -> Result<String> {
        let arguments: Vec<OsString> = ["-c", script, "sh"].iter().chain(words).map(OsString::from).collect();
        let folder = std::env::current_dir().context("finding the current folder")?;
        let environment = workspace::environment();
        let program = Program { path: "/bin/sh".into(), arguments, environment, folder, input: Input::Null };
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let ending = self.place.run(program, Some(LIMIT), |stream, bytes| match stream {
            Stream::Output => output.extend_from_slice(bytes),
            Stream::Error => errors.extend_from_slice(bytes),
        });
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match ending {
            Ending::Ended(outcome) if outcome.success() => Ok(text(&output)),
            Ending::Ended(outcome) => bail!("{outcome}\n{}{}", text(&output), text(&errors)),
            Ending::TimedOut => bail!("not finished after {} s", LIMIT.as_secs()),
            Ending::NotStarted(reason) | Ending::MachineGone(reason) => bail!("{reason}"),
            Ending::Interrupted(signal) => Err(Interrupted(signal).into()),
        }
    }
}

/// The figure in perf's JSON.
fn our_figure(text: &str, figure: Figure) -> Result<f64> {
    let client = text.split("=== server").next().unwrap_or_default();
    let json: serde_json::Value = serde_json::from_str(client).context("reading perf's figures")?;
    let row = &json["results"][0];
    let value = match figure {
        Figure::Bandwidth => &row["gbit_per_s"],
        Figure::Latency => &row["latency_us"]["median"],
    };
    positive(value.as_f64()).context("perf printed no figure")
}

/// The figure in perftest's table: in the line below its head, in the column of that name.
fn their_figure(text: &str, size: u64) -> Option<f64> {
    let client = text.split("=== server").next()?;
    let mut lines = client.lines();
    let head = lines.by_ref().find(|line| line.trim_start().starts_with("#bytes"))?;
    let row: Vec<&str> = lines.next()?.split_whitespace().collect();
    if row.first()?.parse() != Ok(size) {
        return None;
    }
    let cell = |index: usize| positive(row.get(index)?.parse().ok());
    // The heads have units in brackets, without a space before them.
    if !head.contains("BW average[MB/sec]") {
        return cell(4);
    }
    // Of MiB/s it prints two decimals, of millions of messages a second six: the one that has more digits that matter.
    match cell(3) {
        Some(mebibytes) if mebibytes >= 10.0 => Some(mebibytes * f64::from(1 << 20) * 8.0 / 1e9),
        _ => cell(4).map(|millions| millions * 1e6 * size as f64 * 8.0 / 1e9),
    }
}

/// perftest now and then prints 0.00, or that it measured nothing at all.
fn positive(value: Option<f64>) -> Option<f64> {
    value.filter(|value| value.is_finite() && *value > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BANDWIDTH: &str = "\
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 64         500              0.63               0.57   		   0.009417
---------------------------------------------------------------------------------------
=== server
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 64         500              0.00               0.00   		   0.000000
";
    const LARGE: &str = "\
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 65536      100              41.16              15.01  		   0.000240
";
    const LATENCY: &str = "\
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec] 
 64      500          31.36          11113.73      230.76   	       1729.68     	1932.90		7074.09 		11113.73
";

    #[test]
    fn perftests_tables_are_read_at_the_client() {
        let near = |figure: Option<f64>, expected: f64| (figure.unwrap() / expected - 1.0).abs() < 1e-9;
        assert!(near(their_figure(BANDWIDTH, 64), 9417.0 * 64.0 * 8.0 / 1e9));
        assert!(near(their_figure(LARGE, 65536), 15.01 * 1_048_576.0 * 8.0 / 1e9));
        assert_eq!(their_figure(LATENCY, 64), Some(230.76));
    }

    #[test]
    fn what_is_no_figure_is_none() {
        assert_eq!(their_figure(BANDWIDTH, 65536), None);
        for wrong in ["0.000000", "-nan", "nan", "inf", "-1.0", "fast"] {
            assert_eq!(their_figure(&BANDWIDTH.replace("0.009417", wrong), 64), None, "{wrong}");
            assert_eq!(their_figure(&LATENCY.replace("230.76", wrong), 64), None, "{wrong}");
        }
        assert_eq!(their_figure("Couldn't connect to 192.0.2.1:18519\n", 64), None);
        assert_eq!(their_figure(" #bytes #iterations    BW peak[MB/sec]\n", 64), None);
        assert_eq!(their_figure("", 64), None);
    }

    #[test]
    fn our_json_is_read_at_the_client() {
        let bandwidth = r#"{"results": [{"size": 64, "gbit_per_s": 1.5}]}
=== server
{"results": [{"size": 64, "gbit_per_s": 9}]}"#;
        assert_eq!(our_figure(bandwidth, Figure::Bandwidth).unwrap(), 1.5);
        let latency = r#"{"results": [{"size": 64, "latency_us": {"min": 1.0, "median": 2.5}}]}"#;
        assert_eq!(our_figure(latency, Figure::Latency).unwrap(), 2.5);
        for wrong in ["", "error", r#"{"results": []}"#, r#"{"results": [{"gbit_per_s": 0.0}]}"#] {
            assert!(our_figure(wrong, Figure::Bandwidth).is_err(), "{wrong}");
        }
    }
}
