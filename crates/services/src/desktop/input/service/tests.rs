//! The service on a real channel, with an injector that only records events.

use std::sync::{Arc, Mutex};

use super::*;
use crate::desktop::input::event::{Event, MAX_EVENTS, decode_count, encode};
use crate::desktop::input::injector::{InjectError, Injector};
use levada_service::testing::{Client, End};

/// Ends a test that hangs; far longer than any step takes.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);
/// A keysym that the injector refuses.
const UNKNOWN: u32 = 0xdead;
/// A keysym with which the injector loses the screen.
const FATAL: u32 = 0xbeef;

/// The injected events; `None` when the injector is dropped.
type Log = Arc<Mutex<Vec<Option<Event>>>>;

struct Recorder(Log);

impl Injector for Recorder {
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

impl Drop for Recorder {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(None);
    }
}

const ALL: Limits = Limits { keyboard: true, pointer: true, rate: 100_000 };

fn key(key: u8) -> Event {
    Event::KeyDown { key, keysym: 97 }
}

/// Runs a session with `script` as the client.
async fn session<T>(
    limits: Limits,
    script: impl AsyncFnOnce(&mut Client, &Log) -> T,
) -> (Result<(), ServiceError>, T, Log) {
    let log = Log::default();
    let injector = Recorder(log.clone());
    let thread = InjectorThread::start(move || Ok(injector), TEST_TIMEOUT).await.unwrap();
    let (mut client, stream) = Client::pair().await;
    let both = async { tokio::join!(run(thread, limits, stream), script(&mut client, &log)) };
    let (result, value) = tokio::time::timeout(TEST_TIMEOUT, both).await.unwrap();
    (result, value, log)
}

async fn send(client: &mut Client, events: &[Event]) {
    client.send(Message::Data(&encode(events))).await;
}

async fn wait_until(log: &Log, condition: impl Fn(&[Option<Event>]) -> bool) {
    let wait = async {
        while !condition(&log.lock().unwrap()) {
            sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, wait).await.unwrap();
}

#[tokio::test]
async fn events_are_injected_in_order_and_released_at_the_end() {
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
async fn releases_everything_if_a_client_stops_sending_with_a_key_down() {
    let (result, (), log) = session(ALL, async |client, log| {
        send(client, &[key(1)]).await;
        wait_until(log, |log| log.contains(&Some(Event::ReleaseAll))).await;
        // Nothing is pressed any more, so no further keepalive is due.
        send(client, &[Event::KeyUp { key: 1 }]).await;
        let end = client.finish_and_collect().await;
        assert_eq!((end.exit, decode_count(&end.output)), (Some(0), Ok(2)));
        assert!(String::from_utf8_lossy(&end.error).contains("released"));
    })
    .await;
    result.unwrap();
    let expected = [Some(key(1)), Some(Event::ReleaseAll), Some(Event::KeyUp { key: 1 }), None];
    assert_eq!(*log.lock().unwrap(), expected);
}

#[tokio::test]
async fn releases_everything_if_the_client_disconnects() {
    let log = Log::default();
    let injector = Recorder(log.clone());
    let thread = InjectorThread::start(move || Ok(injector), TEST_TIMEOUT).await.unwrap();
    let (mut client, stream) = Client::pair().await;
    let script = async {
        send(&mut client, &[key(1)]).await;
        wait_until(&log, |log| log == [Some(key(1))]).await;
        drop(client);
    };
    let (result, ()) = tokio::join!(run(thread, ALL, stream), script);
    assert!(result.is_err());
    wait_until(&log, |log| log.last() == Some(&None)).await;
}

#[tokio::test]
async fn a_refused_event_is_reported_and_others_are_injected() {
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
    // The number of notes is limited.
    assert_eq!(String::from_utf8_lossy(&end.error).matches("no such key").count(), 16);
}

#[tokio::test]
async fn a_lost_screen_is_reported_as_a_failure() {
    let (result, end, log) = session(ALL, async |client, _| -> End {
        send(client, &[Event::KeyDown { key: 1, keysym: FATAL }]).await;
        client.collect().await
    })
    .await;
    assert!(matches!(result, Err(ServiceError::Failed(_))));
    assert_eq!(end.exit, Some(120));
    assert!(end.failure.is_some_and(|text| text.contains("cut")));
    assert_eq!(*log.lock().unwrap(), [None]);
    let refused =
        InjectorThread::start(|| Err::<Recorder, _>("no screen".into()), TEST_TIMEOUT).await;
    assert_eq!(refused.err().as_deref(), Some("no screen"));
}

#[tokio::test]
async fn invalid_messages_end_the_session() {
    for message in [&[0][..], &[0, 1], &[0, 2, 1, 0, 0, 0, 0, 0, 0, 0], &[3, 0], &[9]] {
        let (result, end, log) = session(ALL, async |client, _| {
            client.send_raw(message).await;
            client.collect().await
        })
        .await;
        assert!(result.is_err() && end.exit.is_none(), "{message:?}");
        wait_until(&log, |log| log == [None]).await;
    }
}

/// The delays are tested in `rate_limiter`.
#[tokio::test]
async fn events_above_the_rate_are_delayed_and_not_lost() {
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

/// Blocks in every event until the test drops the other end of the channel, as an X server that is
/// stopped does.
struct Blocking(std::sync::mpsc::Receiver<()>);

impl Injector for Blocking {
    fn inject(&mut self, _: Event) -> Result<(), InjectError> {
        let _ = self.0.recv();
        Ok(())
    }

    fn finish(&mut self) -> Result<(), InjectError> {
        Ok(())
    }
}

#[tokio::test]
async fn a_disconnect_ends_the_session_while_the_screen_does_not_respond() {
    let (unblock, blocked) = std::sync::mpsc::channel();
    let injector = Blocking(blocked);
    let thread = InjectorThread::start(move || Ok(injector), TEST_TIMEOUT).await.unwrap();
    let (batches, mut progress) = thread.split();
    // The queue is full, so that the service does not read the stream.
    while batches.try_send(Batch::release_all()).is_ok() {}
    let (client, stream) = Client::pair().await;
    let (mut send, _receive) = stream.split();
    let sending = send_progress(&mut send, &mut progress);
    let disconnect = async { drop(client) };
    let (result, ()) = tokio::join!(timeout(TEST_TIMEOUT, sending), disconnect);
    assert!(result.unwrap().is_err());
    drop((unblock, batches));
}
