//! The subject of rules: a session that an identity asks for, or starts.

use levada_core::{Identity, Params, UnixTime};

/// A session that an identity asks for or starts.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The identity that the rules are evaluated for.
    pub identity: &'a Identity,
    /// The node with the service.
    pub node: &'a Identity,
    /// The name of the service.
    pub service: &'a str,
    /// Only a rule that names the service without `*` gives a right to it.
    pub by_name: bool,
    /// The parameters that are fixed.
    pub params: &'a Params,
    /// The time at which the right to start it ends; `None` leaves it to the node.
    pub expires: Option<UnixTime>,
    /// The number of starts.
    pub uses: u32,
}
