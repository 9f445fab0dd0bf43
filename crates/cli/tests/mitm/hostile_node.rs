//! A node that answers with text that steers a terminal, or turns what is written there.

use std::sync::Arc;

use levada_core::wire::{
    self, Answer, Operation, Parameter, Query, Reason, Refusal, Service, Services, Started,
    answer::Answer as Said, operation,
};
use levada_core::{SecretKey, printable::is_printable};
use levada_session::{Connection, Options, ServerConfig, Stream, accept};
use levada_transport::Tcp;
use tokio::net::TcpListener;

use super::node::grant;
use crate::support::{Home, Ran};

/// The title of the window, C1, DEL, and characters that turn or hide what stands behind them.
const HARMFUL: &str =
    "\x1b]0;owned\x07\u{9b}31m\x7f\u{202e}\u{2066}\u{61c}\u{2028}\u{200b}\u{e0041}end";

/// What the liar answers to a query for this service.
fn answer(service: &str) -> Said {
    let refusal = |reason: Reason| {
        // As it is, not as an honest node would send it.
        Said::Refusal(Refusal { reason: reason.into(), text: HARMFUL.into() })
    };
    match service {
        "unknown" => refusal(Reason::Unknown),
        "denied" => refusal(Reason::Denied),
        "busy" => refusal(Reason::Busy),
        "failed" => refusal(Reason::Failed),
        "name" => offer(HARMFUL),
        _ => offer(service),
    }
}

fn offer(name: &str) -> Said {
    let parameters = vec![Parameter { key: HARMFUL.into(), meaning: HARMFUL.into() }];
    let service = Service {
        name: name.into(),
        r#type: "echo".into(),
        location: HARMFUL.into(),
        version: HARMFUL.into(),
        parameters,
        ..Service::default()
    };
    Said::Services(Services { services: vec![service] })
}

/// Listens with the key of `home`; gives `IDENTITY@HOST:PORT`.
async fn listen(home: &Home) -> String {
    let key = Arc::new(levada_client::home::Home::at(home.path()).unwrap().key().unwrap());
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

/// One operation. The client may have gone when it is answered.
async fn serve(connection: Connection, key: Arc<SecretKey>, mut stream: Stream) {
    let bytes = stream.receive(wire::MAX_MESSAGE).await.unwrap().unwrap();
    let asked = wire::decode::<Operation>(&bytes).unwrap().operation.unwrap();
    let said = match asked {
        operation::Operation::Query(Query { service }) => answer(&service),
        operation::Operation::Request(request) if request.service == "grant" => {
            Said::Granted(grant(request, key.identity(), connection.peer()))
        }
        operation::Operation::Request(request) => answer(&request.service),
        operation::Operation::Connect(_) => Said::Started(Started { session: vec![1; 16], run: 0 }),
        other => panic!("{other:?}"),
    };
    let is_started = matches!(said, Said::Started(_));
    let _ = stream.send(&wire::encode(&Answer::from(said))).await;
    if is_started {
        // A failure, in which no honest service has a control character, and its exit code.
        let text: String = HARMFUL.chars().filter(|c| !c.is_control()).collect();
        let _ = stream.send(&[&[5], text.as_bytes()].concat()).await;
        let _ = stream.send(&[3, 120]).await;
    }
    let _ = stream.finish().await;
    let _ = stream.receive(0).await;
}

#[track_caller]
fn is_harmless(ran: &Ran) {
    for c in format!("{}{}", ran.stdout, ran.stderr).chars() {
        assert!(is_printable(c) || matches!(c, '\n' | '\t'), "{c:?}: {ran:?}");
    }
}

async fn run(client: &Arc<Home>, line: String) -> Ran {
    let client = client.clone();
    tokio::task::spawn_blocking(move || client.run(&line)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_node_says_reaches_the_terminal_escaped() {
    let (liar, client) = (Home::new(), Arc::new(Home::new()));
    liar.identity();
    let at = listen(&liar).await;
    for (service, code) in [("unknown", 1), ("denied", 121), ("busy", 122), ("failed", 120)] {
        for verb in ["query", "request"] {
            let ran = run(&client, format!("{verb} {at}/{service}")).await;
            is_harmless(&ran);
            ran.fails(code, "end");
        }
    }
    // Names are not free: what has another form breaks the protocol.
    let ran = run(&client, format!("query {at}/name")).await;
    is_harmless(&ran);
    ran.fails(123, "name");
    let ran = run(&client, format!("query {at}/echo")).await;
    is_harmless(&ran);
    assert!(ran.ok().contains("\\u{1b}]0;owned"));
    let ran = run(&client, format!("query {at}/echo --json")).await;
    is_harmless(&ran);
    // It is the same text for a program that reads it.
    let read: serde_json::Value = serde_json::from_str(&ran.ok()).unwrap();
    assert_eq!(read["services"][0]["location"], HARMFUL);
    let ran = run(&client, format!("run {at}/grant")).await;
    is_harmless(&ran);
    ran.fails(120, "\\u{202e}");
    // What is pasted is shown only to say what is wrong with it.
    for words in [["query", HARMFUL], ["inspect", HARMFUL], [HARMFUL, ""]] {
        let client = client.clone();
        let ran = tokio::task::spawn_blocking(move || client.args(words)).await.unwrap();
        is_harmless(&ran);
        assert_ne!(ran.code, 0);
    }
}
