//! What travels to a peer, through serde.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;
use verbs::*;

/// The text of a value, from which the same value is read again.
fn round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: T) -> String {
    let text = serde_json::to_string(&value).unwrap();
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), value);
    text
}

/// Why a value is not read.
fn refusal<T: DeserializeOwned + Debug>(text: &str) -> String {
    serde_json::from_str::<T>(text).unwrap_err().to_string()
}

#[test]
fn what_travels_is_the_text_that_the_c_programs_exchange() {
    let mut endpoint = Endpoint::new(0x11, 0xab_cdef);
    assert_eq!(round_trip(endpoint), "\"0000:000011:abcdef:00000000000000000000000000000000\"");
    endpoint.lid = 0x1a;
    endpoint.gid = Some("192.0.2.1".parse().unwrap());
    endpoint.mtu = Some(Mtu::MTU_4096);
    assert_eq!(round_trip(endpoint), "\"001a:000011:abcdef:00000000000000000000ffffc0000201:4096\"");
    let slice = RemoteSlice::new(0x7f00_1234_5678, 4096, 0x2ab).unwrap();
    assert_eq!(round_trip(slice), "\"00007f0012345678:0000000000001000:000002ab\"");
    assert_eq!(round_trip("192.0.2.1".parse::<Gid>().unwrap()), "\"::ffff:192.0.2.1\"");
    assert_eq!(round_trip("fe80::1".parse::<Gid>().unwrap()), "\"fe80::1\"");
    assert_eq!(round_trip(Gid::default()), "\"::\"");
}

#[test]
fn a_message_of_a_programs_own_holds_them() {
    type Message = (Endpoint, Vec<RemoteSlice>, Option<Gid>);
    let slices = vec![RemoteSlice::new(0x1000, 8, 1).unwrap(), RemoteSlice::new(0x2000, 0, 2).unwrap()];
    let message: Message = (Endpoint::new(1, 2), slices, None);
    round_trip(message);
}

#[test]
fn nonsense_is_refused_as_from_str_refuses_it() {
    for text in ["", "hello", "0000:00001g:abcdef:00000000000000000000000000000000"] {
        let error = refusal::<Endpoint>(&format!("\"{text}\""));
        assert!(error.starts_with(&text.parse::<Endpoint>().unwrap_err().to_string()), "{error}");
        assert!(error.contains("is not an endpoint"), "{error}");
    }
    for text in ["", "1:2:3", "ffffffffffffffff:0000000000000001:000002ab"] {
        let error = refusal::<RemoteSlice>(&format!("\"{text}\""));
        assert!(error.contains("is not a remote slice"), "{error}");
    }
    for text in ["", "rxe0", "192.0.2.256", "fe80::1%eth0"] {
        let error = refusal::<Gid>(&format!("\"{text}\""));
        assert!(error.contains("is not a GID (an IPv6 or IPv4 address)"), "{error}");
    }
}

#[test]
fn another_type_than_text_is_refused() {
    assert!(refusal::<Endpoint>("17").contains("expected an endpoint as text"));
    assert!(refusal::<RemoteSlice>("[1, 2, 3]").contains("expected a remote slice as text"));
    assert!(refusal::<Gid>("null").contains("expected a GID as text"));
}

#[test]
fn a_queue_pair_number_that_does_not_fit_is_refused_by_the_peer() {
    let text = serde_json::to_string(&Endpoint::new(0x100_0000, 0)).unwrap();
    assert!(refusal::<Endpoint>(&text).contains("is not an endpoint"));
}
