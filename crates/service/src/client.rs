//! How a service calls other nodes, with the identity of its own node. The node implements it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use levada_capability::Capability;
use levada_core::Identity;
use levada_session::Stream;
use thiserror::Error;

/// A call to another node, as a boxed future. Every wait in it is bounded.
pub type Calling<'a, T> = Pin<Box<dyn Future<Output = Result<T, CallError>> + Send + 'a>>;

/// What a service does at other nodes.
pub trait Client: Send + Sync {
    /// Starts the session that `capability` permits, if it is one of the service called `service`, on
    /// a connection that ends with the stream. From here on the service at the other end speaks.
    ///
    /// # Errors
    /// [`CallError`] if the node cannot be reached or does not want to.
    fn start<'a>(&'a self, capability: &'a Capability, service: &'a str) -> Calling<'a, Stream>;
}

/// Why a call did not succeed.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{text}")]
pub struct CallError {
    /// The exit code of the command line that says of what kind it is: 1 no, 120 local, 121 denied,
    /// 122 unreachable, 123 protocol.
    pub code: u8,
    /// One line for a person.
    pub text: String,
}

/// What a service gets when it is built.
#[derive(Clone)]
pub struct Context {
    /// The node that offers it.
    pub node: Identity,
    /// How it calls other nodes.
    pub client: Arc<dyn Client>,
}

impl Context {
    /// For services that call nobody: definitions that are only looked at, and tests.
    pub fn without_client(node: Identity) -> Self {
        Self { node, client: Arc::new(NoClient) }
    }
}

struct NoClient;

impl Client for NoClient {
    fn start<'a>(&'a self, _: &'a Capability, _: &'a str) -> Calling<'a, Stream> {
        let text = "no other node can be called from here".to_owned();
        Box::pin(async move { Err(CallError { code: 120, text }) })
    }
}
