//! Values that a device or a peer may say, and times that a program may ask for.

use std::time::Duration;

use proptest::prelude::*;
use verbs::*;

use crate::for_all;

/// A value of an open integer type is kept as it is, and is printed by its number if it is not known.
macro_rules! is_kept {
    ($raw:expr; $($name:ident),*) => {
        $({
            let value = $name::from_raw($raw as _);
            prop_assert_eq!($name::from_raw(value.as_raw()), value);
            let (debug, display) = (format!("{value:?}"), format!("{value:>40}"));
            prop_assert!(!debug.is_empty() && display.len() >= 40, "{} {}", debug, display);
            if debug.starts_with(stringify!($name)) {
                let number = value.as_raw().to_string();
                prop_assert!(debug.contains(&number) && display.contains(&number), "{} {}", debug, display);
            }
        })*
    };
}

#[test]
fn a_number_that_no_list_has_is_kept_and_printed() {
    for_all(prop_oneof![any::<u32>(), 0u32..300], |raw| {
        is_kept!(raw; WorkCompletionStatus, WorkCompletionOpcode, AsyncEventType, PortState, LinkLayer, NodeType);
        is_kept!(raw; TransportType, GidType, QueuePairState, PathMigrationState, LinkWidth, LinkSpeed);
        is_kept!(raw; PhysicalState, AtomicCapability, WorkQueueState, CounterDescription);
        let mtu = Mtu::from_raw(raw);
        prop_assert_eq!(mtu.bytes().is_some(), (1..=5).contains(&raw));
        prop_assert_eq!(mtu.bytes().map(|bytes| Mtu::from_bytes(bytes).unwrap()), mtu.bytes().map(|_| mtu));
        prop_assert_eq!(Mtu::from_bytes(raw).is_ok(), [256, 512, 1024, 2048, 4096].contains(&raw));
        Ok(())
    });
}

#[test]
fn a_link_of_any_width_and_speed_has_a_rate_or_none() {
    for_all((any::<u8>(), any::<u32>()), |(width, speed)| {
        let (width, speed) = (LinkWidth::from_raw(width), LinkSpeed::from_raw(speed));
        let rate = LinkRate::new(width, speed);
        let product = width.lanes().zip(speed.lane_mbps()).map(|(lanes, mbps)| u64::from(lanes) * u64::from(mbps));
        prop_assert_eq!(rate.mbps().map(u64::from), product);
        prop_assert!(!rate.to_string().is_empty());
        Ok(())
    });
}

#[test]
fn a_time_is_coded_by_the_smallest_code_that_is_not_below_it() {
    for_all(prop_oneof![any::<u64>(), 0u64..1 << 44, 0u64..1 << 30], |nanos| {
        let time = Duration::from_nanos(nanos);
        let code = (1u32..32).find(|code| 4096u128 << code >= u128::from(nanos));
        prop_assert_eq!(AckTimeout::at_least(time).ok().map(|timeout| u32::from(timeout.code())), code);
        let all = (0..32).map(|code| RnrTimer::from_code(code).unwrap());
        let least = all.filter(|timer| timer.duration() >= time).min_by_key(|timer| timer.duration());
        prop_assert_eq!(RnrTimer::at_least(time).ok(), least);
        Ok(())
    });
}

#[test]
fn any_40_bytes_are_a_header() {
    for_all((proptest::collection::vec(any::<u8>(), Grh::LEN), any::<u8>(), any::<u8>()), |(bytes, first, at_ipv4)| {
        let mut bytes: [u8; Grh::LEN] = bytes.try_into().unwrap();
        if first & 1 == 0 {
            (bytes[0], bytes[20]) = (0x60 | first >> 4, 0x40 | at_ipv4 & 0xf);
        }
        let header = Grh::from_bytes(bytes);
        let known = header.format() != GrhFormat::Unknown;
        prop_assert_eq!(header.to_bytes(), bytes);
        prop_assert_eq!((header.source().is_some(), header.destination().is_some()), (known, known));
        prop_assert_eq!((header.hop_limit().is_some(), header.next_header().is_some()), (known, known));
        prop_assert_eq!(header.flow_label().is_some(), header.format() == GrhFormat::Ipv6);
        let printed = format!("{header:?}");
        prop_assert!(printed.contains("format"));
        Ok(())
    });
}

#[test]
fn huge_pages_have_a_power_of_two_of_bytes() {
    for_all(prop_oneof![any::<usize>(), (0u32..64).prop_map(|log| 1usize << log)], |bytes| {
        let size = HugePageSize::new(bytes);
        prop_assert_eq!(size.map(HugePageSize::bytes), Some(bytes).filter(|bytes| bytes.is_power_of_two()));
        if let Some(size) = size {
            prop_assert!(size.to_string().ends_with("iB"));
        }
        Ok(())
    });
}

#[test]
fn a_gid_and_a_guid_are_read_at_any_address() {
    // What arrives in a message begins where it begins: none of the types asks for more than its bytes.
    assert_eq!((align_of::<Gid>(), size_of::<Gid>(), align_of::<Grh>()), (1, 16, 1));
    let bytes: Vec<u8> = (0..64).collect();
    for offset in 0..16 {
        let (gid, header) = (&bytes[offset..offset + 16], &bytes[offset..offset + Grh::LEN]);
        let gid = Gid::from_bytes(gid.try_into().unwrap());
        assert_eq!(gid.to_bytes()[..], bytes[offset..offset + 16]);
        assert_eq!(gid.subnet_prefix().to_be_bytes()[..], bytes[offset..offset + 8]);
        assert_eq!(gid.interface_id().to_be_bytes()[..], bytes[offset + 8..offset + 16]);
        assert_eq!(Grh::from_bytes(header.try_into().unwrap()).to_bytes()[..], *header);
    }
}
