//! Carries sessions as a middlebox.

use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use levada_core::{Identity, SecretKey, source_of};
use levada_session::contexts::{HopSetup, HopTickets, Inspector, Path, PathError, Relay, relay};
use levada_transport::{Tcp, connect_tcp};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Sessions at a time.
const SESSIONS: usize = 1024;
/// Sessions of one source at a time.
const SESSIONS_OF_SOURCE: usize = 256;
/// How long the next party may take to accept a connection.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// The delay before the next attempt to accept, after a failure such as a lack of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

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

/// Takes the source of a session that failed, and why.
pub type Failed = Arc<dyn Fn(IpAddr, &PathError) + Send + Sync>;

/// Writes each failure to the log of the process.
pub fn trace_failures() -> Failed {
    Arc::new(|source, error| tracing::info!(%source, %error, "a session failed"))
}

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

    /// Carries the sessions of every client that connects to `listener`, until `stop`; then no further ones, and returns when the
    /// last one has ended. Dropping the future ends all of them. `failed` is told of each that fails.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
        failed: Failed,
    ) {
        let mut tasks = JoinSet::new();
        tokio::select! {
            () = self.accept(listener, &mut tasks, failed) => {}
            () = stop => {}
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn accept(
        self: &Arc<Self>,
        listener: TcpListener,
        tasks: &mut JoinSet<()>,
        failed: Failed,
    ) {
        loop {
            while tasks.try_join_next().is_some() {}
            let Ok(permit) = self.sessions.clone().acquire_owned().await else { return };
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "could not accept a connection");
                    sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            let source = source_of(address.ip());
            let Some(session) = CarriedSession::new(self, source) else {
                tracing::debug!(%source, "too many sessions of this source");
                continue;
            };
            let failed = failed.clone();
            tasks.spawn(async move {
                if let Err(error) = session.middlebox.carry(stream).await {
                    failed(source, &error);
                }
                drop((session, permit));
            });
        }
    }

    /// The sessions that it carries now.
    pub fn sessions(&self) -> usize {
        self.lock().values().sum()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.sources.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Counts a session of a source while it is carried.
struct CarriedSession {
    middlebox: Arc<Middlebox>,
    source: IpAddr,
}

impl CarriedSession {
    /// None if the source has as many as it may.
    fn new(middlebox: &Arc<Middlebox>, source: IpAddr) -> Option<Self> {
        let mut sources = middlebox.lock();
        let count = sources.entry(source).or_default();
        if *count >= SESSIONS_OF_SOURCE {
            return None;
        }
        *count += 1;
        Some(Self { middlebox: middlebox.clone(), source })
    }
}

impl Drop for CarriedSession {
    fn drop(&mut self) {
        let mut sources = self.middlebox.lock();
        if let Some(count) = sources.get_mut(&self.source) {
            *count -= 1;
            if *count == 0 {
                sources.remove(&self.source);
            }
        }
    }
}
