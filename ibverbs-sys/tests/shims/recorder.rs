//! C functions that note what they were called with.

use std::cell::{Cell, RefCell};
use std::mem::size_of;

/// A call: of what, and its arguments as bits.
pub(crate) type Call = (&'static str, Vec<u64>);

/// What every recording function returns, as far as it fits.
pub(crate) const ANSWER: u64 = 0x1234;

thread_local! {
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
    static NEXT_ANSWER: Cell<u64> = const { Cell::new(ANSWER) };
}

pub(crate) fn record(name: &'static str, arguments: &[u64]) {
    CALLS.with_borrow_mut(|calls| calls.push((name, arguments.to_vec())));
}

/// The calls since the last time it was asked.
pub(crate) fn calls() -> Vec<Call> {
    CALLS.take()
}

/// Lets recording functions return `answer` from now on.
pub(crate) fn answer_with(answer: u64) {
    NEXT_ANSWER.set(answer);
}

/// An argument as a number: an integer, an enum or a pointer.
pub(crate) fn bits<T: Copy>(value: T) -> u64 {
    let mut bits = 0u64;
    assert!(size_of::<T>() <= size_of::<u64>());
    // SAFETY: `value` is no longer than `bits`, and the types the tests use have no padding.
    unsafe { (&raw mut bits).cast::<T>().write_unaligned(value) };
    bits
}

/// What `answer_with` said, as a `T`.
fn answer<T>() -> T {
    let bits = NEXT_ANSWER.get();
    assert!(size_of::<T>() <= size_of::<u64>());
    // SAFETY: `T` is the result of a C function of the bindings: an integer, an enum's newtype, a pointer or nothing, all of which may
    // have any bits, and it is no longer than `bits`.
    unsafe { (&raw const bits).cast::<T>().read_unaligned() }
}

/// The first bytes of `ANSWER`, as many as a `T` has.
pub(crate) fn answer_as<T>(_like: &T) -> u64 {
    match size_of::<T>() {
        8 => ANSWER,
        bytes => ANSWER & ((1 << (8 * bytes)) - 1),
    }
}

macro_rules! for_each_number_of_arguments {
    ($($name:ident($($argument:ident: $ty:ident),*);)*) => {
        /// Recording functions. The field of the table says of what types they are.
        #[allow(dead_code, reason = "only newer releases have functions with as many arguments")]
        pub(crate) mod operation {
            use super::{answer, bits, record};

            $(pub(crate) unsafe extern "C" fn $name<$($ty: Copy,)* R>($($argument: $ty),*) -> R {
                record("operation", &[$(bits($argument)),*]);
                answer()
            })*
        }

        /// Calls of shims, which return what the shim does and the arguments as they would be recorded.
        #[allow(dead_code, reason = "as above")]
        pub(crate) mod call {
            use super::bits;

            $(
                /// # Safety
                ///
                /// That of the shim.
                pub(crate) unsafe fn $name<$($ty: Copy,)* R>(
                    shim: unsafe extern "C" fn($($ty),*) -> R,
                    $($argument: $ty),*
                ) -> (R, Vec<u64>) {
                    // SAFETY: the caller answers for it.
                    (unsafe { shim($($argument),*) }, vec![$(bits($argument)),*])
                }
            )*
        }
    };
}

for_each_number_of_arguments! {
    one(a: A);
    two(a: A, b: B);
    three(a: A, b: B, c: C);
    four(a: A, b: B, c: C, d: D);
    five(a: A, b: B, c: C, d: D, e: E);
    six(a: A, b: B, c: C, d: D, e: E, f: F);
}
