//! [`ReceiveQueue`]: what receives are posted to.

use crate::chain::ReceiveChain;
use crate::post_error::PostError;
use crate::queue_pair::QueuePair;
use crate::shared_receive_queue::SharedReceiveQueue;
use crate::transport::Transport;

mod sealed {
    pub trait Sealed {}
}

/// What receives can be posted to: a [`QueuePair`], or a [`SharedReceiveQueue`].
pub trait ReceiveQueue: sealed::Sealed {
    /// Hands requests to the queue, in their order, with one doorbell.
    ///
    /// # Errors
    ///
    /// As those of [`QueuePair::post_receive_chain`] and [`SharedReceiveQueue::post_receive_chain`].
    fn post_receive_chain<C: ReceiveChain + ?Sized>(&self, requests: &mut C) -> Result<(), PostError>;
}

macro_rules! receive_queues {
    ($([$($generics:tt)*] $queue:ty;)*) => {
        $(impl<$($generics)*> sealed::Sealed for $queue {}

        impl<$($generics)*> ReceiveQueue for $queue {
            #[inline]
            fn post_receive_chain<C: ReceiveChain + ?Sized>(&self, requests: &mut C) -> Result<(), PostError> {
                <$queue>::post_receive_chain(self, requests)
            }
        })*
    };
}

receive_queues! {
    [T: Transport] QueuePair<T>;
    [] SharedReceiveQueue;
}
