use std::path::PathBuf;
use std::thread;

use levada_core::{SecretKey, Succession, SystemRandom};
use tempfile::TempDir;

use super::*;

const NOW: UnixTime = UnixTime(1_000_000);

fn home() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("known.db");
    (folder, path)
}

fn identity(byte: u8) -> Identity {
    Identity::from_bytes([byte; 32])
}

fn keys() -> [SecretKey; 3] {
    [(); 3].map(|()| SecretKey::generate(&SystemRandom).unwrap())
}

#[test]
fn a_name_is_pinned_to_one_key() {
    let (_folder, path) = home();
    let known = Known::open(&path).unwrap();
    let addresses = ["192.0.2.1:5382".to_owned(), "[::1]:5382".to_owned()];
    known.pin("box", &identity(1), &addresses, NOW).unwrap();
    known.pin("box", &identity(1), &addresses[..1], NOW).unwrap();
    let conflict = known.pin("box", &identity(2), &[], NOW);
    assert!(matches!(conflict, Err(PinError::Conflict { known, .. }) if known == identity(1)));
    drop(known);
    let known = Known::open(&path).unwrap();
    let pin = known.by_name("box").unwrap().unwrap();
    assert_eq!((pin.identity, &pin.addresses[..], pin.added), (identity(1), &addresses[..1], NOW));
    assert_eq!(known.by_identity(&identity(1)).unwrap(), Some(pin));
    assert_eq!(known.by_name("tower").unwrap(), None);
    assert_eq!(known.by_identity(&identity(2)).unwrap(), None);
    assert!(known.update_addresses("box", &[]).unwrap());
    assert!(!known.update_addresses("tower", &[]).unwrap());
    assert!(known.by_name("box").unwrap().unwrap().addresses.is_empty());
}

#[test]
fn sorts_addresses_by_success_and_drops_unused_ones() {
    let (_folder, path) = home();
    let known = Known::open(&path).unwrap();
    let text = |number: u8| format!("192.0.2.{number}:5382");
    let foreign = "127.0.0.1:5382@0123456789abcdef0123".to_owned();
    let listed = |name: &str| known.by_name(name).unwrap().unwrap().addresses;
    known.pin("a", &identity(1), &[text(1), foreign, text(2), text(3)], NOW).unwrap();
    known.pin("b", &identity(1), &[text(4)], NOW).unwrap();
    let day = |number: u64| UnixTime(NOW.0 + number * 24 * 3600);
    known.note_success(&identity(1), &text(3), NOW).unwrap();
    // The loopback address of another machine is not kept.
    assert_eq!(listed("a"), [text(3), text(1), text(2)]);
    assert_eq!(listed("b"), [text(3), text(4)]);
    known.note_success(&identity(1), &text(2), day(1)).unwrap();
    assert_eq!(listed("a"), [text(2), text(3), text(1)]);
    // A success of a key that is not pinned is not stored.
    known.note_success(&identity(2), &text(2), NOW).unwrap();
    known.note_success(&identity(1), &text(2), day(29)).unwrap();
    assert_eq!(listed("a"), [text(2), text(3), text(1)]);
    known.note_success(&identity(1), &text(2), day(30)).unwrap();
    assert_eq!(listed("a"), [text(2)]);
    assert_eq!(listed("b"), [text(2), text(3)][..1]);
    // An address that is added again has the full 30 days again.
    known.update_addresses("a", &[text(1), text(2)]).unwrap();
    known.note_success(&identity(1), &text(2), day(40)).unwrap();
    assert_eq!(listed("a"), [text(2), text(1)]);
    let many: Vec<String> = (10..40).map(text).collect();
    known.update_addresses("a", &many).unwrap();
    known.note_success(&identity(1), &text(39), day(41)).unwrap();
    assert_eq!((listed("a").len(), &listed("a")[0]), (MOST_ADDRESSES, &text(39)));
}

#[test]
fn renames_and_deletes_pins() {
    let (_folder, path) = home();
    let known = Known::open(&path).unwrap();
    known.pin("a", &identity(1), &[], NOW).unwrap();
    known.pin("b", &identity(2), &[], NOW).unwrap();
    assert!(matches!(known.rename("c", "d"), Err(RenameError::Unknown(_))));
    assert!(matches!(known.rename("a", "b"), Err(RenameError::Taken { .. })));
    known.rename("a", "a").unwrap();
    known.rename("a", "c").unwrap();
    let names: Vec<_> = known.names().unwrap().into_iter().map(|pin| pin.name).collect();
    assert_eq!(names, ["b", "c"]);
    assert!(known.forget("b").unwrap());
    assert!(!known.forget("b").unwrap());
    known.pin("b", &identity(3), &[], NOW).unwrap();
}

#[test]
fn follows_a_rotation_once() {
    let (_folder, path) = home();
    let known = Known::open(&path).unwrap();
    let [old, new, other] = keys();
    known.pin("box", &old.identity(), &[], NOW).unwrap();
    let succession = Succession::sign(&old, &new.identity(), NOW);
    assert_eq!(known.follow(&succession).unwrap(), 1);
    assert_eq!(known.follow(&succession).unwrap(), 0);
    assert_eq!(known.by_name("box").unwrap().unwrap().identity, new.identity());
    assert_eq!(known.successor(&old.identity()).unwrap(), Some(new.identity()));
    assert_eq!(known.followed().unwrap(), [(old.identity(), new.identity())]);
    let second = Succession::sign(&old, &other.identity(), NOW);
    assert!(matches!(known.follow(&second), Err(FollowError::Already { .. })));
    let back = Succession::sign(&new, &old.identity(), NOW);
    assert!(matches!(known.follow(&back), Err(FollowError::Dead(_))));
    let rotated = known.pin("tower", &old.identity(), &[], NOW);
    assert!(matches!(rotated, Err(PinError::Dead { .. })));
}

#[test]
fn stores_own_rotations_in_order_with_their_acknowledgements() {
    let (_folder, path) = home();
    let known = Known::open(&path).unwrap();
    let [first, second, third] = keys();
    let rotations = [
        Succession::sign(&first, &second.identity(), NOW),
        Succession::sign(&second, &third.identity(), NOW),
    ];
    for rotation in &rotations {
        known.add_succession(rotation).unwrap();
        known.add_succession(rotation).unwrap();
    }
    let other = Succession::sign(&first, &third.identity(), NOW);
    assert!(matches!(known.add_succession(&other), Err(FollowError::Already { .. })));
    let back = Succession::sign(&third, &first.identity(), NOW);
    assert!(matches!(known.add_succession(&back), Err(FollowError::Dead(_))));
    assert!(!known.acknowledged(&identity(1), &second.identity()).unwrap());
    known.acknowledge(&identity(1), &second.identity()).unwrap();
    known.acknowledge(&identity(1), &second.identity()).unwrap();
    drop(known);
    let known = Known::open(&path).unwrap();
    assert_eq!(known.successions().unwrap(), rotations);
    assert!(known.acknowledged(&identity(1), &second.identity()).unwrap());
    assert!(!known.acknowledged(&identity(1), &third.identity()).unwrap());
    assert!(!known.acknowledged(&identity(2), &second.identity()).unwrap());
}

#[test]
fn counts_capabilities_by_node_and_holder() {
    let (_folder, path) = home();
    let known = Known::open(&path).unwrap();
    let seen = |byte: u8, node: u8, holder: u8, expires| SeenCapability {
        link: LinkId::from_bytes([byte; 32]),
        node: identity(node),
        holder: identity(holder),
        expires,
    };
    for capability in [
        seen(1, 1, 2, UnixTime::NEVER),
        seen(1, 1, 2, UnixTime::NEVER),
        seen(2, 3, 1, UnixTime(NOW.0 + 10)),
        seen(3, 1, 1, NOW),
    ] {
        known.remember_capability(&capability, NOW).unwrap();
    }
    assert_eq!(known.capabilities_held_elsewhere(&identity(1), NOW).unwrap(), 1);
    assert_eq!(known.capabilities_held_elsewhere(&identity(1), UnixTime(NOW.0 + 10)).unwrap(), 0);
    assert_eq!(known.capabilities_held_elsewhere(&identity(9), NOW).unwrap(), 0);
}

#[test]
fn a_capability_is_written_once() {
    let (_folder, path) = home();
    let known = Known::open(&path).unwrap();
    let seen = SeenCapability {
        link: LinkId::from_bytes([1; 32]),
        node: identity(1),
        holder: identity(2),
        expires: UnixTime::NEVER,
    };
    known.remember_capability(&seen, NOW).unwrap();
    // While another process writes, a second write would fail.
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    known.remember_capability(&seen, NOW).unwrap();
}

#[test]
fn concurrent_writers_share_one_database() {
    let (_folder, path) = home();
    thread::scope(|scope| {
        for byte in 0..8_u8 {
            let path = &path;
            scope.spawn(move || {
                for round in 0..5 {
                    let known = Known::open(path).unwrap();
                    known.pin(&format!("{byte}-{round}"), &identity(byte), &[], NOW).unwrap();
                }
            });
        }
    });
    let known = Known::open(&path).unwrap();
    assert_eq!(known.names().unwrap().len(), 40);
    known.integrity_check().unwrap();
}

#[test]
fn rejects_a_row_with_an_invalid_signature() {
    let (_folder, path) = home();
    let known = Known::open(&path).unwrap();
    let [old, new, other] = keys();
    known.add_succession(&Succession::sign(&old, &new.identity(), NOW)).unwrap();
    known
        .database
        .write::<_, StoreError>(|tx| {
            let sql = "UPDATE own_succession SET new = ?1";
            Ok(tx.execute(sql, [other.identity().as_bytes()])?)
        })
        .unwrap();
    assert!(matches!(known.successions(), Err(StoreError::Damaged { .. })));
}

#[test]
fn concurrent_processes_create_one_database() {
    for _ in 0..40 {
        let (_folder, path) = home();
        thread::scope(|scope| {
            let opened: Vec<_> = (0..8).map(|_| scope.spawn(|| Known::open(&path))).collect();
            for known in opened {
                known.join().unwrap().unwrap();
            }
        });
    }
}
