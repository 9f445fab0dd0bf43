//! The secrets of a middlebox, and what it keeps for a later session.

use levada_core::{Digest, label::derive};

use super::direction::Direction;
use super::secret::{Secret, Tag};
use crate::path::ResumeId;

/// What one middlebox has, and the endpoints too: a_i both, z_i the server only.
#[derive(Clone)]
pub(crate) struct HopSecrets {
    pub(crate) a: Secret,
    /// Only at the server and at the middlebox itself.
    pub(crate) z: Option<Secret>,
}

impl HopSecrets {
    /// b_i: what the middlebox proves itself with to the receiving endpoint. None if z is needed
    /// and not here.
    pub(crate) fn b(&self, direction: Direction, th2: &Digest) -> Option<Secret> {
        match direction {
            Direction::ToServer => Some(self.z.as_ref()?.derive(derive::TO_SERVER, &[th2])),
            Direction::ToClient => Some(self.a.clone()),
        }
    }

    pub(crate) fn ready(&self, direction: Direction, th2: &Digest) -> Option<Tag> {
        let key = self.b(direction, th2)?.derive(derive::READY, &[&[direction as u8]]);
        Some(key.tag(&[th2]))
    }

    pub(crate) fn author(&self, context: u8, direction: Direction, th2: &Digest) -> Option<Secret> {
        let context = [context, direction as u8];
        Some(self.b(direction, th2)?.derive(derive::AUTHOR, &[th2, &context]))
    }

    pub(crate) fn audit(&self, direction: Direction, th2: &Digest) -> Option<Secret> {
        Some(self.b(direction, th2)?.derive(derive::AUDIT, &[th2, &[direction as u8]]))
    }

    pub(crate) fn endorse(&self, th2: &Digest) -> Option<Secret> {
        Some(self.z.as_ref()?.derive(derive::ENDORSE, &[th2]))
    }

    /// id_ij of ticket j.
    pub(crate) fn resume_id(&self, ticket: u8, th2: &Digest) -> ResumeId {
        self.a.derive_bytes(derive::RESUME_ID, &[th2, &[ticket]])
    }

    /// psk_ij of ticket j.
    pub(crate) fn psk(&self, ticket: u8, th2: &Digest) -> Secret {
        self.a.derive(derive::RESUME, &[th2, &[ticket]])
    }

    /// y_ij of ticket j; None at the client.
    pub(crate) fn y(&self, ticket: u8, th2: &Digest) -> Option<Secret> {
        Some(self.z.as_ref()?.derive(derive::RESUME, &[th2, &[ticket]]))
    }

    /// What a middlebox keeps for ticket j.
    pub(crate) fn resume(&self, ticket: u8, th2: &Digest) -> Resume {
        let id = self.resume_id(ticket, th2);
        let psk = self.psk(ticket, th2);
        Resume { id, psk, y: self.y(ticket, th2) }
    }
}

/// What a middlebox keeps for one later session.
#[derive(Clone)]
pub(crate) struct Resume {
    pub(crate) id: ResumeId,
    pub(crate) psk: Secret,
    pub(crate) y: Option<Secret>,
}

/// z_i, from the random Z that never leaves the server.
pub(crate) fn z(seed: &Secret, hop: u8) -> Secret {
    seed.derive(derive::BOX, &[&[hop]])
}
