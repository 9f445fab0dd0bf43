//! Sessions with middleboxes that end while a request is made.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::HeaderMap;
use levada_contexts::{
    Action, Hop, HopSetup, HopTickets, Inspector, Kem, Party, Path, PathEvent, PathSession,
    PathSessions, PathTickets, Piece, Received, Relay, ServerPaths, accept_path, connect_path,
    relay,
};
use levada_core::{SecretKey, SystemRandom};
use levada_session::{ClientConfig, ServerConfig};
use levada_transport::Transport;
use tokio::io::duplex;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::{LocalClient, local_origin, within};
use crate::http::body::ChannelBody;
use crate::http::carrier::{PartReceiver, PartSender};
use crate::http::client::Route;
use crate::http::exchange::{self, Head};
use crate::http::layout::{Kind, Strategy, contexts};

struct Pass;

impl Inspector for Pass {
    fn record(&mut self, _: Piece<'_>) -> Action {
        Action::Pass
    }
}

fn key() -> Arc<SecretKey> {
    Arc::new(SecretKey::generate(&SystemRandom).unwrap())
}

/// Both ends of a started session through one middlebox.
async fn session() -> (PathSession, PathSession) {
    let hop = key();
    let server = key();
    let party = |key: &SecretKey| Party { identity: key.identity(), address: "h:1".to_owned() };
    let path = Path {
        kem: Kem::X25519,
        server: party(&server),
        hops: vec![Hop { party: party(&hop), resume: None }],
        contexts: contexts(Strategy::Four, false, &["request-head=r"]).unwrap(),
    };
    let tickets = Arc::new(HopTickets::new(Duration::ZERO));
    let setup = HopSetup { key: hop, tickets, policy: Arc::new(|_, _| Ok(())) };
    let paths = ServerPaths {
        config: Arc::new(ServerConfig::new(&server).unwrap()),
        key: server,
        sessions: Arc::new(PathSessions::default()),
        tickets: 0,
        policy: Arc::new(|_| Ok(())),
    };
    let client = ClientConfig::new(&key()).unwrap();
    let link = || {
        let (near, far) = duplex(64 * 1024);
        [Box::new(near) as Box<dyn Transport>, Box::new(far)]
    };
    let [near, hop_near] = link();
    let [hop_far, far] = link();
    let middle = Relay::new(setup, Box::new(Pass), Instant::now());
    tokio::spawn(relay(middle, hop_near, Vec::new(), |_, _| async { Ok(hop_far) }, || true));
    let (client, server) = tokio::join!(
        connect_path(near, &client, Arc::new(PathTickets::default()), path),
        accept_path(far, paths),
    );
    let client = client.unwrap();
    let server = server.unwrap();
    client.control(b"operation").unwrap();
    server.next().await.unwrap();
    server.start(true, None).unwrap();
    assert_eq!(client.next().await.unwrap(), Some(PathEvent::Ready));
    (client, server)
}

/// A route, and the servers' ends of its sessions.
fn route() -> (Route, UnboundedReceiver<PathSession>) {
    let (opened, servers) = unbounded_channel();
    let open = move || {
        let opened = opened.clone();
        Box::pin(async move {
            let (client, server) = session().await;
            opened.send(server).unwrap();
            Ok(client)
        }) as _
    };
    (Route::Path(Box::new(open)), servers)
}

/// Receives a request at the server; its first line.
async fn receive(server: &PathSession) -> String {
    let path = server.path().unwrap();
    let receiver = PartReceiver::path(server, &path, Kind::Request).unwrap();
    let received = within(exchange::receive(receiver, &mut false)).await.unwrap();
    let (head, _) = received.unwrap();
    String::from_utf8(head).unwrap().lines().next().unwrap().to_owned()
}

async fn answer(server: &PathSession) {
    let path = server.path().unwrap();
    let mut sender = PartSender::path(server, &path, Kind::Response).unwrap();
    let head = Head { line: "204\r\n".to_owned(), fields: HeaderMap::new() };
    exchange::send(&mut sender, head, ChannelBody::empty()).await.unwrap();
}

#[tokio::test]
async fn an_idempotent_request_is_repeated_once_when_a_kept_session_ends() {
    let (route, mut servers) = route();
    let mut client = LocalClient::connect(local_origin(route).await).await;
    let first = within(servers.recv()).await.unwrap();
    client.request("GET /1", "").await;
    assert_eq!(receive(&first).await, "GET /1");
    answer(&first).await;
    assert_eq!(client.status().await, "204");
    client.request("GET /2", "").await;
    assert_eq!(receive(&first).await, "GET /2");
    drop(first);
    let second = within(servers.recv()).await.unwrap();
    assert_eq!(receive(&second).await, "GET /2");
    answer(&second).await;
    assert_eq!(client.status().await, "204");
    // What a POST does must not be done twice.
    client.request("POST /3", "").await;
    assert_eq!(receive(&second).await, "POST /3");
    drop(second);
    assert_eq!(client.status().await, "502");
    // A new session that fails shows that the request is at fault, or the node.
    client.request("GET /4", "").await;
    let third = within(servers.recv()).await.unwrap();
    assert_eq!(receive(&third).await, "GET /4");
    drop(third);
    assert_eq!(client.status().await, "502");
    assert!(servers.is_empty());
}

#[tokio::test]
async fn a_request_is_not_repeated_after_the_first_part_of_an_answer_or_of_its_own_body() {
    let (route, mut servers) = route();
    let mut client = LocalClient::connect(local_origin(route).await).await;
    let first = within(servers.recv()).await.unwrap();
    client.request("GET /1", "").await;
    receive(&first).await;
    answer(&first).await;
    assert_eq!(client.status().await, "204");
    client.request("PUT /2", "body").await;
    assert_eq!(receive(&first).await, "PUT /2");
    drop(first);
    assert_eq!(client.status().await, "502");
    // A request with a body ends its connection.
    client = LocalClient::connect(client.host).await;
    client.request("GET /3", "").await;
    let second = within(servers.recv()).await.unwrap();
    receive(&second).await;
    answer(&second).await;
    assert_eq!(client.status().await, "204");
    client.request("GET /4", "").await;
    receive(&second).await;
    // A part of the head, with its audit.
    second.write(3, b"20").await.unwrap();
    second.flush().unwrap();
    second.abort(b"the origin has gone").unwrap();
    assert_eq!(client.status().await, "502");
    assert!(servers.is_empty());
}

#[tokio::test]
async fn a_request_whose_local_client_has_left_gives_its_session_up() {
    let (route, mut servers) = route();
    let address = local_origin(route).await;
    let first = within(servers.recv()).await.unwrap();
    let mut client = LocalClient::connect(address).await;
    client.request("GET /1", "").await;
    assert_eq!(receive(&first).await, "GET /1");
    drop(client);
    let reason = b"the client has given up an exchange".to_vec();
    let event = within(first.next()).await.unwrap();
    assert_eq!(event, Some(PathEvent::Received(Received::Error(reason))));
}
