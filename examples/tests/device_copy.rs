//! `copy` with itself: what arrives, what an interrupted copy leaves and how it is continued, and ends that misbehave or die.

mod by_hand;
mod programs;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use programs::{LIMIT, Program, cm_port, link_local, setting, wait_for_cm_listener};
use tempfile::TempDir;

const COPY: &str = env!("CARGO_BIN_EXE_copy");

/// Two folders, `here` and `there`.
struct Folders(TempDir);

impl Folders {
    fn new() -> Self {
        let folders = Self(tempfile::tempdir().unwrap());
        fs::create_dir(folders.here("")).unwrap();
        fs::create_dir(folders.there("")).unwrap();
        folders
    }

    fn here(&self, name: &str) -> PathBuf {
        self.0.path().join("here").join(name)
    }

    fn there(&self, name: &str) -> PathBuf {
        self.0.path().join("there").join(name)
    }

    fn receiver(&self) -> (Program, String) {
        self.receiver_at(&format!("{}:0", setting("RDMA_TEST_ADDRESS")))
    }

    fn receiver_at(&self, at: &str) -> (Program, String) {
        let mut receiver = Program::start(COPY, &["--listen", at, text(&self.there(""))]);
        let address = receiver.address();
        (receiver, address)
    }

    /// Copies, and returns what the sender and the receiver print.
    fn copy(&self, name: &str, options: &[&str]) -> (String, String) {
        let (receiver, address) = self.receiver();
        let source = self.here(name);
        let mut arguments = vec![text(&source), &address];
        arguments.extend(options);
        let sender = Program::start(COPY, &arguments).ended();
        let receiver = receiver.ended();
        assert!(sender.status.success() && receiver.status.success(), "{sender:?}\n{receiver:?}");
        (sender.stdout, receiver.stdout)
    }

    /// The names in the folder `there`.
    fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(self.there(""))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Bytes that are not the same at any two places.
fn bytes(length: usize) -> Vec<u8> {
    (0..length.div_ceil(4) as u32).flat_map(|i| i.wrapping_mul(0x9e37_79b1).to_le_bytes()).take(length).collect()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_folder_arrives_as_it_is() {
    let folders = Folders::new();
    let top = folders.here("top");
    fs::create_dir_all(top.join("a/b/c")).unwrap();
    fs::create_dir(top.join("empty")).unwrap();
    // None, one byte, a chunk, and one byte on either side of it.
    let sizes = [0, 1, 4095, 65535, 65536, 65537, 200_000];
    for size in sizes {
        fs::write(top.join(format!("a/b/c/{size}")), bytes(size)).unwrap();
    }
    for i in 0..60 {
        fs::write(top.join(format!("a/{i}")), bytes(i)).unwrap();
    }
    let long = "ä".repeat(127);
    fs::write(top.join(&long), b"the longest name").unwrap();
    fs::write(top.join("program"), b"#!/bin/sh\n").unwrap();
    chmod(&top.join("program"), 0o4755);
    chmod(&top.join("a/7"), 0o400);
    symlink("/etc/passwd", top.join("link")).unwrap();
    chmod(&top.join("a/b"), 0o555);

    let (sent, received) = folders.copy("top", &["--chunk", "65536", "--in-flight", "3"]);
    let total: usize = sizes.iter().sum::<usize>() + (0..60).sum::<usize>() + 16 + 10;
    let expected = format!("69 files, {total} bytes in ");
    assert!(sent.contains(&expected) && received.contains(&expected), "{sent}{received}");
    assert!(sent.contains("; every checksum is right; 1 skipped\n") && sent.starts_with("sent to "), "{sent}");
    assert!(received.ends_with("; every checksum is right; 1 skipped\n"), "{received}");
    let there = folders.there("top");
    for size in sizes {
        assert!(fs::read(there.join(format!("a/b/c/{size}"))).unwrap() == bytes(size), "{size}");
    }
    for i in 0..60 {
        assert_eq!(fs::read(there.join(format!("a/{i}"))).unwrap(), bytes(i));
    }
    assert_eq!(fs::read(there.join(&long)).unwrap(), b"the longest name");
    assert_eq!(fs::read_dir(there.join("empty")).unwrap().count(), 0);
    assert!(!there.join("link").exists(), "links are not sent");
    assert_eq!(mode(&there.join("program")), 0o755, "a peer makes no program run as somebody else");
    assert_eq!((mode(&there.join("a/7")), mode(&there.join("a/b"))), (0o400, 0o555));
    assert_eq!(fs::read_dir(there.join("a")).unwrap().count(), 61, "no part is left");

    // Once more: nothing has to be sent, but the one file that is another now.
    fs::write(top.join("a/59"), bytes(60).split_off(1)).unwrap();
    let (sent, _) = folders.copy("top", &[]);
    assert!(sent.starts_with("sent to ") && sent.contains(": 69 files, 59 bytes in "), "{sent}");
    let there_before = format!("; {} bytes were there: 66 whole files, 0 in part; 1 skipped\n", total - 59);
    assert!(sent.ends_with(&there_before), "{sent}");
    assert_eq!(fs::read(there.join("a/59")).unwrap(), bytes(60)[1..]);
}

#[test]
fn a_large_file_arrives_with_any_number_of_chunks_under_way() {
    let folders = Folders::new();
    let content = bytes((2 << 20) + 12345);
    fs::write(folders.here("file"), &content).unwrap();
    for options in [["-n", "1", "-c", "65536"], ["-n", "64", "-c", "131072"]] {
        let (sent, received) = folders.copy("file", &options);
        let expected = ": 1 files, 2109497 bytes in ";
        assert!(sent.contains(expected) && received.contains(expected), "{sent}{received}");
        assert!(fs::read(folders.there("file")).unwrap() == content, "{options:?}");
        assert_eq!(folders.names(), ["file"]);
        fs::remove_file(folders.there("file")).unwrap();
    }
}

#[test]
fn a_part_is_continued_if_it_is_how_the_file_begins_and_else_begun_again() {
    let folders = Folders::new();
    let content = bytes(300_000);
    fs::write(folders.here("file"), &content).unwrap();
    let part = folders.there(".file.partial");
    let mut other = content[..200_000].to_vec();
    other[100_000] ^= 1;
    let longer = [&content[..], b"more"].concat();
    for (there, sent) in
        [(&content[..200_000], 100_000), (&content[..], 0), (&other[..], 300_000), (&longer[..], 300_000)]
    {
        fs::write(&part, there).unwrap();
        let (output, _) = folders.copy("file", &[]);
        assert!(output.contains(&format!(": 1 files, {sent} bytes in ")), "{output}");
        assert!(fs::read(folders.there("file")).unwrap() == content);
        assert_eq!(folders.names(), ["file"]);
        fs::remove_file(folders.there("file")).unwrap();
    }
    // A file that is there is replaced by a whole one, or not at all.
    fs::write(folders.there("file"), bytes(300_001)).unwrap();
    folders.copy("file", &[]);
    assert!(fs::read(folders.there("file")).unwrap() == content);
}

/// A sparse file of which no machine copies all meanwhile, and a copy of it that is under way.
fn half_way(folders: &Folders) -> (Program, Program) {
    let (receiver, address) = folders.receiver();
    let sender = send_for_ever(folders, &address);
    (receiver, sender)
}

fn send_for_ever(folders: &Folders, address: &str) -> Program {
    let file = fs::File::create(folders.here("large")).unwrap();
    file.set_len(1 << 40).unwrap();
    (&file).write_all(&bytes(1 << 18)).unwrap();
    let sender = Program::start(COPY, &[text(&folders.here("large")), address, "--chunk", "65536"]);
    let deadline = Instant::now() + LIMIT;
    while fs::metadata(folders.there(".large.partial")).map_or(0, |metadata| metadata.len()) < 1 << 20 {
        assert!(Instant::now() < deadline, "nothing arrives");
        thread::sleep(Duration::from_millis(5));
    }
    sender
}

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
        assert!(error.contains("the peer cannot be reached any more: "), "{error}");
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

#[test]
fn at_a_terminal_there_is_a_bar_and_then_the_summary_alone() {
    let folders = Folders::new();
    fs::write(folders.here("file"), bytes(3 << 20)).unwrap();
    let (receiver, address) = folders.receiver();
    let command = format!("'{COPY}' '{}' {address} --chunk 65536", text(&folders.here("file")));
    let shown = Program::start("script", &["-qec", &command, "/dev/null"]).ended().success();
    assert!(shown.contains(" of 3.00 MiB, ") && shown.contains(" left  file"), "a bar: {shown:?}");
    let last = shown.rsplit_once("sent to ").unwrap().1;
    assert!(last.contains(": 1 files, 3145728 bytes in "), "{shown:?}");
    receiver.ended().success();
}

#[test]
fn a_copy_is_done_though_nobody_reads_what_the_ends_print() {
    let folders = Folders::new();
    fs::write(folders.here("file"), b"content").unwrap();
    let port = cm_port();
    let address = format!("{}:{port}", setting("RDMA_TEST_ADDRESS"));
    let receiver = Program::start_unread(COPY, &["--listen", &address, text(&folders.there(""))]);
    wait_for_cm_listener(port);
    Program::start_unread(COPY, &[text(&folders.here("file")), &address]).ended().success();
    receiver.ended().success();
    assert_eq!(fs::read(folders.there("file")).unwrap(), b"content");
}

#[test]
fn links_in_the_destination_lead_nowhere() {
    let folders = Folders::new();
    let outside = folders.0.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("victim"), b"untouched").unwrap();
    fs::create_dir(folders.here("top")).unwrap();
    fs::write(folders.here("top/victim"), b"overwritten").unwrap();
    fs::write(folders.here("victim"), b"overwritten").unwrap();
    let fails = |name: &str| {
        let (receiver, address) = folders.receiver();
        let sender = Program::start(COPY, &[text(&folders.here(name)), &address]).ended().error();
        let receiver = receiver.ended().error();
        assert_eq!(sender, format!("the receiver gave up: {receiver}"));
        receiver
    };
    symlink(&outside, folders.there("top")).unwrap();
    assert!(fails("top").contains("cannot write top: \"top\" is no folder of the destination"));
    symlink(outside.join("victim"), folders.there(".victim.partial")).unwrap();
    assert!(fails("victim").contains("the part that is there cannot be opened"));
    fs::remove_file(folders.there(".victim.partial")).unwrap();
    // A link with the name of the file is replaced, and not followed.
    symlink(outside.join("victim"), folders.there("victim")).unwrap();
    folders.copy("victim", &[]);
    assert!(fs::symlink_metadata(folders.there("victim")).unwrap().is_file());
    assert_eq!(fs::read(outside.join("victim")).unwrap(), b"untouched");
    assert_eq!(fs::read_dir(outside).unwrap().count(), 1);
}

#[test]
fn wrong_input_ends_soon_with_status_1_and_says_what_to_do() {
    let folders = Folders::new();
    fs::write(folders.here("file"), b"content").unwrap();
    let (file, ip) = (folders.here("file"), setting("RDMA_TEST_ADDRESS"));
    let error = |arguments: &[&str]| Program::start(COPY, arguments).ended().error();
    let nobody = error(&[text(&file), &format!("{ip}:1")]);
    assert!(nobody.contains("no receiver; start it first: copy --listen ADDRESS:PORT FOLDER: "), "{nobody}");
    assert!(error(&["/nowhere/at/all", &format!("{ip}:1")]).starts_with("cannot send /nowhere/at/all: "));
    assert!(error(&["--listen", &format!("{ip}:0"), text(&file)]).contains("has to be a folder that is there"));
    let chunk = error(&[text(&file), &format!("{ip}:1"), "--chunk", "1000"]);
    assert!(chunk.contains("it has 65536 to 67108864, in multiples of 4096"), "{chunk}");
    assert!(error(&["--listen", "192.0.2.250:0", text(&folders.there(""))]).contains("cannot listen at 192.0.2.250:0"));

    // A folder where the file is to be.
    fs::create_dir_all(folders.there("file/inside")).unwrap();
    let (receiver, address) = folders.receiver();
    let sender = error(&[text(&file), &address]);
    assert!(sender.contains("the receiver gave up: cannot give file its name: "), "{sender}");
    assert!(receiver.ended().error().contains("cannot give file its name: "));
}

#[test]
fn a_stranger_is_refused_and_the_receiver_goes_on_waiting() {
    let folders = Folders::new();
    fs::write(folders.here("file"), b"content").unwrap();
    let (receiver, address) = folders.receiver();
    let refused = cm::connect(&address).unwrap_err();
    let cm::Error::Rejected { rejection, .. } = &refused else { panic!("{refused}") };
    let said = String::from_utf8_lossy(&rejection.private_data);
    assert!(said.starts_with("the peer is not this program, or another version of it\0"), "{said}");
    Program::start(COPY, &[text(&folders.here("file")), &address]).ended().success();
    assert!(receiver.ended().stderr.starts_with("not accepted: the peer is not this program"));
    assert_eq!(fs::read(folders.there("file")).unwrap(), b"content");
}
