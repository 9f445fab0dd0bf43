//! The running sessions, and how other tasks end them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use levada_capability::{LinkId, SessionId};
use levada_core::Identity;
use levada_core::wire::Reason;
use thiserror::Error;
use tokio::sync::oneshot;

use crate::granted::GrantedPath;
use levada_config::Limits;

/// The running sessions. A session whose uses allow it can run several times at once.
#[derive(Default)]
pub(crate) struct RunningSessions(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    next: u64,
    running: HashMap<u64, Entry>,
}

struct Entry {
    run: Run,
    end: oneshot::Sender<Reason>,
}

/// One start of a session, by a verified chain.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) session: SessionId,
    /// The id of each link of the chain.
    pub(crate) links: Vec<LinkId>,
    /// The identity of each link of the chain.
    pub(crate) identities: Vec<Identity>,
    /// The identity that requested the session.
    pub(crate) requester: Identity,
    /// The identity that started it.
    pub(crate) holder: Identity,
    /// The name of the service.
    pub(crate) service: String,
    /// What a start through middleboxes has granted.
    pub(crate) path: Option<GrantedPath>,
    /// It serves a peer of a share. Their number has a limit of its own.
    pub(crate) is_peer: bool,
}

impl Run {
    /// Whether `identity` is the requester, or its chain contains it.
    pub(crate) fn concerns(&self, identity: &Identity) -> bool {
        self.requester == *identity || self.identities.contains(identity)
    }

    /// The identity against whose limit the run counts: the requester, or the holder of a session
    /// that the owner requested.
    fn counts_for(&self, owner: &Identity) -> Identity {
        if self.requester == *owner { self.holder } else { self.requester }
    }
}

/// Why no more sessions may run.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum RunLimit {
    #[error("the node runs its maximum of {0} sessions (limits.sessions); try again later")]
    Node(usize),
    #[error(
        "{0} sessions of this requester run, which is the maximum (limits.sessions_per_requester); end one, or try again later"
    )]
    Requester(usize),
    #[error(
        "the last {0} running sessions are reserved for the node's owner (limits.sessions_reserved); try again later"
    )]
    Reserved(usize),
}

/// The registration of a run; dropping it removes the run.
pub(crate) struct SessionGuard {
    table: Arc<Mutex<Table>>,
    number: u64,
    /// Receives the reason when another task ends the run.
    pub(crate) ended: oneshot::Receiver<Reason>,
}

impl RunningSessions {
    /// Registers a run. This happens before its start is committed, so that a revocation between
    /// the two finds it. `owner` is the node's identity, for which some runs are reserved, and
    /// which has no limit of its own.
    ///
    /// # Errors
    /// [`RunLimit`]: the limit that was reached; the run is not registered.
    pub(crate) fn register(
        &self,
        run: Run,
        owner: &Identity,
        limits: &Limits,
    ) -> Result<SessionGuard, RunLimit> {
        let (end, ended) = oneshot::channel();
        let mut table = self.lock();
        if !run.is_peer {
            table.check(&run.counts_for(owner), owner, limits)?;
        }
        table.next += 1;
        let number = table.next;
        table.running.insert(number, Entry { run, end });
        Ok(SessionGuard { table: self.0.clone(), number, ended })
    }

    /// Ends every run whose chain contains `link`.
    pub(crate) fn end_link(&self, link: &LinkId, reason: Reason) -> usize {
        self.end_where(reason, |run| run.links.contains(link))
    }

    /// Ends every run of a session.
    pub(crate) fn end_session(&self, session: &SessionId, reason: Reason) -> usize {
        self.end_where(reason, |run| run.session == *session)
    }

    /// Ends every run whose requester is `identity`, or whose chain contains it.
    pub(crate) fn end_identity(&self, identity: &Identity, reason: Reason) -> usize {
        self.end_where(reason, |run| run.concerns(identity))
    }

    /// The runs whose requester is `identity`, or whose chain contains it.
    pub(crate) fn runs_with(&self, identity: &Identity) -> Vec<Run> {
        let table = self.lock();
        let runs = table.running.values().map(|entry| &entry.run);
        runs.filter(|run| run.concerns(identity)).cloned().collect()
    }

    /// The runs of all sessions.
    pub(crate) fn all(&self) -> Vec<Run> {
        self.lock().running.values().map(|entry| entry.run.clone()).collect()
    }

    /// Sets the requester of the runs of the sessions `kept` to the key `new`, after a key
    /// rotation.
    pub(crate) fn set_requester(&self, kept: &[SessionId], new: &Identity) {
        for entry in self.lock().running.values_mut() {
            if kept.contains(&entry.run.session) {
                entry.run.requester = *new;
            }
        }
    }

    /// Ends every run.
    pub(crate) fn end_all(&self, reason: Reason) -> usize {
        self.end_where(reason, |_| true)
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().running.len()
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

    fn lock(&self) -> MutexGuard<'_, Table> {
        lock(&self.0)
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Table {
    fn check(
        &self,
        identity: &Identity,
        owner: &Identity,
        limits: &Limits,
    ) -> Result<(), RunLimit> {
        let runs = || self.running.values().map(|entry| &entry.run).filter(|run| !run.is_peer);
        if runs().count() >= limits.sessions {
            return Err(RunLimit::Node(limits.sessions));
        }
        if identity == owner {
            return Ok(());
        }
        let runs = || runs().map(|run| run.counts_for(owner));
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

impl Drop for SessionGuard {
    fn drop(&mut self) {
        lock(&self.table).running.remove(&self.number);
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
            service: "echo".to_owned(),
            path: None,
            is_peer: false,
        }
    }

    #[test]
    fn a_run_ends_by_any_of_its_links_and_by_its_requester() {
        let sessions = RunningSessions::default();
        let limits = Limits::default();
        let register = |run| sessions.register(run, &OWNER, &limits).unwrap();
        let mut a = register(run(1, &[2, 3], 4));
        let mut b = register(run(1, &[2], 5));
        let mut c = register(run(2, &[6], 5));
        assert_eq!(sessions.end_link(&LinkId::from_bytes([3; 32]), Reason::Revoked), 1);
        assert_eq!(a.ended.try_recv(), Ok(Reason::Revoked));
        assert!(b.ended.try_recv().is_err());
        drop(a);
        assert_eq!(sessions.count(), 2);
        sessions.set_requester(&[SessionId::from_bytes([2; 16])], &Identity::from_bytes([7; 32]));
        assert_eq!(sessions.end_identity(&Identity::from_bytes([5; 32]), Reason::Denied), 1);
        assert_eq!(b.ended.try_recv(), Ok(Reason::Denied));
        assert!(c.ended.try_recv().is_err(), "its requester is the new key");
        assert_eq!(sessions.end_session(&SessionId::from_bytes([2; 16]), Reason::Terminated), 1);
        assert_eq!(c.ended.try_recv(), Ok(Reason::Terminated));
    }

    #[test]
    fn one_requester_cannot_use_all_runs_nor_those_reserved_for_the_owner() {
        let sessions = RunningSessions::default();
        let limits = Limits {
            sessions: 6,
            sessions_per_requester: 3,
            sessions_reserved: 2,
            ..Limits::default()
        };
        let register =
            |requester| sessions.register(run(1, &[requester], requester), &OWNER, &limits);
        let mut held: Vec<_> = (0..3).map(|_| register(4).unwrap()).collect();
        assert_eq!(register(4).err(), Some(RunLimit::Requester(3)));
        held.push(register(5).unwrap());
        assert_eq!(register(5).err(), Some(RunLimit::Reserved(2)));
        held.extend((0..2).map(|_| register(9).unwrap()));
        assert_eq!(register(9).err(), Some(RunLimit::Node(6)));
        held.remove(0);
        held.push(register(9).unwrap());
        assert_eq!(register(4).err(), Some(RunLimit::Node(6)), "the owner uses it");
        // A session that the owner requested for another identity counts for that identity.
        held.clear();
        let register = |holder| sessions.register(run(1, &[holder], 9), &OWNER, &limits);
        held.extend((0..3).map(|_| register(4).unwrap()));
        assert_eq!(register(4).err(), Some(RunLimit::Requester(3)));
    }
}
