//! Files that are not reworded yet, with the replaced terms that they still have.

pub const PENDING: &[(&str, &[&str])] = &[];
