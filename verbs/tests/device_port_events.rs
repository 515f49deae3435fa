//! Asynchronous events of ports, on a device of `rdma_rxe` that is made for these tests, since they take its link down.

mod harness;

use std::os::fd::{AsFd, AsRawFd};
use std::time::Instant;

use verbs::*;

use harness::link::Link;
use harness::*;

/// The next event of a type; others before it are passed over.
fn event(context: &Context, event_type: AsyncEventType) -> AsyncEvent {
    let deadline = Instant::now() + LIMIT;
    let mut others = Vec::new();
    loop {
        let time = deadline.saturating_duration_since(Instant::now());
        match context.async_event(Some(time)).unwrap() {
            Some(event) if event.event_type() == event_type => return event,
            Some(other) => others.push(other),
            None => panic!("{event_type} did not come, but {others:?}"),
        }
    }
}

#[test]
fn a_link_that_goes_down_and_up_again_is_told_with_its_port() {
    let link = Link::new("evl");
    let context = link.open();
    assert_eq!(context.port(1).unwrap().state(), PortState::ACTIVE);
    link.interface("ip link set DEV down");
    let down = event(&context, AsyncEventType::PORT_ERROR);
    assert_eq!(down.source(), AsyncEventSource::Port(1));
    assert_eq!(down.to_string(), "port error, port 1");
    assert_eq!(context.port(1).unwrap().state(), PortState::DOWN);
    link.interface("ip link set DEV up");
    assert_eq!(event(&context, AsyncEventType::PORT_ACTIVE).source(), AsyncEventSource::Port(1));
    assert_eq!(context.port(1).unwrap().state(), PortState::ACTIVE);
}

#[test]
fn an_address_that_comes_and_goes_changes_the_gid_table_of_the_port() {
    let link = Link::new("evg");
    let context = link.open();
    while context.try_async_event().unwrap().is_some() {}
    let has = |address: &str| {
        let gid: Gid = address.parse().unwrap();
        context.gid_table(1).unwrap().iter().any(|entry| entry.gid == gid)
    };
    for (what, there) in [("add", true), ("del", false)] {
        link.interface(&format!("ip address {what} 192.0.2.201/32 dev DEV"));
        let deadline = Instant::now() + LIMIT;
        // The table has others that come and go, and an event for each.
        loop {
            assert_eq!(event(&context, AsyncEventType::GID_CHANGE).source(), AsyncEventSource::Port(1));
            if has("192.0.2.201") == there {
                break;
            }
            assert!(Instant::now() < deadline);
        }
    }
}

#[test]
fn each_context_of_a_device_has_the_event_and_its_descriptor_is_readable() {
    let link = Link::new("evc");
    let contexts = [link.open(), link.open()];
    link.interface("ip link set DEV down");
    for context in &contexts {
        let mut poll = libc::pollfd { fd: context.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `poll` is one structure and outlives the call.
        assert_eq!(unsafe { libc::poll(&mut poll, 1, LIMIT.as_millis() as i32) }, 1);
        assert_eq!(event(context, AsyncEventType::PORT_ERROR).source(), AsyncEventSource::Port(1));
    }
}
