//! [`Completion`]: what proves that a window is unbound.

use super::handle::{Belongs, State, Unbinding};
use super::sealed::Sealed as _;
use super::{MemoryWindow, WindowType, WindowType1};
use crate::completion_fields::CompletionFields;
use crate::error::{Error, Result};
use crate::extended_completion_queue::ExtendedCompletion;
use crate::ffi;
use crate::work_completion::{WorkCompletion, WorkCompletionOpcode as Opcode, WorkCompletionStatus};

const VERB: &str = "MemoryWindow::release";

/// What a completion tells that can prove something. `None`: it was not asked for.
#[derive(Debug, Default)]
pub struct Told {
    pub(crate) qp_num: Option<u32>,
    pub(crate) opcode: Option<Opcode>,
    /// `Some(None)`: the message invalidated no key.
    pub(crate) invalidated_rkey: Option<Option<u32>>,
    /// The key, if the completion is one of rxe's.
    invalidated_on_rxe: Option<u32>,
}

pub(super) mod sealed {
    use super::{Told, WorkCompletionStatus};

    pub trait Completion {
        #[doc(hidden)]
        fn wr_id(&self) -> u64;
        #[doc(hidden)]
        fn status(&self) -> WorkCompletionStatus;
        /// Of a request that succeeded.
        #[doc(hidden)]
        fn told(&self) -> Told;
    }
}

/// What became of a request, from a queue of either kind: a [`WorkCompletion`], or an [`ExtendedCompletion`] of a queue that was made with
/// [`Opcode`](crate::completion_field::Opcode) and [`QueuePairNumber`](crate::completion_field::QueuePairNumber), and with
/// [`InvalidatedRkey`](crate::completion_field::InvalidatedRkey) if peers invalidate keys.
pub trait Completion: sealed::Completion {}

impl<C: sealed::Completion> Completion for C {}

impl sealed::Completion for WorkCompletion {
    fn wr_id(&self) -> u64 {
        self.wr_id()
    }

    fn status(&self) -> WorkCompletionStatus {
        self.status()
    }

    fn told(&self) -> Told {
        let Ok(success) = self.success() else { return Told::default() };
        // The kernel's flag for it has the value of this one of libibverbs', which rxe never sets, and its provider hands it on as it is.
        let is_flagged = success.as_raw().wc_flags & ffi::ibv_wc_flags::IBV_WC_IP_CSUM_OK.0 != 0;
        Told {
            qp_num: Some(success.qp_num()),
            opcode: Some(success.opcode()),
            invalidated_rkey: Some(success.invalidated_rkey()),
            invalidated_on_rxe: is_flagged.then(|| success.union_as_rkey()),
        }
    }
}

impl<F: CompletionFields> sealed::Completion for ExtendedCompletion<F> {
    fn wr_id(&self) -> u64 {
        self.wr_id()
    }

    fn status(&self) -> WorkCompletionStatus {
        self.status()
    }

    fn told(&self) -> Told {
        let mut told = Told::default();
        if let Ok(values) = self.success() {
            F::tell(values, &mut told);
        }
        told
    }
}

impl<K: WindowType> MemoryWindow<K> {
    /// Lets go of the regions that the window was bound to, and of its queue pair, if `completion` proves that it is bound to none:
    ///
    /// * the successful completion of the last request that [`post_unbind`](crate::QueuePair::post_unbind) has posted, after which none to
    ///   bind the window was;
    /// * for a window of type 2, that of a receive, on the queue pair that it was bound by, whose message
    ///   [invalidated](crate::Success::invalidated_rkey) the window's key.
    ///
    /// A completion is known by its identifier, its queue pair and what it did: give the requests of a window different identifiers, or an
    /// old completion may be taken for the last one's. If the window is bound all the same, its region cannot be deregistered, and one that is
    /// dropped leaks its buffer; and to destroy the queue pair may fail, or take long.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidArgument`]: the completion proves nothing, and nothing has changed. What can no more be proven, as of a queue pair in
    /// ERROR, which completes requests without doing what they ask for, is ended by dropping the window, or the queue pair, with which it
    /// is freed.
    #[doc(alias = "IBV_WC_LOCAL_INV")]
    #[doc(alias = "IBV_WC_WITH_INV")]
    pub fn release(&mut self, completion: &impl Completion) -> Result<()> {
        let mut state = self.handle.lock();
        state.mw().ok_or_else(super::bind::freed)?;
        if completion.status() != WorkCompletionStatus::SUCCESS {
            return Err(unproven(completion, "after a request that failed, the window may still be bound"));
        }
        let told = completion.told();
        let (Some(opcode), Some(qp_num)) = (told.opcode, told.qp_num) else {
            let rule = "make the queue with the fields `Opcode` and `QueuePairNumber`, without which it proves nothing";
            return Err(unproven(completion, rule));
        };
        let proven = match opcode.is_receive() {
            true => self.is_invalidated_by(&state, qp_num, &told),
            false => is_unbound_by::<K>(&state, completion.wr_id(), qp_num, opcode),
        };
        proven.map_err(|rule| unproven(completion, rule))?;
        state.unbound();
        drop(state);
        self.regions.clear();
        Ok(())
    }

    /// Whether a receive has invalidated the key with which the window was bound.
    fn is_invalidated_by(&self, state: &State, qp_num: u32, told: &Told) -> Result<(), &'static str> {
        match state.belongs() {
            _ if K::TYPE == WindowType1::TYPE => return Err("peers cannot invalidate the key of a window of type 1"),
            Belongs::To(owner) if owner.qp_num() != qp_num => return Err("the receive is of another queue pair"),
            Belongs::ToNone => return Err("the window is not bound"),
            _ => {}
        }
        let rkey = told.invalidated_rkey.flatten().or_else(|| told.invalidated_on_rxe.filter(|_| self.is_on_rxe()));
        match rkey {
            None if told.invalidated_rkey.is_none() => Err("make the queue with the field `InvalidatedRkey`"),
            None => Err("the message that was received has invalidated no key"),
            Some(rkey) if state.bound_rkey() == Some(rkey) => Ok(()),
            Some(_) => Err("the message that was received has not invalidated the key of the last binding"),
        }
    }

    fn is_on_rxe(&self) -> bool {
        self.pd.context().device_attributes().is_ok_and(|device| device.is_rxe())
    }
}

/// Whether this was the last request to unbind the window.
fn is_unbound_by<K: WindowType>(state: &State, wr_id: u64, qp_num: u32, opcode: Opcode) -> Result<(), &'static str> {
    let unbinds = if K::TYPE == WindowType1::TYPE { Opcode::BIND_MEMORY_WINDOW } else { Opcode::LOCAL_INVALIDATE };
    match state.unbinding() {
        None => Err("no request to unbind the window was posted after the last one to bind it"),
        Some(unbinding) if unbinding == (Unbinding { wr_id, qp_num }) && opcode == unbinds => Ok(()),
        Some(_) => Err("it is not that of the last request to unbind the window"),
    }
}

#[cold]
fn unproven(completion: &impl Completion, rule: &str) -> Error {
    let value = format!("that of request {}: {}", completion.wr_id(), completion.status());
    Error::invalid(VERB, "completion", value, rule)
}
