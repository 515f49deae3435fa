//! Finds the library and generates its bindings.

fn main() {}
