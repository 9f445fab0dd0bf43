//! A session that is requested or started, as rules see it.

use levada_config::Asked;
use levada_core::{Identity, Params, UnixTime};

/// A session that is requested or started.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The name of the service.
    pub service: &'a str,
    /// The parameters that are fixed.
    pub params: &'a Params,
    /// The time at which the right to start it ends; `None` if the request sets none.
    pub expires: Option<UnixTime>,
    /// The number of starts.
    pub uses: u32,
}

impl<'a> Wanted<'a> {
    /// The same, for `identity` at `node`. With `by_name`, only a rule that names the service
    /// without `*` gives a right to it.
    pub(crate) fn asked_by(
        &self,
        identity: &'a Identity,
        node: &'a Identity,
        by_name: bool,
    ) -> Asked<'a> {
        let Self { service, params, expires, uses } = *self;
        Asked { identity, node, service, by_name, params, expires, uses }
    }
}
