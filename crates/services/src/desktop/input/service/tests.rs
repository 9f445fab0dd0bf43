//! The service with an injector that only remembers, behind a real channel.

use std::sync::{Arc, Mutex};

use super::*;
use crate::desktop::input::event::{Event, MAX_EVENTS, decode_count, encode};
use crate::desktop::input::injector::{InjectError, Injector};
use levada_service::testing::{Client, End};

/// Far longer than anything here takes; only keeps a failing test from hanging.
const HANGING: Duration = Duration::from_secs(60);
/// A keysym that nobody can type here.
const UNKNOWN: u32 = 0xdead;
/// The screen is gone with it.
const FATAL: u32 = 0xbeef;

/// What was put in; `None` once it was let go.
type Log = Arc<Mutex<Vec<Option<Event>>>>;

struct Remembers(Log);

impl Injector for Remembers {
    fn inject(&mut self, event: Event) -> Result<(), InjectError> {
        match event {
            Event::KeyDown { keysym: UNKNOWN, .. } => {
                return Err(InjectError::Refused("no such key".into()));
            }
            Event::KeyDown { keysym: FATAL, .. } => return Err(InjectError::Lost("cut".into())),
            _ => {}
        }
        self.0.lock().unwrap().push(Some(event));
        Ok(())
    }

    fn finish(&mut self) -> Result<(), InjectError> {
        Ok(())
    }
}

impl Drop for Remembers {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(None);
    }
}

const ALL: Limits = Limits { keyboard: true, pointer: true, rate: 100_000 };

fn key(key: u8) -> Event {
    Event::KeyDown { key, keysym: 97 }
}

/// Runs a session, while `talk` plays the client.
async fn session<T>(
    limits: Limits,
    talk: impl AsyncFnOnce(&mut Client, &Log) -> T,
) -> (Result<(), ServiceError>, T, Log) {
    let log = Log::default();
    let injector = Remembers(log.clone());
    let thread = InjectorThread::start(move || Ok(injector), HANGING).await.unwrap();
    let (mut client, stream) = Client::pair().await;
    let both = async { tokio::join!(run(thread, limits, stream), talk(&mut client, &log)) };
    let (result, said) = tokio::time::timeout(HANGING, both).await.unwrap();
    (result, said, log)
}

async fn send(client: &mut Client, events: &[Event]) {
    client.send(Message::Data(&encode(events))).await;
}

async fn until(log: &Log, enough: impl Fn(&[Option<Event>]) -> bool) {
    let wait = async {
        while !enough(&log.lock().unwrap()) {
            sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(HANGING, wait).await.unwrap();
}

#[tokio::test]
async fn events_are_put_in_in_order_and_let_go_in_the_end() {
    let (result, end, log) = session(ALL, async |client, _| {
        send(client, &[key(1), Event::Motion { dx: 1, dy: 2 }]).await;
        send(client, &[Event::KeyUp { key: 1 }]).await;
        client.finish_and_collect().await
    })
    .await;
    result.unwrap();
    assert_eq!((end.exit, end.failure), (Some(0), None));
    assert_eq!(decode_count(&end.output), Ok(3));
    let expected =
        [Some(key(1)), Some(Event::Motion { dx: 1, dy: 2 }), Some(Event::KeyUp { key: 1 }), None];
    assert_eq!(*log.lock().unwrap(), expected);
}

#[tokio::test]
async fn whoever_falls_silent_with_a_key_down_has_it_let_go() {
    let (result, (), log) = session(ALL, async |client, log| {
        send(client, &[key(1)]).await;
        until(log, |log| log.contains(&Some(Event::ReleaseAll))).await;
        // Nothing is down any more: from here on silence has no meaning.
        send(client, &[Event::KeyUp { key: 1 }]).await;
        let end = client.finish_and_collect().await;
        assert_eq!((end.exit, decode_count(&end.output)), (Some(0), Ok(2)));
        assert!(String::from_utf8_lossy(&end.error).contains("let go"));
    })
    .await;
    result.unwrap();
    let expected = [Some(key(1)), Some(Event::ReleaseAll), Some(Event::KeyUp { key: 1 }), None];
    assert_eq!(*log.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_client_that_goes_away_has_everything_let_go() {
    let log = Log::default();
    let injector = Remembers(log.clone());
    let thread = InjectorThread::start(move || Ok(injector), HANGING).await.unwrap();
    let (mut client, stream) = Client::pair().await;
    let talk = async {
        send(&mut client, &[key(1)]).await;
        until(&log, |log| log == [Some(key(1))]).await;
        drop(client);
    };
    let (result, ()) = tokio::join!(run(thread, ALL, stream), talk);
    assert!(result.is_err());
    until(&log, |log| log.last() == Some(&None)).await;
}

#[tokio::test]
async fn what_cannot_be_typed_is_told_and_the_rest_goes_on() {
    let (result, end, _) = session(ALL, async |client, _| {
        let unknown = Event::KeyDown { key: 9, keysym: UNKNOWN };
        for _ in 0..40 {
            send(client, &[unknown, key(1), Event::KeyUp { key: 1 }]).await;
        }
        client.finish_and_collect().await
    })
    .await;
    result.unwrap();
    assert_eq!(end.exit, Some(0));
    let count = end.output.rchunks(8).next().map(decode_count);
    assert_eq!(count, Some(Ok(120)));
    // Not as many notes as a flood would make.
    assert_eq!(String::from_utf8_lossy(&end.error).matches("no such key").count(), 16);
}

#[tokio::test]
async fn a_screen_that_goes_away_is_a_failure() {
    let (result, end, log) = session(ALL, async |client, _| -> End {
        send(client, &[Event::KeyDown { key: 1, keysym: FATAL }]).await;
        client.collect().await
    })
    .await;
    assert!(matches!(result, Err(ServiceError::Failed(_))));
    assert_eq!(end.exit, Some(120));
    assert!(end.failure.is_some_and(|text| text.contains("cut")));
    assert_eq!(*log.lock().unwrap(), [None]);
    let refused = InjectorThread::start(|| Err::<Remembers, _>("no screen".into()), HANGING).await;
    assert_eq!(refused.err().as_deref(), Some("no screen"));
}

#[tokio::test]
async fn wrong_messages_end_the_session() {
    for wrong in [&[0][..], &[0, 1], &[0, 2, 1, 0, 0, 0, 0, 0, 0, 0], &[3, 0], &[9]] {
        let (result, end, log) = session(ALL, async |client, _| {
            client.send_raw(wrong).await;
            client.collect().await
        })
        .await;
        assert!(result.is_err() && end.exit.is_none(), "{wrong:?}");
        until(&log, |log| log == [None]).await;
    }
}

/// How long it takes is for the test of the budget; that nothing is lost, for this one.
#[tokio::test]
async fn nothing_of_a_flood_is_lost() {
    const MESSAGES: usize = 3;
    let limits = Limits { rate: 2000, ..ALL };
    let (result, end, log) = session(limits, async |client, _| {
        for _ in 0..MESSAGES {
            send(client, &[Event::Motion { dx: 1, dy: 0 }; MAX_EVENTS]).await;
        }
        client.finish_and_collect().await
    })
    .await;
    result.unwrap();
    assert_eq!(end.exit, Some(0));
    assert_eq!(log.lock().unwrap().len(), MESSAGES * MAX_EVENTS + 1);
}
