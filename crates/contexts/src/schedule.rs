//! The keys of a session with middleboxes (`docs/protocol.md`, "Keys of contexts").

mod classes;
mod context;
mod direction;
mod hop;
mod secret;

use levada_core::{Digest, Identity, label, label::derive};
use zeroize::Zeroizing;

use super::path::{Path, Right};
pub(crate) use classes::Classes;
pub(crate) use context::ContextKeys;
pub use direction::Direction;
pub(crate) use hop::{HopSecrets, Resume, z};
use levada_channel::Error;
use levada_channel::parts::Exporter;
pub(crate) use secret::{Secret, Tag, TagKey};

/// What both endpoints have: E.
#[derive(Clone)]
pub(crate) struct EndpointSecret(pub(crate) Secret);

impl EndpointSecret {
    /// E = TLS-Exporter(`EXPORTER-levada-ctx`, TH1, 32).
    pub(crate) fn new(exporter: &Exporter, th1: &Digest) -> Result<Self, Error> {
        let mut bytes = Zeroizing::new(Digest::default());
        exporter.export(label::CONTEXTS_EXPORTER, th1, bytes.as_mut())?;
        Ok(Self(Secret::from(bytes)))
    }

    /// a_i.
    pub(crate) fn a(&self, hop: u8) -> Secret {
        self.0.derive(derive::BOX, &[&[hop]])
    }

    fn half(&self, side: &str, class: u8) -> Secret {
        self.0.derive(side, &[&[class]])
    }

    /// The halves that a hop gets from one endpoint: of what it may write, and the derived value of
    /// what it may only read.
    pub(crate) fn halves(&self, classes: &Classes, hop: u8, side: &str) -> Zeroizing<Vec<u8>> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(32 * classes.rows.len()));
        for (class, right) in classes.of_hop(hop) {
            let half = self.half(side, class);
            match right {
                Right::Write => bytes.extend_from_slice(half.bytes()),
                _ => bytes.extend_from_slice(half.derive(derive::READ, &[]).bytes()),
            }
        }
        bytes
    }

    /// The keys of a context; those of context 0 and of private ones follow from E alone.
    pub(crate) fn context(&self, classes: &Classes, context: u8, th2: &Digest) -> ContextKeys {
        let Some(class) = classes.of_context(context) else {
            return ContextKeys { read: self.0.derive(derive::PRIVATE, &[th2]), write: None };
        };
        let client = self.half(derive::CLIENT_HALF, class);
        let server = self.half(derive::SERVER_HALF, class);
        ContextKeys::from_halves(&client, &server, th2)
    }

    /// The key of the endpoints' own tags of a context's records.
    pub(crate) fn endpoint(&self, context: u8, direction: Direction, th2: &Digest) -> Secret {
        self.0.derive(derive::ENDPOINT, &[th2, &[context, direction as u8]])
    }

    pub(crate) fn audit(&self, direction: Direction, th2: &Digest) -> Secret {
        self.0.derive(derive::AUDIT, &[th2, &[direction as u8]])
    }

    /// READY_0 of the endpoint that sends in this direction.
    pub(crate) fn ready(&self, direction: Direction, th2: &Digest) -> Tag {
        self.0.derive(derive::READY, &[th2, &[direction as u8]]).tag(&[th2])
    }
}

/// What an endpoint derives the keys of records and audits from. Each is derived when it is first
/// needed: most sessions use few contexts, and each in one direction.
pub(crate) struct EndpointKeys {
    pub(crate) path: Path,
    pub(crate) classes: Classes,
    pub(crate) secret: EndpointSecret,
    pub(crate) th2: Digest,
    pub(crate) aes: bool,
    /// By hop, from 1; z only at the server.
    pub(crate) hops: Vec<HopSecrets>,
}

impl EndpointKeys {
    pub(crate) fn context(&self, context: u8) -> ContextKeys {
        self.secret.context(&self.classes, context, &self.th2)
    }

    /// The secrets of a hop, from 1.
    pub(crate) fn hop(&self, hop: u8) -> Option<&HopSecrets> {
        self.hops.get(usize::from(hop).checked_sub(1)?)
    }

    /// The key of a party's audits; 0 is the endpoint.
    pub(crate) fn audit(&self, party: u8, direction: Direction) -> Option<Secret> {
        match party {
            0 => Some(self.secret.audit(direction, &self.th2)),
            hop => self.hop(hop)?.audit(direction, &self.th2),
        }
    }

    /// READY of a party; 0 is the endpoint.
    pub(crate) fn ready(&self, party: u8, direction: Direction) -> Option<Tag> {
        match party {
            0 => Some(self.secret.ready(direction, &self.th2)),
            hop => self.hop(hop)?.ready(direction, &self.th2),
        }
    }

    /// The secrets of each hop, with its key.
    pub(crate) fn by_identity(&self) -> impl Iterator<Item = (Identity, &HopSecrets)> {
        self.path.hops.iter().map(|hop| hop.party.identity).zip(&self.hops)
    }
}
