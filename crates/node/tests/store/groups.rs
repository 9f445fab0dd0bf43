//! Groups, their rights, and sets of groups of other nodes.

use levada_config::Member;
use levada_core::{Digest, Succession, UnixTime};
use levada_node::store::{GroupExport, GroupRight, GroupSetRefusal, NewGroupSet, Store};

use super::Home;
use crate::support::{LATER, NOW, identity, key};

fn set(signer: u8, version: u64, hash: u8) -> NewGroupSet<'static> {
    let hash: Digest = [hash; 32];
    NewGroupSet {
        signer: identity(signer),
        name: "default",
        version,
        expires: LATER,
        hash,
        text: "x",
    }
}

#[test]
fn groups_and_their_rights_are_kept_and_recorded() {
    let home = Home::new();
    let store = home.open();
    let members = [Member::Identity(identity(1)), Member::Group("others".into())];
    store.add_members("family", &members, NOW).unwrap();
    store.add_members("family", &members[..1], NOW).unwrap();
    let right = GroupRight { group: "family".into(), service: Some("echo".into()), expires: LATER };
    store.add_group_right(&right, NOW).unwrap();
    let longer = GroupRight { expires: UnixTime::NEVER, ..right };
    store.add_group_right(&longer, NOW).unwrap();
    drop(store);
    let store = home.open();
    let groups = store.local_groups().unwrap();
    let [family] = groups.as_slice() else { panic!("{groups:?}") };
    assert_eq!((family.name.as_str(), family.members.as_slice()), ("family", members.as_slice()));
    assert_eq!(store.group_rights().unwrap(), [longer]);
    store.remove_members("family", &members, NOW).unwrap();
    assert!(store.local_groups().unwrap()[0].members.is_empty());
    store.remove_group("family", NOW).unwrap();
    assert!(store.local_groups().unwrap().is_empty() && store.group_rights().unwrap().is_empty());
    let log = store.audit(20, None).unwrap();
    let texts: Vec<_> = log.iter().rev().map(|entry| entry.text.as_str()).collect();
    let added = format!("family: added {}", identity(1));
    let removed = format!("family: removed {}", identity(1));
    assert_eq!(
        texts,
        [
            "family: created",
            &added,
            "family: added group:others",
            "group:family",
            "group:family",
            &removed,
            "family: removed group:others",
            "family: removed",
        ]
    );
}

#[test]
fn a_version_of_a_set_never_goes_back() {
    let home = Home::new();
    let store = home.open();
    store.take_group_set(&set(1, 5, 5), NOW).unwrap();
    assert!(!store.check_group_set(&set(1, 5, 5), NOW).unwrap());
    store.take_group_set(&set(1, 5, 5), NOW).unwrap();
    let refused = |set: &NewGroupSet| store.take_group_set(set, NOW).unwrap_err();
    let older = refused(&set(1, 4, 4));
    assert!(matches!(older, GroupSetRefusal::Older { version: 4, stored: 5 }), "{older}");
    assert!(matches!(refused(&set(1, 5, 6)), GroupSetRefusal::Conflict(5)));
    // Another signer, and another name, have versions of their own.
    store.take_group_set(&set(2, 1, 1), NOW).unwrap();
    store.take_group_set(&NewGroupSet { name: "other", ..set(1, 1, 1) }, NOW).unwrap();
    store.take_group_set(&set(1, 6, 6), NOW).unwrap();
    drop(store);
    let raw = home.open_raw();
    for change in ["version = 5", "hash = zeroblob(32)"] {
        let update = format!("UPDATE group_set SET {change} WHERE version = 6");
        assert!(raw.execute(&update, []).is_err(), "{change}");
    }
    assert!(raw.execute("DELETE FROM group_set", []).is_err());
    drop(raw);
    let store = home.open();
    assert!(matches!(
        store.check_group_set(&set(1, 5, 5), NOW),
        Err(GroupSetRefusal::Older { .. })
    ));
}

#[test]
fn the_first_set_must_be_valid_also_after_the_clock_was_set_back() {
    let home = Home::new();
    let store = home.open();
    let expired = NewGroupSet { expires: NOW, ..set(1, 1, 1) };
    assert!(matches!(store.check_group_set(&expired, NOW), Err(GroupSetRefusal::Expired)));
    drop(store);
    let store = home.open();
    let now = store.now(UnixTime(NOW.0 - 1000)).time;
    assert_eq!(now, NOW, "the time is stored");
    assert!(matches!(store.take_group_set(&expired, now), Err(GroupSetRefusal::Expired)));
    assert!(store.group_set(&identity(1), "default").unwrap().is_none());
    // After a first one, the version alone decides: a later set must not be ignored.
    store.take_group_set(&set(1, 1, 1), now).unwrap();
    store.take_group_set(&NewGroupSet { version: 2, ..expired }, now).unwrap();
}

#[test]
fn memberships_and_versions_move_to_the_successor_of_a_key() {
    let home = Home::new();
    let store = home.open();
    store.add_members("family", &[Member::Identity(identity(1))], NOW).unwrap();
    store.take_group_set(&set(1, 5, 5), NOW).unwrap();
    let succession = Succession::sign(&key(1), &identity(2), NOW);
    store.apply_succession(&succession, NOW).unwrap();
    assert_eq!(store.local_groups().unwrap()[0].members, [Member::Identity(identity(2))]);
    let older = store.check_group_set(&set(2, 4, 4), NOW);
    assert!(matches!(older, Err(GroupSetRefusal::Older { .. })));
    assert!(store.is_known(&identity(2)).unwrap());
}

fn export(version: u64) -> GroupExport {
    let groups = vec!["family".to_owned(), "staff".to_owned()];
    let text = format!("version {version}");
    GroupExport { name: "default".into(), version, groups, lifetime: 60, text, signed: NOW }
}

#[test]
fn each_exported_set_has_a_later_version() {
    let home = Home::new();
    let store: Store = home.open();
    assert_eq!(store.group_export("default").unwrap(), None);
    store.add_group_export(&export(7), NOW).unwrap();
    assert!(store.add_group_export(&export(7), NOW).is_err());
    store.add_group_export(&export(8), NOW).unwrap();
    assert_eq!(store.group_export("default").unwrap(), Some(export(8)));
}
