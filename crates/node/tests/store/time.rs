//! Expiry, and the clock that never goes back.

use levada_core::UnixTime;
use levada_node::store::{Now, SessionState, StartError, Store};

use super::{Home, create};
use crate::support::{LATER, NOW, id, identity, link, start_by};

#[test]
fn expiry_is_stored_before_it_is_reported() {
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
fn every_change_is_stored_with_its_time() {
    let home = Home::new();
    let store = home.open();
    let later = |seconds| UnixTime(NOW.0 + seconds);
    assert_eq!(store.now(NOW), Now { time: NOW, jumped: false });
    create(&store, 1);
    drop(store);
    let store = home.open();
    assert_eq!(store.now(UnixTime(3)).time, NOW);
    assert_eq!(store.now(later(1)).time, later(1));
    store.block(&identity(2), later(1)).unwrap();
    drop(store);
    let store = home.open();
    assert_eq!(store.now(UnixTime(3)).time, later(1));
    // A refused change stores nothing, and neither does a time alone, until it is due.
    assert_eq!(store.now_at_least(later(10)).unwrap().time, later(10));
    assert!(start_by(&store, &id(9), &[(link(9), 1)], &identity(9), later(10)).is_err());
    drop(store);
    let store = home.open();
    assert_eq!(store.now(UnixTime(3)).time, later(1));
    assert_eq!(store.now_at_least(later(11)).unwrap().time, later(11));
    drop(store);
    assert_eq!(home.open().now(UnixTime(3)).time, later(11));
}

#[test]
fn time_never_goes_back_and_a_jump_is_not_stored() {
    let home = Home::new();
    let store = home.open();
    let at = |store: &Store, seconds| store.now_at_least(UnixTime(seconds)).unwrap();
    let day = 24 * 60 * 60;
    let now = |seconds, jumped| Now { time: UnixTime(seconds), jumped };
    assert_eq!(at(&store, 10 * day), now(10 * day, false), "the first reading is not a jump");
    assert_eq!(at(&store, 9 * day), now(10 * day, false));
    assert_eq!(at(&store, 11 * day), now(11 * day, false));
    assert_eq!(at(&store, 12 * day + 1), now(12 * day + 1, true));
    create(&store, 1);
    assert_eq!(store.expire_unstarted(UnixTime(LATER.0 + 2 * day)).unwrap(), 0);
    store.store_time(UnixTime(12 * day + 1)).unwrap();
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
