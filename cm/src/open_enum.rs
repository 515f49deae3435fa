//! Open integer types for the enums of C.

/// Declares a type for an enum of C that keeps values which this crate does not know.
///
/// A provider that is newer than this crate may hand out values that no list has; an integer with named constants holds
/// each of them, prints it as `unknown (99)`, and is never undefined behaviour.
macro_rules! open_enum {
    (
        $(#[$meta:meta])*
        $name:ident($integer:ty) {
            $($(#[$constant_meta:meta])* $constant:ident = $value:expr, $text:literal;)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(transparent)]
        pub struct $name($integer);

        impl $name {
            $($(#[$constant_meta])* pub const $constant: Self = Self($value);)*

            /// The value as libibverbs has it, known or not.
            pub const fn from_raw(raw: $integer) -> Self {
                Self(raw)
            }

            /// The value in libibverbs' terms.
            pub const fn as_raw(self) -> $integer {
                self.0
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match *self {
                    $(Self::$constant => f.write_str(stringify!($constant)),)*
                    Self(raw) => write!(f, "{}({raw})", stringify!($name)),
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match *self {
                    $(Self::$constant => f.pad($text),)*
                    Self(raw) => f.pad(&format!("unknown ({raw})")),
                }
            }
        }
    };
}

pub(crate) use open_enum;

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macro makes public types")]
mod tests {
    open_enum! {
        /// A sample.
        Sample(u32) {
            /// One.
            ONE = 1, "one";
        }
    }

    #[test]
    fn a_value_that_no_list_has_is_kept_and_printed() {
        assert_eq!(Sample::from_raw(1), Sample::ONE);
        assert_eq!(format!("{} {:?}", Sample::ONE, Sample::ONE), "one ONE");
        assert_eq!(format!("{} {:?}", Sample::from_raw(99), Sample::from_raw(99)), "unknown (99) Sample(99)");
        assert_eq!(Sample::from_raw(99).as_raw(), 99);
    }
}
