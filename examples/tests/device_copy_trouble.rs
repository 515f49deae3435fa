//! `copy` when something goes wrong: ends that are killed, stopped or silent, disks that are full, files that change, and senders that lie.

mod by_hand;
mod folders;
mod programs;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use folders::{COPY, Folders, bytes, half_way, send_for_ever, text};
use programs::{LIMIT, Program, link_local, setting};

#[test]
fn the_receiver_hears_that_the_sender_was_killed_and_the_next_copy_continues() {
    let folders = Folders::new();
    let (receiver, sender) = half_way(&folders);
    sender.signal("KILL");
    let error = receiver.ended().error();
    // The kernel may take the memory of a process that dies away before it ends its connections (seen on 6.12).
    let ways =
        ["the peer has ended the connection before the copy was finished", "the peer cannot be reached any more"];
    assert!(ways.iter().any(|way| error.contains(way)), "{error}");
    assert_eq!(folders.names(), [".large.partial"]);
    let part = fs::metadata(folders.there(".large.partial")).unwrap().len();
    // A shorter file, so that the rest is soon there.
    let length = part + 1_000_000;
    fs::File::options().write(true).open(folders.here("large")).unwrap().set_len(length).unwrap();
    let (sent, received) = folders.copy("large", &[]);
    for output in [sent, received] {
        assert!(output.contains(": 1 files, 1000000 bytes in "), "{output}");
        assert!(output.contains(&format!("; {part} bytes were there: 0 whole files, 1 in part\n")), "{output}");
    }
    assert_eq!(folders.names(), ["large"]);
    let arrived = fs::read(folders.there("large")).unwrap();
    assert!(arrived[..1 << 18] == bytes(1 << 18) && arrived.len() as u64 == length);
    assert!(arrived[1 << 18..].iter().all(|byte| *byte == 0));
}

#[test]
fn the_sender_hears_that_the_receiver_was_killed() {
    let folders = Folders::new();
    let (receiver, sender) = half_way(&folders);
    receiver.signal("KILL");
    let error = sender.ended().error();
    assert!(
        error.contains("the peer has ended the connection") || error.contains("the peer cannot be reached any more"),
        "{error}"
    );
    assert_eq!(folders.names(), [".large.partial"]);
}

#[test]
fn an_end_that_is_only_slow_is_not_taken_for_dead() {
    let folders = Folders::new();
    let (mut receiver, mut sender) = half_way(&folders);
    for slow in [&receiver, &sender] {
        slow.signal("STOP");
        // Its device answers for it.
        thread::sleep(Duration::from_millis(1500));
        slow.signal("CONT");
    }
    let arrived = || fs::metadata(folders.there(".large.partial")).unwrap().len();
    let before = arrived();
    let deadline = Instant::now() + LIMIT;
    while arrived() == before {
        assert!(Instant::now() < deadline && receiver.is_running() && sender.is_running(), "nothing goes on");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_next_copy_continues_after_the_receiver_was_killed() {
    let folders = Folders::new();
    let (receiver, sender) = half_way(&folders);
    receiver.signal("KILL");
    sender.ended().error();
    drop(receiver);
    let part = fs::metadata(folders.there(".large.partial")).unwrap().len();
    let length = part + 500_000;
    fs::File::options().write(true).open(folders.here("large")).unwrap().set_len(length).unwrap();
    let (sent, received) = folders.copy("large", &[]);
    for output in [sent, received] {
        assert!(output.contains(": 1 files, 500000 bytes in "), "{output}");
        assert!(output.contains(&format!("; {part} bytes were there: 0 whole files, 1 in part\n")), "{output}");
    }
    assert_eq!(folders.names(), ["large"]);
    assert_eq!(fs::metadata(folders.there("large")).unwrap().len(), length);
}

#[test]
fn a_source_that_becomes_shorter_meanwhile_is_an_error_at_both_ends() {
    let folders = Folders::new();
    let (receiver, sender) = half_way(&folders);
    fs::File::options().write(true).open(folders.here("large")).unwrap().set_len(1 << 18).unwrap();
    let sent = sender.ended().error();
    assert!(sent.contains("large changed while it was copied: it had 1099511627776 bytes, and now has "), "{sent}");
    let received = receiver.ended().error();
    assert_eq!(received, format!("the sender gave up: {sent}"));
    assert_eq!(folders.names(), [".large.partial"], "it does not get its name");
}

/// What came and lies in the destination is another when the file has ended: a bad disk, or somebody else who writes there.
#[test]
fn a_file_whose_checksum_is_wrong_does_not_get_its_name() {
    let folders = Folders::new();
    let content = bytes(200_000);
    fs::write(folders.here("file"), &content).unwrap();
    // A sender made by hand, which ends the file with the checksum of another one.
    let (receiver, address) = folders.receiver();
    let error = by_hand::send(&address, b"file", &content);
    assert!(error.contains("file has another checksum than at the sender, after 200000 of 200000 bytes"), "{error}");
    assert_eq!(receiver.ended().error(), error);
    assert_eq!(folders.names(), [".file.partial"]);
    // It is not the beginning of what comes: it is sent again, and is right.
    fs::write(folders.there(".file.partial"), [&content[..100_000], &[0; 100_000]].concat()).unwrap();
    folders.copy("file", &[]);
    assert!(fs::read(folders.there("file")).unwrap() == content);
}

#[test]
fn a_sender_that_does_not_send_what_it_announced_is_refused() {
    let folders = Folders::new();
    for (requests, expected) in [
        (&[r#"{"Folder":{"path":[97]}}"#][..], "the sender says how much comes twice, or too late"),
        (&[by_hand::START, by_hand::START], "the sender says how much comes twice, or too late"),
        (&[by_hand::START, "\"Finish\""], "0 files of 0 bytes came, and others were announced"),
        (&[by_hand::START, by_hand::FILE, "\"Finish\""], "the sender goes on before the end of a file, or after it"),
        (&[by_hand::START, by_hand::FILE, by_hand::FILE], "the sender goes on before the end of a file, or after it"),
        (
            &[by_hand::START, by_hand::FILE, by_hand::FROM, by_hand::SHORT_END],
            "the sender sent 0 bytes of a file that it said has 5",
        ),
    ] {
        let (receiver, address) = folders.receiver();
        let error = by_hand::refused(&address, requests);
        assert!(error.contains(expected), "{requests:?}: {error}");
        assert_eq!(receiver.ended().error(), error, "{requests:?}");
    }
    assert_eq!(folders.names(), [""; 0]);
}

#[test]
fn a_disk_that_is_full_is_told_at_both_ends_and_what_fits_stays() {
    let folders = Folders::new();
    let disk = Mount::tmpfs(folders.there(""), "1m");
    fs::write(folders.here("file"), bytes(3 << 20)).unwrap();
    let (receiver, address) = folders.receiver();
    let sent = Program::start(COPY, &[text(&folders.here("file")), &address, "--chunk", "65536"]).ended().error();
    let received = receiver.ended().error();
    assert!(received.starts_with("cannot write file: ") && received.contains("No space left"), "{received}");
    assert_eq!(sent, format!("the receiver gave up: {received}"));
    assert_eq!(folders.names(), [".file.partial"]);
    drop(disk);
}

/// A file system of its own; gone when it is dropped.
struct Mount(PathBuf);

impl Mount {
    fn tmpfs(at: PathBuf, size: &str) -> Self {
        let options = format!("size={size}");
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&at).status().unwrap();
        assert!(status.success());
        Self(at)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn an_end_whose_peers_host_is_silent_gives_up() {
    let folders = Folders::new();
    // By the link-local address, which is that of one interface alone, they are at the two ends of the wire.
    let [at, to] = link_local().map(|address| {
        let (ip, netdev) = address.split_once('%').unwrap();
        let index = fs::read_to_string(format!("/sys/class/net/{netdev}/ifindex")).unwrap();
        format!("[{ip}%{}]", index.trim())
    });
    let (receiver, address) = folders.receiver_at(&format!("{at}:0"));
    let (_, port) = address.rsplit_once(':').unwrap();
    let sender = send_for_ever(&folders, &format!("{to}:{port}"));
    // From now on nothing goes out of either device, as if a cable were cut.
    let silence = ["RDMA_TEST_NETDEV", "RDMA_TEST_PEER_NETDEV"].map(|name| Silence::at(setting(name)));
    for end in [sender, receiver] {
        let error = end.ended().error();
        // Linux 6.12 may flush all requests without one that tells of the silence.
        let known =
            ["the peer cannot be reached any more: ", "the peer has ended the connection before the copy was finished"];
        assert!(known.iter().any(|words| error.contains(words)), "{error}");
    }
    drop(silence);
}

/// An interface that loses all that it is to send, until this is dropped.
struct Silence(String);

impl Silence {
    fn at(netdev: String) -> Self {
        let status = Command::new("tc")
            .args(["qdisc", "replace", "dev", &netdev, "root", "netem", "loss", "100%"])
            .status()
            .unwrap();
        assert!(status.success());
        Self(netdev)
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        let _ = Command::new("tc").args(["qdisc", "del", "dev", &self.0, "root"]).status();
    }
}
