use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use levada_capability::{LinkId, SessionId};
use levada_core::{Framing, Identity, SecretKey, Succession, SystemRandom, UnixTime};
use tempfile::TempDir;

use super::*;

const NOW: UnixTime = UnixTime(1_000_000);
const LATER: UnixTime = UnixTime(2_000_000);

struct Home(TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("state").join("node.db")
    }

    fn open(&self) -> Store {
        Store::open(&self.path()).unwrap()
    }
}

fn identity(byte: u8) -> Identity {
    Identity::from_bytes([byte; 32])
}

fn link(byte: u8) -> LinkId {
    LinkId::from_bytes([byte; 32])
}

fn id(byte: u8) -> SessionId {
    SessionId::from_bytes([byte; 16])
}

/// Session `byte`, whose first link has the id `byte` and names the identity `byte`.
fn create(store: &Store, byte: u8) {
    create_for(store, byte, identity(200));
}

/// The same, requested by `requester`.
fn create_for(store: &Store, byte: u8, requester: Identity) {
    let new = NewSession {
        id: id(byte),
        root: &[byte; 32],
        service: "echo",
        framing: Framing::Block(512),
        requester,
        holder: identity(byte),
        link: &[byte; 90],
        link_id: link(byte),
        expires: LATER,
        about: "",
    };
    store.create_session(&new, NOW).unwrap();
}

/// As it is stored; of a session that is not there, any.
fn requester_of(store: &Store, session: &SessionId) -> Identity {
    store.session(session).unwrap().map_or(identity(0), |record| record.requester)
}

/// Counts a start by `by` alone.
fn start_by(
    store: &Store,
    session: &SessionId,
    uses: &[(LinkId, u32)],
    by: &Identity,
    now: UnixTime,
) -> Result<(), StartError> {
    let (session, identities) = (*session, &[*by]);
    store.start(
        &NewStart {
            session,
            uses,
            identities,
            expires: UnixTime::NEVER,
            requester: requester_of(store, &session),
            by: *by,
            about: "",
        },
        now,
    )
}

fn start(store: &Store, byte: u8, uses: u32) -> Result<(), StartError> {
    start_by(store, &id(byte), &[(link(byte), uses)], &identity(byte), NOW)
}

#[test]
fn a_session_is_read_back_by_the_next_process() {
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
fn files_and_folder_are_private() {
    let home = Home::new();
    let store = home.open();
    create(&store, 1);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = home.path();
    let folder = folder.parent().unwrap();
    assert_eq!(mode(folder), 0o700);
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 2, "{files:?}");
    for file in files {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    drop(store);
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o644)).unwrap();
    drop(home.open());
    assert_eq!(mode(&home.path()), 0o600);
}

#[test]
fn a_second_process_is_told_that_the_file_is_in_use() {
    let home = Home::new();
    let _store = home.open();
    let error = Store::open(&home.path()).err().unwrap();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
}

#[test]
fn uses_are_counted_for_every_link_of_the_chain() {
    let home = Home::new();
    let store = home.open();
    create(&store, 1);
    let through = |last: u8, uses: u32| {
        start_by(&store, &id(1), &[(link(1), 3), (link(last), uses)], &identity(last), NOW)
    };
    through(11, 1).unwrap();
    assert!(matches!(through(11, 1), Err(StartError::UsedUp(used)) if used == link(11)));
    assert_eq!(store.used(&link(1)).unwrap(), 1, "a refused start costs nothing");
    through(12, 3).unwrap();
    drop(store);
    let store = home.open();
    let through =
        |last: u8| start_by(&store, &id(1), &[(link(1), 3), (link(last), 3)], &identity(last), NOW);
    through(12).unwrap();
    assert!(matches!(through(12), Err(StartError::UsedUp(used)) if used == link(1)));
    let summary = &store.sessions(&SessionFilter::default()).unwrap()[0];
    assert_eq!((summary.state, summary.starts), (SessionState::Started, 3));
    assert_eq!(summary.started, Some(NOW));
}

#[test]
fn a_link_that_appears_twice_is_counted_twice() {
    let home = Home::new();
    let store = home.open();
    create(&store, 1);
    let uses = [(link(1), 1), (link(1), 1)];
    let outcome = start_by(&store, &id(1), &uses, &identity(1), NOW);
    assert!(matches!(outcome, Err(StartError::UsedUp(_))));
    assert_eq!(store.used(&link(1)).unwrap(), 0);
}

#[test]
fn a_session_starts_only_with_its_own_first_link() {
    let home = Home::new();
    let store = home.open();
    create(&store, 1);
    for (session, uses) in [(1, &[(link(2), 1)][..]), (1, &[]), (2, &[(link(1), 1)])] {
        let outcome = start_by(&store, &id(session), uses, &identity(1), NOW);
        assert!(matches!(outcome, Err(StartError::UnknownSession)));
    }
}

#[test]
fn what_has_ended_stays_ended() {
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
    let active = SessionFilter { active: true, ..SessionFilter::default() };
    assert_eq!(store.sessions(&active).unwrap().len(), 1);
    let of_two = SessionFilter { holder: Some(identity(2)), ..SessionFilter::default() };
    assert_eq!(store.sessions(&of_two).unwrap()[0].state, SessionState::Revoked);
}

#[test]
fn a_revoked_link_in_the_middle_stops_what_is_derived_from_it_only() {
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
fn the_schema_itself_refuses_to_revive() {
    let home = Home::new();
    let store = home.open();
    create(&store, 1);
    start(&store, 1, 1).unwrap();
    store.revoke_session(&id(1), &identity(1), NOW).unwrap();
    for sql in [
        "UPDATE session SET state = 'requested'",
        "UPDATE link_use SET used = used - 1",
        "DELETE FROM link_use",
        "DELETE FROM revocation",
        "UPDATE audit SET text = ''",
        "DELETE FROM audit",
        "REPLACE INTO audit SELECT * FROM audit",
    ] {
        let outcome = store.database.write::<_, StoreError>(|tx| Ok(tx.execute(sql, [])?));
        assert!(outcome.is_err(), "{sql}");
    }
}

#[test]
fn expiry_is_stored_before_it_is_spoken() {
    let home = Home::new();
    let store = home.open();
    create(&store, 1);
    create(&store, 2);
    let start = |store: &Store, byte, now| {
        start_by(store, &id(byte), &[(link(byte), 2)], &identity(byte), now)
    };
    start(&store, 2, NOW).unwrap();
    assert!(matches!(start(&store, 1, LATER), Err(StartError::Expired)));
    assert_eq!(store.expire_unstarted(NOW).unwrap(), 0);
    assert_eq!(store.expire_unstarted(LATER).unwrap(), 1);
    drop(store);
    let store = home.open();
    assert_eq!(store.now_at_least(NOW).unwrap(), Now { time: LATER, jumped: false });
    assert!(matches!(start(&store, 1, NOW), Err(StartError::Expired)));
    assert!(matches!(start(&store, 2, LATER), Err(StartError::Expired)));
    assert_eq!(store.session(&id(2)).unwrap().unwrap().state, SessionState::Started);
}

#[test]
fn time_never_goes_back_and_a_jump_is_not_stored() {
    let home = Home::new();
    let store = home.open();
    let at = |store: &Store, seconds| store.now_at_least(UnixTime(seconds)).unwrap();
    let day = 24 * 60 * 60;
    let now = |seconds, jumped| Now { time: UnixTime(seconds), jumped };
    assert_eq!(at(&store, 10 * day), now(10 * day, false), "the first clock is believed");
    assert_eq!(at(&store, 9 * day), now(10 * day, false));
    assert_eq!(at(&store, 11 * day), now(11 * day, false));
    assert_eq!(at(&store, 12 * day + 1), now(12 * day + 1, true));
    create(&store, 1);
    assert_eq!(store.expire_unstarted(UnixTime(LATER.0 + 2 * day)).unwrap(), 0);
    store.hold_time(UnixTime(12 * day + 1)).unwrap();
    assert_eq!(at(&store, 3), now(11 * day, false));
    drop(store);
    let store = home.open();
    assert_eq!(at(&store, 3), now(11 * day, false));
    store.accept_clock(UnixTime(20 * day)).unwrap();
    assert_eq!(at(&store, 3), now(20 * day, false));
    store.accept_clock(UnixTime(5 * day)).unwrap();
    drop(store);
    assert_eq!(at(&home.open(), 3), now(5 * day, false));
}

#[test]
fn an_invitation_opens_what_it_says_once() {
    let home = Home::new();
    let store = home.open();
    store.add_invitation(&[1; 32], Some("echo"), None, LATER, NOW).unwrap();
    store.add_invitation(&[2; 32], None, None, LATER, NOW).unwrap();
    store.add_invitation(&[3; 32], None, None, NOW, NOW).unwrap();
    let redeemed = store.redeem(&[1; 32], &identity(1), NOW).unwrap();
    assert_eq!(redeemed.service.as_deref(), Some("echo"));
    assert!(store.allowed(&identity(1), "echo").unwrap());
    assert!(!store.allowed(&identity(1), "clock").unwrap());
    assert_eq!(store.redeem(&[2; 32], &identity(2), NOW).unwrap().service, None);
    assert!(store.allowed(&identity(2), "clock").unwrap());
    drop(store);
    let store = home.open();
    let again = |hash: u8| store.redeem(&[hash; 32], &identity(3), NOW);
    assert!(matches!(again(1), Err(RedeemError::Used)));
    assert!(matches!(again(2), Err(RedeemError::Used)));
    assert!(matches!(again(3), Err(RedeemError::Expired)));
    assert!(matches!(again(4), Err(RedeemError::Unknown)));
    assert!(!store.allowed(&identity(3), "echo").unwrap());
}

#[test]
fn policy_is_deny_by_default_and_a_block_wins() {
    let home = Home::new();
    let store = home.open();
    assert!(!store.allowed(&identity(1), "echo").unwrap());
    assert!(store.allow(&identity(1), None, NOW).unwrap());
    assert!(!store.allow(&identity(1), None, NOW).unwrap());
    assert!(store.allow(&identity(1), Some(""), NOW).is_err(), "no service has an empty name");
    assert!(store.block(&identity(1), NOW).unwrap());
    assert!(store.blocked(&identity(1)).unwrap());
    assert!(!store.allowed(&identity(1), "echo").unwrap());
    let policy = store.policy().unwrap();
    let entry = Allowed { identity: identity(1), service: None, added: NOW };
    assert_eq!((policy.allowed, policy.blocked), (vec![entry], vec![(identity(1), NOW)]));
    assert!(store.unblock(&identity(1), NOW).unwrap());
    assert!(store.allowed(&identity(1), "echo").unwrap());
    assert!(store.disallow(&identity(1), NOW).unwrap());
    assert!(!store.disallow(&identity(1), NOW).unwrap());
    assert!(!store.allowed(&identity(1), "echo").unwrap());
}

#[test]
fn a_rotated_key_is_dead_and_its_sessions_are_revoked() {
    let home = Home::new();
    let store = home.open();
    let [old, new, other] = [(); 3].map(|()| SecretKey::generate(&SystemRandom).unwrap());
    store.allow(&old.identity(), Some("echo"), NOW).unwrap();
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
    };
    store.create_session(&new_session, NOW).unwrap();
    let succession = Succession::sign(&old, &new.identity(), NOW);
    let succeeded = store.succeed(&succession, NOW).unwrap();
    assert_eq!(succeeded, Succeeded { moved: 1, revoked: vec![(id(7), link(7))], kept: vec![] });
    assert_eq!(store.succeed(&succession, NOW).unwrap(), Succeeded::default());
    let second = Succession::sign(&old, &other.identity(), NOW);
    assert!(matches!(store.succeed(&second, NOW), Err(SucceedError::Already(_))));
    let back = Succession::sign(&new, &old.identity(), NOW);
    assert!(matches!(store.succeed(&back, NOW), Err(SucceedError::Dead(_))));
    let same = Succession::sign(&new, &new.identity(), NOW);
    assert!(matches!(store.succeed(&same, NOW), Err(SucceedError::Dead(_))));
    drop(store);
    let store = home.open();
    assert_eq!(store.dead(&[other.identity(), old.identity()]).unwrap(), Some(old.identity()));
    assert_eq!(store.dead(&[new.identity()]).unwrap(), None);
    assert!(store.allowed(&new.identity(), "echo").unwrap());
    assert!(!store.allowed(&old.identity(), "echo").unwrap());
    store.allow(&old.identity(), None, NOW).unwrap();
    assert!(!store.allowed(&old.identity(), "echo").unwrap(), "dead is dead");
    assert!(matches!(start(&store, 7, 1), Err(StartError::Revoked(_))));
    assert_eq!(store.policy().unwrap().dead, [(old.identity(), new.identity())]);
}

#[test]
fn a_succession_keeps_what_it_names_and_a_second_one_only_less() {
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
    // A session of another requester cannot be kept, nor lost.
    let first = store.succeed(&keeping(&[1, 2, 5]), NOW).unwrap();
    assert_eq!((first.kept, first.revoked.len()), (vec![id(1), id(2)], 2));
    start(&store, 1, 9).unwrap();
    assert!(matches!(start(&store, 3, 9), Err(StartError::Revoked(_))));
    assert_eq!(store.session(&id(1)).unwrap().unwrap().requester, new.identity());
    assert_eq!(store.succeed(&keeping(&[1, 2, 5]), NOW).unwrap(), Succeeded::default());
    // One of the two statements may be a thief's: what only one of them keeps ends.
    let second = store.succeed(&keeping(&[2, 3]), NOW).unwrap();
    assert_eq!(second.revoked, [(id(1), link(1))]);
    assert!(matches!(start(&store, 1, 9), Err(StartError::Revoked(_))));
    start(&store, 2, 9).unwrap();
    start(&store, 5, 9).unwrap();
}

#[test]
fn a_block_follows_the_key() {
    let home = Home::new();
    let store = home.open();
    let [old, new] = [(); 2].map(|()| SecretKey::generate(&SystemRandom).unwrap());
    store.block(&old.identity(), NOW).unwrap();
    store.succeed(&Succession::sign(&old, &new.identity(), NOW), NOW).unwrap();
    assert!(store.blocked(&new.identity()).unwrap());
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
fn the_audit_log_says_who_did_what_by_which_capability() {
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

#[test]
fn a_snapshot_is_a_whole_private_database() {
    let home = Home::new();
    let store = home.open();
    create(&store, 1);
    let copy = home.0.path().join("copy.db");
    store.snapshot(&copy).unwrap();
    let error = store.snapshot(&copy).unwrap_err().to_string();
    assert!(error.contains("copy.db"), "{error}");
    assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
    let copy = Store::open(&copy).unwrap();
    copy.integrity_check().unwrap();
    assert_eq!(*copy.session(&id(1)).unwrap().unwrap().root, [1; 32]);
}

#[test]
fn every_error_names_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.db");
    let error = |path: &Path| {
        let error = Store::open(path).err().unwrap();
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
        error
    };
    for junk in [&b"hello, I am a text"[..], &[0x5a; 8192]] {
        fs::write(&path, junk).unwrap();
        assert!(matches!(error(&path), StoreError::Foreign { .. }));
        assert_eq!(fs::read(&path).unwrap(), junk, "a foreign file stays as it is");
    }
    fs::remove_file(&path).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE album (title TEXT)").unwrap();
    drop(other);
    assert!(matches!(error(&path), StoreError::Foreign { .. }));
    assert!(matches!(error(folder.path()), StoreError::File { .. }));
    assert!(matches!(error(&path.join("node.db")), StoreError::File { .. }));
}

#[test]
fn a_newer_database_is_refused_and_left_alone() {
    let home = Home::new();
    drop(home.open());
    let raw = rusqlite::Connection::open(home.path()).unwrap();
    raw.pragma_update(None, "user_version", 99).unwrap();
    drop(raw);
    let before = fs::read(home.path()).unwrap();
    let error = Store::open(&home.path()).err().unwrap();
    assert!(matches!(error, StoreError::Newer { found: 99, known: 2, .. }), "{error}");
    assert_eq!(fs::read(home.path()).unwrap(), before);
}

#[test]
fn damage_is_found_and_never_a_panic() {
    let home = Home::new();
    let store = home.open();
    (1..=60).for_each(|byte| create(&store, byte));
    store.integrity_check().unwrap();
    drop(store);
    let whole = fs::read(home.path()).unwrap();
    let mut found = 0;
    for page in 0..whole.len() / 4096 {
        let mut bytes = whole.clone();
        bytes[page * 4096..(page + 1) * 4096].fill(0xa5);
        fs::write(home.path(), bytes).unwrap();
        let outcome = Store::open(&home.path()).and_then(|store| {
            store.sessions(&SessionFilter::default())?;
            store.integrity_check()
        });
        if let Err(error) = outcome {
            let kind = matches!(error, StoreError::Damaged { .. } | StoreError::Foreign { .. });
            assert!(kind && error.to_string().contains("node.db"), "{error}");
            found += 1;
        }
    }
    assert!(found > 10, "{found}");
}

#[test]
fn migrations_go_forward_one_by_one() {
    const OLD: Kind = Kind { migrations: &["CREATE TABLE a (x INTEGER)"], ..NODE };
    const NEW: Kind = Kind {
        migrations: &["CREATE TABLE a (x INTEGER)", "ALTER TABLE a ADD COLUMN y DEFAULT 5"],
        ..NODE
    };
    const BROKEN: Kind =
        Kind { migrations: &["", "", "CREATE TABLE b (x INTEGER); nonsense"], ..NODE };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("node.db");
    let old = Database::open(&path, &OLD).unwrap();
    old.write::<_, StoreError>(|tx| Ok(tx.execute("INSERT INTO a VALUES (1)", [])?)).unwrap();
    drop(old);
    let new = Database::open(&path, &NEW).unwrap();
    let row = new.read(|c| c.query_row("SELECT x + y FROM a", [], |row| row.get::<_, i64>(0)));
    assert_eq!(row.unwrap(), 6);
    drop(new);
    assert!(matches!(Database::open(&path, &OLD), Err(StoreError::Newer { .. })));
    assert!(matches!(Database::open(&path, &BROKEN), Err(StoreError::Sql { .. })));
    let still = Database::open(&path, &NEW).unwrap();
    let tables = still.read(|c| {
        c.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))
    });
    assert_eq!(tables.unwrap(), 1, "a migration that fails leaves nothing behind");
}
