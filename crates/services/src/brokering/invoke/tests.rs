//! The service with a real stream on each side. The test plays the node of the invoked session.

use std::sync::Mutex;

use levada_capability::{LinkBody, Narrowing, Rights, SessionId, mint};
use levada_core::{SecretKey, SystemRandom, UnixTime, wire};
use levada_service::testing::{Client as Near, definition, invocation, params};
use levada_service::{CallFuture, DefinitionError, Over};
use levada_session::testing;
use tokio::task::JoinHandle;

use super::*;

/// The result of a call to the other node.
enum Outcome {
    Answers(Stream),
    Fails(CallError),
    Hangs,
}

/// Answers one call.
struct Calls(Mutex<Option<Outcome>>);

impl Client for Calls {
    fn start<'a>(&'a self, _: &'a Capability, service: &'a str) -> CallFuture<'a, Stream> {
        assert_eq!(service, "echo");
        let found = self.0.lock().unwrap().take().unwrap();
        Box::pin(async move {
            match found {
                Outcome::Answers(stream) => Ok(stream),
                Outcome::Fails(error) => Err(error),
                Outcome::Hangs => std::future::pending().await,
            }
        })
    }
}

struct Scene {
    client: SecretKey,
    invoker: SecretKey,
    node: Identity,
}

impl Scene {
    fn new() -> Self {
        let [client, invoker, node] = [(); 3].map(|()| SecretKey::generate(&SystemRandom).unwrap());
        Self { client, invoker, node: node.identity() }
    }

    /// A capability of the client, narrowed for `to`.
    fn capability(&self, to: Identity) -> Capability {
        let body = LinkBody {
            identity: self.client.identity(),
            rights: Rights::ALL,
            expires: UnixTime::NEVER,
            uses: 2,
            max_run: None,
            params: Params::new(),
        };
        let session = SessionId::from_bytes([5; 16]);
        let (link, secret) = mint(&[6; 32], &body, self.node, session).unwrap();
        let granted = wire::Granted { link, secret: secret.to_vec(), framing: "auto".into() };
        let whole = Capability::from_granted(granted, "echo".into(), Vec::new()).unwrap();
        whole.grant(&self.client, to, Narrowing::to_rights(Rights::EXECUTE)).unwrap()
    }

    fn service(&self, start: &str, outcome: Option<Outcome>) -> Invoke {
        let text = format!("name = 'invoke'\ntype = 'invoke'\nstart = [{start}]\n");
        let options = definition(service_type(), &text).unwrap().read_options().unwrap();
        let client = Arc::new(Calls(Mutex::new(outcome)));
        Invoke::new(&Context { node: self.invoker.identity(), client }, options)
    }

    /// A session that runs, and the client's end of it.
    async fn running(
        &self,
        capability: &Capability,
        outcome: Outcome,
    ) -> (Near, JoinHandle<Result<(), ServiceError>>) {
        let service = self.service("'*/*'", Some(outcome));
        let (near, stream) = Near::pair().await;
        let run =
            service.prepare(&parameters(capability), Over::Stream).unwrap().into_stream().unwrap();
        let task = tokio::spawn(run.start(invocation(), stream));
        (near, task)
    }
}

#[tokio::test]
async fn messages_are_carried_both_ways_with_the_exit_code() {
    let scene = Scene::new();
    let capability = scene.capability(scene.invoker.identity());
    let (far, stream) = testing::pair().await.unwrap();
    let (mut near, task) = scene.running(&capability, Outcome::Answers(far)).await;
    near.send_raw(capability.to_text().as_bytes()).await;
    near.send(Message::Data(b"in")).await;
    let (mut far_send, mut far_receive) = stream.split();
    let came = far_receive.receive(100).await.unwrap().unwrap();
    assert_eq!(Message::decode(&came), Ok(Message::Data(b"in")));
    for message in [Message::Data(b"out"), Message::Error(b"err"), Message::Exit(7)] {
        far_send.send(&message.to_bytes()).await.unwrap();
    }
    far_send.finish().await.unwrap();
    let end = near.collect().await;
    assert_eq!(
        (end.output.as_slice(), end.error.as_slice(), end.exit),
        (&b"out"[..], &b"err"[..], Some(7))
    );
    task.await.unwrap().unwrap();
    assert_eq!(far_receive.receive(100).await, Ok(None));
}

#[tokio::test]
async fn messages_of_any_length_and_content_are_carried() {
    let scene = Scene::new();
    let capability = scene.capability(scene.invoker.identity());
    let (far, mut stream) = testing::pair().await.unwrap();
    let (mut near, task) = scene.running(&capability, Outcome::Answers(far)).await;
    near.send_raw(capability.to_text().as_bytes()).await;
    let (mut near_send, mut near_receive) = near.split();
    let long = vec![0xa5; 1_000_000];
    let near_side = async {
        for message in [&b""[..], &long[..]] {
            near_send.send(message).await.unwrap();
            assert!(near_receive.receive(long.len()).await.unwrap().unwrap() == message);
        }
        near_send.finish().await.unwrap();
        assert_eq!(near_receive.receive(1).await, Ok(None));
    };
    let far_side = async {
        while let Some(message) = stream.receive(long.len()).await.unwrap() {
            stream.send(&message).await.unwrap();
        }
        stream.finish().await.unwrap();
    };
    tokio::join!(near_side, far_side);
    task.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_reset_of_the_invoked_session_is_passed_on_with_its_reason() {
    let scene = Scene::new();
    let capability = scene.capability(scene.invoker.identity());
    let (far, mut stream) = testing::pair().await.unwrap();
    let (mut near, task) = scene.running(&capability, Outcome::Answers(far)).await;
    near.send_raw(capability.to_text().as_bytes()).await;
    let reason = wire::Reason::Terminated as u64;
    stream.reset(reason);
    let (_, receive) = near.halves();
    assert_eq!(receive.receive(1).await, Err(StreamError::Reset(reason)));
    assert!(matches!(task.await.unwrap(), Err(ServiceError::Failed(_))));
}

#[tokio::test]
async fn a_client_that_disconnects_ends_the_invoked_session() {
    let scene = Scene::new();
    let capability = scene.capability(scene.invoker.identity());
    let (far, mut stream) = testing::pair().await.unwrap();
    let (mut near, task) = scene.running(&capability, Outcome::Answers(far)).await;
    near.send_raw(capability.to_text().as_bytes()).await;
    near.send(Message::Data(b"in")).await;
    stream.receive(100).await.unwrap();
    drop(near);
    assert!(stream.receive(100).await.is_err());
    assert!(task.await.unwrap().is_err());
    // Also while its session is being started.
    let (mut near, task) = scene.running(&capability, Outcome::Hangs).await;
    near.send_raw(capability.to_text().as_bytes()).await;
    drop(near);
    assert!(task.await.unwrap().is_err());
}

/// How long a step may take before a test fails.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

#[tokio::test]
async fn a_reset_of_the_stream_alone_is_detected_while_the_service_blocks() {
    let scene = Scene::new();
    let capability = scene.capability(scene.invoker.identity());
    // The service reads nothing, and the client sends more than all buffers hold.
    let (far, mut stream) = testing::pair().await.unwrap();
    let (mut near, task) = scene.running(&capability, Outcome::Answers(far)).await;
    near.send_raw(capability.to_text().as_bytes()).await;
    let (mut near_send, _connection) = near.split();
    let data = vec![0; 8 << 20];
    assert!(timeout(Duration::from_secs(1), near_send.send(&data)).await.is_err());
    drop(near_send);
    assert!(timeout(TEST_TIMEOUT, task).await.unwrap().unwrap().is_err());
    assert!(stream.receive(data.len()).await.is_err());
    // The client has finished its input, and nothing more is read from it.
    let (far, mut stream) = testing::pair().await.unwrap();
    let (mut near, task) = scene.running(&capability, Outcome::Answers(far)).await;
    near.send_raw(capability.to_text().as_bytes()).await;
    let (mut near_send, _connection) = near.split();
    near_send.finish().await.unwrap();
    assert_eq!(stream.receive(1).await, Ok(None));
    near_send.reset(0);
    assert!(timeout(TEST_TIMEOUT, task).await.unwrap().unwrap().is_err());
    let ended = async {
        while stream.send(b"x").await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, ended).await.unwrap();
}

#[tokio::test]
async fn only_the_capability_that_was_announced_is_started() {
    let scene = Scene::new();
    let announced = scene.capability(scene.invoker.identity());
    let another = Scene::new().capability(scene.invoker.identity());
    let mine = scene.capability(scene.client.identity());
    for (parameters, sent, text) in [
        (&announced, another.to_text().to_string(), "not the one"),
        (&announced, "lvcap1".to_owned(), "not a capability"),
        (&mine, mine.to_text().to_string(), "not bound to the invoking node"),
    ] {
        let (mut near, task) = scene.running(parameters, Outcome::Hangs).await;
        near.send_raw(sent.as_bytes()).await;
        let end = near.collect().await;
        assert_eq!(end.exit, Some(121), "{text}");
        assert!(end.failure.is_some_and(|failure| failure.contains(text)), "{text}");
        assert!(task.await.unwrap().is_err());
    }
}

#[tokio::test]
async fn errors_of_the_other_node_are_reported_without_addresses() {
    let scene = Scene::new();
    let capability = scene.capability(scene.invoker.identity());
    for (kind, code, expected) in [
        (CallErrorKind::Denied, 121, "the cause"),
        (CallErrorKind::Unreachable, 122, "does not reach"),
        (CallErrorKind::Local, 120, "log"),
    ] {
        let error = CallError { kind, text: "the cause at 127.0.0.1:1".into() };
        let (mut near, task) = scene.running(&capability, Outcome::Fails(error)).await;
        near.send_raw(capability.to_text().as_bytes()).await;
        let end = near.collect().await;
        let failure = end.failure.unwrap();
        assert_eq!(end.exit, Some(code));
        assert!(failure.contains(expected), "{failure}");
        assert_eq!(failure.contains("127.0.0.1"), code == 121);
        assert!(task.await.unwrap().is_err());
    }
}

#[test]
fn only_configured_services_may_be_invoked() {
    let scene = Scene::new();
    let params = parameters(&scene.capability(scene.invoker.identity()));
    let check = |start: &str| scene.service(start, None).prepare(&params, Over::Stream).map(drop);
    assert_eq!(check("'*/*'"), Ok(()));
    assert_eq!(check(&format!("'{}/ec*'", scene.node)), Ok(()));
    let text = format!("this node may not start \"echo\" at {} for others", scene.node);
    let refused = Err(Refused::NotAccepted(text));
    assert_eq!(check("'*/exec'"), refused);
    assert_eq!(check(&format!("'{}/*'", scene.client.identity())), refused);
    let wrong = |start: &str| -> DefinitionError {
        let text = format!("name = 'invoke'\ntype = 'invoke'\nstart = {start}\n");
        definition(service_type(), &text).unwrap_err()
    };
    assert!(wrong("[]").to_string().contains("at least one"));
    assert!(wrong("['alpha/exec']").to_string().contains("identity"));
}

#[test]
fn a_session_has_only_the_parameters_of_its_target() {
    let scene = Scene::new();
    let service = scene.service("'*/*'", None);
    let node = scene.node.to_string();
    let whole: [(&str, &[u8]); 4] =
        [(NODE, node.as_bytes()), (SERVICE, b"echo"), (LINK, &[b'a'; 64]), (PTY, b"24 80")];
    assert!(service.prepare(&params(&whole), Over::Stream).is_ok());
    for missing in 0..3 {
        let mut rest = whole.to_vec();
        let (key, _) = rest.remove(missing);
        assert_eq!(service.check(&params(&rest)), Ok(()));
        assert_eq!(
            service.prepare(&params(&rest), Over::Stream).err(),
            Some(Refused::Missing(key))
        );
    }
    let malformed: [(&str, &[u8]); 4] =
        [(NODE, b"alpha"), (LINK, b"ab"), (PTY, b"24"), (SERVICE, b"\xff")];
    for (key, value) in malformed {
        let pairs = whole.map(|(name, right)| (name, if name == key { value } else { right }));
        assert_eq!(
            service.prepare(&params(&pairs), Over::Stream).err(),
            Some(Refused::Malformed(key.into()))
        );
    }
    assert_eq!(service.check(&params(&[("args", b"")])), Err(Refused::Arguments));
    assert_eq!(service.check(&params(&[("a", b"")])), Err(Refused::Unknown("a".into())));
}
