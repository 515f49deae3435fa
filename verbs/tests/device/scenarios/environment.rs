//! Devices that are not there or cannot be opened, and GIDs that lead nowhere. To hide them takes root's rights, as they are in the
//! virtual machine.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use verbs::*;

use super::works;
use crate::harness::link::{Link, run};
use crate::harness::*;

/// Runs a function in a thread of its own, which sees file systems of its own and, if it is told so, a network of its own.
fn apart<T: Send + 'static>(what: i32, function: impl FnOnce() -> T + Send + 'static) -> T {
    let thread = thread::spawn(move || {
        // SAFETY: no memory is passed.
        let code = unsafe { libc::unshare(what | libc::CLONE_NEWNS) };
        assert_eq!(code, 0, "{}", std::io::Error::last_os_error());
        run("mount --make-rprivate /");
        function()
    });
    thread.join().unwrap()
}

/// Gives the calling thread a folder of nodes of its own, and does something to one of them.
fn own_nodes(what: &str, node: &Path) {
    let copy = std::env::temp_dir().join("nodes");
    let copy = copy.display();
    run(&format!("rm -rf {copy}"));
    run(&format!("cp -a /dev/infiniband {copy}"));
    run("mount -t tmpfs none /dev/infiniband");
    run(&format!("cp -a {copy}/. /dev/infiniband"));
    run(&format!("{what} {}", node.display()));
}

#[test]
fn a_device_that_may_not_be_opened_is_named_with_its_node_and_the_others_work() {
    apart(0, || {
        let peer = devices().unwrap().find(Some(&setting("RDMA_TEST_PEER_DEVICE"))).unwrap();
        own_nodes("chmod 0", &peer.node());
        be_nobody();
        let list = devices().unwrap();
        assert!([peer.name(), &device_name()].iter().all(|name| list.find(Some(name)).is_ok()), "{list:?}");
        let error = list.find(Some(peer.name())).unwrap().open().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EACCES), "{error}");
        let text = error.to_string();
        assert!(text.contains(peer.name()) && text.contains(peer.node().to_str().unwrap()), "{text}");
        assert!(text.contains("this user may not open the node"), "{text}");
        let (a, b) = pair();
        works(&a, &b);
    });
}

#[test]
fn a_device_whose_node_is_not_in_the_container_is_missed_by_the_nodes_name_and_the_others_work() {
    apart(0, || {
        let peer = devices().unwrap().find(Some(&setting("RDMA_TEST_PEER_DEVICE"))).unwrap();
        own_nodes("rm", &peer.node());
        let list = devices().unwrap();
        // Some releases of libibverbs list the device all the same.
        let error = list.find(Some(peer.name())).and_then(|device| device.open()).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(peer.node().to_str().unwrap()) && text.contains("is not there: "), "{text}");
        assert!(text.contains("load ib_uverbs, or pass /dev/infiniband into the container"), "{text}");
        let (a, b) = pair();
        works(&a, &b);
        // And without any node.
        run("mount -t tmpfs none /dev/infiniband");
        let text = devices().and_then(|list| list.find(None)?.open()).unwrap_err().to_string();
        assert!(text.contains("pass /dev/infiniband into the container"), "{text}");
        assert!(!text.contains("install ibverbs-providers"), "{text}");
    });
}

#[test]
fn a_device_that_opens_is_no_error_whatever_errno_holds() {
    // As a user who may not do everything, for whom libibverbs tries what fails and leaves the error number behind.
    apart(0, || {
        be_nobody();
        for _ in 0..10 {
            open();
        }
    });
}

/// Lets each network namespace have its own devices, as long as this lives.
struct Exclusive;

impl Exclusive {
    fn set(mode: &str) {
        // A namespace that has just ended is taken apart a moment later, and until then the mode cannot be changed.
        let deadline = Instant::now() + LIMIT;
        let attempt = || std::process::Command::new("rdma").args(["system", "set", "netns", mode]).status().unwrap();
        while !attempt().success() {
            assert!(Instant::now() < deadline, "rdma system set netns {mode}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        Self::set("shared");
    }
}

#[test]
fn a_kernel_with_rdma_and_without_a_device_has_an_empty_list_and_says_how_to_get_one() {
    Exclusive::set("exclusive");
    let exclusive = Exclusive;
    apart(libc::CLONE_NEWNET, || {
        run("mount -t sysfs sysfs /sys");
        assert!(Path::new("/sys/class/infiniband").is_dir());
        let list = devices().unwrap();
        assert!(list.is_empty(), "{list:?}");
        let text = list.find(None).unwrap_err().to_string();
        assert!(text.starts_with("no RDMA device; ") && text.contains("rdma link add rxe0 type rxe"), "{text}");
    });
    drop(exclusive);
    open();
}

#[test]
fn gid_index_0_is_taken_only_when_asked_for_and_named_when_it_leads_nowhere() {
    let link = Link::new("gid");
    link.interface("ip address add 192.0.2.203/32 dev DEV");
    let side = Side::on(link.open());
    let deadline = Instant::now() + LIMIT;
    let chosen = loop {
        let chosen = side.local().gid.unwrap();
        if !chosen.gid.is_link_local() {
            break chosen;
        }
        assert!(Instant::now() < deadline, "{chosen:?}");
    };
    assert_eq!((chosen.gid.to_string().as_str(), chosen.gid_type), ("::ffff:192.0.2.203", GidType::ROCE_V2));
    assert_ne!(chosen.index, 0);
    let local = side.qp.local_endpoint_with_gid_index(1, 0).unwrap();
    let first = local.gid.unwrap();
    assert!(first.index == 0 && first.gid.is_link_local(), "{first:?}");
    // The interface loses the address that the first entry stands for.
    link.interface("ip -6 address flush dev DEV");
    let start = Instant::now();
    let result = side.qp.connect(&local, &local.endpoint, &options());
    assert!(start.elapsed() < LIMIT);
    let error = result.unwrap_err();
    // No route, or one on which nobody answers.
    assert!(matches!(error.raw_os_error(), Some(libc::ENETUNREACH | libc::ETIMEDOUT)), "{error}");
    assert!(error.to_string().contains(&format!("local GID index 0 ({})", first.gid)), "{error}");
    // The queue pair is as it was, and connects by the entry that is chosen.
    let local = side.local();
    side.qp.connect(&local, &local.endpoint, &options()).unwrap();
}
