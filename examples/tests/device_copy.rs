//! `copy` with itself: what arrives, what is continued, and what is refused.

mod folders;
mod programs;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use folders::{COPY, Folders, bytes, text};
use programs::{Program, cm_port, setting, wait_for_cm_listener};

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
