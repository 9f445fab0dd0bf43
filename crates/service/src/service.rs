//! The interface between a node and the services that it offers.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use levada_capability::SessionId;
use levada_contexts::{Path, PathError, PathSession};
use levada_core::{Framing, Identity, Params, label, sha256};
use levada_session::{ReceiveHalf, SendHalf, Stream, StreamError};
use thiserror::Error;

use crate::entities::Entities;
use crate::stdio::{FAILURE_EXIT, Message, ReceiveError, StdioError};
use crate::{Definition, Refused, Streams};

/// One run of a service, as a boxed future. Dropping it ends everything that the run started.
pub type RunFuture = Pin<Box<dyn Future<Output = Result<(), ServiceError>> + Send>>;

/// A run whose parameters were checked: [`Service::prepare`] makes it of them, and it has what they
/// mean.
pub struct PreparedRun(Box<dyn FnOnce(Invocation, Stream) -> RunFuture + Send>);

impl PreparedRun {
    /// The run that `run` performs. The future ends when the session has ended; it fails if the
    /// session was cut off or failed. A service that `levada run` can use speaks the messages of
    /// [`crate::stdio`]. Dropping the future must end everything that it started: this is how the
    /// node terminates a session.
    pub fn new<F>(run: impl FnOnce(Invocation, Stream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<(), ServiceError>> + Send + 'static,
    {
        Self(Box::new(move |invocation, stream| Box::pin(run(invocation, stream))))
    }

    /// Runs the session on its stream until it has ended.
    pub fn start(self, invocation: Invocation, stream: Stream) -> RunFuture {
        (self.0)(invocation, stream)
    }
}

impl fmt::Debug for PreparedRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PreparedRun")
    }
}

/// Who may be given the same answers, and hence one answer that a cache on the path has stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Everyone who may use the service: no answer depends on the identity of the client or on the
    /// parameters of the session.
    All,
}

impl Audience {
    /// Names this audience of the service `name` of a node to caches, which share answers of its
    /// `origin` only within one realm (`docs/protocol.md`, "Handshake with middleboxes").
    pub fn realm(self, name: &str, origin: &str) -> [u8; 16] {
        let audience = match self {
            Self::All => "all",
        };
        let parts = [label::REALM, name, audience, origin].map(str::as_bytes);
        let hash = sha256(&[parts[0], &[0], parts[1], &[0], parts[2], &[0], parts[3]]);
        let mut realm = [0; 16];
        realm.copy_from_slice(&hash[..16]);
        realm
    }
}

/// A run over a session with middleboxes whose parameters were checked: [`Service::prepare`] makes
/// it.
pub struct PreparedPathRun {
    run: Box<dyn FnOnce(PathSession) -> RunFuture + Send>,
    context_names: Vec<&'static str>,
    /// Who may share answers of which origin.
    shared: Option<(Audience, String)>,
}

impl PreparedPathRun {
    /// The run that `run` performs; see [`PreparedRun::new`].
    pub fn new<F>(run: impl FnOnce(PathSession) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<(), ServiceError>> + Send + 'static,
    {
        let run = Box::new(move |session| Box::pin(run(session)) as RunFuture);
        Self { run, context_names: Vec::new(), shared: None }
    }

    /// Names the contexts of the path, from context 1 on, for the operator of the node.
    #[must_use]
    pub fn with_context_names(mut self, names: impl IntoIterator<Item = &'static str>) -> Self {
        self.context_names = names.into_iter().collect();
        self
    }

    /// The names of the contexts, from context 1 on; those of later contexts may be missing.
    pub fn context_names(&self) -> &[&'static str] {
        &self.context_names
    }

    /// Lets caches on the path share answers of `origin` in this session within `audience`.
    #[must_use]
    pub fn shared_with(mut self, audience: Audience, origin: &str) -> Self {
        self.shared = Some((audience, origin.to_owned()));
        self
    }

    /// The realm of this session of the service `name`; `None` if caches must not share its
    /// answers.
    pub fn realm(&self, name: &str) -> Option<[u8; 16]> {
        self.shared.as_ref().map(|(audience, origin)| audience.realm(name, origin))
    }

    /// Runs the session until it has ended.
    pub fn start(self, session: PathSession) -> RunFuture {
        (self.run)(session)
    }
}

/// A session of a client: on a stream of a connection, or over a path through middleboxes.
#[derive(Clone, Copy, Debug)]
pub enum Over<'a> {
    /// A stream, with further streams ([`Invocation::streams`]).
    Stream,
    /// This path.
    Path(&'a Path),
}

/// The result of [`Service::prepare`].
#[derive(Debug)]
pub enum Prepared {
    /// A run on a stream.
    Stream(PreparedRun),
    /// A run over a session with middleboxes.
    Path(PreparedPathRun),
}

impl Prepared {
    /// A run on a stream; see [`PreparedRun::new`].
    pub fn stream<F>(run: impl FnOnce(Invocation, Stream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<(), ServiceError>> + Send + 'static,
    {
        Self::Stream(PreparedRun::new(run))
    }

    /// The run on a stream.
    ///
    /// # Errors
    /// [`Refused::NotAccepted`] if the service runs only through middleboxes.
    pub fn into_stream(self) -> Result<PreparedRun, Refused> {
        match self {
            Self::Stream(run) => Ok(run),
            Self::Path(_) => Err(Refused::NotAccepted("this service needs middleboxes".to_owned())),
        }
    }

    /// The run over a session with middleboxes.
    ///
    /// # Errors
    /// [`Refused::NotAccepted`] if the service cannot be used through middleboxes.
    pub fn into_path(self) -> Result<PreparedPathRun, Refused> {
        match self {
            Self::Path(run) => Ok(run),
            Self::Stream(_) => {
                let text = "this service cannot be used through middleboxes";
                Err(Refused::NotAccepted(text.to_owned()))
            }
        }
    }
}

impl fmt::Debug for PreparedPathRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PreparedPathRun")
    }
}

/// A service of a node. One value serves all sessions of one definition.
pub trait Service: Send + Sync {
    /// The category, unless the definition names another.
    fn category(&self) -> &'static str;

    /// The version of the service's own protocol and behaviour.
    fn version(&self) -> &'static str {
        "1.0.0"
    }

    /// The parameters of its sessions: each key and its meaning.
    fn parameters(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// The values of [`Params::ARGS`] that the definition names, such as programs or addresses, for
    /// those who may request a session; empty if it names none.
    fn named_values(&self) -> Vec<String> {
        Vec::new()
    }

    /// Checks the parameters of a requested session. Later links may add pairs that are missing, so
    /// only the present ones are checked. The default is for services whose sessions need no pair:
    /// it is the check of [`Self::prepare`].
    ///
    /// # Errors
    /// [`Refused`], with the parameter that is not allowed.
    fn check(&self, params: &Params) -> Result<(), Refused> {
        self.prepare(params, Over::Stream).map(drop)
    }

    /// Checks the parameters of all links together, with the rights of each middlebox on a path,
    /// and makes a run of them. The node calls it once for each start, before it counts the start.
    /// It must not wait, and has no effect before [`PreparedRun::start`]. What only this machine
    /// decides, such as a missing program, is not checked here, but fails the run. A service that
    /// cannot be used through middleboxes ignores `over`: the node refuses its run for a path.
    ///
    /// # Errors
    /// [`Refused`], with the parameter that is not allowed or missing, or with the middlebox and
    /// context.
    fn prepare(&self, params: &Params, over: Over<'_>) -> Result<Prepared, Refused>;

    /// The middleboxes that sessions of this service may lead through. The node refuses a path with
    /// any other before it does any cryptography, and shows them to clients.
    fn middleboxes(&self) -> Vec<AllowedMiddlebox> {
        Vec::new()
    }

    /// The entities that are registered at the service, if it has such.
    fn entities(&self) -> Option<&dyn Entities> {
        None
    }

    /// What a session with these parameters is for, in a few words: the program, the target. The
    /// node truncates it and writes it to the audit log, so it must not contain what is
    /// confidential to the client.
    fn summary(&self, _: &Params) -> Option<String> {
        None
    }
}

/// One start of a session.
pub struct Invocation {
    /// The session.
    pub session: SessionId,
    /// The identity that started it: the holder in the capability's last link.
    pub holder: Identity,
    /// Further streams of this start, which either side may open. A service that drops this value
    /// refuses them.
    pub streams: Streams,
}

/// A middlebox that sessions of a service may lead through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedMiddlebox {
    /// Its identity.
    pub identity: Identity,
    /// Where it listens, `host:port`; empty if that is not known here.
    pub address: String,
    /// Sessions must lead through it.
    pub required: bool,
    /// The most that it may be granted, in the words of the service:
    /// `request-head=r,response-head=rw`.
    pub allow: String,
}

/// The description of a service that a node sends to clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The name on this node.
    pub name: String,
    /// The category.
    pub category: String,
    /// The type, by which the registry finds it.
    pub kind: String,
    /// The version of the service's own protocol and behaviour.
    pub version: String,
    /// The location; free text, may be empty.
    pub location: String,
    /// Each parameter's key and meaning.
    pub parameters: Vec<(String, String)>,
    /// The allowed framings; the first is the default.
    pub framings: Vec<Framing>,
    /// The middleboxes that sessions may lead through.
    pub middleboxes: Vec<AllowedMiddlebox>,
}

impl Description {
    /// The description of `service`, which `definition` defines.
    pub fn new(definition: &Definition, service: &dyn Service) -> Self {
        let category = definition.category.as_deref().unwrap_or(service.category());
        let owned = |(key, meaning): &(&str, &str)| ((*key).to_owned(), (*meaning).to_owned());
        Self {
            name: definition.name.clone(),
            category: category.to_owned(),
            kind: definition.kind.clone(),
            version: service.version().to_owned(),
            location: definition.location.clone().unwrap_or_default(),
            parameters: service.parameters().iter().map(owned).collect(),
            framings: definition.framings.clone(),
            middleboxes: service.middleboxes(),
        }
    }
}

/// Why a session was cut off or failed.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// The stream or its connection ended.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The session with middleboxes ended.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The client finished or stopped responding before the service had ended.
    #[error("the client went away")]
    Gone,
    /// The client sent an invalid message, or one that only a service may send.
    #[error("the client sent {0}")]
    Message(#[from] StdioError),
    /// The parameters are not allowed.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The service failed; the client received the reason.
    #[error("{0}")]
    Failed(String),
}

impl From<ReceiveError> for ServiceError {
    fn from(error: ReceiveError) -> Self {
        match error {
            ReceiveError::Stream(error) => error.into(),
            ReceiveError::Message(error) => error.into(),
        }
    }
}

/// How long a client may take to finish its side after the last message, before the stream is
/// reset.
pub const LINGER: Duration = Duration::from_secs(5);

/// Sends [`Message::Exit`], and closes the stream as [`close`] does.
///
/// # Errors
/// [`StreamError`] if the stream or the connection ended before the message was sent.
pub async fn exit(mut send: SendHalf, receive: ReceiveHalf, code: u8) -> Result<(), StreamError> {
    send.send(&Message::Exit(code).to_bytes()).await?;
    close(send, receive).await
}

/// Finishes this side after the last message, and waits up to [`LINGER`] until the client has
/// finished its own: dropping the stream earlier would reset it, and a reset can overtake the last
/// messages.
///
/// # Errors
/// [`StreamError`] if the stream or the connection ended first.
pub async fn close(mut send: SendHalf, mut receive: ReceiveHalf) -> Result<(), StreamError> {
    send.finish().await?;
    let rest = async {
        let mut buffer = [0; 16 * 1024];
        while let Ok(Some(_)) = receive.read(&mut buffer).await {}
    };
    // An error of the client after the last message does not matter: the session has run to its
    // end.
    let _ = tokio::time::timeout(LINGER, rest).await;
    Ok(())
}

/// Sends the client `error` in one line, and ends the session with it.
///
/// # Errors
/// `error`, or a [`ServiceError::Stream`] if it could not be sent.
pub async fn fail(stream: Stream, error: ServiceError) -> Result<(), ServiceError> {
    let (mut send, receive) = stream.split();
    send.send(&Message::Failure(&error.to_string()).to_bytes()).await?;
    exit(send, receive, FAILURE_EXIT).await?;
    Err(error)
}

/// The check of services without parameters: accepts the framing and an empty list of arguments.
///
/// # Errors
/// [`Refused::Arguments`] or [`Refused::Unknown`].
pub fn check_none(params: &Params) -> Result<(), Refused> {
    for (key, _) in params.iter() {
        match key {
            Params::FRAMING => {}
            Params::ARGS if params.args()?.is_none_or(|args| args.is_empty()) => {}
            Params::ARGS => return Err(Refused::Arguments),
            _ => return Err(Refused::Unknown(key.to_owned())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use levada_core::encode_list;

    #[test]
    fn a_realm_belongs_to_one_service_and_origin() {
        let realm = Audience::All.realm("web", "web.test:80");
        // SHA-256 of "levada/1 realm", 00, "web", 00, "all", 00, "web.test:80".
        let expected = "ec40562e4c2062c92cd17dd6dfa03af6";
        let hex: String = realm.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected);
        assert_ne!(realm, Audience::All.realm("wiki", "web.test:80"));
        assert_ne!(realm, Audience::All.realm("web", "web.test:81"));
    }

    #[test]
    fn a_service_without_parameters_accepts_only_the_framing_and_no_arguments() {
        let mut params = Params::new();
        params.add(Params::FRAMING, b"auto".to_vec()).unwrap();
        params.add(Params::ARGS, Vec::new()).unwrap();
        assert_eq!(check_none(&params), Ok(()));
        let with = |key: &str, value: Vec<u8>| {
            let mut params = Params::new();
            params.add(key, value).unwrap();
            check_none(&params)
        };
        assert_eq!(with(Params::ARGS, encode_list(&["a"])), Err(Refused::Arguments));
        assert_eq!(with(Params::ARGS, vec![1]), Err(Refused::Malformed("args".into())));
        assert_eq!(with("pty", Vec::new()), Err(Refused::Unknown("pty".into())));
    }
}
