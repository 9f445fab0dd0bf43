//! Rights of the owner: limits, uses, and their removal with all that follows.

use std::collections::HashSet;

use levada_capability::{LinkBody, Rights, mint};
use levada_core::{Framing, Identity, Params, UnixTime};
use levada_node::store::{
    InvitationSummary, NewAuditEntry, NewRight, NewSession, NewShare, NewStart, NewTicket,
    Permission, Removed, RequestError, RightRequest, RightSource, StartError, Store,
};

use super::{Home, allow, start};
use crate::support::{LATER, NOW, id, identity, link};

const OWN: u8 = 200;

/// Creates session `byte` for the identity `byte`, requested by `requester`, with nine starts.
fn create_for(store: &Store, byte: u8, requester: Identity) {
    let body = LinkBody {
        identity: identity(byte),
        rights: Rights::ALL,
        expires: LATER,
        uses: 9,
        max_run: None,
        params: Params::new(),
    };
    let (encoded, _) = mint(&[byte; 32], &body, identity(OWN), id(byte)).unwrap();
    let new = NewSession {
        id: id(byte),
        root: &[byte; 32],
        service: "echo",
        framing: Framing::Auto,
        requester,
        holder: identity(byte),
        link: &encoded,
        link_id: link(byte),
        expires: LATER,
        about: "",
        permission: Permission::Given,
    };
    store.create_session(&new, NOW).unwrap();
}

fn right(byte: u8, service: Option<&str>, expires: UnixTime, uses: Option<u32>) -> NewRight<'_> {
    NewRight { identity: identity(byte), service, expires, uses }
}

/// Requests session `session` of `echo` for `requester`, by a right, for one start.
fn request(store: &Store, requester: u8, session: u8, now: UnixTime) -> Result<(), RequestError> {
    request_until(store, (requester, session), 1, LATER, now)
}

fn request_until(
    store: &Store,
    (requester, session): (u8, u8),
    starts: u32,
    expires: UnixTime,
    now: UnixTime,
) -> Result<(), RequestError> {
    let new = NewSession {
        id: id(session),
        root: &[session; 32],
        service: "echo",
        framing: Framing::Auto,
        requester: identity(requester),
        holder: identity(requester),
        link: &[session; 90],
        link_id: link(session),
        expires,
        about: "",
        permission: Permission::Right { by_name: false, starts },
    };
    store.create_session(&new, now)
}

/// Starts session 3 by a link that its holder has passed on to 1.
fn start_passed_on(store: &Store) -> Result<(), StartError> {
    let start = NewStart {
        session: id(3),
        uses: &[(link(3), 5), (link(31), 5)],
        identities: &[identity(3), identity(1)],
        expires: UnixTime::NEVER,
        requester: identity(OWN),
        by: identity(1),
        about: "",
    };
    store.start(&start, NOW)
}

#[test]
fn a_right_ends_with_its_uses_and_its_time() {
    let home = Home::new();
    let store = home.open();
    store.add_right(&right(1, Some("echo"), LATER, Some(2)), NOW).unwrap();
    request(&store, 1, 1, NOW).unwrap();
    assert!(store.allowed(&identity(1), "echo", NOW));
    request(&store, 1, 2, NOW).unwrap();
    assert!(!store.allowed(&identity(1), "echo", NOW));
    assert!(matches!(request(&store, 1, 3, NOW), Err(RequestError::NotPermitted)));
    assert!(store.session(&id(3)).unwrap().is_none());
    // The count survives a restart.
    drop(store);
    let store = home.open();
    assert!(matches!(request(&store, 1, 3, NOW), Err(RequestError::NotPermitted)));
    // A further right replaces it.
    store.add_right(&right(1, Some("echo"), LATER, None), NOW).unwrap();
    assert_eq!(store.permitted_until(&identity(1), "echo", true, NOW), Some(LATER));
    request(&store, 1, 3, NOW).unwrap();
    assert!(!store.allowed(&identity(1), "echo", LATER), "it has expired");
    assert!(matches!(request(&store, 1, 4, LATER), Err(RequestError::NotPermitted)));
}

#[test]
fn starts_of_a_session_are_uses_of_the_right() {
    let home = Home::new();
    let store = home.open();
    store.add_right(&right(1, Some("echo"), LATER, Some(5)), NOW).unwrap();
    let many = request_until(&store, (1, 1), u32::MAX, LATER, NOW);
    assert!(matches!(many, Err(RequestError::NotPermitted)));
    request_until(&store, (1, 1), 4, LATER, NOW).unwrap();
    assert!(matches!(
        request_until(&store, (1, 2), 2, LATER, NOW),
        Err(RequestError::NotPermitted)
    ));
    request(&store, 1, 2, NOW).unwrap();
    assert!(!store.allowed(&identity(1), "echo", NOW));
}

#[test]
fn two_rights_permit_no_session_that_neither_permits() {
    let home = Home::new();
    let store = home.open();
    let soon = UnixTime(NOW.0 + 10);
    store.add_right(&right(1, Some("echo"), soon, None), NOW).unwrap();
    store.add_right(&right(1, None, LATER, Some(1)), NOW).unwrap();
    // Long sessions use the right that lasts, short ones that of any number.
    request_until(&store, (1, 1), 1, soon, NOW).unwrap();
    request(&store, 1, 2, NOW).unwrap();
    assert!(matches!(request(&store, 1, 3, NOW), Err(RequestError::NotPermitted)));
    request_until(&store, (1, 3), 7, soon, NOW).unwrap();
}

#[test]
fn the_right_that_is_chosen_has_enough_uses_and_lasts_longest() {
    let home = Home::new();
    let store = home.open();
    let soon = UnixTime(NOW.0 + 10);
    store.add_right(&right(1, Some("echo"), UnixTime::NEVER, Some(1)), NOW).unwrap();
    store.add_right(&right(1, None, soon, None), NOW).unwrap();
    let chosen = |starts, expires| {
        let request = RightRequest { service: "echo", by_name: false, starts, expires };
        let chosen = store.chosen_right(&identity(1), &request, NOW);
        chosen.map(|right| (right.uses, right.until))
    };
    assert_eq!(chosen(1, None), Some((Some(1), UnixTime::NEVER)));
    assert_eq!(chosen(1, Some(LATER)), Some((Some(1), LATER)));
    // A short session spares the right with few uses.
    assert_eq!(chosen(1, Some(soon)), Some((None, soon)));
    // Only the other one has enough uses: the session ends with it.
    assert_eq!(chosen(5, Some(LATER)), Some((None, soon)));
    request_until(&store, (1, 1), 5, soon, NOW).unwrap();
    store.disallow(&identity(1), None, NOW).unwrap();
    assert_eq!(chosen(1, None), None);
}

#[test]
fn an_invitation_widens_no_limited_right() {
    let home = Home::new();
    let store = home.open();
    store.add_right(&right(1, Some("echo"), LATER, Some(1)), NOW).unwrap();
    allow(&store, &identity(1), Some("echo"));
    assert_eq!(store.access_rights().unwrap()[0].uses, Some(1));
    request(&store, 1, 1, NOW).unwrap();
    // It is used up, so a new invitation gives a right again.
    allow(&store, &identity(1), Some("echo"));
    let rights = store.access_rights().unwrap();
    assert_eq!((rights[0].source, rights[0].uses), (RightSource::Invitation, None));
}

#[test]
fn what_an_identity_has_passed_on_is_revoked_with_it() {
    let home = Home::new();
    let store = home.open();
    create_for(&store, 3, identity(OWN));
    // 3 has passed it on to 1, and 1 to 2, who has started it. 1 itself has not.
    let links = [(link(3), 5), (link(31), 5), (link(32), 5)];
    let identities = [identity(3), identity(1), identity(2)];
    let start = NewStart {
        session: id(3),
        uses: &links,
        identities: &identities,
        expires: UnixTime::NEVER,
        requester: identity(OWN),
        by: identity(2),
        about: "",
    };
    store.start(&start, NOW).unwrap();
    let removed = store.remove_access(&identity(1), &identity(OWN), NOW).unwrap();
    assert_eq!(removed.links, [link(31)]);
    assert!(matches!(store.start(&start, NOW), Err(StartError::Revoked(_))));
}

#[test]
fn an_unlimited_right_is_used_before_a_limited_one() {
    let home = Home::new();
    let store = home.open();
    store.add_right(&right(1, Some("echo"), LATER, Some(1)), NOW).unwrap();
    store.add_right(&right(1, None, UnixTime::NEVER, None), NOW).unwrap();
    request(&store, 1, 1, NOW).unwrap();
    let rights = store.access_rights().unwrap();
    let uses: Vec<_> = rights.iter().map(|right| (right.service.as_deref(), right.uses)).collect();
    assert_eq!(uses, [(None, None), (Some("echo"), Some(1))]);
    assert!(rights.iter().all(|right| right.source == RightSource::Owner));
}

#[test]
fn one_service_can_be_removed() {
    let home = Home::new();
    let store = home.open();
    for service in ["echo", "clock"] {
        store.add_right(&right(1, Some(service), UnixTime::NEVER, None), NOW).unwrap();
    }
    assert_eq!(store.disallow(&identity(1), Some("echo"), NOW).unwrap(), 1);
    assert_eq!(store.disallow(&identity(1), Some("echo"), NOW).unwrap(), 0);
    assert!(!store.allowed(&identity(1), "echo", NOW));
    assert!(store.allowed(&identity(1), "clock", NOW));
}

#[test]
fn removing_access_revokes_what_was_requested_held_started_and_ticketed() {
    let home = Home::new();
    let store = home.open();
    allow(&store, &identity(1), None);
    // Requested by 1 for 2, by the node for 1, by the node for 3, and by the node for 4.
    create_for(&store, 2, identity(1));
    create_for(&store, 1, identity(OWN));
    create_for(&store, 3, identity(OWN));
    create_for(&store, 4, identity(OWN));
    // 3 has passed its session on to 1, which starts it by a link of its own.
    start_passed_on(&store).unwrap();
    let share = NewShare { name: "a", paths: "[]", root: [9; 32], length: 1, settings: "{}" };
    let share = store.add_share(&share, NOW).unwrap();
    let ticket =
        NewTicket { hash: [8; 32], share, expires: LATER, peers: 1, bound: Some(identity(1)) };
    store.add_ticket(&ticket, NOW).unwrap();
    let held = store.access_capabilities(&identity(OWN), &HashSet::new(), NOW, 100).unwrap();
    let of_one: Vec<_> = held.iter().filter(|one| one.identity == identity(1)).collect();
    assert_eq!(of_one.len(), 3, "requested, held and started: {held:?}");
    let removed = store.remove_access(&identity(1), &identity(OWN), NOW).unwrap();
    assert_eq!((removed.rights, removed.tickets), (1, 1));
    assert_eq!(removed.sessions, [id(1), id(2)]);
    assert_eq!(removed.links, [link(31)]);
    assert!(!store.allowed(&identity(1), "echo", NOW));
    for session in [1, 2] {
        assert!(matches!(start(&store, session, 1), Err(StartError::Revoked(_))));
    }
    assert!(
        matches!(start_passed_on(&store), Err(StartError::Revoked(found)) if found == link(31))
    );
    start(&store, 3, 5).unwrap();
    start(&store, 4, 1).unwrap();
    assert_eq!(store.remove_access(&identity(1), &identity(OWN), NOW).unwrap(), Removed::default());
}

#[test]
fn an_invitation_can_be_cancelled() {
    let home = Home::new();
    let store = home.open();
    store.add_invitation(&[1; 32], Some("echo"), Some("bob"), LATER, NOW).unwrap();
    store.add_invitation(&[2; 32], None, None, LATER, NOW).unwrap();
    let open: Vec<InvitationSummary> = store.invitations(NOW).unwrap();
    assert_eq!(open.iter().map(|one| one.hash).collect::<Vec<_>>(), [[1; 32], [2; 32]]);
    assert_eq!(open[0].name.as_deref(), Some("bob"));
    assert!(store.cancel_invitation(&[1; 32], NOW).unwrap());
    assert!(!store.cancel_invitation(&[1; 32], NOW).unwrap());
    assert!(!store.cancel_invitation(&[2; 32], LATER).unwrap(), "it has expired");
    assert!(store.redeem(&[1; 32], &identity(3), NOW).is_err());
    assert_eq!(store.invitations(NOW).unwrap().len(), 1);
    assert!(store.invitations(LATER).unwrap().is_empty());
}

#[test]
fn the_last_start_of_each_service_by_each_identity_is_found() {
    let home = Home::new();
    let store = home.open();
    let add = |byte, operation, service, time| {
        let entry = NewAuditEntry {
            identity: Some(identity(byte)),
            service,
            ..NewAuditEntry::new(operation, "done")
        };
        store.record(&entry, UnixTime(NOW.0 + time)).unwrap();
    };
    for byte in [1, 2, 3] {
        add(byte, "connect", Some("echo"), 1);
        add(byte, "connect", Some("clock"), 2);
        add(byte, "connect", Some("echo"), u64::from(byte) + 2);
        add(byte, "request", Some("echo"), 9);
        add(byte, "connect", None, 9);
    }
    let mut all = store.last_starts(None).unwrap();
    assert_eq!(all.len(), 3);
    for byte in [1, 2, 3] {
        let of = all.get_mut(&identity(byte)).unwrap();
        of.sort();
        let echo = UnixTime(NOW.0 + u64::from(byte) + 2);
        assert_eq!(*of, [("clock".into(), UnixTime(NOW.0 + 2)), ("echo".into(), echo)]);
        let one = store.last_starts(Some(&identity(byte))).unwrap();
        assert_eq!(one.keys().copied().collect::<Vec<_>>(), [identity(byte)]);
        assert_eq!(one[&identity(byte)].len(), 2);
    }
    assert!(store.last_starts(Some(&identity(9))).unwrap().is_empty());
}
