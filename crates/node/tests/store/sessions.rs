//! Sessions: creation, end, invalidation, and the audit log.

use levada_core::Framing;
use levada_node::store::{
    AuditEntry, EndError, NewAuditEntry, RedeemError, SessionFilter, SessionState, StartError,
};

use super::{Home, create, start};
use crate::support::{LATER, NOW, id, identity, link, start_by};

#[test]
fn a_session_is_read_back_after_a_restart() {
    let home = Home::new();
    create(&home.open(), 1);
    let store = home.open();
    let record = store.session(&id(1)).unwrap().unwrap();
    assert_eq!(*record.root, [1; 32]);
    assert_eq!((record.service.as_str(), record.framing), ("echo", Framing::Block(512)));
    assert_eq!((record.state, record.link_id), (SessionState::Requested, link(1)));
    assert_eq!(format!("{record:?}"), "SessionRecord(echo, block:512, requested)");
    assert!(store.session(&id(2)).unwrap().is_none());
}

#[test]
fn an_ended_session_stays_ended() {
    let home = Home::new();
    let store = home.open();
    (1..=4).for_each(|byte| create(&store, byte));
    let by = identity(9);
    assert!(store.terminate(&id(1), &by, NOW).unwrap());
    assert!(!store.terminate(&id(1), &by, NOW).unwrap());
    assert!(store.revoke(&link(2), &id(2), &by, NOW).unwrap());
    assert!(!store.revoke(&link(2), &id(2), &by, NOW).unwrap());
    assert!(store.revoke_session(&id(3), &by, NOW).unwrap());
    assert!(matches!(store.terminate(&id(9), &by, NOW), Err(EndError::UnknownSession)));
    assert!(matches!(store.revoke_session(&id(9), &by, NOW), Err(EndError::UnknownSession)));
    assert!(matches!(store.revoke(&link(1), &id(9), &by, NOW), Err(EndError::UnknownSession)));
    drop(store);
    let store = home.open();
    assert!(matches!(start(&store, 1, 1), Err(StartError::Terminated)));
    assert!(matches!(start(&store, 2, 1), Err(StartError::Revoked(found)) if found == link(2)));
    assert!(matches!(start(&store, 3, 1), Err(StartError::Revoked(found)) if found == link(3)));
    assert_eq!(store.revoked(&[link(1), link(3)]).unwrap(), Some(link(3)));
    assert_eq!(store.revoked(&[link(1)]).unwrap(), None);
    start(&store, 4, 1).unwrap();
    let all = store.sessions(&SessionFilter::default()).unwrap();
    assert_eq!(all.iter().filter(|session| !session.state.has_ended()).count(), 1);
    let of_two = SessionFilter { by: Some(identity(2)), ..SessionFilter::default() };
    assert_eq!(store.sessions(&of_two).unwrap()[0].state, SessionState::Revoked);
}

#[test]
fn a_revoked_link_affects_only_links_derived_from_it() {
    let home = Home::new();
    let store = home.open();
    create(&store, 1);
    store.revoke(&link(11), &id(1), &identity(1), NOW).unwrap();
    let chain = |ids: &[u8]| ids.iter().map(|byte| (link(*byte), 9)).collect::<Vec<_>>();
    let outcome = start_by(&store, &id(1), &chain(&[1, 11, 12]), &identity(12), NOW);
    assert!(matches!(outcome, Err(StartError::Revoked(found)) if found == link(11)));
    start_by(&store, &id(1), &chain(&[1, 13]), &identity(13), NOW).unwrap();
}

#[test]
fn the_schema_refuses_to_revive_a_right() {
    let home = Home::new();
    let store = home.open();
    create(&store, 1);
    start(&store, 1, 1).unwrap();
    store.revoke_session(&id(1), &identity(1), NOW).unwrap();
    drop(store);
    let raw = home.open_raw();
    for sql in [
        "UPDATE session SET state = 'requested'",
        "UPDATE link_use SET used = used - 1",
        "DELETE FROM link_use",
        "DELETE FROM revocation",
        "UPDATE audit SET text = ''",
        "DELETE FROM audit",
        "REPLACE INTO audit SELECT * FROM audit",
    ] {
        assert!(raw.execute(sql, []).is_err(), "{sql}");
    }
}

#[test]
fn invalidation_ends_sessions_and_voids_invitations() {
    let home = Home::new();
    let store = home.open();
    (1..=3).for_each(|byte| create(&store, byte));
    start(&store, 1, 9).unwrap();
    store.revoke_session(&id(3), &identity(3), NOW).unwrap();
    store.add_invitation(&[1; 32], None, None, LATER, NOW).unwrap();
    assert_eq!(store.invalidate_sessions("restored from a backup", NOW).unwrap(), 2);
    assert!(matches!(start(&store, 1, 9), Err(StartError::Terminated)));
    assert!(matches!(start(&store, 2, 9), Err(StartError::Terminated)));
    assert!(matches!(start(&store, 3, 9), Err(StartError::Revoked(_))));
    let redeemed = store.redeem(&[1; 32], &identity(1), NOW);
    assert!(matches!(redeemed, Err(RedeemError::Used)));
    let last = &store.audit(1, None).unwrap()[0];
    assert_eq!(last.text, "2 sessions terminated: restored from a backup");
}

#[test]
fn the_audit_log_has_identity_operation_and_capability() {
    let home = Home::new();
    let store = home.open();
    create(&store, 1);
    start(&store, 1, 1).unwrap();
    let refused = NewAuditEntry {
        identity: Some(identity(2)),
        text: "not allowed",
        ..NewAuditEntry::new("request", "denied")
    };
    store.record(&refused, LATER).unwrap();
    let entries = store.audit(10, None).unwrap();
    let words: Vec<_> =
        entries.iter().map(|e| (e.operation.as_str(), e.outcome.as_str())).collect();
    assert_eq!(words, [("request", "denied"), ("connect", "started"), ("request", "granted")]);
    let connect = AuditEntry {
        id: 2,
        time: NOW,
        identity: Some(identity(1)),
        operation: "connect".into(),
        service: Some("echo".into()),
        session: Some(id(1)),
        link: Some(link(1)),
        outcome: "started".into(),
        text: String::new(),
    };
    assert_eq!(store.audit(1, Some(3)).unwrap(), [connect]);
}
