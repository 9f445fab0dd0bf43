//! Calls of services to other nodes: implements [`levada_service::Client`].

use std::sync::Arc;

use levada_capability::Capability;
use levada_client::{Client, ClientError};
use levada_core::Identity;
use levada_service::{CallError, CallErrorKind, CallFuture, Client as ServiceClient};
use levada_session::Stream;

/// Calls other nodes with the identity of this one.
pub(crate) struct Calls(Arc<Client>);

impl Calls {
    pub(crate) fn new(client: Arc<Client>) -> Self {
        Self(client)
    }
}

impl ServiceClient for Calls {
    fn start<'a>(&'a self, capability: &'a Capability, service: &'a str) -> CallFuture<'a, Stream> {
        Box::pin(async move {
            // A dedicated connection, which closes after the call: a peer that may name nodes must
            // not open lasting ones.
            let running =
                self.0.connect_dedicated(capability, service).await.map_err(call_error)?;
            // The stream keeps its connection open.
            Ok(running.stream)
        })
    }

    fn name_of(&self, identity: &Identity) -> Option<String> {
        self.0.known().by_identity(identity).ok().flatten().map(|pin| pin.name)
    }
}

fn call_error(error: ClientError) -> CallError {
    let kind = match &error {
        ClientError::No(_) => CallErrorKind::No,
        ClientError::Usage(_) => CallErrorKind::Usage,
        ClientError::Local(_) => CallErrorKind::Local,
        ClientError::Denied(_) => CallErrorKind::Denied,
        ClientError::NoAnswer(_) | ClientError::Unreachable(_) | ClientError::OtherKey(_) => {
            CallErrorKind::Unreachable
        }
        ClientError::Protocol(_) => CallErrorKind::Protocol,
    };
    CallError { kind, text: error.to_string() }
}
