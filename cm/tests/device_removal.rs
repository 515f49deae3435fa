//! A device that goes away under its connections. It has a process of its own, since the device's context stays open as long as that.

mod harness;

use std::process::Command;
use std::thread;

use cm::*;

use harness::*;

/// Runs a command that has to succeed.
fn run(command: &str) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_listener_and_a_connection_are_told_that_their_device_is_gone() {
    run("ip link add cm0 type veth peer name cm1");
    run("ip address add 192.0.2.65/30 dev cm0");
    run("ip link set cm0 up");
    run("ip link set cm1 up");
    run("rdma link add rxecm type rxe netdev cm0");
    let listener = Listener::bind("192.0.2.65:7471").unwrap();
    let (client, server) = thread::scope(|scope| {
        let server = scope.spawn(|| listener.accept().unwrap());
        let client = options().connect("192.0.2.65:7471").unwrap();
        (client, server.join().unwrap())
    });
    let member = EventChannel::create().unwrap().create_id(PortSpace::UDP).unwrap();
    member.bind("192.0.2.65:0".parse().unwrap()).unwrap();
    let membership = member.join_multicast("239.1.2.30".parse().unwrap(), MulticastRole::Full).unwrap();
    // It ends when this process does, and with it lets go of the device.
    let removal = Command::new("sh").args(["-c", "rdma link delete rxecm; ip link delete cm0"]).spawn().unwrap();
    thread::scope(|scope| {
        // The kernel tells it once.
        let waiting: Vec<_> = (0..2).map(|_| scope.spawn(|| listener.next_request(Some(LIMIT)))).collect();
        for thread in waiting {
            let error = thread.join().unwrap();
            assert!(matches!(error, Err(Error::DeviceRemoved)), "{error:?}");
        }
    });
    let error = listener.next_request(None);
    assert!(matches!(error, Err(Error::DeviceRemoved)), "{error:?}");
    let all: Vec<_> = listener.incoming().collect();
    assert!(matches!(all[..], [Err(Error::DeviceRemoved)]), "{all:?}");
    for end in [&client, &server] {
        let error = end.wait_disconnected(Some(LIMIT));
        assert!(matches!(error, Err(Error::DeviceRemoved) | Ok(true)), "{error:?}");
        let again = end.wait_disconnected(None);
        assert_eq!(again.is_ok(), error.is_ok(), "{again:?}");
    }
    drop((client, server, listener));
    // That the group was joined waits to be told, of a membership that the kernel does not end any more. librdmacm would forget it all the
    // same, and then look in it for whose event it is.
    let limit = std::time::Instant::now() + LIMIT;
    while member.queue_pair_modification(verbs::QueuePairState::INIT).map_err(|error| error.raw_os_error()).err()
        != Some(Some(libc::ENXIO))
    {
        assert!(std::time::Instant::now() < limit, "the removal does not reach the member");
        thread::sleep(std::time::Duration::from_millis(20));
    }
    let key = membership.key();
    assert_eq!(membership.leave().unwrap_err().raw_os_error(), Some(libc::ENXIO));
    match event(&member) {
        EventKind::MulticastJoin { membership, .. } => assert_eq!(membership, key),
        other => panic!("{other}"),
    }
    assert!(matches!(event(&member), EventKind::DeviceRemoval));
    drop(member);
    let error = options().connect("192.0.2.65:7471").unwrap_err();
    assert!(matches!(error, Error::AddressUnresolved { errno: libc::ENODEV, .. }), "{error}");
    drop(removal);
}
