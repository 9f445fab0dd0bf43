//! What the store acknowledged, and the check of a reopened store against it.

use std::collections::{BTreeMap, BTreeSet};

use levada_capability::LinkId;
use levada_core::{Identity, Succession, UnixTime};
use levada_node::store::{RedeemError, SessionState, StartError, Store};

use crate::support::{LATER, NOW, id, identity, key, link, start_by};

/// One call of the scenario. A byte stands for an id made of this byte; a chain is the ids of its
/// links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    // First in the order in which steps are checked: the check of an invitation moves the time.
    StoreTime(UnixTime),
    /// The clock is read. Every change after it stores its time.
    Now(UnixTime),
    Create(u8),
    Start {
        session: u8,
        chain: &'static [(u8, u32)],
    },
    Revoke {
        session: u8,
        link: u8,
    },
    RevokeSession(u8),
    Terminate(u8),
    Invite(u8),
    Redeem {
        invitation: u8,
        identity: u8,
    },
    Block(u8),
    Rotate {
        old: u8,
        new: u8,
    },
    /// The node stops and starts: the log is written back into the database.
    Reopen,
}

/// The acknowledged calls, and the one in flight.
#[derive(Default)]
pub struct Model {
    done: BTreeSet<Step>,
    /// The uses of each link by acknowledged starts.
    used: BTreeMap<u8, u32>,
    in_flight: Option<Step>,
    /// The time of the clock, and the one at the last acknowledged change.
    now: UnixTime,
    changed: UnixTime,
    complete: bool,
}

pub fn chain_of(chain: &[(u8, u32)]) -> Vec<(LinkId, u32)> {
    chain.iter().map(|(byte, uses)| (link(*byte), *uses)).collect()
}

pub fn succession(old: u8, new: u8) -> Succession {
    Succession::sign(&key(old), &identity(new), NOW)
}

impl Model {
    pub fn begin(&mut self, step: Step) {
        self.in_flight = Some(step);
    }

    pub fn acknowledge(&mut self, step: Step) {
        self.in_flight = None;
        match step {
            Step::Now(time) => self.now = time,
            Step::StoreTime(_) | Step::Reopen => {}
            _ => self.changed = self.now,
        }
        if let Step::Start { chain, .. } = step {
            for (link, _) in chain {
                *self.used.entry(*link).or_default() += 1;
            }
        }
        self.done.insert(step);
    }

    pub fn finish(&mut self) {
        self.complete = true;
    }

    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Asserts that `store` has everything acknowledged; `when` names the run in errors.
    pub fn check(&self, store: &Store, when: &str) {
        store.integrity_check().unwrap_or_else(|error| panic!("{when}: {error}"));
        assert!(store.now(NOW).time >= self.changed, "{when}: the time went back");
        for (link_, used) in &self.used {
            let found = store.used(&link(*link_)).unwrap();
            let most = used + u32::from(self.may_have_used(*link_));
            assert!((*used..=most).contains(&found), "{when}: link {link_}: {found} of {used}");
        }
        self.check_in_flight(store, when);
        for step in &self.done {
            self.check_step(store, *step, when);
        }
        for session in self.created() {
            self.use_up(store, session, when);
        }
        assert!(store.audit(u32::MAX, None).unwrap().len() >= self.done.len() - self.unlogged());
    }

    /// The call in flight took effect as a whole or not at all.
    fn check_in_flight(&self, store: &Store, when: &str) {
        let at = format!("{when}: {:?}", self.in_flight);
        match self.in_flight {
            Some(Step::Start { chain, .. }) => {
                let before = |link: &u8| self.used.get(link).copied().unwrap_or(0);
                let more = |it: &u8| store.used(&link(*it)).unwrap() - before(it);
                let counted: BTreeSet<u32> = chain.iter().map(|(link, _)| more(link)).collect();
                assert!(counted.len() == 1, "{at}: counted {counted:?}");
            }
            Some(Step::Redeem { invitation, identity: key_id }) => {
                let allowed = store.allowed(&identity(key_id), "echo", NOW);
                let used = store.redeem(&[invitation; 32], &identity(97), LATER);
                assert_eq!(matches!(used, Err(RedeemError::Used)), allowed, "{at}");
            }
            Some(Step::Rotate { old, new }) if self.done.contains(&Step::Create(old)) => {
                let is_rotated = store.rotated(&identity(old));
                assert_eq!(
                    store.revoked(&[link(old)]).unwrap().is_some(),
                    is_rotated,
                    "{at} {new}"
                );
            }
            _ => {}
        }
    }

    fn check_step(&self, store: &Store, step: Step, when: &str) {
        let at = format!("{when}: {step:?}");
        let state = |session: u8| store.session(&id(session)).unwrap().expect(&at).state;
        match step {
            Step::Create(session) => {
                let record = store.session(&id(session)).unwrap().expect(&at);
                assert_eq!((*record.root, record.link_id), ([session; 32], link(session)), "{at}");
            }
            Step::Start { session, .. } => {
                assert_ne!(state(session), SessionState::Requested, "{at}")
            }
            Step::Revoke { session, link: revoked } => {
                assert_eq!(store.revoked(&[link(revoked)]).unwrap(), Some(link(revoked)), "{at}");
                let chain = [(link(session), 99), (link(revoked), 99)];
                let outcome = start_by(store, &id(session), &chain, &identity(1), NOW);
                assert!(matches!(outcome, Err(StartError::Revoked(_))), "{at}: {outcome:?}");
            }
            Step::RevokeSession(session) => {
                assert!(state(session).has_ended(), "{at}");
                assert!(store.revoked(&[link(session)]).unwrap().is_some(), "{at}");
            }
            Step::Terminate(session) => {
                assert_eq!(state(session), SessionState::Terminated, "{at}")
            }
            Step::Redeem { invitation, identity: key_id } => {
                let again = store.redeem(&[invitation; 32], &identity(99), NOW);
                assert!(matches!(again, Err(RedeemError::Used)), "{at}: {again:?}");
                assert!(store.allowed(&self.current_key(store, key_id), "echo", NOW), "{at}");
            }
            Step::Invite(invitation) => {
                let outcome = store.redeem(&[invitation; 32], &identity(98), LATER);
                assert!(!matches!(outcome, Err(RedeemError::Unknown)), "{at}");
            }
            Step::Block(key_id) => assert!(store.blocked(&identity(key_id)), "{at}"),
            Step::Rotate { old, .. } => {
                assert!(store.rotated(&identity(old)), "{at}");
            }
            Step::StoreTime(time) => {
                assert!(store.now_at_least(NOW).unwrap().time >= time, "{at}");
            }
            Step::Now(_) | Step::Reopen => {}
        }
    }

    /// Starts a session until it is refused. Together with the acknowledged starts, these are never
    /// more than the uses allow, and at most one less if a start was in flight.
    fn use_up(&self, store: &Store, session: u8, when: &str) {
        const USES: u32 = super::scenario::USES;
        let at = format!("{when}: session {session}");
        let mut starts = self.used.get(&session).copied().unwrap_or(0);
        let refused = loop {
            match start_by(store, &id(session), &[(link(session), USES)], &identity(1), NOW) {
                Ok(()) => starts += 1,
                Err(refused) => break refused,
            }
            assert!(starts <= USES, "{at}: started {starts} times");
        };
        match refused {
            StartError::UsedUp(_) => {
                let wasted = u32::from(self.may_have_used(session));
                assert!(starts + wasted >= USES, "{at}: only {starts} starts");
                assert!(!self.has_ended(session), "{at}: revived");
            }
            StartError::Terminated | StartError::Revoked(_) => {
                assert!(self.has_ended(session) || self.may_have_ended(session), "{at}: {refused}");
            }
            other => panic!("{at}: {other}"),
        }
    }

    fn created(&self) -> Vec<u8> {
        let created = |step: &Step| if let Step::Create(it) = step { Some(*it) } else { None };
        self.done.iter().filter_map(created).collect()
    }

    /// The current key of identity `key_id`; a rotation in flight may have taken effect.
    fn current_key(&self, store: &Store, key_id: u8) -> Identity {
        if !store.rotated(&identity(key_id)) {
            return identity(key_id);
        }
        let rotations = self.done.iter().chain(&self.in_flight);
        let successor = rotations.into_iter().find_map(|step| match step {
            Step::Rotate { old, new } if *old == key_id => Some(identity(*new)),
            _ => None,
        });
        successor.expect("only a rotation rotates a key")
    }

    fn has_ended(&self, session: u8) -> bool {
        self.done.iter().any(|step| ends(*step, session))
    }

    fn may_have_ended(&self, session: u8) -> bool {
        self.in_flight.is_some_and(|step| ends(step, session))
    }

    fn may_have_used(&self, link: u8) -> bool {
        matches!(self.in_flight, Some(Step::Start { chain, .. })
            if chain.iter().any(|(of_chain, _)| *of_chain == link))
    }

    /// The number of acknowledged steps without an entry in the audit log.
    fn unlogged(&self) -> usize {
        let unlogged =
            |step: &&Step| matches!(step, Step::StoreTime(_) | Step::Now(_) | Step::Reopen);
        self.done.iter().filter(unlogged).count()
    }
}

/// The scenario gives session `n` to identity `n`.
fn ends(step: Step, session: u8) -> bool {
    match step {
        Step::RevokeSession(it) | Step::Terminate(it) => it == session,
        Step::Revoke { link, .. } => link == session,
        Step::Rotate { old, .. } => old == session,
        _ => false,
    }
}
