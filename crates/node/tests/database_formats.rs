//! This version reads the databases of each released version, and keeps their content.
//!
//! A fixture is the SQL dump of a database; it is never changed. A new schema version adds a
//! fixture.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use levada_capability::LinkId;
use levada_config::Member;
use levada_core::{Framing, Identity, Succession, UnixTime};
use levada_home::known::Known;
use levada_node::store::{
    Pruned, RedeemError, RightSource, RuleGrant, SessionFilter, SessionState, StartError, Store,
    StoreError,
};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::support::{id, identity, key, link, start_by};

const NODE_1: &str = include_str!("fixtures/node-v1.db.sql");
const NODE_2: &str = include_str!("fixtures/node-v2.db.sql");
const NODE_3: &str = include_str!("fixtures/node-v3.db.sql");
const NODE_4: &str = include_str!("fixtures/node-v4.db.sql");
const NODE_5: &str = include_str!("fixtures/node-v5.db.sql");
const NODE_6: &str = include_str!("fixtures/node-v6.db.sql");
const NODE_7: &str = include_str!("fixtures/node-v7.db.sql");
const NODE_8: &str = include_str!("fixtures/node-v8.db.sql");
const KNOWN_1: &str = include_str!("fixtures/known-v1.db.sql");
const KNOWN_2: &str = include_str!("fixtures/known-v2.db.sql");
/// The time at which the fixtures were made.
const THEN: UnixTime = UnixTime(1_700_000_000);

/// A database file with the content of a fixture.
fn restore(sql: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fixture.db");
    Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    (folder, path)
}

#[test]
fn node_1_sessions_are_read() {
    let (_folder, path) = restore(NODE_1);
    let store = Store::open(&path).unwrap();
    store.integrity_check().unwrap();
    let mut sessions = store.sessions(&SessionFilter::default()).unwrap();
    sessions.sort_by_key(|session| session.id);
    let states: Vec<_> = sessions.iter().map(|session| session.state).collect();
    use SessionState::{Expired, Requested, Revoked, Started, Terminated};
    assert_eq!(states, [Requested, Started, Terminated, Revoked, Expired, Revoked]);
    let [first, second] = [&sessions[0], &sessions[1]];
    assert_eq!((first.expires, first.started, first.starts), (UnixTime::NEVER, None, 0));
    assert_eq!((second.expires, second.started), (UnixTime(2_000_000_000), Some(THEN)));
    assert_eq!((second.requester, second.holder), (identity(100), identity(2)));
    assert_eq!((second.framing, second.starts), (Framing::Block(512), 2));
    let record = store.session(&id(2)).unwrap().unwrap();
    assert_eq!((*record.root, record.service.as_str()), ([2; 32], "exec"));
}

#[test]
fn node_1_revives_no_ended_right() {
    let (_folder, path) = restore(NODE_1);
    let store = Store::open(&path).unwrap();
    let start = |chain: &[(LinkId, u32)]| {
        let session = id(chain[0].0.as_bytes()[0]);
        start_by(&store, &session, chain, &identity(1), THEN)
    };
    assert!(matches!(start(&[(link(2), 3), (link(20), 1)]), Err(StartError::UsedUp(_))));
    assert!(matches!(start(&[(link(2), 3), (link(21), 1)]), Err(StartError::Revoked(_))));
    assert!(matches!(start(&[(link(3), 1)]), Err(StartError::Terminated)));
    assert!(matches!(start(&[(link(4), 1)]), Err(StartError::Revoked(_))));
    assert!(matches!(start(&[(link(5), 1)]), Err(StartError::Expired)));
    start(&[(link(1), 1)]).unwrap();
    start(&[(link(2), 3)]).unwrap();
    assert!(matches!(start(&[(link(2), 3)]), Err(StartError::UsedUp(_))));
    assert_eq!(store.now_at_least(THEN).unwrap().time, UnixTime(THEN.0 + 60));
}

#[test]
fn node_1_policy_and_audit_log_are_read() {
    let (_folder, path) = restore(NODE_1);
    let store = Store::open(&path).unwrap();
    assert!(store.allowed(&identity(30), "echo", THEN));
    assert!(!store.allowed(&identity(30), "exec", THEN));
    assert!(store.allowed(&identity(31), "exec", THEN));
    assert!(store.blocked(&identity(32)));
    assert!(store.rotated(&identity(6)));
    let again = store.redeem(&[1; 32], &identity(33), THEN);
    assert!(matches!(again, Err(RedeemError::Used)));
    assert_eq!(store.redeem(&[2; 32], &identity(33), THEN).unwrap().service, None);
    let entries = store.audit(100, None).unwrap();
    let denied = entries.iter().find(|entry| entry.outcome == "denied").unwrap();
    assert_eq!((denied.identity, denied.time), (Some(identity(33)), THEN));
    assert_eq!((denied.service.as_deref(), denied.text.as_str()), (Some("exec"), "not allowed"));
    let starts = entries.iter().filter(|entry| entry.operation == "connect").count();
    assert_eq!(starts, 2);
}

#[test]
fn node_2_invitations_have_names() {
    let (_folder, path) = restore(NODE_2);
    let store = Store::open(&path).unwrap();
    store.integrity_check().unwrap();
    let redeemed = store.redeem(&[4; 32], &identity(33), THEN).unwrap();
    assert_eq!(redeemed.name.as_deref(), Some("bob"));
    assert_eq!(store.redeem(&[2; 32], &identity(34), THEN).unwrap().name, None);
}

#[test]
fn node_3_shares_and_tickets_are_read() {
    let (_folder, path) = restore(NODE_3);
    let store = Store::open(&path).unwrap();
    store.integrity_check().unwrap();
    let shares = store.shares().unwrap();
    let [share] = shares.as_slice() else { panic!("{shares:?}") };
    assert_eq!((share.name.as_str(), share.root, share.length), ("film.mkv", [0x50; 32], 1 << 20));
    let [open, revoked] =
        [0x51, 0x52].map(|byte| store.ticket(&[byte; 32]).unwrap().unwrap().revoked);
    assert_eq!((open, revoked), (None, Some(THEN)));
}

#[test]
fn node_4_has_shares_of_one_content() {
    let (_folder, path) = restore(NODE_4);
    let store = Store::open(&path).unwrap();
    store.integrity_check().unwrap();
    let shares = store.shares().unwrap();
    let found: Vec<_> = shares.iter().map(|share| (share.name.as_str(), share.root)).collect();
    assert_eq!(found, [("film.mkv", [0x50; 32]), ("copy.mkv", [0x50; 32])]);
}

#[test]
fn node_5_has_rights_with_an_end_and_a_number_of_uses() {
    let (_folder, path) = restore(NODE_5);
    let store = Store::open(&path).unwrap();
    store.integrity_check().unwrap();
    let rights = store.access_rights().unwrap();
    let limited: Vec<_> = rights.iter().filter(|right| right.uses.is_some()).collect();
    let [right] = limited.as_slice() else { panic!("{rights:?}") };
    assert_eq!((right.identity, right.service.as_deref()), (identity(31), Some("clock")));
    assert_eq!((right.source, right.uses), (RightSource::Owner, Some(3)));
    assert_eq!(right.expires, UnixTime(THEN.0 + 86_400));
    let sources: Vec<_> = rights.iter().map(|right| right.source).collect();
    assert_eq!(sources.iter().filter(|one| **one == RightSource::Invitation).count(), 2);
}

#[test]
fn node_6_has_a_retention_and_sessions_that_are_used_up() {
    let (_folder, path) = restore(NODE_6);
    let store = Store::open(&path).unwrap();
    store.integrity_check().unwrap();
    let day = 86_400;
    // Session 2, which is used up, expires long after the others that were not given for ever.
    assert_eq!(store.open_sessions().unwrap(), 1);
    store.store_time(UnixTime(2_000_000_000 + 91 * day)).unwrap();
    let pruned = store.prune(&HashSet::new(), 1000).unwrap();
    assert!(pruned.sessions > 0 && pruned.audit > 0, "{pruned:?}");
    let left = store.sessions(&SessionFilter::default()).unwrap();
    assert!(left.iter().all(|session| session.expires == UnixTime::NEVER), "{left:?}");
    store.integrity_check().unwrap();
}

/// A fixture of an earlier version keeps everything until a node sets a retention.
#[test]
fn node_5_keeps_all_until_a_retention_is_set() {
    let (_folder, path) = restore(NODE_5);
    let store = Store::open(&path).unwrap();
    store.store_time(UnixTime(1 << 40)).unwrap();
    assert_eq!(store.prune(&HashSet::new(), 1000).unwrap(), Pruned::default());
}

#[test]
fn node_7_has_groups_and_sets_of_groups() {
    let (_folder, path) = restore(NODE_7);
    let store = Store::open(&path).unwrap();
    store.integrity_check().unwrap();
    let groups = store.local_groups().unwrap();
    let member = Member::Identity(Identity::from_bytes([30; 32]));
    let [family] = groups.as_slice() else { panic!("{groups:?}") };
    assert_eq!(
        (family.name.as_str(), &family.members),
        ("family", &vec![member, Member::Group("others".into())])
    );
    let rights = store.group_rights().unwrap();
    let [right] = rights.as_slice() else { panic!("{rights:?}") };
    assert_eq!((right.service.as_deref(), right.expires), (Some("echo"), UnixTime(2_000_000_000)));
    let signer = Identity::from_bytes([40; 32]);
    assert!(store.group_set(&signer, "default").unwrap().is_some());
    let export = store.group_export("default").unwrap().unwrap();
    assert_eq!((export.version, export.groups), (8, vec!["family".to_owned()]));
    assert_eq!(store.session(&id(1)).unwrap().unwrap().by_group, None);
}

#[test]
fn node_8_has_the_rule_that_has_given_a_session() {
    let (_folder, path) = restore(NODE_8);
    let store = Store::open(&path).unwrap();
    store.integrity_check().unwrap();
    let rule = |byte| store.session(&id(byte)).unwrap().unwrap().rule;
    assert_eq!(rule(1), Some(RuleGrant { approved_by: None }));
    let approved_by = Some(Identity::from_bytes([0x46; 32]));
    assert_eq!(rule(2), Some(RuleGrant { approved_by }));
    assert_eq!(rule(3), None);
    // Earlier versions had no rules.
    let (_folder, path) = restore(NODE_7);
    assert_eq!(Store::open(&path).unwrap().session(&id(1)).unwrap().unwrap().rule, None);
}

#[test]
fn known_1_and_2_are_read() {
    for sql in [KNOWN_1, KNOWN_2] {
        known_is_read(sql);
    }
}

fn known_is_read(sql: &str) {
    let (_folder, path) = restore(sql);
    let known = Known::open(&path).unwrap();
    known.integrity_check().unwrap();
    let tower = known.by_name("tower").unwrap().unwrap();
    assert_eq!((tower.identity, tower.added), (identity(1), THEN));
    assert_eq!(tower.addresses, ["192.0.2.1:5382", "[2001:db8::1]:5382"]);
    assert_eq!(known.by_name("box").unwrap().unwrap().identity, identity(3));
    assert_eq!(known.successor(&identity(2)).unwrap(), Some(identity(3)));
    assert_eq!(known.capabilities_held_elsewhere(&identity(100), THEN).unwrap(), 2);
    assert_eq!(
        known.capabilities_held_elsewhere(&identity(100), UnixTime(THEN.0 + 3600)).unwrap(),
        1
    );
    let rotations = [
        Succession::sign(&key(100), &identity(101), THEN),
        Succession::sign(&key(101), &identity(102), UnixTime(THEN.0 + 1)),
    ];
    assert_eq!(known.successions().unwrap(), rotations);
    assert!(known.acknowledged(&identity(1), &identity(102)).unwrap());
    assert!(!known.acknowledged(&identity(1), &identity(101)).unwrap());
    known.note_success(&identity(1), "[2001:db8::1]:5382", THEN).unwrap();
    let tower = known.by_name("tower").unwrap().unwrap();
    assert_eq!(tower.addresses, ["[2001:db8::1]:5382", "192.0.2.1:5382"]);
}

/// A released schema is never changed in place: a new database has the schema of the newest
/// fixture.
#[test]
fn the_newest_schemas_are_those_of_the_fixtures() {
    let folder = tempfile::tempdir().unwrap();
    let [node, known] = ["node.db", "known.db"].map(|name| folder.path().join(name));
    drop(Store::open(&node).unwrap());
    drop(Known::open(&known).unwrap());
    for (fresh, sql) in [(&node, NODE_8), (&known, KNOWN_2)] {
        let (_folder, fixture) = restore(sql);
        assert_eq!(schema(fresh), schema(&fixture), "{}", fresh.display());
    }
}

#[test]
fn each_fixture_is_foreign_to_the_other_database() {
    let (_folder, path) = restore(KNOWN_1);
    assert!(matches!(Store::open(&path), Err(StoreError::Foreign { .. })));
    let (_folder, path) = restore(NODE_1);
    assert!(matches!(Known::open(&path), Err(StoreError::Foreign { .. })));
}

fn schema(path: &Path) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let number = |name: &str| {
        let sql = format!("PRAGMA {name}");
        connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap().to_string()
    };
    let mut all = vec![number("application_id"), number("user_version")];
    let mut rows = connection
        .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name")
        .unwrap();
    all.extend(rows.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap));
    all
}

#[test]
fn the_databases_are_not_taken_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("known.db");
    drop(Known::open(&path).unwrap());
    let error = Store::open(&path).err().unwrap();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
}
