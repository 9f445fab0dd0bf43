//! `invoke`: starts a session at another node on behalf of its client, and carries the messages
//! both ways: Capone (secure channels and capabilities), figure "Invoke Service".
//!
//! The client narrows its capability and passes it on to this node. The parameters name the
//! session; the capability itself is the first message on the stream, and is not stored.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use levada_capability::{Capability, LinkId};
use levada_core::{Identity, Params};
use levada_service::stdio::{Message, Window};
use levada_service::{
    CallError, CallErrorKind, Client, Context, LINGER, Over, Prepared, Refused, Service,
    ServiceError, ServiceType, definition_options, exit,
};
use levada_session::{ReceiveHalf, SendHalf, Stream, StreamError};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use tokio::select;
use tokio::time::timeout;
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
const CAPABILITY_TIMEOUT: Duration = Duration::from_secs(10);
/// The size of a read, in bytes.
const PART: usize = 64 * 1024;

/// The parameters of an invocation of `capability`, which is bound to the invoking node. They
/// contain no secret.
pub fn parameters(capability: &Capability) -> Params {
    let mut params = Params::new();
    let link = capability.ids().last().map(ToString::to_string).unwrap_or_default();
    let mut add = |key: &str, value: &[u8]| {
        // It fails only for a duplicate key.
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
        #[serde(deserialize_with = "patterns")]
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

/// The session that the parameters name.
struct Target {
    node: Identity,
    service: String,
    link: LinkId,
}

/// One session of the service.
struct Run {
    node: Identity,
    client: Arc<dyn Client>,
    target: Target,
}

impl Invoke {
    fn new(context: &Context, options: Options) -> Self {
        Self { node: context.node, client: context.client.clone(), start: options.start }
    }

    /// The target in the parameters; `None` if a part of it is missing. A present node and service
    /// must be allowed.
    fn target(&self, params: &Params) -> Result<Option<Target>, Refused> {
        for (key, _) in params.iter() {
            match key {
                Params::FRAMING | NODE | SERVICE | LINK => {}
                PTY => drop(text::<Window>(params, PTY)?),
                Params::ARGS => return Err(Refused::Arguments),
                _ => return Err(Refused::Unknown(key.to_owned())),
            }
        }
        let node = text::<Identity>(params, NODE)?;
        let service = text::<String>(params, SERVICE)?;
        let link = text::<LinkId>(params, LINK)?;
        let (Some(node), Some(service)) = (node, service) else { return Ok(None) };
        if !self.start.iter().any(|pattern| pattern.matches(&node, &service)) {
            let text = format!("this node may not start {service:?} at {node} for others");
            return Err(Refused::NotAccepted(text));
        }
        Ok(link.map(|link| Target { node, service, link }))
    }
}

impl Run {
    async fn serve(self, stream: Stream) -> Result<(), ServiceError> {
        let target = &self.target;
        let (mut send, mut receive) = stream.split();
        let started = match self.receive_capability(&mut receive).await? {
            Ok(capability) => select! {
                started = self.client.start(&capability, &target.service) => started,
                // Nothing is read meanwhile: the client may have sent input already.
                reason = receive.closed() => return Err(reason.into()),
            },
            Err(refused) => Err(refused),
        };
        let far = match started {
            Ok(far) => far,
            Err(error) => return fail(send, receive, target, error).await,
        };
        match carry(&mut send, &mut receive, far).await {
            Ok(()) => Ok(()),
            Err(Broken::Near(error)) => Err(error.into()),
            Err(Broken::Far(error)) => {
                // The client gets the reason that this node got.
                send.reset(match &error {
                    StreamError::Reset(code) => *code,
                    _ => 0,
                });
                Err(ServiceError::Failed(format!("the invoked session was cut off: {error}")))
            }
        }
    }

    /// The capability, if it is the one that the session is for; the outer error ends the session
    /// without a message.
    async fn receive_capability(
        &self,
        receive: &mut ReceiveHalf,
    ) -> Result<Result<Capability, CallError>, ServiceError> {
        let target = &self.target;
        let text = timeout(CAPABILITY_TIMEOUT, receive.receive(MAX_CAPABILITY)).await;
        let text = text.map_err(|_| ServiceError::Gone)??.ok_or(ServiceError::Gone)?;
        let text = Zeroizing::new(text);
        let refuse = |text: String| Ok(Err(CallError { kind: CallErrorKind::Denied, text }));
        let Ok(text) = str::from_utf8(&text) else {
            return refuse("not a capability: it is not UTF-8".into());
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
            return refuse(
                "the capability is not bound to the invoking node: pass it on to it".into(),
            );
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

    fn check(&self, params: &Params) -> Result<(), Refused> {
        self.target(params).map(drop)
    }

    fn prepare(&self, params: &Params, _: Over<'_>) -> Result<Prepared, Refused> {
        let Some(target) = self.target(params)? else {
            let missing = [NODE, SERVICE].into_iter().find(|key| params.value(key).is_none());
            return Err(Refused::Missing(missing.unwrap_or(LINK)));
        };
        let run = Run { node: self.node, client: self.client.clone(), target };
        // Further streams of the client are refused.
        Ok(Prepared::stream(move |_, stream| run.serve(stream)))
    }

    /// The service that is started, and its node.
    fn summary(&self, params: &Params) -> Option<String> {
        let target = self.target(params).ok()??;
        Some(format!("{} of {}", target.service, target.node))
    }
}

/// The side whose stream ended early.
enum Broken {
    /// The client's.
    Near(StreamError),
    /// The invoked session's.
    Far(StreamError),
}

/// Carries messages both ways until both sides have finished. When the service has finished, the
/// client has [`LINGER`] to finish; when the client has disconnected, this returns at once.
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
            // In this order: received output of the service is sent before its end is handled.
            biased;
            result = &mut to_client => {
                result?;
                let _ = timeout(LINGER, to_service).await;
                return Ok(());
            }
            // A service that accepts no more input may still send output.
            result = &mut to_service => if let Err(broken @ Broken::Near(_)) = result {
                return Err(broken);
            },
        }
    }
    select! {
        biased;
        result = &mut to_client => result,
        reason = near_receive.closed() => Err(Broken::Near(reason)),
    }
}

/// Carries the client's messages in parts, so their length needs no bound. They are not
/// interpreted.
async fn to_service(near: &mut ReceiveHalf, far: &mut SendHalf) -> Result<(), Broken> {
    let mut part = vec![0; PART];
    let mut closed = near.closed();
    while let Some((length, end)) = near.read(&mut part).await.map_err(Broken::Near)? {
        select! {
            biased;
            written = far.write(&part[..length], end) => written.map_err(Broken::Far)?,
            // While the service accepts nothing, no read detects that the client has disconnected.
            reason = &mut closed => return Err(Broken::Near(reason)),
        }
    }
    far.finish().await.map_err(Broken::Far)
}

/// Carries the service's messages in the same way. The other direction detects that the client has
/// disconnected.
async fn to_client(far: &mut ReceiveHalf, near: &mut SendHalf) -> Result<(), Broken> {
    let mut part = vec![0; PART];
    while let Some((length, end)) = far.read(&mut part).await.map_err(Broken::Far)? {
        near.write(&part[..length], end).await.map_err(Broken::Near)?;
    }
    near.finish().await.map_err(Broken::Near)
}

/// Sends the client the reason why its session was not started, and the exit code.
async fn fail(
    mut send: SendHalf,
    receive: ReceiveHalf,
    target: &Target,
    error: CallError,
) -> Result<(), ServiceError> {
    let text = match error.kind {
        // Without the addresses: otherwise a client could scan the network of this node with
        // addresses of its choice.
        CallErrorKind::Unreachable => {
            format!("unreachable: this node does not reach {}", target.node)
        }
        CallErrorKind::Local => "an error of the invoking node, which is in its log".to_owned(),
        _ => error.text.clone(),
    };
    send.send(&Message::Failure(&text).to_bytes()).await?;
    exit(send, receive, exit_code(error.kind)).await?;
    Err(ServiceError::Failed(error.text))
}

/// The exit code that the client gets, as for a session that it starts itself (`docs/services.md`).
fn exit_code(kind: CallErrorKind) -> u8 {
    match kind {
        CallErrorKind::No => 1,
        CallErrorKind::Usage => 2,
        CallErrorKind::Local => 120,
        CallErrorKind::Denied => 121,
        CallErrorKind::Unreachable => 122,
        CallErrorKind::Protocol => 123,
    }
}

/// The value of a parameter, parsed from text.
fn text<T: std::str::FromStr>(params: &Params, key: &str) -> Result<Option<T>, Refused> {
    let Some(value) = params.value(key) else { return Ok(None) };
    let read = str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    read.map(Some).ok_or_else(|| Refused::Malformed(key.to_owned()))
}

fn patterns<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ServicePattern>, D::Error> {
    let patterns = Vec::deserialize(deserializer)?;
    if patterns.is_empty() {
        return Err(D::Error::custom("at least one service must be allowed"));
    }
    Ok(patterns)
}
