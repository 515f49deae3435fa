//! `rdma_getaddrinfo`.

use cm::*;

use crate::harness::*;

#[test]
fn hosts_and_services_have_addresses_in_their_port_space() {
    let text = ip().to_string();
    let mut hints = AddressHints::default();
    hints.numeric_host = true;
    let found = address_info(Some(&text), Some("7471"), &hints).unwrap();
    assert_eq!(found[0].destination, Some((ip(), 7471).into()));
    assert_eq!(found[0].port_space, PortSpace::TCP);
    hints.passive = true;
    hints.port_space = PortSpace::UDP;
    let found = address_info(Some(&text), Some("7174"), &hints).unwrap();
    assert_eq!(found[0].source, Some((ip(), 7174).into()));
    assert_eq!(found[0].port_space, PortSpace::UDP);
    Listener::bind(found[0].source.unwrap()).unwrap();
}

#[test]
fn names_without_an_address_are_errors_that_name_them() {
    let error = address_info(Some("nobody.invalid"), Some("7471"), &AddressHints::default()).unwrap_err();
    assert!(matches!(error, Error::Lookup { .. }) && error.to_string().contains("nobody.invalid:7471"), "{error}");
    let error = address_info(Some("a\0b"), None, &AddressHints::default()).unwrap_err();
    assert!(error.to_string().contains("null character"), "{error}");
    let mut hints = AddressHints::default();
    hints.numeric_host = true;
    let error = address_info(Some("localhost"), None, &hints).unwrap_err();
    assert!(matches!(error, Error::Lookup { .. }), "{error}");
}

#[test]
fn what_was_found_can_be_connected_to_and_has_the_kind_that_was_asked_for() {
    let listener = Listener::bind(address()).unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut hints = AddressHints::default();
    hints.family = Some(AddressFamily::V4);
    hints.numeric_host = true;
    hints.queue_pair_type = Some(QueuePairType::RC);
    let found = address_info(Some(&ip().to_string()), Some(&port), &hints).unwrap();
    assert_eq!((found[0].family, found[0].queue_pair_type), (AddressFamily::V4, QueuePairType::RC));
    std::thread::scope(|scope| {
        let server = scope.spawn(|| listener.accept().unwrap());
        let client = options().connect(&found).unwrap();
        assert_eq!(client.peer_addr(), found[0].destination);
        server.join().unwrap();
    });
    hints.family = Some(AddressFamily::V6);
    let error = address_info(Some(&ip().to_string()), Some(&port), &hints).unwrap_err();
    assert!(matches!(error, Error::Lookup { .. }), "{error}");
    hints.timeout = std::time::Duration::ZERO;
    let error = address_info(Some(&ip().to_string()), Some(&port), &hints).unwrap_err();
    assert!(matches!(error, Error::Lookup { .. }), "{error}");
}
