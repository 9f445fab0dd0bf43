//! The memory of sessions whose peers have not proved a right. Time is virtual: it advances when
//! every task waits.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use levada_contexts::{ContextError, PathError, PathEvent, PathSession};
use levada_session::Budget;
use tokio::time::sleep;

use crate::support::{bounded, exchange};

/// The most that one session holds always: what a source beyond its share keeps.
const MIN_PER_CONNECTION: usize = 64 << 10;
/// A source has an eighth of the budget.
const SHARE: usize = 8;
/// Shorter than the time that middleboxes and client give the server for the start.
const WAIT: Duration = Duration::from_secs(4);
/// More than a server holds of a session that is not started, in bytes.
const BODY: usize = 300_000;

fn source(last: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, 2, last).into()
}

/// A request that is longer than what the other parties hold of it.
fn send(client: &PathSession) {
    let client = client.clone();
    tokio::spawn(async move {
        // The session may end before.
        if client.write(1, &[7; BODY]).await.is_ok() {
            let _ = client.finish();
        }
    });
}

/// Lets everything happen that does not wait for time.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
}

fn closed_for_memory() -> Result<Option<PathEvent>, PathError> {
    let what = "unread data of peers that have not proved a right";
    Err(PathError::Context(ContextError::Flood(what)))
}

/// What a client learns: the server is busy.
async fn is_told(client: &PathSession) {
    client.failed().await;
    let busy = PathError::Context(ContextError::Alert { code: 5, hop: 0 });
    let mut last = client.next().await;
    while last.is_ok() {
        last = client.next().await;
    }
    assert_eq!(last, Err(busy));
}

#[tokio::test(start_paused = true)]
async fn a_session_counts_from_its_first_byte_until_its_peer_has_proved_a_right() {
    let budget = Budget::new(64 << 20, WAIT, 7);
    let (client, server) = bounded(&budget, source(1)).await;
    assert!(server.is_bounded() && !client.is_bounded());
    let idle = budget.used();
    // The read buffer alone has 20 KiB.
    assert!((20 << 10..MIN_PER_CONNECTION).contains(&idle), "{idle}");
    send(&client);
    settle().await;
    // What a server holds before the start.
    assert!(budget.used() > idle + (60 << 10), "{} of {idle}", budget.used());
    assert!(budget.used() < BODY, "{}", budget.used());
    server.leave_budget();
    settle().await;
    assert_eq!((budget.used(), server.is_bounded()), (0, false));
    server.start(true, None).unwrap();
    assert_eq!(exchange(&server, 1).await.len(), BODY);
    assert_eq!(budget.closed(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_largest_session_is_closed_when_all_exceed_the_bound() {
    let limit = 160 << 10;
    let budget = Budget::new(limit, WAIT, 7);
    // One that sends an operation of usual length.
    let (other, honest) = bounded(&budget, source(1)).await;
    other.control(&[1; 8000]).unwrap();
    let mut attackers = Vec::new();
    for _ in 0..4 {
        let (client, server) = bounded(&budget, source(2)).await;
        send(&client);
        settle().await;
        assert!(budget.used() <= limit, "{}", budget.used());
        attackers.push((client, server));
    }
    assert!(budget.closed() >= 3, "{}", budget.closed());
    let (client, server) = &attackers[0];
    assert_eq!(server.next().await, closed_for_memory());
    is_told(client).await;
    assert!(honest.is_open());
    honest.start(true, None).unwrap();
    honest.leave_budget();
    assert!(matches!(other.next().await, Ok(Some(PathEvent::Ready))));
    drop(attackers);
    settle().await;
    assert_eq!(budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_session_that_waits_for_memory_goes_on_or_is_closed_in_time() {
    for released in [true, false] {
        let budget = Budget::new(MIN_PER_CONNECTION * SHARE, WAIT, 7);
        let (client, server) = bounded(&budget, source(1)).await;
        send(&client);
        sleep(WAIT / 2).await;
        assert!(server.is_open() && budget.used() > MIN_PER_CONNECTION, "{}", budget.used());
        if released {
            server.leave_budget();
            sleep(WAIT).await;
            server.start(true, None).unwrap();
            assert_eq!(exchange(&server, 1).await.len(), BODY);
            assert_eq!(budget.closed(), 0);
        } else {
            sleep(WAIT).await;
            assert_eq!(server.next().await, closed_for_memory());
            is_told(&client).await;
            assert_eq!((budget.closed(), budget.used()), (1, 0));
        }
    }
}

/// What an attacker holds leaves room for what another session of its source needs at least.
#[tokio::test(start_paused = true)]
async fn an_operation_of_usual_length_is_read_while_its_source_exceeds_its_share() {
    let budget = Budget::new(MIN_PER_CONNECTION * SHARE, WAIT, 7);
    let mut attackers = Vec::new();
    for _ in 0..2 {
        let (client, server) = bounded(&budget, source(1)).await;
        send(&client);
        settle().await;
        attackers.push((client, server));
    }
    let (client, server) = bounded(&budget, source(1)).await;
    client.control(&[1; 8000]).unwrap();
    assert!(matches!(server.next().await, Ok(Some(PathEvent::Received(_)))));
}
