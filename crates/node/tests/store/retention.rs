//! Retention: exactly what has outlived it is removed, and nothing removed becomes valid again.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use levada_config::Retention;
use levada_core::UnixTime;
use levada_node::store::{
    ExchangeError, NewShare, NewTicket, Pruned, SessionFilter, StartError, Store,
};

use super::{Home, create, start};
use crate::support::{LATER, NOW, id, identity, link, start_by};

const DAY: u64 = 24 * 60 * 60;
/// A day of retention.
const ONE_DAY: Retention =
    Retention { sessions: Some(Duration::from_secs(DAY)), audit: Some(Duration::from_secs(DAY)) };

fn open(home: &Home, retention: &Retention) -> Store {
    let store = home.open();
    store.set_retention(retention).unwrap();
    store
}

fn prune(store: &Store) -> Pruned {
    let mut all = Pruned::default();
    loop {
        let pruned = store.prune(&HashSet::new(), 100).unwrap();
        if pruned == Pruned::default() {
            return all;
        }
        all += pruned;
    }
}

fn after_retention() -> UnixTime {
    UnixTime(LATER.0 + DAY)
}

fn ids(store: &Store) -> Vec<levada_capability::SessionId> {
    let all = store.sessions(&SessionFilter::default()).unwrap();
    let mut ids: Vec<_> = all.iter().map(|session| session.id).collect();
    ids.sort();
    ids
}

#[test]
fn a_session_is_removed_with_its_uses_and_revocations() {
    let home = Home::new();
    let store = open(&home, &ONE_DAY);
    (1..=3).for_each(|byte| create(&store, byte));
    start(&store, 1, 2).unwrap();
    store.revoke(&link(20), &id(2), &identity(2), NOW).unwrap();
    store.revoke_session(&id(3), &identity(3), NOW).unwrap();
    store.store_time(UnixTime(after_retention().0 - 1)).unwrap();
    assert_eq!(store.prune(&HashSet::new(), 100).unwrap().sessions, 0, "the retention lasts");
    assert_eq!(ids(&store), [id(1), id(2), id(3)]);
    store.store_time(after_retention()).unwrap();
    assert_eq!(prune(&store).sessions, 3);
    store.integrity_check().unwrap();
    assert!(ids(&store).is_empty());
    drop(store);
    let raw = home.open_raw();
    for table in ["session", "link_use", "revocation"] {
        let sql = format!("SELECT count(*) FROM {table}");
        assert_eq!(raw.query_row(&sql, [], |row| row.get::<_, i64>(0)).unwrap(), 0, "{table}");
    }
}

#[test]
fn the_time_in_memory_removes_nothing_before_it_is_stored() {
    let home = Home::new();
    let store = open(&home, &ONE_DAY);
    create(&store, 1);
    store.now(NOW);
    // A jump is not stored either, until the owner accepts the clock.
    assert!(store.now_at_least(after_retention()).unwrap().jumped);
    assert_eq!(prune(&store).sessions, 0);
    store.accept_clock(after_retention()).unwrap();
    assert_eq!(prune(&store).sessions, 1);
}

#[test]
fn what_was_removed_stays_ended_after_the_clock_was_set_back() {
    let home = Home::new();
    let store = open(&home, &ONE_DAY);
    (1..=2).for_each(|byte| create(&store, byte));
    start(&store, 1, 1).unwrap();
    store.revoke_session(&id(2), &identity(2), NOW).unwrap();
    store.store_time(after_retention()).unwrap();
    assert_eq!(prune(&store).sessions, 2);
    store.accept_clock(NOW).unwrap();
    for byte in [1, 2] {
        assert!(matches!(start(&store, byte, 9), Err(StartError::UnknownSession)));
    }
    drop(store);
    let store = home.open();
    assert_eq!(store.now(NOW).time, NOW);
    for byte in [1, 2] {
        assert!(matches!(start(&store, byte, 9), Err(StartError::UnknownSession)));
    }
}

#[test]
fn a_session_that_runs_is_kept() {
    let home = Home::new();
    let store = open(&home, &ONE_DAY);
    (1..=3).for_each(|byte| create(&store, byte));
    store.store_time(after_retention()).unwrap();
    let running = HashSet::from([id(2)]);
    assert_eq!(store.prune(&running, 1).unwrap().sessions, 1);
    assert_eq!(store.prune(&running, 1).unwrap().sessions, 1);
    assert_eq!(store.prune(&running, 1).unwrap().sessions, 0);
    assert_eq!(ids(&store), [id(2)]);
    assert!(store.revoke_session(&id(2), &identity(2), after_retention()).unwrap());
}

#[test]
fn blocks_and_successions_stay() {
    let home = Home::new();
    let store = open(&home, &ONE_DAY);
    create(&store, 1);
    let succession = levada_core::Succession::sign(&crate::support::key(1), &identity(9), NOW);
    store.apply_succession(&succession, NOW).unwrap();
    store.block(&identity(5), NOW).unwrap();
    store.store_time(after_retention()).unwrap();
    assert_eq!(prune(&store).sessions, 1);
    drop(store);
    let store = home.open();
    assert!(store.blocked(&identity(5)));
    assert!(store.rotated(&identity(1)));
}

#[test]
fn the_audit_log_keeps_what_its_retention_covers_and_a_record() {
    let home = Home::new();
    let store = open(&home, &ONE_DAY);
    create(&store, 1);
    store.block(&identity(5), UnixTime(NOW.0 + DAY)).unwrap();
    store.store_time(UnixTime(NOW.0 + DAY)).unwrap();
    assert_eq!(prune(&store), Pruned { sessions: 0, audit: 1 });
    let entries = store.audit(10, None).unwrap();
    let found: Vec<_> =
        entries.iter().map(|one| (one.id, one.operation.as_str(), one.text.as_str())).collect();
    let record = "entries of this log until 1970-01-12T13:46:40Z: 1";
    let blocked = identity(5).to_string();
    assert_eq!(found, [(3, "prune", record), (2, "block", blocked.as_str())]);
    assert_eq!(entries[0].time, UnixTime(NOW.0 + DAY));
}

#[test]
fn a_ticket_whose_exchange_was_removed_is_void() {
    let home = Home::new();
    let store = open(&home, &ONE_DAY);
    let share = NewShare { name: "a", paths: "[]", root: [1; 32], length: 1, settings: "{}" };
    let share = store.add_share(&share, NOW).unwrap();
    let ticket = NewTicket { hash: [7; 32], share, expires: LATER, peers: 1, bound: None };
    store.add_ticket(&ticket, NOW).unwrap();
    store.exchange(&[7; 32], &super::new_session(1), NOW).unwrap();
    store.store_time(after_retention()).unwrap();
    assert_eq!(prune(&store).sessions, 1);
    store.accept_clock(NOW).unwrap();
    let again = store.exchange(&[7; 32], &super::new_session(2), NOW);
    assert!(matches!(again, Err(ExchangeError::Revoked)), "{again:?}");
}

#[test]
fn without_retention_all_is_kept() {
    let home = Home::new();
    let store = home.open();
    create(&store, 1);
    store.store_time(UnixTime(1 << 40)).unwrap();
    assert_eq!(prune(&store), Pruned::default());
    store.set_retention(&Retention { sessions: None, audit: None }).unwrap();
    assert_eq!(prune(&store), Pruned::default());
}

/// The clock of a machine without a battery may be wrong when it starts.
#[test]
fn nothing_is_removed_for_a_day_after_a_start_with_a_clock_far_ahead() {
    let home = Home::new();
    let store = open(&home, &ONE_DAY);
    store.store_time(NOW).unwrap();
    create(&store, 1);
    drop(store);
    let start_at = |time| {
        let store = home.open();
        store.now(time);
        store.set_retention(&ONE_DAY).unwrap();
        store
    };
    let ahead = UnixTime(after_retention().0 + 9 * DAY);
    let store = start_at(ahead);
    assert_eq!(prune(&store), Pruned::default());
    drop(store);
    // A further start has no leap, and does not shorten the time.
    let store = start_at(ahead);
    assert_eq!(prune(&store), Pruned::default());
    let next = UnixTime(ahead.0 + DAY - 1);
    store.now_at_least(next).unwrap();
    assert_eq!(prune(&store), Pruned::default());
    store.now_at_least(UnixTime(next.0 + 1)).unwrap();
    store.store_time(UnixTime(next.0 + 1)).unwrap();
    assert_eq!(prune(&store).sessions, 1);
    // The owner may confirm the clock instead.
    create(&store, 2);
    drop(store);
    let store = start_at(UnixTime(ahead.0 + 9 * DAY));
    assert_eq!(prune(&store).sessions, 0);
    store.accept_clock(UnixTime(ahead.0 + 9 * DAY)).unwrap();
    assert_eq!(prune(&store).sessions, 1);
}

#[test]
fn the_schema_permits_the_deletion_of_nothing_else() {
    let home = Home::new();
    let store = open(&home, &ONE_DAY);
    (1..=2).for_each(|byte| create(&store, byte));
    start(&store, 1, 2).unwrap();
    store.revoke(&link(20), &id(2), &identity(2), NOW).unwrap();
    let succession = levada_core::Succession::sign(&crate::support::key(1), &identity(9), NOW);
    store.apply_succession(&succession, NOW).unwrap();
    store.store_time(UnixTime(LATER.0 + DAY - 1)).unwrap();
    store.block(&identity(4), UnixTime(LATER.0 + DAY - 1)).unwrap();
    drop(store);
    let raw = home.open_raw();
    let fails = |sql: &str| assert!(raw.execute(sql, []).is_err(), "{sql}");
    // The retention of the sessions lasts; that of the oldest entries is over.
    for table in ["session", "link_use", "revocation", "audit", "succession"] {
        fails(&format!("DELETE FROM {table}"));
    }
    fails("UPDATE session SET expires = 0");
    fails("UPDATE link_use SET session = x'00000000000000000000000000000000'");
    assert!(raw.execute("DELETE FROM audit WHERE time <= 1000000", []).unwrap() > 0);
    raw.execute("UPDATE clock SET time = time + 1", []).unwrap();
    // Uses and revocations leave with their session only.
    fails("DELETE FROM link_use");
    fails("DELETE FROM revocation");
    raw.execute("UPDATE retention SET held_until = 9000000", []).unwrap();
    fails("DELETE FROM session");
    raw.execute("UPDATE retention SET held_until = 0", []).unwrap();
    raw.execute("PRAGMA foreign_keys = ON", []).unwrap();
    assert_eq!(raw.execute("DELETE FROM session", []).unwrap(), 2);
    let left = "SELECT (SELECT count(*) FROM link_use) + (SELECT count(*) FROM revocation)";
    assert_eq!(raw.query_row(left, [], |row| row.get::<_, i64>(0)).unwrap(), 0);
}

/// A generator of pseudorandom numbers (Knuth, MMIX).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

const SESSIONS: u8 = 8;
const USES: u32 = 3;

/// Starts, restarts, removals, and clocks that the owner sets back and forth: no session starts more
/// often than it may, and none after it was removed.
#[test]
fn no_order_of_starts_restarts_removals_and_clocks_revives_a_session() {
    for seed in 1..=6 {
        let home = Home::new();
        let mut numbers = Numbers(seed);
        let mut store = open(&home, &ONE_DAY);
        (1..=SESSIONS).for_each(|byte| create(&store, byte));
        let mut starts = [0; SESSIONS as usize + 1];
        let mut removed = HashSet::new();
        let mut clock = NOW;
        for step in 0..150 {
            let byte = 1 + u8::try_from(numbers.below(u64::from(SESSIONS))).unwrap();
            match numbers.below(8) {
                0..=3 => {
                    let now = store.now(clock).time;
                    let chain = [(link(byte), USES)];
                    let started = start_by(&store, &id(byte), &chain, &identity(byte), now);
                    starts[usize::from(byte)] += u32::from(started.is_ok());
                    assert!(started.is_err() || !removed.contains(&id(byte)), "{seed} {step}");
                }
                4 => {
                    clock = UnixTime(clock.0 + numbers.below(DAY));
                    store.now_at_least(clock).unwrap();
                }
                5 => {
                    clock = UnixTime(NOW.0 + numbers.below(LATER.0 - NOW.0 + 3 * DAY));
                    store.accept_clock(clock).unwrap();
                }
                6 => {
                    drop(store);
                    store = home.open();
                    store.now(clock);
                    store.set_retention(&ONE_DAY).unwrap();
                }
                _ => drop(prune(&store)),
            }
            let left: HashSet<_> = ids(&store).into_iter().collect();
            removed.extend((1..=SESSIONS).map(id).filter(|id| !left.contains(id)));
        }
        assert!(starts.iter().all(|count| *count <= USES), "{seed}: {starts:?}");
        store.integrity_check().unwrap();
    }
}

/// Removals while other threads start sessions and the time passes.
#[test]
fn removals_race_with_starts() {
    let home = Home::new();
    let store = open(&home, &ONE_DAY);
    (1..=SESSIONS).for_each(|byte| create(&store, byte));
    let clock = AtomicU64::new(LATER.0 - 20);
    let starter = &|byte: u8| {
        let mut started = 0;
        loop {
            let now = UnixTime(clock.load(Ordering::SeqCst));
            let chain = [(link(byte), 1000)];
            match start_by(&store, &id(byte), &chain, &identity(byte), now) {
                Ok(()) => started += 1,
                Err(StartError::Expired) => {}
                Err(StartError::UnknownSession) => return started,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let (started, pruned) = std::thread::scope(|scope| {
        let starters: Vec<_> =
            (1..=SESSIONS).map(|byte| scope.spawn(move || starter(byte))).collect();
        let pruner = scope.spawn(|| {
            let mut pruned = 0;
            while pruned < usize::from(SESSIONS) {
                let step = if clock.load(Ordering::SeqCst) < LATER.0 { 1 } else { DAY / 4 };
                let now = clock.fetch_add(step, Ordering::SeqCst) + step;
                store.store_time(UnixTime(now)).unwrap();
                pruned += store.prune(&HashSet::new(), 3).unwrap().sessions;
            }
            pruned
        });
        let started: u32 = starters.into_iter().map(|one| one.join().unwrap()).sum();
        (started, pruner.join().unwrap())
    });
    assert_eq!(pruned, usize::from(SESSIONS));
    let counted = store.newest_entries(&Default::default(), 10_000).unwrap();
    let counted = counted.iter().filter(|entry| entry.outcome == "started").count();
    assert!(counted <= started as usize, "entries of the log are removed, too");
    store.integrity_check().unwrap();
}
