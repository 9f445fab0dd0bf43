//! What must hold in every setting.

use std::collections::BTreeSet;

use crate::setting::Setting;
use crate::term::{Node, Term};
use crate::world::World;

/// A property that does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Violation {
    /// The attacker can compute this secret.
    Secret(&'static str),
    /// An honest role accepted this, and who should have made it did not.
    Imitated(&'static str),
    /// The attacker could have made what an honest role accepted here.
    Forgeable(&'static str),
}

/// The violations, and how much was searched.
#[derive(Debug)]
pub struct Outcome {
    /// Each violation once.
    pub violations: BTreeSet<Violation>,
    /// Sessions that the server began, full and resumed.
    pub sessions: usize,
    /// Sessions that the honest client accepted: full, resumed.
    pub accepted: [usize; 2],
    /// Answers that a middlebox stored.
    pub stored: usize,
}

/// Searches a setting in full.
pub fn check(setting: Setting) -> Outcome {
    let mut world = World::run(setting);
    let mut violations = BTreeSet::new();
    for (what, secret) in std::mem::take(&mut world.secrets) {
        if world.arrives(secret) {
            violations.insert(Violation::Secret(what));
        }
    }
    let mut stored = 0;
    for accepted in std::mem::take(&mut world.accepted) {
        stored += usize::from(accepted.what.contains("cache"));
        if world.made.get(&accepted.proof) != Some(&accepted.expected) {
            violations.insert(Violation::Imitated(accepted.what));
        }
        if world.can_forge(accepted.proof) {
            violations.insert(Violation::Forgeable(accepted.what));
        }
    }
    let resumed =
        |session: usize| world.client_hellos[world.server_sessions[session].hello].ticket.is_some();
    let mut accepted = [0, 0];
    for (session, _) in &world.client_accepted {
        accepted[usize::from(resumed(*session))] += 1;
    }
    Outcome { violations, sessions: world.server_sessions.len(), accepted, stored }
}

impl World {
    /// Whether the attacker has the key of a tag or signature. If not, an honest role made it in
    /// every run in which it was accepted, because there is no other way to it.
    fn can_forge(&mut self, proof: Term) -> bool {
        let key = match *self.terms.node(proof) {
            Node::Keyed(key, ..) | Node::Sealed { key, .. } => key,
            Node::Signed { secret, .. } => secret,
            _ => return false,
        };
        self.arrives(key)
    }
}
