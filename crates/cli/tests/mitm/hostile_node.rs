//! A node whose answers contain terminal control sequences and bidirectional overrides.

use std::sync::Arc;

use levada_core::wire::{
    self, Answer, Operation, Parameter, Query, Reason, Refusal, Service, Services, Started,
    answer::Answer as Body, operation,
};
use levada_core::{SecretKey, printable::is_printable};
use levada_session::{Connection, Options, ServerConfig, Stream, accept};
use levada_transport::Tcp;
use tokio::net::TcpListener;

use super::node::grant;
use crate::support::{Home, Ran};

/// An escape sequence that sets the window title, a C1 control, DEL, and characters that reverse or
/// hide text.
const HARMFUL: &str =
    "\x1b]0;owned\x07\u{9b}31m\x7f\u{202e}\u{2066}\u{61c}\u{2028}\u{200b}\u{e0041}end";

/// The answer to a query for this service.
fn answer_to(service: &str) -> Body {
    let refusal = |reason: Reason| {
        // `Refusal::new` would escape the text.
        Body::Refusal(Refusal { reason: reason.into(), text: HARMFUL.into() })
    };
    match service {
        "unknown" => refusal(Reason::Unknown),
        "denied" => refusal(Reason::Denied),
        "busy" => refusal(Reason::Busy),
        "failed" => refusal(Reason::Failed),
        "name" => services(HARMFUL),
        _ => services(service),
    }
}

fn services(name: &str) -> Body {
    let parameters = vec![Parameter {
        key: HARMFUL.into(),
        meaning: HARMFUL.into(),
        values: vec![HARMFUL.into()],
    }];
    let service = Service {
        name: name.into(),
        r#type: "echo".into(),
        location: HARMFUL.into(),
        version: HARMFUL.into(),
        parameters,
        ..Service::default()
    };
    Body::Services(Services { services: vec![service] })
}

/// Listens with the key of `home`: `IDENTITY@HOST:PORT`.
async fn listen(home: &Home) -> String {
    let key = Arc::new(levada_home::Home::at(home.path()).unwrap().key().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = format!("{}@{}", key.identity(), listener.local_addr().unwrap());
    tokio::spawn(async move {
        let config = ServerConfig::new(&key).unwrap();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let link = Box::new(Tcp::new(stream).unwrap());
            let connection = accept(link, &config, Options::default()).await.unwrap();
            let key = key.clone();
            tokio::spawn(async move {
                while let Some(stream) = connection.accept().await {
                    tokio::spawn(serve(connection.clone(), key.clone(), stream));
                }
            });
        }
    });
    at
}

/// Serves one operation. The client may close the connection before the answer.
async fn serve(connection: Connection, key: Arc<SecretKey>, mut stream: Stream) {
    let bytes = stream.receive(wire::MAX_MESSAGE).await.unwrap().unwrap();
    let operation = wire::decode::<Operation>(&bytes).unwrap().operation.unwrap();
    let answer = match operation {
        operation::Operation::Query(Query { service }) => answer_to(&service),
        operation::Operation::Request(request) if request.service == "grant" => {
            Body::Granted(grant(request, key.identity(), connection.peer()))
        }
        operation::Operation::Request(request) => answer_to(&request.service),
        operation::Operation::Connect(_) => Body::Started(Started { session: vec![1; 16], run: 0 }),
        other => panic!("{other:?}"),
    };
    let is_started = matches!(answer, Body::Started(_));
    let _ = stream.send(&wire::encode(&Answer::from(answer))).await;
    if is_started {
        // A failure without control characters, as services send it, and its exit code.
        let text: String = HARMFUL.chars().filter(|c| !c.is_control()).collect();
        let _ = stream.send(&[&[5], text.as_bytes()].concat()).await;
        let _ = stream.send(&[3, 120]).await;
    }
    let _ = stream.finish().await;
    let _ = stream.receive(0).await;
}

#[track_caller]
fn assert_harmless(ran: &Ran) {
    for c in format!("{}{}", ran.stdout, ran.stderr).chars() {
        assert!(is_printable(c) || matches!(c, '\n' | '\t'), "{c:?}: {ran:?}");
    }
}

async fn run(client: &Arc<Home>, line: String) -> Ran {
    let client = client.clone();
    tokio::task::spawn_blocking(move || client.run(&line)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_of_a_node_reaches_the_terminal_escaped() {
    let hostile = Home::new();
    let client = Arc::new(Home::new());
    hostile.identity();
    let at = listen(&hostile).await;
    for (service, code) in [("unknown", 1), ("denied", 121), ("busy", 122), ("failed", 120)] {
        for verb in ["query", "request"] {
            let ran = run(&client, format!("{verb} {at}/{service}")).await;
            assert_harmless(&ran);
            ran.fails(code, "end");
        }
    }
    // A name of another form violates the protocol.
    let ran = run(&client, format!("query {at}/name")).await;
    assert_harmless(&ran);
    ran.fails(123, "name");
    let ran = run(&client, format!("query {at}/echo")).await;
    assert_harmless(&ran);
    assert!(ran.ok().contains("\\u{1b}]0;owned"));
    let ran = run(&client, format!("query {at}/echo --json")).await;
    assert_harmless(&ran);
    // JSON carries the text unchanged.
    let read: serde_json::Value = serde_json::from_str(&ran.ok()).unwrap();
    assert_eq!(read["services"][0]["location"], HARMFUL);
    let ran = run(&client, format!("run {at}/grant")).await;
    assert_harmless(&ran);
    ran.fails(120, "\\u{202e}");
    // Arguments that an error repeats are escaped too.
    for words in [["query", HARMFUL], ["inspect", HARMFUL], [HARMFUL, ""]] {
        let client = client.clone();
        let ran = tokio::task::spawn_blocking(move || client.args(words)).await.unwrap();
        assert_harmless(&ran);
        assert_ne!(ran.code, 0);
    }
}
