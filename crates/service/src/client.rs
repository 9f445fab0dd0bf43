//! Calls of a service to other nodes, with the identity of its own node. The node implements
//! [`Client`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use levada_capability::Capability;
use levada_core::Identity;
use levada_session::Stream;
use thiserror::Error;

/// A call to another node, as a boxed future. Each wait in it has a timeout.
pub type CallFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, CallError>> + Send + 'a>>;

/// Starts sessions at other nodes.
pub trait Client: Send + Sync {
    /// Starts the session that `capability` permits, if its service is called `service`, on a
    /// dedicated connection, which is closed with the stream. The stream carries the messages of
    /// that service.
    ///
    /// # Errors
    /// [`CallError`] if the node cannot be reached or refuses.
    fn start<'a>(&'a self, capability: &'a Capability, service: &'a str) -> CallFuture<'a, Stream>;

    /// Returns the name that is pinned to an identity at the node.
    fn name_of(&self, _identity: &Identity) -> Option<String> {
        None
    }
}

/// Why a call did not succeed.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{text}")]
pub struct CallError {
    /// The kind of error.
    pub kind: CallErrorKind,
    /// The error in one line.
    pub text: String,
}

/// The kinds of errors of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallErrorKind {
    /// The service or object does not exist.
    No,
    /// An argument is malformed or has no meaning there.
    Usage,
    /// An error of this machine.
    Local,
    /// Not permitted.
    Denied,
    /// No node answered.
    Unreachable,
    /// The peer broke the protocol, or ended the connection.
    Protocol,
}

/// The node for which a service is built.
#[derive(Clone)]
pub struct Context {
    /// The identity of the node that offers the service.
    pub node: Identity,
    /// Calls to other nodes.
    pub client: Arc<dyn Client>,
}

impl Context {
    /// A context whose calls fail: to check definitions, and for tests.
    pub fn without_client(node: Identity) -> Self {
        Self { node, client: Arc::new(NoClient) }
    }
}

struct NoClient;

impl Client for NoClient {
    fn start<'a>(&'a self, _: &'a Capability, _: &'a str) -> CallFuture<'a, Stream> {
        let text = "this service cannot call other nodes".to_owned();
        Box::pin(async move { Err(CallError { kind: CallErrorKind::Local, text }) })
    }
}
