//! What a service is to the node that offers it.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use levada_capability::SessionId;
use levada_core::{Framing, Identity, Params, ParamsError};
use levada_session::{ReceiveHalf, SendHalf, Stream, StreamError};
use thiserror::Error;

use crate::stdio::{FAILURE_EXIT, Message, ReceiveError, StdioError};
use crate::{Definition, Streams};

/// A running service, as a boxed future. Dropping it ends everything that it started.
pub type Running<'a> = Pin<Box<dyn Future<Output = Result<(), ServiceError>> + Send + 'a>>;

/// Something a node offers. One value serves all sessions of one definition.
pub trait Service: Send + Sync {
    /// The category, unless the definition names another.
    fn category(&self) -> &'static str;

    /// The version of the service's own protocol and behaviour.
    fn version(&self) -> &'static str {
        "1.0.0"
    }

    /// The parameters it takes: each key and what it means.
    fn parameters(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Whether a session may have these parameters. While `complete` is false, links to come may add
    /// pairs that are still missing: only what is there is judged. By default only the framing, and an empty list of
    /// arguments, may be set.
    ///
    /// # Errors
    /// [`Refused`] says which parameter is not allowed.
    fn check(&self, params: &Params, complete: bool) -> Result<(), Refused> {
        let _ = complete;
        check_none(params)
    }

    /// What a session with these parameters is for, in a few words: the program, the target. For the audit log of the
    /// node, which cuts it; so it says nothing that is only for the client to know.
    fn summary(&self, _: &Params) -> Option<String> {
        None
    }

    /// Runs one session on its stream, in the messages of [`crate::stdio`], until it has ended.
    /// Dropping the future ends everything it started: this is how a session is terminated.
    ///
    /// # Errors
    /// [`ServiceError`] if the session did not run to its own end.
    fn run<'a>(&'a self, invocation: Invocation, stream: Stream) -> Running<'a>;
}

/// One start of a session: who, and with which parameters.
pub struct Invocation {
    /// The session.
    pub session: SessionId,
    /// The identity that started it: the capability's last link.
    pub holder: Identity,
    /// The parameters of all links together; [`Service::check`] has accepted them as complete.
    pub params: Params,
    /// Further streams of this start, which either side may open. A service that drops this has none.
    pub streams: Streams,
}

/// What a node answers when it is asked about a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The name on this node.
    pub name: String,
    /// What it is for.
    pub category: String,
    /// The type, by which the registry finds it.
    pub kind: String,
    /// The version of the service's own protocol and behaviour.
    pub version: String,
    /// Where it is; free text, may be empty.
    pub location: String,
    /// Each parameter's key and meaning.
    pub parameters: Vec<(String, String)>,
    /// The framings that are allowed; the first is the default.
    pub framings: Vec<Framing>,
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
        }
    }
}

/// Why a service does not accept parameters. Each is one line: what came from outside is escaped.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The service has no such parameter.
    #[error("there is no parameter {0:?}")]
    Unknown(String),
    /// A value that cannot be read.
    #[error("the parameter {0:?} is malformed")]
    Malformed(String),
    /// The service takes no arguments.
    #[error("this service takes no arguments")]
    Arguments,
    /// The session names no program to run.
    #[error("no program is named")]
    NoProgram,
    /// A program that is not allowed.
    #[error("the program {0:?} is not allowed")]
    Program(String),
    /// An argument that is not allowed for the program.
    #[error("the argument {argument:?} is not allowed for {program:?}")]
    Argument {
        /// The program.
        program: String,
        /// The first argument that is not allowed.
        argument: String,
    },
    /// Too many arguments for the program.
    #[error("{program:?} takes at most {limit} arguments")]
    TooMany {
        /// The program.
        program: String,
        /// How many it takes.
        limit: usize,
    },
    /// A program that is allowed, and not on this machine.
    #[error("the program {0:?} is not installed on this machine")]
    NotHere(String),
    /// The folder in which programs are to start is not on this machine.
    #[error("the directory {0:?} does not exist on this machine")]
    Directory(String),
    /// The session has no terminal.
    #[error("this service needs a terminal (`--pty`)")]
    NoTerminal,
    /// An environment variable that clients may not set.
    #[error("the environment variable {0:?} may not be set")]
    Environment(String),
    /// A parameter that must be there.
    #[error("the parameter {0:?} is missing")]
    Missing(&'static str),
    /// A session that this service may not start for others: a service of a node.
    #[error("this node may not start {service:?} at {node} for others")]
    Place {
        /// The node.
        node: Identity,
        /// The service's name there.
        service: String,
    },
    /// Not a rule of the service `catalogue`.
    #[error(
        "{0:?} is no rule: expected `read`, `write` or `yank`, a space, and TYPE/NAME, or `admin */*`"
    )]
    Rule(String),
    /// A rule that gives more than the configuration does.
    #[error("the right {0:?} is more than this service gives")]
    Beyond(String),
    /// Terminals are not allowed.
    #[error("this service gives no terminal")]
    Pty,
    /// The session names an empty list of addresses.
    #[error("no address is named")]
    NoAddress,
    /// Neither an address nor a pattern of some.
    #[error(
        "{0:?} is no address: expected HOST:PORT, udp:HOST:PORT, unix:/PATH or listen:ADDRESS:PORT"
    )]
    NotAddress(String),
    /// An address that is not allowed.
    #[error("the address {0:?} is not allowed")]
    Address(String),
}

impl From<ParamsError> for Refused {
    fn from(_: ParamsError) -> Self {
        Self::Malformed(Params::ARGS.to_owned())
    }
}

/// Why a session did not run to its own end.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// The stream or its connection ended.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The client ended its side before the service had ended.
    #[error("the client went away")]
    Gone,
    /// The client sent something that is no message of [`crate::stdio`], or not for a service.
    #[error("the client sent {0}")]
    Message(#[from] StdioError),
    /// The parameters are not allowed (any more).
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The service could not do it; the client was told the same.
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

/// How long a client may take to end its side after the last message, before it is cut off.
pub const LINGER: Duration = Duration::from_secs(5);

/// Sends the last message and waits until the client has ended its side: dropping the stream before
/// would reset it, and could overtake what was sent.
///
/// # Errors
/// [`StreamError`] if the stream or the connection ended before the message was sent.
pub async fn exit(mut send: SendHalf, receive: ReceiveHalf, code: u8) -> Result<(), StreamError> {
    send.send(&Message::Exit(code).to_bytes()).await?;
    close(send, receive).await
}

/// Ends this side behind the last message, and waits until the client has ended its own.
///
/// # Errors
/// [`StreamError`] if the stream or the connection ended first.
pub async fn close(mut send: SendHalf, mut receive: ReceiveHalf) -> Result<(), StreamError> {
    send.finish().await?;
    let rest = async {
        let mut buffer = [0; 16 * 1024];
        while let Ok(Some(_)) = receive.read(&mut buffer).await {}
    };
    // Whatever the client still does, the session has run to its end.
    let _ = tokio::time::timeout(LINGER, rest).await;
    Ok(())
}

/// Tells the client in one line why the service could not do it, and ends the session with that error.
///
/// # Errors
/// `error`, or that the client could not be told.
pub async fn fail(stream: Stream, error: ServiceError) -> Result<(), ServiceError> {
    let (mut send, receive) = stream.split();
    send.send(&Message::Failure(&error.to_string()).to_bytes()).await?;
    exit(send, receive, FAILURE_EXIT).await?;
    Err(error)
}

/// For services without parameters.
fn check_none(params: &Params) -> Result<(), Refused> {
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
    fn a_service_without_parameters_takes_only_the_framing_and_no_arguments() {
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

    #[test]
    fn a_refusal_is_one_line() {
        let refused = Refused::Argument { program: "date".into(), argument: "a\nb\x1b".into() };
        assert!(!refused.to_string().contains(char::is_control));
    }
}
