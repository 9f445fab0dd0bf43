//! The server's endorsements of answers, as a middlebox verifies them.

use levada_core::Digest;

use crate::audit::{self, Audit, Counters, Kind};
use crate::schedule::Secret;

/// The proofs in audits of the server that it gave an answer to a request.
pub(super) struct Endorsements {
    /// None towards the server.
    key: Option<Secret>,
    /// They are verified, which takes a hash of each plaintext.
    pub(super) wanted: bool,
    /// Earlier audits of the endpoint.
    pub(super) audits: u64,
    /// The one of the current exchange has verified.
    verified: bool,
}

impl Endorsements {
    pub(super) fn new(key: Option<Secret>, wanted: bool) -> Self {
        Self { key, wanted, audits: 0, verified: false }
    }

    /// Takes an audit of the endpoint: at the end of an answer it may prove that. `hop` is this
    /// middlebox; `request` gives the request as this middlebox sent it on.
    pub(super) fn receive(
        &mut self,
        audit: &Audit,
        (hop, counters): (u8, Counters),
        answer: &Digest,
        request: impl FnOnce() -> Option<Digest>,
    ) {
        self.audits += 1;
        self.verified = false;
        if audit.kind != Kind::Exchange {
            return;
        }
        let tag = audit.endorsements.get(usize::from(hop) - 1);
        let request = request().filter(|_| self.wanted);
        self.verified = match (tag, request, &self.key) {
            (Some(tag), Some(request), Some(key)) => {
                audit::endorses(key, counters, (&request, answer), tag)
            }
            _ => false,
        };
    }

    /// Takes the verdict about the current exchange.
    pub(super) fn take_verified(&mut self) -> bool {
        std::mem::take(&mut self.verified)
    }
}
