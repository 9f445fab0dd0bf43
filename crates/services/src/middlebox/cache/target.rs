//! What requests ask for, and who may share the answers.

use hyper::header::HeaderValue;
use levada_core::Identity;

/// Those who may share answers: a server's key, and a realm that it named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Realm {
    pub(super) server: Identity,
    pub(super) realm: [u8; 16],
}

/// What a request asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Target {
    pub(super) host: Option<HeaderValue>,
    pub(super) target: String,
}
