//! What is compared: one operation, one service, one figure, one size.

/// How many requests are under way in a test of bandwidth.
pub(crate) const DEPTH: u32 = 128;
/// Every how many requests one is signaled, where messages are small; larger ones are all signaled, which is perftest's habit.
pub(crate) const INTERVAL: u32 = 64;
const SMALL: u64 = 8192;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Gbit/s: more is better.
    Bandwidth,
    /// The median in microseconds: less is better.
    Latency,
}

/// The transport service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    Rc,
    Uc,
    Ud,
}

/// A row of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) op: &'static str,
    pub(crate) connection: Connection,
    /// Whether receives are taken from a shared queue.
    pub(crate) srq: bool,
    pub(crate) figure: Figure,
    pub(crate) size: u64,
    /// How many messages a run has on an emulated device.
    pub(crate) iterations: u64,
}

/// The sizes, and how many messages of them a run has: of bandwidth, of latency.
const SIZES: [(u64, u64, u64); 4] = [(64, 2000, 1000), (4096, 1000, 500), (65536, 200, 100), (1 << 20, 30, 20)];
const QUICK_SIZES: [usize; 2] = [0, 2];

/// The rows of the other services, which are few: what they have in common with RC is compared there. A datagram is of one packet, and
/// 1024 bytes fit into one wherever the interface's MTU is the usual one.
const UNRELIABLE: [Case; 4] = [
    Case { connection: Connection::Uc, ..rc("write", Figure::Bandwidth, 64, 2000) },
    Case { connection: Connection::Uc, ..rc("write", Figure::Bandwidth, 65536, 200) },
    Case { connection: Connection::Ud, ..rc("send", Figure::Latency, 64, 1000) },
    Case { connection: Connection::Ud, ..rc("send", Figure::Latency, 1024, 500) },
];

/// Atomic operations, which are of 8 bytes, and messages that a shared receive queue takes.
const OTHERS: [Case; 4] = [
    rc("atomic", Figure::Bandwidth, 8, 2000),
    rc("atomic", Figure::Latency, 8, 1000),
    Case { srq: true, ..rc("send", Figure::Bandwidth, 64, 2000) },
    Case { srq: true, ..rc("send", Figure::Latency, 64, 1000) },
];

const fn rc(op: &'static str, figure: Figure, size: u64, iterations: u64) -> Case {
    Case { op, connection: Connection::Rc, srq: false, figure, size, iterations }
}

/// All rows, or those for a glance.
pub(crate) fn all(quick: bool) -> Vec<Case> {
    let mut cases = Vec::new();
    for figure in [Figure::Bandwidth, Figure::Latency] {
        for op in ["send", "write", "read"] {
            for (index, (size, bandwidth, latency)) in SIZES.into_iter().enumerate() {
                if !quick || QUICK_SIZES.contains(&index) {
                    let iterations = if figure == Figure::Bandwidth { bandwidth } else { latency };
                    cases.push(rc(op, figure, size, iterations));
                }
            }
        }
    }
    cases.extend(UNRELIABLE.into_iter().filter(|case| !quick || case.size == SIZES[0].0));
    cases.extend(OTHERS);
    cases
}

impl Figure {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Bandwidth => "bw",
            Self::Latency => "lat",
        }
    }

    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Bandwidth => "Gbit/s",
            Self::Latency => "µs",
        }
    }

    /// Whether a ratio, ours divided by perftest's, is as good as perftest or better. What is printed has two digits.
    pub(crate) fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::Bandwidth => ratio >= 0.995,
            Self::Latency => ratio < 1.005,
        }
    }
}

impl Connection {
    /// What both programs' `-c` takes.
    pub(crate) fn letters(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
        }
    }
}

impl Case {
    /// As `write_lat`, or `uc_write_bw` where it is not RC's, or `srq_send_bw`.
    pub(crate) fn test(&self) -> String {
        let srq = if self.srq { "srq_" } else { "" };
        let test = format!("{srq}{}_{}", self.op, self.figure.word());
        match self.connection {
            Connection::Rc => test,
            other => format!("{}_{test}", other.letters().to_lowercase()),
        }
    }

    /// As `write_lat 4k`.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.test(), size(self.size))
    }

    /// Every how many requests one is signaled.
    fn interval(&self) -> u32 {
        if self.size > SMALL { 1 } else { INTERVAL }
    }

    /// perf's arguments beyond device, MTU, port and peer.
    pub(crate) fn ours(&self, iterations: u64) -> Vec<String> {
        let mut words = vec![self.op.to_owned(), self.figure.word().to_owned(), "--json".to_owned()];
        words.extend(["-s".to_owned(), self.size.to_string()]);
        words.extend(self.shared(iterations));
        words
    }

    /// perftest's program and its arguments beyond device, GID, MTU, port and peer.
    pub(crate) fn theirs(&self, iterations: u64) -> (String, Vec<String>) {
        let mut words = vec!["-F".to_owned()];
        // Atomics have one size, and it takes none for them.
        if self.op != "atomic" {
            words.extend(["-s".to_owned(), self.size.to_string()]);
        }
        words.extend(self.shared(iterations));
        if !matches!(self.op, "read" | "atomic") {
            words.extend(["-I".to_owned(), "0".to_owned()]);
        }
        (format!("ib_{}_{}", self.op, self.figure.word()), words)
    }

    /// What both are given in the same words.
    fn shared(&self, iterations: u64) -> Vec<String> {
        let mut words = vec!["-n".to_owned(), iterations.to_string()];
        if self.connection != Connection::Rc {
            words.extend(["-c".to_owned(), self.connection.letters().to_owned()]);
        }
        if self.srq {
            words.push("--use-srq".to_owned());
        }
        if self.figure == Figure::Bandwidth {
            words.extend(["-t".to_owned(), DEPTH.to_string(), "-Q".to_owned(), self.interval().to_string()]);
        }
        words
    }
}

/// As `64`, `4k`, `1m`.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes % (1 << 20) == 0 => format!("{}m", bytes >> 20),
        _ if bytes % (1 << 10) == 0 => format!("{}k", bytes >> 10),
        _ => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_row_for_each_program_and_size() {
        let names: Vec<String> = all(false).iter().map(Case::name).collect();
        assert_eq!(names.len(), 32);
        for program in ["send_bw", "write_bw", "read_bw", "send_lat", "write_lat", "read_lat"] {
            for size in ["64", "4k", "64k", "1m"] {
                assert!(names.contains(&format!("{program} {size}")), "{program} {size}");
            }
        }
        for name in
            ["uc_write_bw 64", "uc_write_bw 64k", "ud_send_lat 64", "ud_send_lat 1k", "atomic_lat 8", "srq_send_bw 64"]
        {
            assert!(names.iter().any(|other| other == name), "{name}");
        }
        assert_eq!(all(true).len(), 18);
    }

    #[test]
    fn both_programs_are_given_the_same_test() {
        let case = rc("write", Figure::Bandwidth, 64, 10);
        assert_eq!(case.ours(20).join(" "), "write bw --json -s 64 -n 20 -t 128 -Q 64");
        let (program, words) = case.theirs(20);
        assert_eq!((program.as_str(), words.join(" ").as_str()), ("ib_write_bw", "-F -s 64 -n 20 -t 128 -Q 64 -I 0"));
        let large = Case { size: 65536, ..case };
        assert!(large.ours(5).join(" ").ends_with("-Q 1") && large.theirs(5).1.join(" ").contains("-Q 1 "));
        let latency = Case { op: "read", figure: Figure::Latency, size: 4096, ..case };
        assert_eq!(latency.ours(5).join(" "), "read lat --json -s 4096 -n 5");
        assert_eq!(latency.theirs(5).1.join(" "), "-F -s 4096 -n 5");
        let datagram = Case { op: "send", connection: Connection::Ud, ..latency };
        assert_eq!(datagram.ours(5).join(" "), "send lat --json -s 4096 -n 5 -c UD");
        assert_eq!(datagram.theirs(5).1.join(" "), "-F -s 4096 -n 5 -c UD -I 0");
        let atomic = rc("atomic", Figure::Latency, 8, 5);
        assert_eq!(atomic.ours(5).join(" "), "atomic lat --json -s 8 -n 5");
        assert_eq!(atomic.theirs(5), ("ib_atomic_lat".to_owned(), ["-F", "-n", "5"].map(str::to_owned).into()));
        let shared = Case { srq: true, ..rc("send", Figure::Latency, 64, 5) };
        assert_eq!(shared.ours(5).join(" "), "send lat --json -s 64 -n 5 --use-srq");
    }

    #[test]
    fn a_goal_is_met_as_the_figure_is_printed() {
        assert!(Figure::Bandwidth.is_met(1.0) && Figure::Bandwidth.is_met(0.996) && !Figure::Bandwidth.is_met(0.99));
        assert!(Figure::Latency.is_met(1.0) && Figure::Latency.is_met(0.5) && !Figure::Latency.is_met(1.01));
    }
}
