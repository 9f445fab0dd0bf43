//! A connection to a catalogue: at another node, through the running node of this home, or within
//! this process, which then holds the home's lock.

use std::sync::Arc;
use std::time::Duration;

use levada_client::control::{self, ControlError};
use levada_client::{Client, ClientError, Running, Target};
use levada_core::wire::catalogue::Cause;
use levada_home::{Home, HomeError, Lock};
use levada_services::catalogue::{
    CatalogueClient, CatalogueError, PipeError, ServeError, of_bytes, of_stream,
};
use levada_session::Connection;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::destination::{Destination, Search};
use crate::failure::{Failure, NO, PROTOCOL, UNREACHABLE, USAGE};
use crate::mediated;
use crate::names::Names;
use crate::output::plain;

use super::own_store::{self, Missing};

/// How long to wait for another command that holds the home's lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(20);
/// How long the store of this process may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to a catalogue.
pub struct CatalogueConnection {
    /// The client of the protocol.
    pub caller: CatalogueClient,
    server: Server,
}

/// What serves the catalogue.
enum Server {
    /// Another node, over the network.
    Remote { client: Arc<Client>, connection: Connection, node: Target },
    /// The running node of this home, over its control socket.
    OwnNode,
    /// A task of this process.
    InProcess(JoinHandle<Result<(), ServeError>>, Lock),
}

/// Connects to the catalogue at `destination`, or to this home's own.
///
/// # Errors
/// [`Failure`] with the exit code that fits.
pub async fn open(
    destination: Option<&Destination>,
    resolving: (Names, Search),
    missing: Missing,
) -> Result<CatalogueConnection, Failure> {
    let home = Home::open()?;
    match destination {
        Some(destination) => open_remote(&home, destination, resolving).await,
        None => open_own(&home, missing).await,
    }
}

async fn open_remote(
    home: &Home,
    destination: &Destination,
    resolving: (Names, Search),
) -> Result<CatalogueConnection, Failure> {
    let client = Arc::new(Client::new(home)?);
    let capability = destination.capability(&client, resolving, None, "catalogue").await?;
    let addresses = capability.addresses().to_vec();
    let node = Target { identity: capability.node(), addresses };
    let Running { stream, connection, .. } = client.connect(&capability).await?;
    let caller = CatalogueClient::new(of_stream(stream));
    Ok(CatalogueConnection { caller, server: Server::Remote { client, connection, node } })
}

/// Opens the catalogue of this home. Waits while another command, or a node that is starting, holds
/// the lock.
async fn open_own(home: &Home, missing: Missing) -> Result<CatalogueConnection, Failure> {
    let end = Instant::now() + LOCK_TIMEOUT;
    loop {
        match control::open_catalogue(home).await {
            Ok((read, write)) => {
                return Ok(CatalogueConnection {
                    caller: CatalogueClient::new(of_bytes(read, write)),
                    server: Server::OwnNode,
                });
            }
            Err(ControlError::NotRunning) => {}
            Err(error) => return Err(error.into()),
        }
        match home.lock() {
            Ok(lock) => {
                let (caller, served) = own_store::open(home, missing)?;
                return Ok(CatalogueConnection { caller, server: Server::InProcess(served, lock) });
            }
            Err(HomeError::Locked { .. }) if Instant::now() < end => sleep(STEP).await,
            Err(error) => return Err(error.into()),
        }
    }
}

impl CatalogueConnection {
    /// For the swarm of a catalogue at another node: the client, and that node.
    pub fn remote(&self) -> Option<(Arc<Client>, Target)> {
        match &self.server {
            Server::Remote { client, node, .. } => Some((client.clone(), node.clone())),
            Server::OwnNode | Server::InProcess(..) => None,
        }
    }

    /// Closes the connection in order.
    pub async fn close(self) {
        let Self { mut caller, server } = self;
        caller.finish().await;
        drop(caller);
        match server {
            Server::Remote { client, connection, .. } => {
                mediated::close(&client, &connection).await
            }
            Server::OwnNode => {}
            Server::InProcess(served, lock) => {
                // Acknowledged changes are on disk. The database must be closed before the lock is
                // released.
                let _ = timeout(CLOSE_TIMEOUT, served).await;
                drop(lock);
            }
        }
    }
}

impl From<CatalogueError> for Failure {
    fn from(error: CatalogueError) -> Self {
        match error {
            CatalogueError::Failed { cause, text } => failure(cause, &plain(&text)),
            CatalogueError::Pipe(PipeError::Stream(error)) => ClientError::from(error).into(),
            CatalogueError::Pipe(PipeError::Stalled) => {
                Self::new(UNREACHABLE, "unreachable: the catalogue does not answer").of_node()
            }
            CatalogueError::Gone => {
                Self::new(UNREACHABLE, format!("unreachable: {error}")).of_node()
            }
            CatalogueError::Pipe(PipeError::Socket(error)) => {
                Self::local(format!("the connection to the node of this home is lost: {error}"))
            }
            CatalogueError::Pipe(PipeError::Malformed) | CatalogueError::Unexpected => {
                Self::new(PROTOCOL, "protocol: the catalogue sent an unexpected message")
            }
            CatalogueError::Package(error) => Self::local(format!("the package: {error}")),
        }
    }
}

fn failure(cause: Cause, text: &str) -> Failure {
    match cause {
        // A node may lack what was published at another one a moment ago.
        Cause::Unknown => Failure::new(NO, text).of_node(),
        Cause::Conflict | Cause::Compacted => Failure::new(NO, text),
        Cause::Denied => Failure::denied(format!("denied: {text}")),
        Cause::Invalid => Failure::new(USAGE, text),
        Cause::Busy | Cause::Away => {
            Failure::new(UNREACHABLE, format!("unreachable: {text}")).of_node()
        }
        // The disk of a node.
        Cause::Full | Cause::Broken => {
            Failure::local(format!("the catalogue failed: {text}")).of_node()
        }
        Cause::Unspecified => Failure::local(format!("the catalogue failed: {text}")),
    }
}
