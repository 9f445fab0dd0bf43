//! Lists of sessions and of the audit log, with their conditions.

use std::collections::HashSet;

use levada_capability::{LinkBody, LinkId, Rights, SessionId, mint};
use levada_core::{Params, UnixTime};
use levada_node::store::{AuditFilter, NewSession, NewStart, SessionFilter, Store};

use super::{Home, new_session};
use crate::support::{LATER, NOW, id, identity, link};

const NODE: u8 = 99;

fn at(seconds: u64) -> UnixTime {
    UnixTime(NOW.0 + seconds)
}

/// Creates session `byte` for the holder `byte`, after as many seconds, with two uses.
fn create(store: &Store, byte: u8, requester: u8, service: &str) {
    let body = LinkBody {
        identity: identity(byte),
        rights: Rights::ALL,
        expires: LATER,
        uses: 2,
        max_run: None,
        params: Params::new(),
    };
    let (encoded, _) = mint(&[0; 32], &body, identity(NODE), id(byte)).unwrap();
    let new =
        NewSession { requester: identity(requester), service, link: &encoded, ..new_session(byte) };
    store.create_session(&new, at(u64::from(byte))).unwrap();
}

/// Starts session `byte` by a chain of the links `links`, which name the identities of their bytes.
fn start(store: &Store, byte: u8, links: &[u8]) {
    let uses: Vec<(LinkId, u32)> = links.iter().map(|byte| (link(*byte), 2)).collect();
    let identities: Vec<_> = links.iter().map(|byte| identity(*byte)).collect();
    let session = id(byte);
    let requester = store.session(&session).unwrap().unwrap().requester;
    let by = identity(*links.last().unwrap());
    let start = NewStart {
        session,
        uses: &uses,
        identities: &identities,
        expires: LATER,
        requester,
        by,
        about: "",
    };
    store.start(&start, at(100)).unwrap();
}

fn scene(home: &Home) -> Store {
    let store = home.open();
    create(&store, 1, 10, "echo");
    create(&store, 2, 10, "clock");
    create(&store, 3, 11, "echo");
    create(&store, 4, 12, "echo");
    start(&store, 3, &[3, 30]);
    store
}

fn ids(store: &Store, filter: SessionFilter) -> Vec<SessionId> {
    let sessions = store.sessions(&filter).unwrap();
    sessions.iter().map(|session| session.id).collect()
}

#[test]
fn sessions_that_run_are_first_and_then_the_newest() {
    let home = Home::new();
    let store = scene(&home);
    let all = || SessionFilter::default();
    assert_eq!(ids(&store, all()), [4, 3, 2, 1].map(id));
    let running = HashSet::from([id(1), id(2)]);
    let first = SessionFilter { running: running.clone(), ..all() };
    assert_eq!(ids(&store, first), [2, 1, 4, 3].map(id));
    let few = SessionFilter { running: running.clone(), limit: 3, ..all() };
    assert_eq!(ids(&store, few), [2, 1, 4].map(id));
    let only = SessionFilter { running, only_running: true, since: at(2), ..all() };
    assert_eq!(ids(&store, only), [id(2)]);
}

#[test]
fn all_conditions_apply() {
    let home = Home::new();
    let store = scene(&home);
    let by = |byte: u8| SessionFilter { by: Some(identity(byte)), ..SessionFilter::default() };
    assert_eq!(ids(&store, by(10)), [2, 1].map(id), "requested");
    assert_eq!(ids(&store, by(4)), [id(4)], "held");
    assert_eq!(ids(&store, by(30)), [id(3)], "started");
    let service = |name: &str| Some(name.to_owned());
    let echo = SessionFilter { service: service("echo"), ..SessionFilter::default() };
    assert_eq!(ids(&store, echo), [4, 3, 1].map(id));
    assert_eq!(ids(&store, SessionFilter { service: service("echo"), ..by(10) }), [id(1)]);
    assert_eq!(ids(&store, SessionFilter { since: at(2), ..by(10) }), [id(2)]);
    assert_eq!(ids(&store, SessionFilter { limit: 1, ..by(10) }), [id(2)]);
    assert!(ids(&store, SessionFilter { service: service("echo"), ..by(2) }).is_empty());
}

#[test]
fn a_session_is_used_up_by_its_first_link() {
    let home = Home::new();
    let store = scene(&home);
    let session = |store: &Store| {
        let found = store.sessions(&SessionFilter::default()).unwrap();
        found.into_iter().find(|session| session.id == id(3)).unwrap()
    };
    assert_eq!((session(&store).starts_left(NOW), store.open_sessions().unwrap()), (1, 4));
    start(&store, 3, &[3]);
    assert_eq!((session(&store).starts_left(NOW), store.open_sessions().unwrap()), (0, 3));
    assert!(session(&store).has_expired(LATER) && !session(&store).has_expired(NOW));
    store.store_time(LATER).unwrap();
    assert_eq!(store.open_sessions().unwrap(), 0);
}

#[test]
fn the_log_has_the_same_conditions() {
    let home = Home::new();
    let store = scene(&home);
    let all = AuditFilter::default;
    let ids = |filter: &AuditFilter, limit| {
        let entries = store.newest_entries(filter, limit).unwrap();
        entries.iter().map(|entry| entry.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(&all(), 9), [5, 4, 3, 2, 1]);
    assert_eq!(ids(&all(), 2), [5, 4]);
    assert_eq!(ids(&AuditFilter { by: Some(identity(10)), ..all() }, 9), [2, 1]);
    let clock = AuditFilter { service: Some("clock".into()), ..all() };
    assert_eq!(ids(&clock, 9), [2]);
    assert_eq!(ids(&AuditFilter { since: at(4), ..all() }, 9), [5, 4]);
    assert!(ids(&AuditFilter { since: at(101), ..all() }, 9).is_empty());
    assert!(ids(&AuditFilter { by: Some(identity(10)), ..clock }, 9) == [2]);
    let next = |filter: &AuditFilter| {
        let (entries, after) = store.next_entries(filter, 2).unwrap();
        (entries.iter().map(|entry| entry.id).collect::<Vec<_>>(), after)
    };
    assert_eq!(next(&AuditFilter { after: 2, ..all() }), (vec![3, 4], 4));
    // Entries that do not match are not read again.
    let clock = AuditFilter { service: Some("clock".into()), ..all() };
    assert_eq!(next(&clock), (vec![2], 5));
    assert_eq!(next(&AuditFilter { after: 9, ..clock }), (vec![], 9));
}

#[test]
fn access_has_what_runs_although_it_has_expired() {
    let home = Home::new();
    let store = scene(&home);
    let of_running = |running| {
        let found = store.access_capabilities(&identity(NODE), &running, LATER, 100).unwrap();
        found.iter().map(|one| (one.identity, one.session.id, one.uses)).collect::<HashSet<_>>()
    };
    assert!(of_running(HashSet::new()).is_empty());
    let expected = [11, 3, 30].map(|byte| (identity(byte), id(3), 0));
    assert_eq!(of_running(HashSet::from([id(3)])), HashSet::from(expected));
}
