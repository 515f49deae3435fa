//! What programs hold of the devices: looked at before and after a test binary, so that none leaves anything behind.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use crate::place::{Ending, Place};
use crate::process::{Input, Program, Stream};
use crate::workspace;

/// Prints the objects of all devices, a line each.
const SHOW: &str =
    "for kind in pd cq qp mr cm_id ctx srq; do echo resource show $kind; done | rdma --batch /proc/self/fd/0";

/// How long the kernel may take to clear up after a program that has ended.
const CLEARING_UP: Duration = Duration::from_secs(5);

/// How long it may take to tell.
const TO_LOOK: Duration = Duration::from_secs(30);

/// The objects that programs hold, by their names: the lines that `rdma` shows of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Objects(BTreeMap<String, String>);

impl Objects {
    /// Those that are in what `rdma` shows. Of an object that the kernel itself holds (queue pair 1, for example) no process is told.
    fn parse(text: &str) -> Self {
        let objects = text.lines().filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let process = words.windows(2).find(|pair| pair[0] == "pid")?;
            // Which device or port, and which number; the rest changes as the object is used.
            let name = words.get(..4)?.join(" ");
            Some((format!("{name} {}", process[1]), words.join(" ")))
        });
        Self(objects.collect())
    }

    /// Looks at the devices of a place, with this environment.
    fn show(place: &mut Place, environment: &[(std::ffi::OsString, std::ffi::OsString)]) -> Result<Self, String> {
        let program = Program {
            path: "sh".into(),
            arguments: vec!["-c".into(), SHOW.into()],
            environment: environment.to_vec(),
            folder: "/".into(),
            input: Input::Null,
        };
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let ending = place.run(program, Some(TO_LOOK), |stream, bytes| match stream {
            Stream::Output => output.extend_from_slice(bytes),
            Stream::Error => errors.extend_from_slice(bytes),
        });
        match ending {
            Ending::Ended(outcome) if outcome.success() => Ok(Self::parse(&String::from_utf8_lossy(&output))),
            Ending::Ended(outcome) => Err(format!("{outcome}: {}", String::from_utf8_lossy(&errors).trim())),
            other => Err(format!("{other:?}")),
        }
    }

    /// Those that are not in `before`.
    fn more_than(&self, before: &Self) -> Vec<&str> {
        let new = self.0.iter().filter(|(name, _)| !before.0.contains_key(*name));
        new.map(|(_, line)| line.as_str()).collect()
    }
}

/// Watches the devices of a place.
#[derive(Debug)]
pub(crate) struct Watch {
    environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    before: Result<Objects, String>,
    patience: Duration,
}

impl Watch {
    /// Notes what there is before a test binary.
    pub(crate) fn begin(place: &mut Place) -> Self {
        Self::begin_with(place, workspace::environment(), CLEARING_UP)
    }

    fn begin_with(
        place: &mut Place,
        environment: Vec<(std::ffi::OsString, std::ffi::OsString)>,
        patience: Duration,
    ) -> Self {
        let before = Objects::show(place, &environment);
        Self { environment, before, patience }
    }

    /// What is wrong after the test binary: an object that was not there before, and does not go away. `None`: nothing is.
    pub(crate) fn end(self, place: &mut Place) -> Option<String> {
        let before = match self.before {
            Ok(before) => before,
            Err(problem) => return Some(format!("what is on the devices cannot be looked at: {problem}")),
        };
        let deadline = Instant::now() + self.patience;
        loop {
            match Objects::show(place, &self.environment) {
                Err(problem) => return Some(format!("what is left on the devices cannot be looked at: {problem}")),
                Ok(after) => match after.more_than(&before).as_slice() {
                    [] => return None,
                    left if Instant::now() >= deadline => {
                        return Some(format!(
                            "left on the devices: {} objects\n    {}",
                            left.len(),
                            left.join("\n    ")
                        ));
                    }
                    _ => thread::sleep(Duration::from_millis(100)),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use tempfile::TempDir;

    use super::super::run_watched;
    use super::*;

    const KERNELS: &str = "dev rxe0 pdn 0 local_dma_lkey 0x1ce users 1 comm [ib_core] \n\
        dev rxe0 cqn 0 cqe 1023 users 2 poll-ctx WORKQUEUE adaptive-moderation off comm [ib_core] \n\
        link rxe0/1 lqpn 1 type GSI state RTS sq-psn 0 comm [ib_core] \n";

    const OURS: &str = "dev rxe0 pdn 1 local_dma_lkey 0x0 users 2 ctxn 0 pid 132 comm device-0123 \n\
        link rxe0/1 lqpn 17 rqpn 0 type RC state INIT rq-psn 0 sq-psn 0 path-mig-state MIGRATED pdn 1 pid 132 comm device-0123 \n\
        dev rxe0 mrn 0 rkey 0x0 lkey 0x2b5 mrlen 4096 pdn 1 pid 132 comm device-0123 \n\
        link rxe0/1 cm-idn 2 lqpn 0 qp-type RC state LISTEN ps TCP pid 132 comm device-0123 src-addr 192.0.2.1:7471 \n\
        dev rxe0 ctxn 0 pid 132 comm device-0123 \n";

    #[test]
    fn what_the_kernel_holds_itself_does_not_count() {
        assert_eq!(Objects::parse(KERNELS), Objects::default());
        let objects = Objects::parse(&format!("{KERNELS}{OURS}"));
        assert_eq!(objects.0.len(), 5);
        assert_eq!(objects.more_than(&Objects::default()).len(), 5);
    }

    #[test]
    fn an_object_is_the_same_whatever_its_state_and_another_one_for_another_process() {
        let before = Objects::parse(OURS);
        assert!(
            Objects::parse(&OURS.replace("INIT", "RTS").replace("users 2", "users 7")).more_than(&before).is_empty()
        );
        let other = Objects::parse(&OURS.replace("pid 132", "pid 133"));
        assert_eq!(other.more_than(&before).len(), 5);
    }

    /// A folder with an `rdma` that shows what is in the file `objects` there, and what the kernel holds itself.
    fn fake() -> (TempDir, Vec<(OsString, OsString)>) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("objects"), KERNELS).unwrap();
        let script = format!(
            "#!/bin/sh\n[ \"$*\" = '--batch /proc/self/fd/0' ] || exit 2\ncat > {0}/asked\ncat {0}/objects\n",
            folder.path().display()
        );
        let path = folder.path().join("rdma");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", folder.path().display());
        (folder, vec![("PATH".into(), path.into())])
    }

    /// A test binary that passes, and runs a line of shell besides.
    fn binary(folder: &Path, line: &str) -> Program {
        let script =
            format!("{line}\necho 'test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out'");
        Program {
            path: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
            folder: folder.to_owned(),
            input: Input::Null,
        }
    }

    #[test]
    fn a_test_binary_that_leaves_objects_fails_by_name_though_its_tests_passed() {
        let (folder, environment) = fake();
        let mut place = Place::host().unwrap();
        let mut run = |line: String, patience| {
            let watch = Watch::begin_with(&mut place, environment.clone(), Duration::from_millis(patience));
            run_watched(&mut place, "host", "verbs: device", binary(folder.path(), &line), None, Some(watch)).unwrap()
        };
        let clean = run("true".to_owned(), 0);
        assert!(clean.success(), "{clean:?}");
        assert_eq!(
            fs::read_to_string(folder.path().join("asked")).unwrap().lines().collect::<Vec<_>>(),
            ["pd", "cq", "qp", "mr", "cm_id", "ctx", "srq"].map(|kind| format!("resource show {kind}"))
        );
        // What goes away soon is no fault.
        let soon = "cp objects before; echo dev rxe0 ctxn 4 pid 7 comm device >> objects; (sleep 0.3; mv before objects) > log 2>&1 &";
        let cleared = run(soon.to_owned(), 20_000);
        assert!(cleared.success(), "{cleared:?}");
        let row = run(format!("printf '{}' >> objects", OURS.replace('\n', "\\n")), 150);
        assert!(!row.success());
        assert_eq!((row.name.as_str(), row.counts.passed, row.counts.failed), ("verbs: device", 3, 0));
        let problem = row.problem.unwrap();
        for left in ["pdn 1", "lqpn 17", "mrn 0", "cm-idn 2", "ctxn 0", "comm device-0123"] {
            assert!(problem.contains(left), "{problem}");
        }
        assert!(problem.starts_with("left on the devices: 5 objects\n") && !problem.contains("ib_core"), "{problem}");
        // The next one does not answer for it.
        let next = run("true".to_owned(), 0);
        assert!(next.success(), "{next:?}");
        // One that fails for another reason is told of both.
        let both = run("echo dev rxe0 ctxn 9 pid 8 comm device >> objects; exit 3".to_owned(), 0);
        let problem = both.problem.unwrap();
        assert!(problem.starts_with("exit status 3; left on the devices: 1 objects\n    dev rxe0 ctxn 9"), "{problem}");
    }

    #[test]
    fn devices_that_cannot_be_looked_at_are_a_failure() {
        let (folder, environment) = fake();
        fs::remove_file(folder.path().join("objects")).unwrap();
        let mut place = Place::host().unwrap();
        let watch = Watch::begin_with(&mut place, environment, Duration::ZERO);
        let problem = watch.end(&mut place).unwrap();
        assert!(problem.starts_with("what is on the devices cannot be looked at: exit status 1: cat:"), "{problem}");
    }
}
