//! `forward`: carries TCP connections, UDP flows and connections of Unix sockets over one session,
//! each on its own stream. Either the client accepts them and the node connects, or the node
//! accepts them and the client connects.

mod address;
pub mod client;
mod config;
mod connect;
mod hosts;
mod message;
mod pattern;
mod pump;
mod run;
mod socket;
#[cfg(test)]
mod tests;
mod udp;

use std::sync::Arc;

use levada_core::Params;
use levada_service::{Invocation, Over, Prepared, Refused, Service, ServiceError, ServiceType};
use levada_session::Stream;
use tokio::sync::Semaphore;

pub use address::{Address, AddressError, Host, HostPort, MAX_ADDRESS};
use config::{Options, Policy, Scope};
use connect::Connector;
pub use message::{Cause, Failure, receive_answer};
pub use pattern::{LISTEN, Pattern, PatternError};
pub use pump::{CarryError, carry, carry_accepted};
use run::Shared;
pub use socket::{Listener, Socket, SocketFile, resolve};
pub use udp::{IDLE, MAX_DATAGRAM};

/// The type `forward`.
pub(crate) fn service_type() -> ServiceType {
    ServiceType::new("forward", |_, _, options: Options| Ok(Arc::new(Forward::new(options))))
}

/// The service of type `forward`.
struct Forward {
    policy: Policy,
    shared: Shared,
}

impl Forward {
    fn new(options: Options) -> Self {
        let policy = Policy::new(options);
        let shared = Shared {
            connections: Arc::new(Semaphore::new(policy.connections)),
            lookups: connect::lookups(),
            wait: levada_service::streams::WAIT,
            idle: IDLE,
        };
        Self { policy, shared }
    }
}

async fn forward(
    shared: Shared,
    scope: Scope,
    invocation: Invocation,
    stream: Stream,
) -> Result<(), ServiceError> {
    match scope {
        Scope::Connect(rules) => {
            let connector = Connector::new(rules, shared.lookups.clone());
            run::connect(&shared, connector, invocation.streams, stream).await
        }
        Scope::Listen(address) => run::listen(&shared, &address, invocation.streams, stream).await,
    }
}

impl Service for Forward {
    fn category(&self) -> &'static str {
        "network"
    }

    fn parameters(&self) -> &'static [(&'static str, &'static str)] {
        &[(
            Params::ARGS,
            "the addresses to connect to, patterns included; or listen: and one address to listen at",
        )]
    }

    fn named_values(&self) -> Vec<String> {
        self.policy.addresses()
    }

    fn check(&self, params: &Params) -> Result<(), Refused> {
        self.policy.check(params)
    }

    fn prepare(&self, params: &Params, _: Over<'_>) -> Result<Prepared, Refused> {
        let shared = self.shared.clone();
        let scope = self.policy.scope(params)?;
        Ok(Prepared::stream(move |invocation, stream| forward(shared, scope, invocation, stream)))
    }

    /// The addresses.
    fn summary(&self, params: &Params) -> Option<String> {
        Some(params.args().ok()??.join(" "))
    }
}
