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
use levada_session::{Class, ReceiveHalf, SendHalf, Stream, StreamError};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, IgnoredAny};
use tokio::select;
use tokio::time::{MissedTickBehavior, interval, timeout};
use zeroize::Zeroizing;

use crate::service::{LINGER, Running, exit};
use crate::stdio::{Message, Window};
use crate::{CallError, Client, Context, Invocation, PlacePattern, Refused, Service, ServiceError};

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
/// How often it is looked whether the client is still there while its session is being started.
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

/// The options of a definition of type `invoke`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Options {
    #[serde(deserialize_with = "places")]
    start: Vec<PlacePattern>,

    // The keys of every definition, see `registry::NoOptions`.
    #[serde(default, rename = "name")]
    _name: IgnoredAny,
    #[serde(default, rename = "type")]
    _kind: IgnoredAny,
    #[serde(default, rename = "category")]
    _category: IgnoredAny,
    #[serde(default, rename = "location")]
    _location: IgnoredAny,
    #[serde(default, rename = "framing")]
    _framing: IgnoredAny,
}

/// The service of type `invoke`.
pub(crate) struct Invoke {
    node: Identity,
    client: Arc<dyn Client>,
    start: Vec<PlacePattern>,
}

/// What a session's parameters say that is to be started.
struct Target {
    node: Identity,
    service: String,
    link: LinkId,
}

impl Invoke {
    pub(crate) fn new(context: &Context, options: Options) -> Self {
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
                left = gone(&mut send) => return Err(left),
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

    fn version(&self) -> &'static str {
        "1.0.0"
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

    /// As the session that it starts.
    fn class(&self, params: &Params) -> Class {
        if params.value(PTY).is_some() { Class::Interactive } else { Class::Bulk }
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

    fn run<'a>(&'a self, invocation: Invocation, stream: Stream) -> Running<'a> {
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
/// the service has ended, and not for long.
async fn carry(
    near_send: &mut SendHalf,
    near_receive: &mut ReceiveHalf,
    far: Stream,
) -> Result<(), Broken> {
    let (mut far_send, mut far_receive) = far.split();
    let to_service = pipe(near_receive, Broken::Near, &mut far_send, Broken::Far);
    let to_client = pipe(&mut far_receive, Broken::Far, near_send, Broken::Near);
    tokio::pin!(to_service, to_client);
    select! {
        // What the service has said goes before the news that it takes no more.
        biased;
        result = &mut to_client => {
            result?;
            let _ = timeout(LINGER, to_service).await;
            Ok(())
        }
        // A service that takes no more may still have something to say.
        result = &mut to_service => match result {
            Err(left @ Broken::Near(_)) => Err(left),
            _ => to_client.await,
        },
    }
}

/// Carries one direction, part by part: messages need no bound, and no meaning.
async fn pipe(
    from: &mut ReceiveHalf,
    from_broken: fn(StreamError) -> Broken,
    to: &mut SendHalf,
    to_broken: fn(StreamError) -> Broken,
) -> Result<(), Broken> {
    let mut part = vec![0; PART];
    while let Some((length, end)) = from.read(&mut part).await.map_err(from_broken)? {
        to.write(&part[..length], end).await.map_err(to_broken)?;
    }
    to.finish().await.map_err(to_broken)
}

/// Ends when the client has gone. Nothing is read: it may have sent input already.
async fn gone(send: &mut SendHalf) -> ServiceError {
    let mut pulse = interval(PULSE);
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pulse.tick().await;
        // An empty part sends nothing, and fails if the stream has ended.
        if let Err(error) = send.write(b"", false).await {
            return error.into();
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

fn places<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PlacePattern>, D::Error> {
    let places = Vec::deserialize(deserializer)?;
    if places.is_empty() {
        return Err(D::Error::custom("at least one place must be allowed"));
    }
    Ok(places)
}
