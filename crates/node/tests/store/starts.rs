//! Starts: uses are counted for each link of a chain.

use levada_node::store::{SessionFilter, SessionState, StartError};

use super::{Home, create};
use crate::support::{NOW, id, identity, link, start_by};

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
    assert_eq!(store.used(&link(1)).unwrap(), 1, "a refused start is not counted");
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
