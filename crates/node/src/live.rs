//! Sessions that run at this moment, and how they are ended from outside.

use std::collections::HashMap;
use std::sync::Mutex;

use levada_capability::{LinkId, SessionId};
use levada_core::Identity;
use levada_core::wire::Reason;
use tokio::sync::oneshot;

/// The sessions that run now. A session that may be used several times can run several times.
#[derive(Default)]
pub(crate) struct Live(Mutex<Table>);

#[derive(Default)]
struct Table {
    next: u64,
    running: HashMap<u64, Run>,
}

struct Run {
    session: SessionId,
    links: Vec<LinkId>,
    identities: Vec<Identity>,
    end: oneshot::Sender<Reason>,
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
    /// the two finds it.
    pub(crate) fn enter(
        &self,
        session: SessionId,
        links: Vec<LinkId>,
        identities: Vec<Identity>,
    ) -> Ticket<'_> {
        let (end, ended) = oneshot::channel();
        let mut table = self.lock();
        table.next += 1;
        let number = table.next;
        table.running.insert(number, Run { session, links, identities, end });
        Ticket { live: self, number, ended }
    }

    /// Ends every run that one of whose links is `link`.
    pub(crate) fn end_link(&self, link: &LinkId, reason: Reason) -> usize {
        self.end_where(reason, |run| run.links.contains(link))
    }

    /// Ends every run of a session.
    pub(crate) fn end_session(&self, session: &SessionId, reason: Reason) -> usize {
        self.end_where(reason, |run| run.session == *session)
    }

    /// Ends every run that an identity holds or has passed on.
    pub(crate) fn end_identity(&self, identity: &Identity, reason: Reason) -> usize {
        self.end_where(reason, |run| run.identities.contains(identity))
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
        self.lock().running.values().filter(|run| run.session == *session).count()
    }

    fn end_where(&self, reason: Reason, ends: impl Fn(&Run) -> bool) -> usize {
        let mut table = self.lock();
        let numbers: Vec<u64> =
            table.running.iter().filter(|(_, run)| ends(run)).map(|(number, _)| *number).collect();
        for number in &numbers {
            if let Some(run) = table.running.remove(number) {
                let _ = run.end.send(reason);
            }
        }
        numbers.len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
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

    #[test]
    fn a_run_ends_by_any_of_its_links() {
        let live = Live::default();
        let session = SessionId::from_bytes([1; 16]);
        let links = [LinkId::from_bytes([2; 32]), LinkId::from_bytes([3; 32])];
        let mut a = live.enter(session, links.to_vec(), vec![Identity::from_bytes([4; 32])]);
        let mut b = live.enter(session, links[..1].to_vec(), vec![]);
        assert_eq!(live.end_link(&links[1], Reason::Revoked), 1);
        assert_eq!(a.ended.try_recv(), Ok(Reason::Revoked));
        assert!(b.ended.try_recv().is_err());
        drop(a);
        assert_eq!(live.count(), 1);
        assert_eq!(live.end_session(&session, Reason::Terminated), 1);
        assert_eq!(b.ended.try_recv(), Ok(Reason::Terminated));
    }
}
