//! `one_sided` with several clients at once, with clients that die, and without a server.

mod programs;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use programs::{Ended, LIMIT, Program, setting};
use verbs::{AccessFlags, RemoteSlice, SendRequest, WorkCompletion};

const ONE_SIDED: &str = env!("CARGO_BIN_EXE_one_sided");

fn server(options: &[&str]) -> (Program, String) {
    let at = format!("{}:0", setting("RDMA_TEST_ADDRESS"));
    let mut server = Program::start(ONE_SIDED, &[&["serve", &at], options].concat());
    let address = server.address();
    (server, address)
}

/// Runs a client.
fn client(words: &[&str]) -> Ended {
    Program::start(ONE_SIDED, words).ended()
}

/// How far the counters of `stress` have come, all together.
fn counted(address: &str, keys: u32) -> u64 {
    let counts = (0..keys).map(|key| {
        let value = client(&["get", address, &format!("counter-{key}")]).success();
        u64::from_str_radix(&value[..8], 16).unwrap()
    });
    counts.sum()
}

#[test]
fn four_clients_lose_no_update_and_read_nothing_torn() {
    let (server, address) = server(&["--slots", "8", "--clients", "6"]);
    let stress = ["stress", &address, "--keys", "2", "--updates", "60", "--patience", "30"];
    let clients: Vec<Program> = (0..4).map(|_| Program::start(ONE_SIDED, &stress)).collect();
    let outputs: Vec<String> = clients.into_iter().map(|client| client.ended().success()).collect();
    assert!(outputs.iter().all(|output| output.starts_with("60 updates and reads in ")), "{outputs:?}");
    assert_eq!(counted(&address, 2), 240);
    let served = server.ended().success();
    assert_eq!(served.matches(" has come, from ").count(), 6, "{served}");
    assert_eq!(served.matches(" has gone, and left 0 locks").count(), 6, "{served}");
}

/// How long a process has had a processor, in hundredths of a second.
fn processor_time(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/stat")).unwrap();
    // The name, in parentheses, may have spaces; utime and stime are the 14th and the 15th field of all.
    let fields = status.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
    fields.map(|field| field.parse::<u64>().unwrap()).sum()
}

#[test]
fn the_servers_processor_sleeps_while_clients_work() {
    let (mut server, address) = server(&[]);
    // The one client makes the server register the table; the others find it idle.
    client(&["put", &address, "key", "value"]).success();
    server.wait_for_line("client 1 has gone");
    let mut client = Program::start(ONE_SIDED, &["stress", &address, "--updates", "300", "--patience", "30"]);
    // Numbers are given again.
    server.wait_for_line("client 1 has come");
    let (before, start) = (processor_time(server.id()), Instant::now());
    assert!(client.wait_for_line("300 updates and reads in ").contains(" of each a second"));
    let (used, elapsed) = (processor_time(server.id()) - before, start.elapsed());
    // A server that worked for each of 1,200 or more requests, or polled, would have taken a good part of the time.
    assert!(used as u128 <= 5.max(elapsed.as_millis() / 10 / 10), "{used} hundredths of a second in {elapsed:?}");
}

#[test]
fn keys_are_put_got_added_to_and_removed() {
    let (mut server, address) = server(&["--slots", "3"]);
    let run = |words: &[&str]| client(&[&words[..1], &[&address], &words[1..]].concat());
    assert_eq!(run(&["put", "name", "a value"]).success(), "");
    assert_eq!(run(&["get", "name"]).success(), "a value\n");
    assert_eq!(run(&["add", "number", "7"]).success(), "7\n");
    assert_eq!(run(&["add", "number", "-10"]).success(), "-3\n");
    assert_eq!(run(&["add", "name", "1"]).error(), "the value of the key is no number");
    assert_eq!(run(&["delete", "name"]).success(), "");
    assert_eq!(run(&["delete", "name"]).error(), "the table has no key \"name\"");
    run(&["put", "third", "x"]).success();
    assert!(run(&["put", "fourth", "x"]).error().contains("the table is full; start the server with more --slots"));
    assert_eq!(run(&["put", "name", "again"]).success(), "", "a key that was removed has its slot still");
    assert!(run(&["put", &"k".repeat(33), "x"]).error().contains("a key has 1 to 32 bytes, and this one 33"));
    assert!(run(&["put", "name", &"v".repeat(73)]).error().contains("a value has at most 72 bytes, and this one 73"));
    assert!(server.is_running());
}

/// Locks the only slot of a table by hand, as a client does that then dies.
fn lock_the_slot(address: &str) -> cm::Connection {
    let connection = cm::connect(address).unwrap();
    let word = |index: usize| u64::from_ne_bytes(connection.private_data()[index * 8..][..8].try_into().unwrap());
    let table = RemoteSlice::new(word(2), word(3), word(4) as u32).unwrap();
    let (version, number) = (1 << 16, word(1));
    let region = connection.protection_domain().register(vec![0; 8], AccessFlags::LOCAL_WRITE).unwrap();
    let old = [region.slice(..).unwrap()];
    let request = SendRequest::compare_and_swap(1, &old, table, version, version | number).signaled();
    connection.queue_pair().post_send(&request).unwrap();
    let mut completions = [WorkCompletion::default(); 1];
    connection.completion_queue().wait(&mut completions, Some(LIMIT)).unwrap()[0].success().unwrap();
    assert_eq!(region.to_vec(..).unwrap(), u64::to_ne_bytes(version), "version 1, not locked");
    connection
}

#[test]
fn the_lock_of_a_client_that_has_gone_is_taken_back_and_readers_never_wait_for_it() {
    let (server, address) = server(&["--slots", "1", "--clients", "6"]);
    client(&["put", &address, "key", "old"]).success();
    let holder = lock_the_slot(&address);
    assert_eq!(client(&["get", &address, "key"]).success(), "old\n");
    let start = Instant::now();
    let refused = client(&["put", &address, "key", "new", "--patience", "1"]).error();
    assert!(refused.contains(" has locked the key, and does not let go"), "{refused}");
    assert!(start.elapsed() > Duration::from_secs(1));
    let waiting = Program::start(ONE_SIDED, &["put", &address, "key", "new", "--patience", "60"]);
    // It would do no harm if this were too short: then it has nothing to wait for.
    thread::sleep(Duration::from_millis(500));
    drop(holder);
    waiting.ended().success();
    assert_eq!(client(&["get", &address, "key"]).success(), "new\n");
    let served = server.ended().success();
    assert_eq!(served.matches(" has gone, and left 1 locks").count(), 1, "{served}");
}

#[test]
fn a_client_that_is_killed_leaves_a_table_with_which_the_others_go_on() {
    let (mut server, address) = server(&[]);
    let start = |updates| {
        Program::start(ONE_SIDED, &["stress", &address, "--keys", "1", "--updates", updates, "--patience", "30"])
    };
    let killed = start("1000000");
    assert!(server.line().starts_with("client 1 has come, from "));
    // It is in the midst of an update, and may have the lock.
    thread::sleep(Duration::from_millis(300));
    killed.signal("KILL");
    start("50").ended().success();
    assert!(counted(&address, 1) >= 50);
}

#[test]
fn clients_hear_that_the_server_was_killed() {
    let (mut server, address) = server(&[]);
    let clients: Vec<Program> =
        (0..2).map(|_| Program::start(ONE_SIDED, &["stress", &address, "--updates", "1000000"])).collect();
    assert!((0..2).all(|_| server.line().contains(" has come, from ")));
    server.signal("KILL");
    for client in clients {
        let error = client.ended().error();
        assert!(
            error.contains("the server has gone") || error.contains("the server cannot be reached any more"),
            "{error}"
        );
    }
    let refused = client(&["get", &address, "key"]).error();
    assert!(refused.contains("start the server first: one_sided serve ADDRESS:PORT"), "{refused}");
}
