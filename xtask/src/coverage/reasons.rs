//! Why a function is not wrapped, or not tested.

/// The reason. `None`: there is none, so it has to be.
pub(crate) fn of(function: &str) -> Option<&'static str> {
    REASONS.iter().find(|(names, _)| names.contains(&function)).map(|(_, reason)| *reason)
}

const REASONS: &[(&[&str], &str)] = &[];
