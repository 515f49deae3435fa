//! What a refused `ibv_modify_qp` says, beside the specification's table (InfiniBand Architecture Specification, volume 1,
//! chapter 11.2.5.2) as the kernel's sources have it.

use proptest::prelude::*;
use verbs::*;

use crate::{Bench, for_all};

use QueuePairModification as Modification;
use QueuePairState as State;

/// The attributes, in the order of their bits: how the table names them, what they are called, and how they are set.
type Attribute = (&'static str, &'static str, fn(Modification) -> Modification);

const ATTRIBUTES: [Attribute; 19] = [
    ("CS", "IBV_QP_CUR_STATE", |change| change.current_state(State::INIT)),
    ("SQN", "IBV_QP_EN_SQD_ASYNC_NOTIFY", |change| change.notify_drained(true)),
    ("AC", "IBV_QP_ACCESS_FLAGS", |change| change.access(AccessFlags::REMOTE_READ)),
    ("PK", "IBV_QP_PKEY_INDEX", |change| change.pkey_index(1)),
    ("PT", "IBV_QP_PORT", |change| change.port(1)),
    ("QK", "IBV_QP_QKEY", |change| change.qkey(0x1111)),
    ("AV", "IBV_QP_AV", |change| change.address(&path())),
    ("MTU", "IBV_QP_PATH_MTU", |change| change.path_mtu(Mtu::MTU_1024)),
    ("TO", "IBV_QP_TIMEOUT", |change| change.ack_timeout(AckTimeout::default())),
    ("RC", "IBV_QP_RETRY_CNT", |change| change.retry_count(7)),
    ("RR", "IBV_QP_RNR_RETRY", |change| change.rnr_retry_count(7)),
    ("RQP", "IBV_QP_RQ_PSN", |change| change.rq_psn(0xff_ffff)),
    ("MRA", "IBV_QP_MAX_QP_RD_ATOMIC", |change| change.max_rd_atomic(1)),
    ("ALT", "IBV_QP_ALT_PATH", |change| change.alternate_path(&alternate_path())),
    ("RNRT", "IBV_QP_MIN_RNR_TIMER", |change| change.min_rnr_timer(RnrTimer::default())),
    ("SQP", "IBV_QP_SQ_PSN", |change| change.sq_psn(0)),
    ("MDR", "IBV_QP_MAX_DEST_RD_ATOMIC", |change| change.max_dest_rd_atomic(1)),
    ("PMS", "IBV_QP_PATH_MIG_STATE", |change| change.path_migration_state(PathMigrationState::REARM)),
    ("DQ", "IBV_QP_DEST_QPN", |change| change.dest_qp_num(0xff_ffff)),
];

fn path() -> AddressHandleAttributes {
    let mut path = AddressHandleAttributes::to_lid(1, 0);
    path.global_route = Some(GlobalRoute::new("192.0.2.7".parse().unwrap(), 1));
    path
}

fn alternate_path() -> AlternatePath {
    AlternatePath { address: path(), pkey_index: 0, ack_timeout: AckTimeout::default() }
}

const STATES: [(&str, State); 7] = [
    ("RESET", State::RESET),
    ("INIT", State::INIT),
    ("RTR", State::READY_TO_RECEIVE),
    ("RTS", State::READY_TO_SEND),
    ("SQD", State::SEND_QUEUE_DRAIN),
    ("SQE", State::SEND_QUEUE_ERROR),
    ("ERR", State::ERROR),
];

/// From, to, and what RC, UC and UD must have and may have.
type Row = (&'static str, &'static str, [(&'static str, &'static str); 3]);

const TABLE: [Row; 9] = [
    ("RESET", "INIT", [("PK PT AC", ""), ("PK PT AC", ""), ("PK PT QK", "")]),
    ("INIT", "INIT", [("", "PK PT AC"), ("", "PK PT AC"), ("", "PK PT QK")]),
    ("INIT", "RTR", [("AV MTU DQ RQP MDR RNRT", "ALT AC PK"), ("AV MTU DQ RQP", "ALT AC PK"), ("", "PK QK")]),
    ("RTR", "RTS", [("TO RC RR SQP MRA", "CS ALT AC RNRT PMS"), ("SQP", "CS ALT AC PMS"), ("SQP", "CS QK")]),
    ("RTS", "RTS", [("", "CS AC ALT PMS RNRT"), ("", "CS AC ALT PMS"), ("", "CS QK")]),
    ("RTS", "SQD", [("", "SQN"), ("", "SQN"), ("", "SQN")]),
    ("SQD", "RTS", [("", "CS ALT AC RNRT PMS"), ("", "CS ALT AC PMS"), ("", "CS QK")]),
    ("SQD", "SQD", [("", "PT AV TO RC RR MRA MDR ALT AC PK RNRT PMS"), ("", "AV ALT AC PK PMS"), ("", "PK QK")]),
    ("SQE", "RTS", [NONE, ("", "CS AC"), ("", "CS QK")]),
];

/// No such transition.
const NONE: (&str, &str) = ("none", "none");

fn row(from: &str, to: &str, transport: usize) -> (&'static str, &'static str) {
    match TABLE.iter().find(|row| (row.0, row.1) == (from, to)) {
        Some(row) => row.2[transport],
        None if to == "RESET" || to == "ERR" && from != "RESET" => ("", ""),
        None => NONE,
    }
}

/// The names of those of `attributes` for which `wanted` holds, as a message has them.
fn names(attributes: &[bool], wanted: impl Fn(&str, bool) -> bool) -> String {
    let named = ATTRIBUTES.iter().zip(attributes).filter(|((short, ..), is_set)| wanted(short, **is_set));
    named.map(|((_, name, _), _)| *name).collect::<Vec<_>>().join(", ")
}

/// What the provider answers `EINVAL` to is explained as the table has it.
fn is_explained<T: Transport>(
    transport: usize,
    from: usize,
    to: Option<usize>,
    attributes: &[bool],
) -> Result<(), TestCaseError> {
    let bench = Bench::new();
    let qp = QueuePair::<T>::builder(&bench.pd, &bench.cq, &bench.cq).build().unwrap();
    // The provider looks at nothing, so a queue pair gets into any state.
    qp.modify(&Modification::to(STATES[from].1)).unwrap();
    let begin = to.map_or_else(Modification::in_place, |to| Modification::to(STATES[to].1));
    let set = ATTRIBUTES.iter().zip(attributes).filter(|(_, is_set)| **is_set);
    let change = set.fold(begin, |change, ((.., set), _)| set(change));
    bench.provider.fail("ibv_modify_qp", libc::EINVAL);
    let error = qp.modify(&change).unwrap_err();
    prop_assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    let text = error.to_string();
    let (required, optional) = row(STATES[from].0, STATES[to.unwrap_or(from)].0, transport);
    let has = |list: &str, short: &str| list.split(' ').any(|entry| entry == short);
    if to.is_none() && (required, optional) == ("", "") || to.is_none() && (required, optional) == NONE {
        prop_assert!(text.contains("in which no attribute can be changed"), "{}", text);
        return Ok(());
    }
    prop_assert_eq!(text.contains("there is no transition to"), (required, optional) == NONE, "{}", text);
    if (required, optional) == NONE {
        return Ok(());
    }
    let missing = names(attributes, |short, is_set| has(required, short) && !is_set);
    let superfluous = names(attributes, |short, is_set| is_set && !has(required, short) && !has(optional, short));
    for (names, says) in [(missing, "is missing"), (superfluous, "does not belong to")] {
        let said = format!("{names} {says}");
        prop_assert_eq!(text.contains(says), !names.is_empty(), "{}", text);
        prop_assert!(names.is_empty() || text.contains(&said), "{} in {}", said, text);
    }
    Ok(())
}

#[test]
fn what_is_missing_and_what_does_not_belong_is_named_as_the_specification_has_it() {
    for_all(
        (
            0usize..3,
            0..STATES.len(),
            proptest::option::weighted(0.9, 0..STATES.len()),
            // Few attributes, or nearly all.
            prop_oneof![
                proptest::collection::vec(proptest::bool::weighted(0.15), ATTRIBUTES.len()),
                proptest::collection::vec(proptest::bool::weighted(0.85), ATTRIBUTES.len()),
            ],
        ),
        |(transport, from, to, attributes)| {
            match transport {
                0 => is_explained::<Rc>(0, from, to, &attributes)?,
                1 => is_explained::<Uc>(1, from, to, &attributes)?,
                _ => is_explained::<Ud>(2, from, to, &attributes)?,
            }
            Ok(())
        },
    );
}

#[test]
fn a_value_reaches_the_device_only_if_the_wire_has_room_for_it() {
    for_all(
        (prop_oneof![any::<u32>(), 0xff_fff0u32..0x100_0010], any::<u8>(), 0u8..20, 0u32..1 << 21),
        |(number, count, service_level, label)| {
            let bench = Bench::new();
            let modified = |change: Modification| match bench.qp.modify(&change) {
                Ok(()) => true,
                Err(Error::InvalidArgument { .. }) => false,
                Err(error) => panic!("{error}"),
            };
            let change = Modification::in_place;
            for change in [change().sq_psn(number), change().rq_psn(number), change().dest_qp_num(number)] {
                prop_assert_eq!(modified(change), number < 1 << 24);
            }
            for change in [change().retry_count(count), change().rnr_retry_count(count)] {
                prop_assert_eq!(modified(change), count < 8);
            }
            let mut path = path();
            path.service_level = service_level;
            path.global_route.as_mut().unwrap().flow_label = label;
            prop_assert_eq!(modified(change().address(&path)), service_level < 16 && label < 1 << 20);
            Ok(())
        },
    );
}
