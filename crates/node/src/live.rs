//! Sessions that run at this moment, and how they are ended from outside.

use std::collections::HashMap;
use std::sync::Mutex;

use levada_capability::{LinkId, SessionId};
use levada_core::Identity;
use levada_core::wire::Reason;
use thiserror::Error;
use tokio::sync::oneshot;

use crate::config::Limits;

/// The sessions that run now. A session that may be used several times can run several times.
#[derive(Default)]
pub(crate) struct Live(Mutex<Table>);

#[derive(Default)]
struct Table {
    next: u64,
    running: HashMap<u64, Entry>,
}

struct Entry {
    run: Run,
    end: oneshot::Sender<Reason>,
}

/// One start of a session, by a chain that holds.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) session: SessionId,
    /// The id of each link of the chain.
    pub(crate) links: Vec<LinkId>,
    /// The identity of each link of the chain.
    pub(crate) identities: Vec<Identity>,
    /// The identity that requested the session.
    pub(crate) requester: Identity,
    /// The identity that has started it.
    pub(crate) holder: Identity,
}

impl Run {
    /// The identity whose places it takes: what the owner requested for others is theirs.
    fn counts_for(&self, owner: &Identity) -> Identity {
        if self.requester == *owner { self.holder } else { self.requester }
    }
}

/// Why no more sessions may run.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum RunLimit {
    #[error("the node runs as many sessions as it may ({0}; limits.sessions)")]
    Node(usize),
    #[error(
        "the sessions of one requester that run are as many as may ({0}; limits.sessions_per_requester)"
    )]
    Requester(usize),
    #[error(
        "the places for running sessions that are left are the owner's ({0}; limits.sessions_reserved)"
    )]
    Reserved(usize),
}

/// A place in the table; dropping it leaves the table.
pub(crate) struct Ticket<'a> {
    live: &'a Live,
    number: u64,
    /// Resolves when somebody ends the session.
    pub(crate) ended: oneshot::Receiver<Reason>,
}

impl Live {
    /// Enters a run. Done before its start is committed, so that a revocation which comes between
    /// the two finds it. `owner` is the node's identity: some places are its own, and it may take all of them.
    ///
    /// # Errors
    /// [`RunLimit`] says which limit was reached; then nothing was entered.
    pub(crate) fn enter(
        &self,
        run: Run,
        owner: &Identity,
        limits: &Limits,
    ) -> Result<Ticket<'_>, RunLimit> {
        let (end, ended) = oneshot::channel();
        let mut table = self.lock();
        table.check(&run.counts_for(owner), owner, limits)?;
        table.next += 1;
        let number = table.next;
        table.running.insert(number, Entry { run, end });
        Ok(Ticket { live: self, number, ended })
    }

    /// Ends every run that one of whose links is `link`.
    pub(crate) fn end_link(&self, link: &LinkId, reason: Reason) -> usize {
        self.end_where(reason, |run| run.links.contains(link))
    }

    /// Ends every run of a session.
    pub(crate) fn end_session(&self, session: &SessionId, reason: Reason) -> usize {
        self.end_where(reason, |run| run.session == *session)
    }

    /// Ends every run that an identity has requested, holds or has passed on.
    pub(crate) fn end_identity(&self, identity: &Identity, reason: Reason) -> usize {
        self.end_where(reason, |run| {
            run.requester == *identity || run.identities.contains(identity)
        })
    }

    /// What runs of the sessions `kept` was requested by the key `new` from now on.
    pub(crate) fn set_requester(&self, kept: &[SessionId], new: &Identity) {
        for entry in self.lock().running.values_mut() {
            if kept.contains(&entry.run.session) {
                entry.run.requester = *new;
            }
        }
    }

    /// Ends all.
    pub(crate) fn end_all(&self, reason: Reason) -> usize {
        self.end_where(reason, |_| true)
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().running.len()
    }

    /// How often each session runs now.
    pub(crate) fn runs_of(&self, session: &SessionId) -> usize {
        self.lock().running.values().filter(|entry| entry.run.session == *session).count()
    }

    fn end_where(&self, reason: Reason, ends: impl Fn(&Run) -> bool) -> usize {
        let mut table = self.lock();
        let ending = table.running.iter().filter(|(_, entry)| ends(&entry.run));
        let numbers: Vec<u64> = ending.map(|(number, _)| *number).collect();
        for number in &numbers {
            if let Some(entry) = table.running.remove(number) {
                let _ = entry.end.send(reason);
            }
        }
        numbers.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Table {
    fn check(
        &self,
        identity: &Identity,
        owner: &Identity,
        limits: &Limits,
    ) -> Result<(), RunLimit> {
        if self.running.len() >= limits.sessions {
            return Err(RunLimit::Node(limits.sessions));
        }
        if identity == owner {
            return Ok(());
        }
        let runs = || self.running.values().map(|entry| entry.run.counts_for(owner));
        if runs().filter(|other| other == identity).count() >= limits.sessions_per_requester {
            return Err(RunLimit::Requester(limits.sessions_per_requester));
        }
        let reserved = limits.sessions_reserved.min(limits.sessions / 2);
        if runs().filter(|other| other != owner).count() >= limits.sessions - reserved {
            return Err(RunLimit::Reserved(reserved));
        }
        Ok(())
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.live.lock().running.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Identity = Identity::from_bytes([9; 32]);

    fn run(session: u8, links: &[u8], requester: u8) -> Run {
        Run {
            session: SessionId::from_bytes([session; 16]),
            links: links.iter().map(|byte| LinkId::from_bytes([*byte; 32])).collect(),
            identities: links.iter().map(|byte| Identity::from_bytes([*byte; 32])).collect(),
            requester: Identity::from_bytes([requester; 32]),
            holder: Identity::from_bytes([links[0]; 32]),
        }
    }

    #[test]
    fn a_run_ends_by_any_of_its_links_and_by_its_requester() {
        let (live, limits) = (Live::default(), Limits::default());
        let enter = |run| live.enter(run, &OWNER, &limits).unwrap();
        let mut a = enter(run(1, &[2, 3], 4));
        let mut b = enter(run(1, &[2], 5));
        let mut c = enter(run(2, &[6], 5));
        assert_eq!(live.end_link(&LinkId::from_bytes([3; 32]), Reason::Revoked), 1);
        assert_eq!(a.ended.try_recv(), Ok(Reason::Revoked));
        assert!(b.ended.try_recv().is_err());
        drop(a);
        assert_eq!(live.count(), 2);
        live.set_requester(&[SessionId::from_bytes([2; 16])], &Identity::from_bytes([7; 32]));
        assert_eq!(live.end_identity(&Identity::from_bytes([5; 32]), Reason::Denied), 1);
        assert_eq!(b.ended.try_recv(), Ok(Reason::Denied));
        assert!(c.ended.try_recv().is_err(), "it is the new key's");
        assert_eq!(live.end_session(&SessionId::from_bytes([2; 16]), Reason::Terminated), 1);
        assert_eq!(c.ended.try_recv(), Ok(Reason::Terminated));
    }

    #[test]
    fn no_requester_takes_the_places_of_others_nor_those_of_the_owner() {
        let live = Live::default();
        let limits = Limits {
            sessions: 6,
            sessions_per_requester: 3,
            sessions_reserved: 2,
            ..Limits::default()
        };
        let enter = |requester| live.enter(run(1, &[requester], requester), &OWNER, &limits);
        let mut held: Vec<_> = (0..3).map(|_| enter(4).unwrap()).collect();
        assert_eq!(enter(4).err(), Some(RunLimit::Requester(3)));
        held.push(enter(5).unwrap());
        assert_eq!(enter(5).err(), Some(RunLimit::Reserved(2)));
        held.extend((0..2).map(|_| enter(9).unwrap()));
        assert_eq!(enter(9).err(), Some(RunLimit::Node(6)));
        held.remove(0);
        held.push(enter(9).unwrap());
        assert_eq!(enter(4).err(), Some(RunLimit::Node(6)), "the owner has taken it");
        // What the owner has requested for another is the other's.
        held.clear();
        let enter = |holder| live.enter(run(1, &[holder], 9), &OWNER, &limits);
        held.extend((0..3).map(|_| enter(4).unwrap()));
        assert_eq!(enter(4).err(), Some(RunLimit::Requester(3)));
    }
}
