//! Carries sessions as a middlebox.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use levada_core::{Identity, SecretKey, source_of};
use levada_session::contexts::{HopSetup, HopTickets, Inspector, Path, PathError, Relay, relay};
use levada_transport::{Tcp, connect_tcp};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Sessions at a time.
const SESSIONS: usize = 1024;
/// Sessions of one source at a time.
const SESSIONS_OF_SOURCE: usize = 256;
/// How long the next party may take to accept a connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a middlebox leads sessions. What is not listed is refused.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The addresses of the next parties, `host:port`.
    pub next: Vec<String>,
    /// The servers; none: any server behind a listed address.
    pub servers: Vec<Identity>,
}

impl Policy {
    fn check(&self, path: &Path, hop: u8) -> Result<(), String> {
        let address = &path.after(hop).address;
        if !self.next.iter().any(|known| known == address) {
            return Err(format!("{address} is not a listed next party"));
        }
        let server = path.server.identity;
        if !self.servers.is_empty() && !self.servers.contains(&server) {
            return Err(format!("{server} is not a listed server"));
        }
        Ok(())
    }
}

/// Makes the inspector of each session.
pub type MakeInspector = Box<dyn Fn() -> Box<dyn Inspector> + Send + Sync>;

/// Why a middlebox stopped.
#[derive(Debug, Error)]
#[error("cannot accept connections: {0}")]
pub struct MiddleboxError(#[from] io::Error);

/// A middlebox.
pub struct Middlebox {
    setup: HopSetup,
    inspector: MakeInspector,
    sessions: Arc<Semaphore>,
    sources: Mutex<HashMap<IpAddr, usize>>,
}

impl Middlebox {
    /// A middlebox with the identity of `key`. It keeps keys of a session for `lifetime`, so that the next one along the same path
    /// costs less.
    pub fn new(
        key: Arc<SecretKey>,
        policy: Policy,
        lifetime: Duration,
        inspector: MakeInspector,
    ) -> Arc<Self> {
        let setup = HopSetup {
            key,
            tickets: Arc::new(HopTickets::new(lifetime)),
            policy: Arc::new(move |path, hop| policy.check(path, hop)),
        };
        let sessions = Arc::new(Semaphore::new(SESSIONS));
        Arc::new(Self { setup, inspector, sessions, sources: Mutex::default() })
    }

    /// Carries the sessions of every client that connects to `listener`.
    ///
    /// # Errors
    /// [`MiddleboxError`] if the listener failed.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) -> Result<(), MiddleboxError> {
        loop {
            let Ok(permit) = self.sessions.clone().acquire_owned().await else { return Ok(()) };
            let (stream, address) = listener.accept().await?;
            let source = source_of(address.ip());
            if !self.enter(source) {
                tracing::debug!(%source, "too many sessions of this source");
                continue;
            }
            let middlebox = self.clone();
            tokio::spawn(async move {
                if let Err(error) = middlebox.carry(stream).await {
                    tracing::info!(%source, %error, "a session failed");
                }
                middlebox.leave(source);
                drop(permit);
            });
        }
    }

    fn enter(&self, source: IpAddr) -> bool {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let count = sources.entry(source).or_default();
        let fits = *count < SESSIONS_OF_SOURCE;
        *count += usize::from(fits);
        fits
    }

    fn leave(&self, source: IpAddr) {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = sources.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                sources.remove(&source);
            }
        }
    }

    async fn carry(&self, stream: TcpStream) -> Result<(), PathError> {
        let client = Box::new(Tcp::new(stream)?);
        let middle = Relay::new(self.setup.clone(), (self.inspector)(), Instant::now());
        let dial = |path: Path, hop: u8| async move {
            let next = connect_tcp(&path.after(hop).address, DIAL_TIMEOUT).await?;
            Ok(Box::new(next) as Box<dyn levada_transport::Transport>)
        };
        relay(middle, client, Vec::new(), dial).await
    }
}
