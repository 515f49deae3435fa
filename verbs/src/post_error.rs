//! [`PostError`]: a queue that did not take all of its requests.

use std::ffi::c_int;
use std::fmt;

use crate::error::describe;
use crate::grh::Grh;

/// A queue refused a request, and with it the rest of its chain.
///
/// A chain is taken from its first request on, so what was taken is a number; the requests after that are the caller's to
/// post again or to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{verb}: {}", self.explain())]
pub struct PostError {
    pub(crate) verb: &'static str,
    pub(crate) errno: c_int,
    pub(crate) accepted: Option<usize>,
    pub(crate) requests: usize,
    pub(crate) reason: Reason,
}

/// What this crate knows of the request that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// No more than the error number.
    Provider,
    /// Its list is too long.
    Slices { slices: usize, limit: u32 },
    /// It is a receive for a queue pair that has a shared receive queue; it was not posted.
    SharedReceiveQueue,
    /// It has too much inline data; it was not posted.
    InlineData { length: u64, limit: u32 },
    /// It is an atomic operation on something else than a word; it was not posted.
    Atomic { address: u64 },
    /// It is a datagram that does not fit into a packet; it was not posted.
    Datagram { length: u64, limit: u32 },
    /// It is a receive of UD without room for a header; it was not posted.
    DatagramReceive { length: u64 },
    /// Its address handle is of another protection domain; it was not posted.
    AddressHandle,
    /// The send queue has no slots for the chain, of which nothing was posted.
    Slots { free: u32, slots: u32 },
    /// The provider would send another list; nothing was posted.
    ExtendedList { slices: usize },
    /// The sends of another queue pair are counted; nothing was posted.
    OtherQueuePair { expected: u32, qp_num: u32 },
}

/// Why a queue refused a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PostErrorKind {
    /// `ENOMEM`, or `ENOSPC` from the extended interface: the queue is full. A slot becomes free when a signaled request that was posted later than the one in it
    /// has completed and was polled.
    QueueFull,
    /// `EINVAL`: a request that this queue cannot take, the one at index [`accepted`](PostError::accepted), or a queue pair in a
    /// state in which it takes none.
    Invalid,
    /// `EOPNOTSUPP`: the device or its provider cannot do this.
    Unsupported,
    /// Any other error number.
    Other,
}

impl fmt::Display for PostErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QueueFull => "queue full",
            Self::Invalid => "invalid request or state",
            Self::Unsupported => "unsupported",
            Self::Other => "other error",
        })
    }
}

impl PostError {
    /// How many requests, from the first one on, the device took and will complete.
    ///
    /// `None`: the provider did not say. Whoever owns the buffers then has to treat every request of the chain as taken.
    pub fn accepted(&self) -> Option<usize> {
        self.accepted
    }

    /// How many requests were posted in the call.
    pub fn requests(&self) -> usize {
        self.requests
    }

    /// Why the request after the accepted ones was refused.
    pub fn kind(&self) -> PostErrorKind {
        match self.errno {
            // Some providers call it a full queue.
            _ if matches!(self.reason, Reason::Slices { .. }) => PostErrorKind::Invalid,
            libc::ENOMEM | libc::ENOSPC => PostErrorKind::QueueFull,
            libc::EINVAL => PostErrorKind::Invalid,
            libc::EOPNOTSUPP => PostErrorKind::Unsupported,
            _ => PostErrorKind::Other,
        }
    }

    /// The system's error number.
    pub fn raw_os_error(&self) -> i32 {
        self.errno
    }

    fn explain(&self) -> String {
        let taken = match self.accepted {
            Some(accepted) => format!("{accepted} of {} requests were taken", self.requests),
            None => format!("it is unknown how many of {} requests were taken", self.requests),
        };
        let advice = match (self.reason, self.kind()) {
            (Reason::Slices { slices, limit }, _) => format!(
                "the next one has {slices} scatter/gather entries, and the queue was made for {limit}: ask for more with \
                 max_send_sge or max_recv_sge, or with max_sge if it is a shared one",
            ),
            (Reason::SharedReceiveQueue, _) => {
                "the queue pair has a shared receive queue: post to that".to_owned()
            }
            (Reason::InlineData { length, limit }, _) => format!(
                "the next one has {length} bytes of inline data, and the queue pair takes {limit}: ask for more with \
                 max_inline_data",
            ),
            (Reason::Atomic { address }, _) => format!(
                "the next one is an atomic operation that is not on a word: its slices have 8 bytes in all, and the peer's address, \
                 {address:#x}, has to be a multiple of 8",
            ),
            (Reason::Datagram { length, limit }, _) => format!(
                "the next one is a datagram of {length} bytes, which would get lost: the port's active MTU is {limit}",
            ),
            (Reason::DatagramReceive { length }, _) => format!(
                "the next one is a receive of {length} bytes, and what arrives at a UD queue pair begins with {} bytes of header",
                Grh::LEN,
            ),
            (Reason::AddressHandle, _) => {
                "the next one names an address handle of another protection domain than the queue pair's".to_owned()
            }
            (Reason::Slots { free, slots }, _) => format!(
                "{free} of the send queue's {slots} slots are free: poll completions before posting more",
            ),
            (Reason::ExtendedList { slices }, _) => format!(
                "the next one has {slices} slices, and rxe's provider sends such lists wrongly through ibv_wr_start: post \
                 it by QueuePair::post_send",
            ),
            (Reason::OtherQueuePair { expected, qp_num }, _) => format!(
                "the sends of queue pair {expected:#x} are counted, and this is queue pair {qp_num:#x}",
            ),
            (Reason::Provider, PostErrorKind::QueueFull) => {
                "the queue is full: poll completions before posting more, and signal a request now and then, \
                 since unsignaled ones free their slots only with a later signaled one"
                    .to_owned()
            }
            (Reason::Provider, PostErrorKind::Invalid) => {
                "the state of the queue pair does not allow the request (receives: from INIT on; sends: from RTS on), or \
                 the device does not know it"
                    .to_owned()
            }
            (Reason::Provider, PostErrorKind::Unsupported | PostErrorKind::Other) => "see the manual page of the verb".to_owned(),
        };
        format!("{}; {taken}; {advice}", describe(self.errno))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_tells_what_was_taken_and_what_to_do() {
        let full = PostError {
            verb: "ibv_post_send",
            errno: libc::ENOMEM,
            accepted: Some(3),
            requests: 8,
            reason: Reason::Provider,
        };
        assert_eq!(full.kind(), PostErrorKind::QueueFull);
        assert!(full.to_string().contains("3 of 8 requests were taken; the queue is full"), "{full}");
        let unknown = PostError {
            verb: "ibv_post_send",
            errno: libc::EINVAL,
            accepted: None,
            requests: 1,
            reason: Reason::Provider,
        };
        assert_eq!(unknown.kind(), PostErrorKind::Invalid);
        assert!(unknown.to_string().contains("it is unknown how many of 1 requests"), "{unknown}");
    }

    #[test]
    fn a_request_that_is_too_large_is_invalid_whatever_the_provider_calls_it() {
        let refused =
            |errno, reason| PostError { verb: "ibv_post_send", errno, accepted: Some(0), requests: 1, reason };
        let long = refused(libc::ENOMEM, Reason::Slices { slices: 3, limit: 2 });
        assert_eq!((long.kind(), long.raw_os_error()), (PostErrorKind::Invalid, libc::ENOMEM));
        assert!(long.to_string().contains("has 3 scatter/gather entries, and the queue was made for 2"), "{long}");
        let large = refused(libc::EINVAL, Reason::InlineData { length: 65, limit: 64 });
        assert_eq!(large.kind(), PostErrorKind::Invalid);
        assert!(large.to_string().contains("has 65 bytes of inline data, and the queue pair takes 64"), "{large}");
    }
}
