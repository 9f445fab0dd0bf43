//! Invitations, the allow-list, blocks, and rotated keys.

use levada_core::{Framing, SecretKey, Succession, SystemRandom, UnixTime};
use levada_node::store::{
    AppliedSuccession, DenialReason, NewSession, PeerStatus, Permission, RedeemError, StartError,
    Store, SuccessionError,
};

use rusqlite::Row;

use super::{Home, allow, create, create_for, start};
use crate::support::{LATER, NOW, id, identity, key, link};

#[test]
fn an_invitation_can_be_redeemed_once() {
    let home = Home::new();
    let store = home.open();
    store.add_invitation(&[1; 32], Some("echo"), None, LATER, NOW).unwrap();
    store.add_invitation(&[2; 32], None, None, LATER, NOW).unwrap();
    store.add_invitation(&[3; 32], None, None, NOW, NOW).unwrap();
    let redeemed = store.redeem(&[1; 32], &identity(1), NOW).unwrap();
    assert_eq!(redeemed.service.as_deref(), Some("echo"));
    assert!(store.allowed(&identity(1), "echo", NOW));
    assert!(!store.allowed(&identity(1), "clock", NOW));
    assert_eq!(store.redeem(&[2; 32], &identity(2), NOW).unwrap().service, None);
    assert!(store.allowed(&identity(2), "clock", NOW));
    drop(store);
    let store = home.open();
    let again = |hash: u8| store.redeem(&[hash; 32], &identity(3), NOW);
    assert!(matches!(again(1), Err(RedeemError::Used)));
    assert!(matches!(again(2), Err(RedeemError::Used)));
    assert!(matches!(again(3), Err(RedeemError::Expired)));
    assert!(matches!(again(4), Err(RedeemError::Unknown)));
    assert!(!store.allowed(&identity(3), "echo", NOW));
}

#[test]
fn policy_is_deny_by_default_and_a_block_overrides_a_right() {
    let home = Home::new();
    let store = home.open();
    assert!(!store.allowed(&identity(1), "echo", NOW));
    allow(&store, &identity(1), None);
    allow(&store, &identity(1), None);
    assert!(store.allowed(&identity(1), "echo", NOW));
    let unnamed = store.add_invitation(&[1; 32], Some(""), None, LATER, NOW);
    assert!(unnamed.is_err(), "no service has an empty name");
    assert_eq!(store.disallow(&identity(1), None, NOW).unwrap(), 1);
    assert_eq!(store.disallow(&identity(1), None, NOW).unwrap(), 0);
    assert!(!store.allowed(&identity(1), "echo", NOW));
    allow(&store, &identity(1), None);
    allow(&store, &identity(1), None);
    assert!(store.allowed(&identity(1), "echo", NOW));
    assert!(store.block(&identity(1), NOW).unwrap());
    assert!(!store.block(&identity(1), NOW).unwrap());
    assert!(store.blocked(&identity(1)));
    assert!(!store.allowed(&identity(1), "echo", NOW));
    drop(store);
    let raw = home.open_raw();
    let rows = |sql: &str| {
        let mut query = raw.prepare(sql).unwrap();
        let row = |row: &Row| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let rows = query.query_map([], row).unwrap();
        rows.map(Result::unwrap).collect::<Vec<([u8; 32], Option<String>, i64)>>()
    };
    let entry = (*identity(1).as_bytes(), None, 1_000_000);
    assert_eq!(rows("SELECT identity, service, added FROM allowed"), std::slice::from_ref(&entry));
    assert_eq!(rows("SELECT identity, NULL, added FROM blocked"), [entry]);
}

#[test]
fn the_status_of_a_peer_follows_its_rights() {
    let home = Home::new();
    let store = home.open();
    let status = |byte| store.peer_status(&identity(byte), NOW).unwrap();
    assert_eq!(status(1), PeerStatus::Unproved);
    allow(&store, &identity(1), Some("echo"));
    assert_eq!(status(1), PeerStatus::HasRight);
    create(&store, 2);
    assert_eq!(status(2), PeerStatus::HasRight, "it holds a session");
    store.terminate(&id(2), &identity(2), NOW).unwrap();
    assert_eq!(status(2), PeerStatus::Unproved);
    create(&store, 3);
    start(&store, 3, 1).unwrap();
    store.terminate(&id(3), &identity(3), NOW).unwrap();
    assert_eq!(status(3), PeerStatus::HasRight, "it has started a session");
    store.block(&identity(1), NOW).unwrap();
    assert_eq!(status(1), PeerStatus::Denied(DenialReason::Blocked(identity(1))));
    store.apply_succession(&Succession::sign(&key(3), &identity(4), NOW), NOW).unwrap();
    assert_eq!(status(3), PeerStatus::Denied(DenialReason::Rotated(identity(3))));
}

/// The lists in memory after each change are those that another start reads from the tables.
#[test]
fn the_lists_in_memory_are_those_of_the_tables() {
    let home = Home::new();
    let mut store = home.open();
    let changes: &[fn(&Store)] = &[
        |store| allow(store, &identity(1), Some("echo")),
        |store| allow(store, &identity(1), None),
        |store| allow(store, &identity(2), Some("clock")),
        |store| assert!(store.block(&identity(2), NOW).unwrap()),
        |store| assert!(store.disallow(&identity(1), None, NOW).unwrap() > 0),
        |store| allow(store, &identity(1), Some("echo")),
        |store| {
            let succession = Succession::sign(&key(2), &identity(3), NOW);
            store.apply_succession(&succession, NOW).unwrap();
        },
        |store| {
            let succession = Succession::sign(&key(1), &identity(4), NOW);
            store.apply_succession(&succession, NOW).unwrap();
        },
        |store| {
            let refused = Succession::sign(&key(1), &identity(5), NOW);
            assert!(store.apply_succession(&refused, NOW).is_err());
        },
        |store| assert!(store.disallow(&identity(4), None, NOW).unwrap() > 0),
    ];
    let rights = |store: &Store| {
        let of = |byte| {
            let identity = identity(byte);
            let allowed = ["echo", "clock"].map(|service| {
                [false, true].map(|by_name| store.permitted_until(&identity, service, by_name, NOW))
            });
            (store.listed_status(&identity, NOW), store.rotated(&identity), allowed)
        };
        (1..=5).map(of).collect::<Vec<_>>()
    };
    let mut all = vec![rights(&store)];
    for change in changes {
        change(&store);
        let in_memory = rights(&store);
        drop(store);
        store = home.open();
        assert_eq!(rights(&store), in_memory);
        all.push(in_memory);
    }
    let refused = all.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert_eq!(refused, 1, "each other change has an effect");
}

#[test]
fn a_rotated_key_is_denied_and_its_sessions_are_revoked() {
    let home = Home::new();
    let store = home.open();
    let [old, new, other] = [(); 3].map(|()| SecretKey::generate(&SystemRandom).unwrap());
    allow(&store, &old.identity(), Some("echo"));
    let new_session = NewSession {
        id: id(7),
        root: &[7; 32],
        service: "echo",
        framing: Framing::Auto,
        requester: old.identity(),
        holder: old.identity(),
        link: &[7],
        link_id: link(7),
        expires: UnixTime::NEVER,
        about: "",
        permission: Permission::Given,
    };
    store.create_session(&new_session, NOW).unwrap();
    let succession = Succession::sign(&old, &new.identity(), NOW);
    let applied = store.apply_succession(&succession, NOW).unwrap();
    let revoked = vec![(id(7), link(7))];
    assert_eq!(applied, AppliedSuccession { moved: 1, revoked, kept: vec![] });
    assert_eq!(store.apply_succession(&succession, NOW).unwrap(), AppliedSuccession::default());
    let second = Succession::sign(&old, &other.identity(), NOW);
    assert!(matches!(
        store.apply_succession(&second, NOW),
        Err(SuccessionError::AlreadySucceeded(_))
    ));
    let back = Succession::sign(&new, &old.identity(), NOW);
    assert!(matches!(store.apply_succession(&back, NOW), Err(SuccessionError::Rotated(_))));
    let same = Succession::sign(&new, &new.identity(), NOW);
    assert!(matches!(store.apply_succession(&same, NOW), Err(SuccessionError::Rotated(_))));
    drop(store);
    let store = home.open();
    assert!(store.rotated(&old.identity()));
    assert!(!store.rotated(&other.identity()) && !store.rotated(&new.identity()));
    assert_eq!(
        store.denial_reason(&[other.identity(), old.identity()]),
        Some(DenialReason::Rotated(old.identity()))
    );
    assert!(store.allowed(&new.identity(), "echo", NOW));
    assert!(!store.allowed(&old.identity(), "echo", NOW));
    allow(&store, &old.identity(), None);
    assert!(!store.allowed(&old.identity(), "echo", NOW), "it was rotated");
    assert!(matches!(start(&store, 7, 1), Err(StartError::Revoked(_))));
    assert_eq!(store.rotations().unwrap(), [(old.identity(), new.identity())]);
}

#[test]
fn a_second_succession_can_only_keep_fewer_sessions() {
    let home = Home::new();
    let store = home.open();
    let [old, new] = [(); 2].map(|()| SecretKey::generate(&SystemRandom).unwrap());
    for byte in 1..=4 {
        create_for(&store, byte, old.identity());
    }
    create(&store, 5);
    let keeping = |keep: &[u8]| {
        let ids: Vec<_> = keep.iter().map(|byte| [*byte; 16]).collect();
        Succession::sign_keeping(&old, &new.identity(), NOW, &ids).unwrap()
    };
    // A session of another requester is neither kept nor revoked.
    let first = store.apply_succession(&keeping(&[1, 2, 5]), NOW).unwrap();
    assert_eq!((first.kept, first.revoked.len()), (vec![id(1), id(2)], 2));
    start(&store, 1, 9).unwrap();
    assert!(matches!(start(&store, 3, 9), Err(StartError::Revoked(_))));
    assert_eq!(store.session(&id(1)).unwrap().unwrap().requester, new.identity());
    assert_eq!(
        store.apply_succession(&keeping(&[1, 2, 5]), NOW).unwrap(),
        AppliedSuccession::default()
    );
    // One of the two statements may be signed with a stolen key: a session that only one of them
    // keeps ends.
    let second = store.apply_succession(&keeping(&[2, 3]), NOW).unwrap();
    assert_eq!(second.revoked, [(id(1), link(1))]);
    assert!(matches!(start(&store, 1, 9), Err(StartError::Revoked(_))));
    start(&store, 2, 9).unwrap();
    start(&store, 5, 9).unwrap();
}

#[test]
fn a_block_applies_to_the_successor_of_a_key() {
    let home = Home::new();
    let store = home.open();
    let [old, new] = [(); 2].map(|()| SecretKey::generate(&SystemRandom).unwrap());
    store.block(&old.identity(), NOW).unwrap();
    store.apply_succession(&Succession::sign(&old, &new.identity(), NOW), NOW).unwrap();
    assert!(store.blocked(&new.identity()));
}
