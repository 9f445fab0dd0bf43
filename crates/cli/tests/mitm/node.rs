//! A node that grants every session and lets the test send and receive its messages, as a hostile
//! mediator can.

use std::sync::Arc;

use levada_capability::{LinkBody, Presented, Rights, SessionId, mint};
use levada_core::wire::{self, Answer, Operation, Reason, Refusal, mediation::Part, operation};
use levada_core::{Framing, Identity, Params, SecretKey, UnixTime};
use levada_services::brokering::mediation::{self, ROLE};
use levada_session::{Connection, Options, ReceiveHalf, SendHalf, ServerConfig, Stream, accept};
use levada_transport::Tcp;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::support::{Home, STEP_TIMEOUT};

/// A node with the key of a home, run by the test.
pub struct Mediator {
    /// The service, as NODE/SERVICE.
    pub place: String,
    sessions: UnboundedReceiver<Session>,
}

/// A session at this node.
pub struct Session {
    role: String,
    sender: SendHalf,
    receiver: ReceiveHalf,
}

impl Mediator {
    /// Listens with the key of `home`.
    pub async fn new(home: &Home) -> Self {
        let key = levada_home::Home::at(home.path()).unwrap().key().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let place = format!("{}@{address}/capability", key.identity());
        let (sender, sessions) = unbounded_channel();
        tokio::spawn(listen(listener, Arc::new(key), sender));
        Self { place, sessions }
    }

    /// Waits for the next session; its client must have this role.
    pub async fn session(&mut self, role: &str) -> Session {
        let session = timeout(STEP_TIMEOUT, self.sessions.recv()).await.unwrap().unwrap();
        assert_eq!(session.role, role);
        session
    }
}

impl Session {
    pub async fn send(&mut self, part: Part) {
        mediation::send(&mut self.sender, part).await.unwrap();
    }

    pub async fn receive(&mut self) -> Part {
        let part = timeout(STEP_TIMEOUT, mediation::receive(&mut self.receiver)).await;
        part.unwrap().unwrap().unwrap()
    }
}

async fn listen(listener: TcpListener, key: Arc<SecretKey>, sessions: UnboundedSender<Session>) {
    let config = ServerConfig::new(&key).unwrap();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let link = Box::new(Tcp::new(stream).unwrap());
        let connection = accept(link, &config, Options::default()).await.unwrap();
        let key = key.clone();
        let sessions = sessions.clone();
        tokio::spawn(async move {
            while let Some(stream) = connection.accept().await {
                let connection = connection.clone();
                let key = key.clone();
                tokio::spawn(serve(connection, key.identity(), stream, sessions.clone()));
            }
        });
    }
}

/// One operation.
async fn serve(
    connection: Connection,
    node: Identity,
    mut stream: Stream,
    sessions: UnboundedSender<Session>,
) {
    let bytes = stream.receive(wire::MAX_MESSAGE).await.unwrap().unwrap();
    let operation = wire::decode::<Operation>(&bytes).unwrap().operation.unwrap();
    match operation {
        operation::Operation::Request(request) => {
            let granted = grant(request, node, connection.peer());
            let answer = Answer::from(wire::answer::Answer::Granted(granted));
            stream.send(&wire::encode(&answer)).await.unwrap();
            stream.finish().await.unwrap();
            let _ = stream.receive(0).await;
        }
        operation::Operation::Connect(presentation) => {
            let presented = Presented::decode(presentation).unwrap();
            let session = presented.session().as_bytes().to_vec();
            let started = wire::answer::Answer::Started(wire::Started { session, run: 0 });
            stream.send(&wire::encode(&Answer::from(started))).await.unwrap();
            let role = presented.chain().last_link().params.value(ROLE).unwrap().to_vec();
            let (sender, receiver) = stream.split();
            let role = String::from_utf8(role).unwrap();
            sessions.send(Session { role, sender, receiver }).unwrap();
        }
        // Other operations are refused, as an older node does.
        _ => {
            let refusal = Refusal::new(Reason::Malformed, "unknown operation");
            stream.send(&wire::encode(&Answer::from(refusal))).await.unwrap();
            stream.finish().await.unwrap();
            let _ = stream.receive(0).await;
        }
    }
}

pub fn grant(request: wire::Request, node: Identity, holder: Identity) -> wire::Granted {
    let mut params = Params::new();
    params.add(Params::FRAMING, Framing::Auto.to_string().into_bytes()).unwrap();
    for pair in request.parameters {
        params.add(&pair.key, pair.value).unwrap();
    }
    let rights = Rights::ALL;
    let expires = UnixTime::NEVER;
    let uses = 1;
    let body = LinkBody { identity: holder, rights, expires, uses, max_run: None, params };
    let (link, secret) = mint(&[1; 32], &body, node, SessionId::from_bytes([1; 16])).unwrap();
    wire::Granted { link, secret: secret.to_vec(), framing: Framing::Auto.to_string() }
}
