//! A client of [`crate::stdio`] for the tests of services.

#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use levada_capability::SessionId;
use levada_core::{Identity, Params};
use levada_session::{ReceiveHalf, SendHalf, Stream, testing};

use crate::stdio::{Message, MessageReader, Window};
use crate::{
    Context, Definition, DefinitionError, Invocation, Over, Registry, RunFuture, Service,
    ServiceType, Streams,
};

/// The client's end of a session.
pub struct Client {
    send: SendHalf,
    receive: ReceiveHalf,
}

/// Everything that a session sent until it ended.
#[derive(Debug, Default)]
pub struct End {
    pub output: Vec<u8>,
    pub error: Vec<u8>,
    pub exit: Option<u8>,
    pub failure: Option<String>,
}

impl End {
    /// Receives until the end of the session.
    pub async fn collect(receive: &mut ReceiveHalf) -> Self {
        Self::collect_until(receive, |_| false).await
    }

    async fn collect_until(receive: &mut ReceiveHalf, enough: impl Fn(&Self) -> bool) -> Self {
        let mut end = Self::default();
        let mut reader = MessageReader::new();
        while !enough(&end) && end.exit.is_none() {
            let Ok(Some(message)) = reader.next(receive).await else { break };
            match message {
                Message::Data(data) => end.output.extend_from_slice(data),
                Message::Error(data) => end.error.extend_from_slice(data),
                Message::Failure(text) => end.failure = Some(text.to_owned()),
                Message::Exit(code) => end.exit = Some(code),
                other => panic!("{other:?}"),
            }
        }
        end
    }

    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }
}

/// A start without further streams.
pub fn invocation() -> Invocation {
    Invocation {
        session: SessionId::from_bytes([1; 16]),
        holder: Identity::from_bytes([2; 32]),
        streams: Streams::none(),
    }
}

/// Runs a session of `service` with these parameters, which it must accept.
pub fn run(service: &dyn Service, pairs: &[(&str, &[u8])], stream: Stream) -> RunFuture {
    service
        .prepare(&params(pairs), Over::Stream)
        .unwrap()
        .into_stream()
        .unwrap()
        .start(invocation(), stream)
}

/// A node whose services cannot call other nodes.
pub fn context() -> Context {
    Context::without_client(Identity::from_bytes([3; 32]))
}

/// The definition in `text`, whose type is `service_type`.
pub fn definition(service_type: ServiceType, text: &str) -> Result<Definition, DefinitionError> {
    Registry::new(vec![service_type]).parse(text)
}

/// Parameters of these keys and values.
pub fn params(pairs: &[(&str, &[u8])]) -> Params {
    let mut params = Params::new();
    for (key, value) in pairs {
        params.add(key, value.to_vec()).unwrap();
    }
    params
}

impl Client {
    /// A client, and the service's end of its stream.
    pub async fn pair() -> (Self, Stream) {
        let (near, far) = testing::pair().await.unwrap();
        let (send, receive) = near.split();
        (Self { send, receive }, far)
    }

    /// The stream's two directions.
    pub fn split(self) -> (SendHalf, ReceiveHalf) {
        (self.send, self.receive)
    }

    pub async fn send(&mut self, message: Message<'_>) {
        self.send.send(&message.to_bytes()).await.unwrap();
    }

    pub async fn send_raw(&mut self, message: &[u8]) {
        self.send.send(message).await.unwrap();
    }

    pub async fn window(&mut self, rows: u16, columns: u16) {
        self.send(Message::Window(Window { rows, columns })).await;
    }

    /// Receives until the end of the session, then finishes this side.
    pub async fn collect(&mut self) -> End {
        self.collect_until(|_| false).await
    }

    /// As [`Self::collect`], but returns as soon as `enough` holds.
    pub async fn collect_until(&mut self, enough: impl Fn(&End) -> bool) -> End {
        let end = End::collect_until(&mut self.receive, enough).await;
        if end.exit.is_some() {
            self.send.finish().await.unwrap();
        }
        end
    }

    /// Both directions at once; the caller finishes the sending one.
    pub fn halves(&mut self) -> (&mut SendHalf, &mut ReceiveHalf) {
        (&mut self.send, &mut self.receive)
    }

    /// Sends the end of the input, then collects.
    pub async fn finish_and_collect(&mut self) -> End {
        self.send(Message::End).await;
        self.collect().await
    }
}
