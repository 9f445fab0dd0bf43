//! Which tests run at the same time.
//!
//! Every test that makes a [`super::Home`] holds a permit until it ends. By default it runs beside
//! all others. Tests of the modules in [`ISOLATED`] run only beside tests of the same module, and a
//! test that calls [`exclusive`] runs alone: these depend on the load of the machine, on what is
//! announced on loopback, or on default ports.
//!
//! Permits are given in the order in which they are asked for, so no test waits for more than those
//! before it. The test harness starts tests in the order of their names, so a module that is
//! isolated costs one pause at its beginning and one at its end.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// Modules whose tests run beside each other and beside no others.
///
/// `hosts` and `screens` start network namespaces and X servers, `names` waits for answers of
/// multicast DNS on loopback, and `misbehaving_peer` and `wireshark` keep both cores busy.
const ISOLATED: &[&str] = &["hosts", "misbehaving_peer", "names", "screens", "wireshark"];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Group {
    Common,
    Module(&'static str),
    Exclusive,
}

impl Group {
    /// The group of a test with this path, such as `names::a_killed_node_is_not_shown`.
    fn of(test: &str) -> Self {
        let module = test.split("::").next();
        let isolated = ISOLATED.iter().find(|isolated| Some(**isolated) == module);
        isolated.map_or(Self::Common, |isolated| Self::Module(isolated))
    }
}

struct State {
    /// The group of the tests that run; meaningless when none does.
    group: Group,
    running: usize,
    next_ticket: u64,
    waiting: VecDeque<u64>,
}

impl State {
    fn admits(&self, group: Group, ticket: u64) -> bool {
        let fits = self.running == 0 || (self.group == group && group != Group::Exclusive);
        fits && self.waiting.front() == Some(&ticket)
    }
}

static STATE: Mutex<State> = Mutex::new(State {
    group: Group::Common,
    running: 0,
    next_ticket: 0,
    waiting: VecDeque::new(),
});
static CHANGED: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The right of a test to run.
pub struct Permit(());

impl Permit {
    fn wait_for(group: Group) -> Self {
        let mut state = lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back(ticket);
        while !state.admits(group, ticket) {
            state = CHANGED.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.waiting.pop_front();
        state.group = group;
        state.running += 1;
        CHANGED.notify_all();
        Self(())
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        lock().running -= 1;
        CHANGED.notify_all();
    }
}

thread_local! {
    /// The permit of the test that runs on this thread.
    static CURRENT: RefCell<Weak<Permit>> = const { RefCell::new(Weak::new()) };
}

/// A share of the permit of the test on this thread; it waits for one if the test has none.
///
/// `None` on a thread that is not a test's: the threads that a test starts run under its permit.
pub fn shared() -> Option<Arc<Permit>> {
    let thread = std::thread::current();
    // The harness gives each test's thread the path of the test as its name.
    let test = thread.name().filter(|name| name.contains("::"))?;
    if let Some(permit) = CURRENT.with_borrow(Weak::upgrade) {
        return Some(permit);
    }
    Some(enter(Group::of(test)))
}

/// The permit of a test that runs alone. The test asks for it before it makes its first home.
#[track_caller]
#[must_use]
pub fn exclusive() -> Arc<Permit> {
    let has_one = CURRENT.with_borrow(|current| current.strong_count() > 0);
    assert!(!has_one, "this test runs already: ask for `exclusive` first");
    enter(Group::Exclusive)
}

fn enter(group: Group) -> Arc<Permit> {
    let permit = Arc::new(Permit::wait_for(group));
    CURRENT.set(Arc::downgrade(&permit));
    permit
}

#[test]
fn the_group_of_a_test_is_that_of_its_module() {
    assert_eq!(Group::of("names::a_node_is_found"), Group::Module("names"));
    assert_eq!(Group::of("screens::show::a_window"), Group::Module("screens"));
    assert_eq!(Group::of("rights::names::a_grant"), Group::Common);
}

#[test]
fn a_test_that_waits_is_admitted_before_those_that_ask_later() {
    let mut state =
        State { group: Group::Common, running: 1, next_ticket: 2, waiting: VecDeque::from([0, 1]) };
    // The first waits to be alone; the second would fit, and comes after it.
    assert!(!state.admits(Group::Exclusive, 0) && !state.admits(Group::Common, 1));
    state.running = 0;
    assert!(state.admits(Group::Exclusive, 0) && !state.admits(Group::Common, 1));
    state.waiting.pop_front();
    (state.group, state.running) = (Group::Exclusive, 1);
    assert!(!state.admits(Group::Common, 1) && !state.admits(Group::Exclusive, 1));
    state.running = 0;
    assert!(state.admits(Group::Common, 1));
}
