//! The ordinary session of a local origin, which carries all exchanges, each on its own stream.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use levada_client::Running;
use levada_service::Streams;
use levada_service::stdio::{Message, MessageReader};
use levada_service::streams::Opener;
use levada_session::{Connection, ReceiveHalf, SendHalf};
use tokio::sync::{Mutex, watch};
use tokio::time::timeout;

use super::report::{Report, SessionEvent};

/// The time limit for each step of an orderly end.
pub(super) const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// An ordinary session, which carries all exchanges.
pub(super) struct StreamSession {
    pub(super) opener: Opener,
    connection: Connection,
    send: Mutex<SendHalf>,
    /// This side ends the session.
    closing: Arc<AtomicBool>,
    ended: watch::Receiver<bool>,
}

impl StreamSession {
    /// Session `number`, which is started. Its end is reported.
    pub(super) fn new(number: u64, running: Running, streams: Streams, report: Report) -> Self {
        let connection = running.connection.clone();
        let (send, receive) = running.stream.split();
        let (over, ended) = watch::channel(false);
        let opener = streams.opener();
        let closing = Arc::new(AtomicBool::new(false));
        let orderly = closing.clone();
        tokio::spawn(async move {
            let error = end_of(receive).await;
            // From here on no stream can be opened.
            drop(streams);
            let error = (!orderly.load(Ordering::Relaxed)).then_some(error);
            report(SessionEvent::Ended { number, error });
            let _ = over.send(true);
        });
        Self { opener, connection, send: Mutex::new(send), closing, ended }
    }

    pub(super) fn is_open(&self) -> bool {
        !*self.ended.borrow() && self.connection.is_open()
    }

    pub(super) async fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        let mut ended = self.ended.clone();
        let end = async {
            let mut send = self.send.lock().await;
            if send.send(&Message::End.to_bytes()).await.is_ok() {
                let _ = ended.wait_for(|ended| *ended).await;
                let _ = send.finish().await;
            }
        };
        let _ = timeout(CLOSE_TIMEOUT, end).await;
        self.connection.close(0, "");
        let _ = timeout(CLOSE_TIMEOUT, self.connection.flushed()).await;
    }
}

/// Why an ordinary session has ended, when it has.
async fn end_of(mut receive: ReceiveHalf) -> String {
    let mut messages = MessageReader::new();
    let mut reason = None;
    loop {
        match messages.next(&mut receive).await {
            Ok(Some(Message::Failure(text))) => reason = Some(text.to_owned()),
            Ok(Some(Message::Exit(_))) => {
                return reason.unwrap_or_else(|| "the service has ended it".to_owned());
            }
            Ok(Some(_)) => return "the service sent an unexpected message".to_owned(),
            Ok(None) => return "the service has left".to_owned(),
            Err(error) => return error.to_string(),
        }
    }
}
