//! Rules: `[[rule]]` of a node's configuration, and of the policies of `levada approve`. They are
//! evaluated in the order of the file, without I/O; the first rule that matches decides.
//!
//! A rule that allows matches only what its patterns cover completely: each parameter has a
//! pattern, and each pattern its parameter, because a parameter that is open can be set later. A
//! rule that denies or asks matches as soon as it may apply.

mod asked;
mod evaluate;
mod policy_file;
mod requesters;
mod rights;
mod rule;
mod source;
mod terms;
#[cfg(test)]
mod tests;

pub use asked::Asked;
pub use evaluate::{Decision, Prospect, Rules};
pub use policy_file::PolicyFile;
pub use rights::{Effect, RuleRight};
pub use rule::Verdict;
pub use source::RuleSource;
