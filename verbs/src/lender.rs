//! [`Lender`]: what keeps an object alive that this crate does not destroy.

use std::any::Any;

/// Whatever another library's object depends on; dropping it allows that library to destroy the object.
pub(crate) struct Lender {
    // Never looked at: what matters is when it is dropped.
    _value: Box<dyn Any + Send + Sync>,
}

impl Lender {
    pub(crate) fn new(value: impl Send + Sync + 'static) -> Self {
        Self { _value: Box::new(value) }
    }
}
