//! The specification's table of transitions: which attributes each must and may have.

use crate::ffi::ibv_qp_attr_mask as M;
use crate::queue_pair::QueuePairState as S;

/// The attributes of a transition, besides the state itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transition {
    pub(super) required: u32,
    pub(super) optional: u32,
}

/// The attributes of RC's transition between two states. `None`: there is none.
///
/// InfiniBand Architecture Specification, volume 1, chapter 11.2.5.2, table 91.
pub(super) fn reliable_connection(from: S, to: S) -> Option<Transition> {
    const ALTERNATE: u32 = M::IBV_QP_ALT_PATH.0;
    const ACCESS: u32 = M::IBV_QP_ACCESS_FLAGS.0;
    const PKEY: u32 = M::IBV_QP_PKEY_INDEX.0;
    const PORT: u32 = M::IBV_QP_PORT.0;
    const RNR_TIMER: u32 = M::IBV_QP_MIN_RNR_TIMER.0;
    const MIGRATION: u32 = M::IBV_QP_PATH_MIG_STATE.0;
    const CURRENT: u32 = M::IBV_QP_CUR_STATE.0;
    const RETRY: u32 = M::IBV_QP_TIMEOUT.0 | M::IBV_QP_RETRY_CNT.0 | M::IBV_QP_RNR_RETRY.0;
    let (required, optional) = match (from, to) {
        (S::RESET, S::INIT) => (PKEY | PORT | ACCESS, 0),
        (S::INIT, S::INIT) => (0, PKEY | PORT | ACCESS),
        (S::INIT, S::READY_TO_RECEIVE) => (
            M::IBV_QP_AV.0
                | M::IBV_QP_PATH_MTU.0
                | M::IBV_QP_DEST_QPN.0
                | M::IBV_QP_RQ_PSN.0
                | M::IBV_QP_MAX_DEST_RD_ATOMIC.0
                | RNR_TIMER,
            ALTERNATE | ACCESS | PKEY,
        ),
        (S::READY_TO_RECEIVE, S::READY_TO_SEND) => (
            RETRY | M::IBV_QP_SQ_PSN.0 | M::IBV_QP_MAX_QP_RD_ATOMIC.0,
            CURRENT | ALTERNATE | ACCESS | RNR_TIMER | MIGRATION,
        ),
        (S::READY_TO_SEND, S::READY_TO_SEND) | (S::SEND_QUEUE_DRAIN, S::READY_TO_SEND) => {
            (0, CURRENT | ALTERNATE | ACCESS | RNR_TIMER | MIGRATION)
        }
        (S::READY_TO_SEND, S::SEND_QUEUE_DRAIN) => (0, M::IBV_QP_EN_SQD_ASYNC_NOTIFY.0),
        (S::SEND_QUEUE_DRAIN, S::SEND_QUEUE_DRAIN) => (
            0,
            PORT | M::IBV_QP_AV.0
                | RETRY
                | M::IBV_QP_MAX_QP_RD_ATOMIC.0
                | M::IBV_QP_MAX_DEST_RD_ATOMIC.0
                | ALTERNATE
                | ACCESS
                | PKEY
                | RNR_TIMER
                | MIGRATION,
        ),
        (_, S::RESET) => (0, 0),
        (from, S::ERROR) if from != S::RESET => (0, 0),
        _ => return None,
    };
    Some(Transition { required, optional })
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

    #[test]
    fn the_three_transitions_of_a_connection_are_the_specifications() {
        let of = |from, to| reliable_connection(from, to).unwrap();
        assert_eq!(names(of(S::RESET, S::INIT).required), "IBV_QP_ACCESS_FLAGS, IBV_QP_PKEY_INDEX, IBV_QP_PORT");
        assert_eq!(
            names(of(S::INIT, S::READY_TO_RECEIVE).required),
            "IBV_QP_AV, IBV_QP_PATH_MTU, IBV_QP_RQ_PSN, IBV_QP_MIN_RNR_TIMER, IBV_QP_MAX_DEST_RD_ATOMIC, IBV_QP_DEST_QPN"
        );
        assert_eq!(
            names(of(S::READY_TO_RECEIVE, S::READY_TO_SEND).required),
            "IBV_QP_TIMEOUT, IBV_QP_RETRY_CNT, IBV_QP_RNR_RETRY, IBV_QP_MAX_QP_RD_ATOMIC, IBV_QP_SQ_PSN"
        );
    }

    #[test]
    fn a_state_cannot_be_skipped_but_left_for_reset_and_error() {
        for (from, to) in [
            (S::RESET, S::READY_TO_RECEIVE),
            (S::RESET, S::ERROR),
            (S::INIT, S::READY_TO_SEND),
            (S::READY_TO_RECEIVE, S::SEND_QUEUE_DRAIN),
            (S::ERROR, S::INIT),
        ] {
            assert_eq!(reliable_connection(from, to), None, "{from} to {to}");
        }
        let nothing = Some(Transition { required: 0, optional: 0 });
        for from in [S::RESET, S::INIT, S::READY_TO_SEND, S::ERROR] {
            assert_eq!(reliable_connection(from, S::RESET), nothing);
        }
        assert_eq!(reliable_connection(S::READY_TO_SEND, S::ERROR), nothing);
    }
}
