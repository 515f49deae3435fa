//! The specification's table of transitions: which attributes each must and may have.

use crate::ffi::ibv_qp_attr_mask as M;
use crate::ffi::ibv_qp_type;
use crate::queue_pair::QueuePairState as S;

/// The attributes of a transition, besides the state itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transition {
    pub(super) required: u32,
    pub(super) optional: u32,
}

const ACCESS: u32 = M::IBV_QP_ACCESS_FLAGS.0;
const ALTERNATE: u32 = M::IBV_QP_ALT_PATH.0;
const CURRENT: u32 = M::IBV_QP_CUR_STATE.0;
const MIGRATION: u32 = M::IBV_QP_PATH_MIG_STATE.0;
const PKEY: u32 = M::IBV_QP_PKEY_INDEX.0;
const PORT: u32 = M::IBV_QP_PORT.0;
const QKEY: u32 = M::IBV_QP_QKEY.0;
const RNR_TIMER: u32 = M::IBV_QP_MIN_RNR_TIMER.0;
const RETRY: u32 = M::IBV_QP_TIMEOUT.0 | M::IBV_QP_RETRY_CNT.0 | M::IBV_QP_RNR_RETRY.0;
const SQ_PSN: u32 = M::IBV_QP_SQ_PSN.0;
/// What a connected queue pair has to know of its peer.
const PEER: u32 = M::IBV_QP_AV.0 | M::IBV_QP_PATH_MTU.0 | M::IBV_QP_DEST_QPN.0 | M::IBV_QP_RQ_PSN.0;

/// The attributes of a transition between two states. `None`: the transport has no such transition.
///
/// InfiniBand Architecture Specification, volume 1, chapter 11.2.5.2, table 91.
pub(super) fn of(transport: ibv_qp_type, from: S, to: S) -> Option<Transition> {
    let (required, optional) = match (from, to) {
        (_, S::RESET) => (0, 0),
        (from, S::ERROR) if from != S::RESET => (0, 0),
        (S::READY_TO_SEND, S::SEND_QUEUE_DRAIN) => (0, M::IBV_QP_EN_SQD_ASYNC_NOTIFY.0),
        _ => match transport {
            ibv_qp_type::IBV_QPT_RC => reliable_connection(from, to)?,
            ibv_qp_type::IBV_QPT_UC => unreliable_connection(from, to)?,
            _ => unreliable_datagram(from, to)?,
        },
    };
    Some(Transition { required, optional })
}

fn reliable_connection(from: S, to: S) -> Option<(u32, u32)> {
    Some(match (from, to) {
        (S::RESET, S::INIT) => (PKEY | PORT | ACCESS, 0),
        (S::INIT, S::INIT) => (0, PKEY | PORT | ACCESS),
        (S::INIT, S::READY_TO_RECEIVE) => {
            (PEER | M::IBV_QP_MAX_DEST_RD_ATOMIC.0 | RNR_TIMER, ALTERNATE | ACCESS | PKEY)
        }
        (S::READY_TO_RECEIVE, S::READY_TO_SEND) => {
            (RETRY | SQ_PSN | M::IBV_QP_MAX_QP_RD_ATOMIC.0, CURRENT | ALTERNATE | ACCESS | RNR_TIMER | MIGRATION)
        }
        (S::READY_TO_SEND | S::SEND_QUEUE_DRAIN, S::READY_TO_SEND) => {
            (0, CURRENT | ALTERNATE | ACCESS | RNR_TIMER | MIGRATION)
        }
        (S::SEND_QUEUE_DRAIN, S::SEND_QUEUE_DRAIN) => {
            let depths = M::IBV_QP_MAX_QP_RD_ATOMIC.0 | M::IBV_QP_MAX_DEST_RD_ATOMIC.0;
            let path = PORT | M::IBV_QP_AV.0 | ALTERNATE | PKEY | MIGRATION;
            (0, path | RETRY | RNR_TIMER | depths | ACCESS)
        }
        _ => return None,
    })
}

fn unreliable_connection(from: S, to: S) -> Option<(u32, u32)> {
    Some(match (from, to) {
        (S::RESET, S::INIT) => (PKEY | PORT | ACCESS, 0),
        (S::INIT, S::INIT) => (0, PKEY | PORT | ACCESS),
        (S::INIT, S::READY_TO_RECEIVE) => (PEER, ALTERNATE | ACCESS | PKEY),
        (S::READY_TO_RECEIVE, S::READY_TO_SEND) => (SQ_PSN, CURRENT | ALTERNATE | ACCESS | MIGRATION),
        (S::READY_TO_SEND | S::SEND_QUEUE_DRAIN, S::READY_TO_SEND) => (0, CURRENT | ALTERNATE | ACCESS | MIGRATION),
        (S::SEND_QUEUE_ERROR, S::READY_TO_SEND) => (0, CURRENT | ACCESS),
        (S::SEND_QUEUE_DRAIN, S::SEND_QUEUE_DRAIN) => (0, M::IBV_QP_AV.0 | ALTERNATE | ACCESS | PKEY | MIGRATION),
        _ => return None,
    })
}

fn unreliable_datagram(from: S, to: S) -> Option<(u32, u32)> {
    Some(match (from, to) {
        (S::RESET, S::INIT) => (PKEY | PORT | QKEY, 0),
        (S::INIT, S::INIT) => (0, PKEY | PORT | QKEY),
        (S::INIT, S::READY_TO_RECEIVE) => (0, PKEY | QKEY),
        (S::READY_TO_RECEIVE, S::READY_TO_SEND) => (SQ_PSN, CURRENT | QKEY),
        (S::READY_TO_SEND | S::SEND_QUEUE_DRAIN | S::SEND_QUEUE_ERROR, S::READY_TO_SEND) => (0, CURRENT | QKEY),
        (S::SEND_QUEUE_DRAIN, S::SEND_QUEUE_DRAIN) => (0, PKEY | QKEY),
        _ => return None,
    })
}

/// The attributes that a queue pair needs on its way to RTS.
pub(super) fn required(transport: ibv_qp_type) -> u32 {
    let way = [(S::RESET, S::INIT), (S::INIT, S::READY_TO_RECEIVE), (S::READY_TO_RECEIVE, S::READY_TO_SEND)];
    way.into_iter().filter_map(|(from, to)| of(transport, from, to)).fold(0, |mask, step| mask | step.required)
}

/// The names of the attributes in a mask, as C has them.
pub(super) fn names(mask: u32) -> String {
    const NAMES: [(M, &str); 21] = [
        (M::IBV_QP_STATE, "IBV_QP_STATE"),
        (M::IBV_QP_CUR_STATE, "IBV_QP_CUR_STATE"),
        (M::IBV_QP_EN_SQD_ASYNC_NOTIFY, "IBV_QP_EN_SQD_ASYNC_NOTIFY"),
        (M::IBV_QP_ACCESS_FLAGS, "IBV_QP_ACCESS_FLAGS"),
        (M::IBV_QP_PKEY_INDEX, "IBV_QP_PKEY_INDEX"),
        (M::IBV_QP_PORT, "IBV_QP_PORT"),
        (M::IBV_QP_QKEY, "IBV_QP_QKEY"),
        (M::IBV_QP_AV, "IBV_QP_AV"),
        (M::IBV_QP_PATH_MTU, "IBV_QP_PATH_MTU"),
        (M::IBV_QP_TIMEOUT, "IBV_QP_TIMEOUT"),
        (M::IBV_QP_RETRY_CNT, "IBV_QP_RETRY_CNT"),
        (M::IBV_QP_RNR_RETRY, "IBV_QP_RNR_RETRY"),
        (M::IBV_QP_RQ_PSN, "IBV_QP_RQ_PSN"),
        (M::IBV_QP_MAX_QP_RD_ATOMIC, "IBV_QP_MAX_QP_RD_ATOMIC"),
        (M::IBV_QP_ALT_PATH, "IBV_QP_ALT_PATH"),
        (M::IBV_QP_MIN_RNR_TIMER, "IBV_QP_MIN_RNR_TIMER"),
        (M::IBV_QP_SQ_PSN, "IBV_QP_SQ_PSN"),
        (M::IBV_QP_MAX_DEST_RD_ATOMIC, "IBV_QP_MAX_DEST_RD_ATOMIC"),
        (M::IBV_QP_PATH_MIG_STATE, "IBV_QP_PATH_MIG_STATE"),
        (M::IBV_QP_CAP, "IBV_QP_CAP"),
        (M::IBV_QP_DEST_QPN, "IBV_QP_DEST_QPN"),
    ];
    let mut names: Vec<String> =
        NAMES.iter().filter(|(bit, _)| mask & bit.0 != 0).map(|(_, name)| (*name).to_owned()).collect();
    let unknown = NAMES.iter().fold(mask, |mask, (bit, _)| mask & !bit.0);
    if unknown != 0 {
        names.push(format!("unknown bits {unknown:#x}"));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RC: ibv_qp_type = ibv_qp_type::IBV_QPT_RC;
    const UC: ibv_qp_type = ibv_qp_type::IBV_QPT_UC;
    const UD: ibv_qp_type = ibv_qp_type::IBV_QPT_UD;
    const ALL: [S; 7] =
        [S::RESET, S::INIT, S::READY_TO_RECEIVE, S::READY_TO_SEND, S::SEND_QUEUE_DRAIN, S::SEND_QUEUE_ERROR, S::ERROR];

    #[test]
    fn the_three_transitions_to_ready_to_send_are_the_specifications() {
        let required = |transport, from, to| names(of(transport, from, to).unwrap().required);
        for transport in [RC, UC] {
            let init = "IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX, IBV_QP_PORT";
            assert_eq!(required(transport, S::RESET, S::INIT), init);
        }
        assert_eq!(required(UD, S::RESET, S::INIT), "IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY");
        assert_eq!(
            required(RC, S::INIT, S::READY_TO_RECEIVE),
            "IBV_QP_AV, IBV_QP_PATH_MTU, IBV_QP_RQ_PSN, IBV_QP_MIN_RNR_TIMER, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_DEST_QPN"
        );
        assert_eq!(
            required(UC, S::INIT, S::READY_TO_RECEIVE),
            "IBV_QP_AV, IBV_QP_PATH_MTU, IBV_QP_RQ_PSN, IBV_QP_DEST_QPN"
        );
        assert_eq!(required(UD, S::INIT, S::READY_TO_RECEIVE), "");
        assert_eq!(
            required(RC, S::READY_TO_RECEIVE, S::READY_TO_SEND),
            "IBV_QP_TIMEOUT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_SQ_PSN"
        );
        for transport in [UC, UD] {
            assert_eq!(required(transport, S::READY_TO_RECEIVE, S::READY_TO_SEND), "IBV_QP_SQ_PSN");
        }
    }

    #[test]
    fn each_transport_has_its_own_transitions_and_no_others() {
        for (transport, has_send_queue_error) in [(RC, false), (UC, true), (UD, true)] {
            for from in ALL {
                for to in ALL {
                    let step_forward = matches!(
                        (from, to),
                        (S::RESET | S::INIT, S::INIT)
                            | (S::INIT, S::READY_TO_RECEIVE)
                            | (S::READY_TO_RECEIVE | S::READY_TO_SEND | S::SEND_QUEUE_DRAIN, S::READY_TO_SEND)
                            | (S::READY_TO_SEND | S::SEND_QUEUE_DRAIN, S::SEND_QUEUE_DRAIN)
                    );
                    let exists = step_forward
                        || to == S::RESET
                        || (to == S::ERROR && from != S::RESET)
                        || (has_send_queue_error && (from, to) == (S::SEND_QUEUE_ERROR, S::READY_TO_SEND));
                    assert_eq!(of(transport, from, to).is_some(), exists, "{transport:?}: {from} to {to}");
                }
            }
        }
    }

    #[test]
    fn only_datagrams_have_a_q_key_and_only_connections_a_peer() {
        let connection = ACCESS | PEER | ALTERNATE | MIGRATION;
        let acknowledgements = RETRY | RNR_TIMER | M::IBV_QP_MAX_QP_RD_ATOMIC.0 | M::IBV_QP_MAX_DEST_RD_ATOMIC.0;
        for (transport, lacks) in [(RC, QKEY), (UC, QKEY | acknowledgements), (UD, connection | acknowledgements)] {
            for from in ALL {
                for step in ALL.into_iter().filter_map(|to| of(transport, from, to)) {
                    assert_eq!(names((step.required | step.optional) & lacks), "", "{transport:?} from {from}");
                    assert_eq!(step.required & step.optional, 0);
                }
            }
        }
    }
}
