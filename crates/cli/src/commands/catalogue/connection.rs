//! Which catalogue is meant, and a conversation with it: at another node, through the running node of this home, or
//! within this process, which then holds the home's lock.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use levada_core::SystemClock;
use levada_core::wire::catalogue::Cause;
use levada_node::adopt::finish_interrupted;
use levada_node::catalogue::keep;
use levada_node::client::{Client, ClientError, Running};
use levada_node::config::Config;
use levada_node::control::{self, ControlError};
use levada_node::home::{Home, HomeError, Lock};
use levada_services::catalogue::{
    Caller, CallerError, PipeError, ServeError, Visitor, of_bytes, of_stream, serve,
};
use levada_session::Connection;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::destination::Destination;
use crate::failure::{Failure, NO, PROTOCOL, UNREACHABLE, USAGE};
use crate::mediated;
use crate::names::Names;
use crate::output::plain;

/// How much is under way between the two ends within this process, in bytes.
const ROOM: usize = 256 * 1024;
/// How long another command of this home may take.
const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(20);
/// How long the store of this process may take to be closed.
const CLOSING: Duration = Duration::from_secs(10);

/// Which catalogue.
#[derive(Debug, Args)]
pub struct At {
    /// The catalogue of another node, or a capability for it (text, @file or -); this home's own if not given
    #[arg(long, value_name = "NODE/CATALOGUE")]
    at: Option<Destination>,

    #[command(flatten)]
    names: Names,
}

/// A conversation with a catalogue.
pub struct CatalogueConnection {
    /// This end of it.
    pub caller: Caller,
    other: Other,
}

/// Who is at the other end.
enum Other {
    /// A node, over the network.
    Node(Box<Client>, Connection),
    /// The running node of this home.
    Own,
    /// A task of this process.
    Here(JoinHandle<Result<(), ServeError>>, Lock),
}

impl At {
    /// Whether it is reached through another node, or through this one as by others.
    pub fn is_elsewhere(&self) -> bool {
        self.at.is_some()
    }

    /// Begins a conversation.
    ///
    /// # Errors
    /// [`Failure`] with the exit code that fits.
    pub async fn open(&self) -> Result<CatalogueConnection, Failure> {
        let home = Home::open()?;
        match &self.at {
            Some(destination) => self.call(&home, destination).await,
            None => own(&home).await,
        }
    }

    async fn call(
        &self,
        home: &Home,
        destination: &Destination,
    ) -> Result<CatalogueConnection, Failure> {
        let client = Client::new(home)?;
        let capability = destination.capability(&client, self.names, None, "catalogue").await?;
        let Running { stream, connection, .. } = client.connect(&capability).await?;
        let caller = Caller::new(of_stream(stream));
        Ok(CatalogueConnection { caller, other: Other::Node(Box::new(client), connection) })
    }
}

/// The catalogue of this home. Another command, or a node that is starting, may have it at this moment.
async fn own(home: &Home) -> Result<CatalogueConnection, Failure> {
    let end = Instant::now() + PATIENCE;
    loop {
        match control::converse(home).await {
            Ok((read, write)) => {
                return Ok(CatalogueConnection {
                    caller: Caller::new(of_bytes(read, write)),
                    other: Other::Own,
                });
            }
            Err(ControlError::NotRunning) => {}
            Err(error) => return Err(error.into()),
        }
        match home.lock() {
            Ok(lock) => return within(home, lock),
            Err(HomeError::Locked { .. }) if Instant::now() < end => sleep(STEP).await,
            Err(error) => return Err(error.into()),
        }
    }
}

/// No node runs: this process is the only one that has the store open.
fn within(home: &Home, lock: Lock) -> Result<CatalogueConnection, Failure> {
    finish_interrupted(home).map_err(Failure::local)?;
    let config = Config::load(&home.config_file())?;
    let keeper = keep(home, &config, Arc::new(SystemClock)).map_err(Failure::local)?;
    let (near, far) = tokio::io::duplex(ROOM);
    let (read, write) = tokio::io::split(far);
    let served =
        tokio::spawn(async move { serve(&keeper, &Visitor::owner(), of_bytes(read, write)).await });
    let (read, write) = tokio::io::split(near);
    Ok(CatalogueConnection {
        caller: Caller::new(of_bytes(read, write)),
        other: Other::Here(served, lock),
    })
}

impl CatalogueConnection {
    /// Ends the conversation in good order.
    pub async fn close(self) {
        let Self { mut caller, other } = self;
        caller.finish().await;
        drop(caller);
        match other {
            Other::Node(client, connection) => mediated::leave(&client, &connection).await,
            Other::Own => {}
            Other::Here(served, lock) => {
                // What was answered is on disk; this lets the database be closed before the lock is free.
                let _ = timeout(CLOSING, served).await;
                drop(lock);
            }
        }
    }
}

impl From<CallerError> for Failure {
    fn from(error: CallerError) -> Self {
        match error {
            CallerError::Failed { cause, text } => said(cause, &plain(&text)),
            CallerError::Pipe(PipeError::Stream(error)) => ClientError::from(error).into(),
            CallerError::Pipe(PipeError::Stalled) => {
                Self::new(UNREACHABLE, "unreachable: the catalogue does not answer")
            }
            CallerError::Gone => Self::new(UNREACHABLE, format!("unreachable: {error}")),
            CallerError::Pipe(PipeError::Socket(error)) => {
                Self::local(format!("the node of this home went away: {error}"))
            }
            CallerError::Pipe(PipeError::Malformed) | CallerError::Unexpected => {
                Self::new(PROTOCOL, "protocol: the catalogue sent something else than was asked")
            }
            CallerError::Package(error) => Self::local(format!("the package: {error}")),
        }
    }
}

fn said(cause: Cause, text: &str) -> Failure {
    match cause {
        Cause::Unknown | Cause::Conflict | Cause::Compacted => Failure::new(NO, text),
        Cause::Denied => Failure::denied(format!("denied: {text}")),
        Cause::Invalid => Failure::new(USAGE, text),
        Cause::Busy => Failure::new(UNREACHABLE, format!("unreachable: {text}")),
        Cause::Full | Cause::Broken | Cause::Unspecified => {
            Failure::local(format!("the catalogue could not: {text}"))
        }
    }
}
