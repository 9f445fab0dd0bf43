//! Shares and tickets.

use levada_core::{Framing, Identity, UnixTime};
use levada_node::store::{
    ExchangeError, Exchanged, NewSession, NewShare, NewTicket, Permission, SessionState, Store,
};

use super::Home;
use crate::support::{LATER, NOW, id, identity, link};

const ROOT: [u8; 32] = [0x60; 32];

fn new_share(root: [u8; 32]) -> NewShare<'static> {
    NewShare { name: "film", paths: "[\"/f\"]", root, length: 1 << 40, settings: "{}" }
}

fn add_share(store: &Store, root: [u8; 32]) -> i64 {
    store.add_share(&new_share(root), NOW).unwrap()
}

/// Adds the ticket with the hash `byte`, for `peers` identities.
fn add_ticket(store: &Store, share: i64, byte: u8, peers: u32, bound: Option<Identity>) {
    let new = NewTicket { hash: [byte; 32], share, expires: LATER, peers, bound };
    store.add_ticket(&new, NOW).unwrap();
}

/// Exchanges the ticket `byte` for the session `session` of the identity `holder`.
fn exchange(
    store: &Store,
    byte: u8,
    holder: u8,
    session: u8,
    now: UnixTime,
) -> Result<Exchanged, ExchangeError> {
    let new = NewSession {
        id: id(session),
        root: &[session; 32],
        service: "swarm",
        framing: Framing::Auto,
        requester: identity(holder),
        holder: identity(holder),
        link: &[session; 90],
        link_id: link(session),
        expires: LATER,
        about: "",
        permission: Permission::Given,
    };
    store.exchange(&[byte; 32], &new, now)
}

#[test]
fn a_ticket_counts_identities() {
    let home = Home::new();
    let store = home.open();
    let share = add_share(&store, ROOT);
    add_ticket(&store, share, 1, 2, None);
    assert!(matches!(exchange(&store, 1, 1, 10, NOW), Ok(Exchanged::Created)));
    let Ok(Exchanged::Again(session, again)) = exchange(&store, 1, 1, 11, NOW) else {
        panic!("the identity was counted twice");
    };
    assert_eq!((*session.root, again), ([10; 32], vec![10; 90]));
    assert!(store.session(&id(11)).unwrap().is_none());
    drop(store);
    let store = home.open();
    assert!(matches!(exchange(&store, 1, 2, 12, NOW), Ok(Exchanged::Created)));
    assert!(matches!(exchange(&store, 1, 3, 13, NOW), Err(ExchangeError::Exhausted(2))));
    assert!(matches!(exchange(&store, 1, 1, 14, NOW), Ok(Exchanged::Again(..))));
    let ticket = store.ticket(&[1; 32]).unwrap().unwrap();
    assert_eq!((ticket.share, ticket.root, ticket.exchanged), (share, ROOT, 2));
}

#[test]
fn a_ticket_is_refused_if_it_is_unknown_expired_or_for_another() {
    let home = Home::new();
    let store = home.open();
    let share = add_share(&store, ROOT);
    add_ticket(&store, share, 1, 9, None);
    add_ticket(&store, share, 2, 9, Some(identity(1)));
    assert!(matches!(exchange(&store, 3, 1, 10, NOW), Err(ExchangeError::Unknown)));
    assert!(matches!(exchange(&store, 2, 2, 10, NOW), Err(ExchangeError::Bound)));
    assert!(matches!(exchange(&store, 2, 1, 10, NOW), Ok(Exchanged::Created)));
    assert!(matches!(exchange(&store, 1, 1, 11, LATER), Err(ExchangeError::Expired)));
    assert_eq!(store.now_at_least(NOW).unwrap().time, LATER, "the expiry stays");
}

#[test]
fn revoking_a_ticket_revokes_its_sessions_only() {
    let home = Home::new();
    let store = home.open();
    let share = add_share(&store, ROOT);
    add_ticket(&store, share, 1, 9, None);
    add_ticket(&store, share, 2, 9, None);
    exchange(&store, 1, 1, 10, NOW).unwrap();
    exchange(&store, 2, 2, 11, NOW).unwrap();
    let owner = identity(100);
    assert_eq!(store.revoke_ticket(&[1; 32], &owner, NOW).unwrap(), [id(10)]);
    assert_eq!(store.revoke_ticket(&[1; 32], &owner, NOW).unwrap(), []);
    assert!(matches!(store.revoke_ticket(&[3; 32], &owner, NOW), Err(ExchangeError::Unknown)));
    let state = |byte| store.session(&id(byte)).unwrap().unwrap().state;
    assert_eq!((state(10), state(11)), (SessionState::Revoked, SessionState::Requested));
    for holder in [1, 3] {
        assert!(matches!(exchange(&store, 1, holder, 12, NOW), Err(ExchangeError::Revoked)));
    }
}

#[test]
fn revoking_a_session_ends_the_right_of_its_identity() {
    let home = Home::new();
    let store = home.open();
    let share = add_share(&store, ROOT);
    add_ticket(&store, share, 1, 9, None);
    exchange(&store, 1, 1, 10, NOW).unwrap();
    store.revoke_session(&id(10), &identity(100), NOW).unwrap();
    assert!(matches!(exchange(&store, 1, 1, 11, NOW), Err(ExchangeError::Revoked)));
    assert!(matches!(exchange(&store, 1, 2, 11, NOW), Ok(Exchanged::Created)));
}

#[test]
fn shares_survive_a_restart_and_stop_once() {
    let home = Home::new();
    let store = home.open();
    let share = add_share(&store, ROOT);
    add_ticket(&store, share, 1, 9, None);
    exchange(&store, 1, 1, 10, NOW).unwrap();
    drop(store);
    let store = home.open();
    let found = store.same_share(&new_share(ROOT)).unwrap().unwrap();
    assert_eq!((found.id, found.name.as_str(), found.length), (share, "film", 1 << 40));
    assert_eq!(store.shares().unwrap(), [found]);
    // The same content under another path, or with other options, is another share.
    for other in [
        NewShare { paths: "[\"/g\"]", ..new_share(ROOT) },
        NewShare { settings: "{\"chunk\":1024}", ..new_share(ROOT) },
    ] {
        assert_eq!(store.same_share(&other).unwrap(), None);
        let id = store.add_share(&other, NOW).unwrap();
        assert_eq!(store.same_share(&other).unwrap().unwrap().id, id);
        store.stop_share(id, &identity(100), NOW).unwrap().unwrap();
    }
    let owner = identity(100);
    assert_eq!(store.stop_share(share, &owner, NOW).unwrap(), Some(vec![id(10)]));
    assert_eq!(store.stop_share(share, &owner, NOW).unwrap(), None);
    assert_eq!(store.shares().unwrap(), []);
    assert!(matches!(exchange(&store, 1, 2, 12, NOW), Err(ExchangeError::Revoked)));
    assert_ne!(add_share(&store, ROOT), share, "ids are not reused");
}

#[test]
fn an_invalidation_of_all_sessions_revokes_tickets() {
    let home = Home::new();
    let store = home.open();
    let share = add_share(&store, ROOT);
    add_ticket(&store, share, 1, 9, None);
    store.invalidate_sessions("restored", NOW).unwrap();
    assert!(matches!(exchange(&store, 1, 1, 10, NOW), Err(ExchangeError::Revoked)));
}

#[test]
fn a_ticket_for_an_old_key_is_for_its_successor() {
    let home = Home::new();
    let store = home.open();
    let share = add_share(&store, ROOT);
    add_ticket(&store, share, 1, 1, Some(identity(1)));
    let succession = levada_core::Succession::sign(&crate::support::key(1), &identity(2), NOW);
    store.apply_succession(&succession, NOW).unwrap();
    assert!(matches!(exchange(&store, 1, 1, 10, NOW), Err(ExchangeError::Bound)));
    assert!(matches!(exchange(&store, 1, 2, 10, NOW), Ok(Exchanged::Created)));
}
