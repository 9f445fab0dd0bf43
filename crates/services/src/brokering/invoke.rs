//! `invoke`: starts a session elsewhere in its client's place, and carries what is said both ways:
//! Capone (secure channels and capabilities), figure "Invoke Service".
//!
//! The client narrows its capability and passes it on to this node. Which session that is stands in the
//! parameters; the capability itself is the first message on the stream, and is not kept.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use levada_capability::{Capability, LinkId};
use levada_core::{Identity, Params};
use levada_service::stdio::{Message, Window};
use levada_service::{
    CallError, Client, Context, Invocation, LINGER, Refused, Running, Service, ServiceError,
    ServiceType, definition_options, exit,
};
use levada_session::{ReceiveHalf, SendHalf, Stream, StreamError};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use tokio::select;
use tokio::time::{sleep, timeout};
use zeroize::Zeroizing;

use super::pattern::ServicePattern;

/// The parameter with the identity of the node whose session is started.
const NODE: &str = "node";
/// The parameter with the name of the service there.
const SERVICE: &str = "service";
/// The parameter with the id of the capability's last link.
const LINK: &str = "link";
/// The parameter with the size of the client's terminal, if the session has one.
const PTY: &str = "pty";

/// The longest text of a capability, in bytes.
pub const MAX_CAPABILITY: usize = 320 * 1024;
/// How long a client may take to send its capability.
const FIRST_WORDS: Duration = Duration::from_secs(10);
/// How often it is looked whether the client is still there while nothing is read from it.
const PULSE: Duration = Duration::from_secs(1);
/// How much is carried at a time, in bytes.
const PART: usize = 64 * 1024;
/// Exit codes of the command line: this end, and not permitted.
const LOCAL: u8 = 120;
const DENIED: u8 = 121;
const UNREACHABLE: u8 = 122;

/// The parameters of an invocation of `capability`, which is bound to the invoking node. There is
/// nothing in them that is of use to others.
pub fn parameters(capability: &Capability) -> Params {
    let mut params = Params::new();
    let link = capability.ids().last().map(ToString::to_string).unwrap_or_default();
    let mut add = |key: &str, value: &[u8]| {
        // No key stands here twice.
        let _ = params.add(key, value.to_vec());
    };
    add(NODE, capability.node().to_string().as_bytes());
    add(SERVICE, capability.service().as_bytes());
    add(LINK, link.as_bytes());
    if let Some(window) = capability.params().value(PTY) {
        add(PTY, window);
    }
    params
}

definition_options! {
    /// The options of a definition of type `invoke`.
    struct Options {
        #[serde(deserialize_with = "places")]
        start: Vec<ServicePattern>,
    }
}

/// The type `invoke`.
pub(crate) fn service_type() -> ServiceType {
    ServiceType::new("invoke", |_, context, options: Options| {
        Ok(Arc::new(Invoke::new(context, options)))
    })
}

/// The service of type `invoke`.
struct Invoke {
    node: Identity,
    client: Arc<dyn Client>,
    start: Vec<ServicePattern>,
}

/// What a session's parameters say that is to be started.
struct Target {
    node: Identity,
    service: String,
    link: LinkId,
}

impl Invoke {
    fn new(context: &Context, options: Options) -> Self {
        Self { node: context.node, client: context.client.clone(), start: options.start }
    }

    /// What is there of a target, if it is one that may be started for others.
    fn target(&self, params: &Params) -> Result<Option<Target>, Refused> {
        let node = text::<Identity>(params, NODE)?;
        let service = text::<String>(params, SERVICE)?;
        let link = text::<LinkId>(params, LINK)?;
        let (Some(node), Some(service)) = (node, service) else { return Ok(None) };
        if !self.start.iter().any(|place| place.matches(&node, &service)) {
            return Err(Refused::Place { node, service });
        }
        Ok(link.map(|link| Target { node, service, link }))
    }

    async fn invoke(&self, params: &Params, stream: Stream) -> Result<(), ServiceError> {
        // Checked again: the configuration may have changed since the request.
        let target = self.target(params)?.ok_or(Refused::Missing(LINK))?;
        let (mut send, mut receive) = stream.split();
        let started = match self.take(&target, &mut receive).await? {
            Ok(capability) => select! {
                started = self.client.start(&capability, &target.service) => started,
                left = lost(&receive) => return Err(left.into()),
            },
            Err(refused) => Err(refused),
        };
        let far = match started {
            Ok(far) => far,
            Err(error) => return fail(send, receive, &target, error).await,
        };
        match carry(&mut send, &mut receive, far).await {
            Ok(()) => Ok(()),
            Err(Broken::Near(error)) => Err(error.into()),
            Err(Broken::Far(error)) => {
                // The client hears what this node heard.
                send.reset(match &error {
                    StreamError::Reset(code) => *code,
                    _ => 0,
                });
                Err(ServiceError::Failed(format!("the invoked session was cut off: {error}")))
            }
        }
    }

    /// The capability, if it is the one that the session is for; the outer error ends the session
    /// without a word.
    async fn take(
        &self,
        target: &Target,
        receive: &mut ReceiveHalf,
    ) -> Result<Result<Capability, CallError>, ServiceError> {
        let text = timeout(FIRST_WORDS, receive.receive(MAX_CAPABILITY)).await;
        let text = text.map_err(|_| ServiceError::Gone)??.ok_or(ServiceError::Gone)?;
        let text = Zeroizing::new(text);
        let refuse = |text: String| Ok(Err(CallError { code: DENIED, text }));
        let Ok(text) = str::from_utf8(&text) else {
            return refuse("not a capability: it is no text".into());
        };
        let capability = match Capability::from_text(text) {
            Ok(capability) => capability,
            Err(error) => return refuse(error.to_string()),
        };
        let is_it = capability.node() == target.node
            && capability.service() == target.service
            && capability.chain().last_id() == target.link;
        if !is_it {
            return refuse(
                "the capability is not the one that this session was requested for".into(),
            );
        }
        if capability.holder() != self.node {
            return refuse("the capability is not bound to this node, which is to start it".into());
        }
        Ok(Ok(capability))
    }
}

impl Service for Invoke {
    fn category(&self) -> &'static str {
        "mediation"
    }

    fn parameters(&self) -> &'static [(&'static str, &'static str)] {
        &[
            (NODE, "the identity of the node whose session is started"),
            (SERVICE, "the name of the service there"),
            (
                LINK,
                "the id of the last link of the capability, which is sent when the session starts",
            ),
            (PTY, "the size of the terminal, if the session has one: rows, a space, columns"),
        ]
    }

    fn check(&self, params: &Params, complete: bool) -> Result<(), Refused> {
        for (key, _) in params.iter() {
            match key {
                Params::FRAMING | NODE | SERVICE | LINK => {}
                PTY => drop(text::<Window>(params, PTY)?),
                Params::ARGS => return Err(Refused::Arguments),
                _ => return Err(Refused::Unknown(key.to_owned())),
            }
        }
        self.target(params)?;
        let mut needed = [NODE, SERVICE, LINK].into_iter();
        match needed.find(|key| params.value(key).is_none()) {
            Some(missing) if complete => Err(Refused::Missing(missing)),
            _ => Ok(()),
        }
    }

    /// The service that is started, and its node.
    fn summary(&self, params: &Params) -> Option<String> {
        let target = self.target(params).ok()??;
        Some(format!("{} of {}", target.service, target.node))
    }

    fn run<'a>(&'a self, invocation: Invocation, stream: Stream) -> Running<'a> {
        // Further streams are dropped here: what a client opens is refused.
        let params = invocation.params;
        Box::pin(async move { self.invoke(&params, stream).await })
    }
}

/// On whose side carrying ended early.
enum Broken {
    /// The client's.
    Near(StreamError),
    /// The invoked session's.
    Far(StreamError),
}

/// Carries messages both ways until both sides have ended theirs. Only the client is waited for when
/// the service has ended, and not for long; a client that has gone, not at all.
async fn carry(
    near_send: &mut SendHalf,
    near_receive: &mut ReceiveHalf,
    far: Stream,
) -> Result<(), Broken> {
    let (mut far_send, mut far_receive) = far.split();
    let to_client = to_client(&mut far_receive, near_send);
    tokio::pin!(to_client);
    {
        let to_service = to_service(near_receive, &mut far_send);
        tokio::pin!(to_service);
        select! {
            // What the service has said goes before the news that it takes no more.
            biased;
            result = &mut to_client => {
                result?;
                let _ = timeout(LINGER, to_service).await;
                return Ok(());
            }
            // A service that takes no more may still have something to say.
            result = &mut to_service => if let Err(left @ Broken::Near(_)) = result {
                return Err(left);
            },
        }
    }
    select! {
        biased;
        result = &mut to_client => result,
        left = lost(near_receive) => Err(Broken::Near(left)),
    }
}

/// Carries what the client says, part by part: messages need no bound, and no meaning.
async fn to_service(near: &mut ReceiveHalf, far: &mut SendHalf) -> Result<(), Broken> {
    let mut part = vec![0; PART];
    while let Some((length, end)) = near.read(&mut part).await.map_err(Broken::Near)? {
        select! {
            biased;
            written = far.write(&part[..length], end) => written.map_err(Broken::Far)?,
            // A service that takes nothing does not keep what its client has left.
            left = lost(near) => return Err(Broken::Near(left)),
        }
    }
    far.finish().await.map_err(Broken::Far)
}

/// Carries what the service says, in the same way. That the client has gone, the other direction notices.
async fn to_client(far: &mut ReceiveHalf, near: &mut SendHalf) -> Result<(), Broken> {
    let mut part = vec![0; PART];
    while let Some((length, end)) = far.read(&mut part).await.map_err(Broken::Far)? {
        near.write(&part[..length], end).await.map_err(Broken::Near)?;
    }
    near.finish().await.map_err(Broken::Near)
}

/// Ends when the client has gone. Nothing is read: it may have sent input already.
async fn lost(near: &ReceiveHalf) -> StreamError {
    loop {
        sleep(PULSE).await;
        if let Some(left) = near.lost() {
            return left;
        }
    }
}

/// Tells the client why its session was not started, with the exit code that says so.
async fn fail(
    mut send: SendHalf,
    receive: ReceiveHalf,
    target: &Target,
    error: CallError,
) -> Result<(), ServiceError> {
    let text = match error.code {
        // Which addresses answer, and how, is not for those to learn who may name any.
        UNREACHABLE => format!("unreachable: this node does not reach {}", target.node),
        LOCAL => "the invoking node could not; its log says why".to_owned(),
        _ => error.text.clone(),
    };
    send.send(&Message::Failure(&text).to_bytes()).await?;
    exit(send, receive, error.code).await?;
    Err(ServiceError::Failed(error.text))
}

/// The value of a parameter that is written as text.
fn text<T: std::str::FromStr>(params: &Params, key: &str) -> Result<Option<T>, Refused> {
    let Some(value) = params.value(key) else { return Ok(None) };
    let read = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    read.map(Some).ok_or_else(|| Refused::Malformed(key.to_owned()))
}

fn places<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ServicePattern>, D::Error> {
    let places = Vec::deserialize(deserializer)?;
    if places.is_empty() {
        return Err(D::Error::custom("at least one place must be allowed"));
    }
    Ok(places)
}
