//! Carries sessions as a middlebox.

use std::future::Future;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use levada_contexts::{HopSetup, HopTickets, Inspector, Path, PathError, Relay, relay};
use levada_core::{Identity, SecretKey, source_of};
use levada_session::{Evicted, HalfOpen, HalfOpenEntry};
use levada_transport::{Counted, Tcp, Traffic, connect_tcp};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::limit::SourceLimit;
use super::needs::Need;

/// The maximum number of sessions at a time.
const SESSIONS: usize = 1024;
/// The maximum of one source.
const SESSIONS_OF_SOURCE: usize = 256;
/// Unfinished handshakes at a time. They do not use up sessions.
const HANDSHAKES: usize = 256;
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
    /// What each session must grant to this middlebox.
    pub needs: Vec<Need>,
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
        self.needs.iter().try_for_each(|need| need.check(path, hop))
    }
}

/// Makes the inspector of a session from its source.
pub type MakeInspector = Box<dyn Fn(IpAddr) -> Box<dyn Inspector> + Send + Sync>;

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
    sessions: Arc<SourceLimit>,
    handshakes: HalfOpen,
    most_handshakes: usize,
    /// The connections of clients.
    clients: Arc<Traffic>,
    /// The connections to the next parties.
    next: Arc<Traffic>,
}

impl Middlebox {
    /// A middlebox with the identity of `key`. It keeps keys of a session for `lifetime`, so that
    /// the next one along the same path costs less.
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
        Self::with_limits(setup, inspector, [SESSIONS, SESSIONS_OF_SOURCE], HANDSHAKES)
    }

    fn with_limits(
        setup: HopSetup,
        inspector: MakeInspector,
        sessions: [usize; 2],
        most_handshakes: usize,
    ) -> Arc<Self> {
        let sessions = SourceLimit::new(sessions);
        Arc::new(Self {
            setup,
            inspector,
            sessions,
            handshakes: HalfOpen::default(),
            most_handshakes,
            clients: Arc::default(),
            next: Arc::default(),
        })
    }

    /// Carries the sessions of every client that connects to `listener`, until `stop`; then no
    /// further ones, and returns when the last one has ended. Dropping the future ends all of them.
    /// `failed` is told of each that fails.
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
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "could not accept a connection");
                    self.handshakes.evict();
                    sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            self.handshakes.make_room(self.most_handshakes).await;
            let source = source_of(address.ip());
            let (handshake, evicted) = self.handshakes.enter(source);
            let middlebox = self.clone();
            let failed = failed.clone();
            tasks.spawn(async move {
                if let Err(error) = middlebox.carry_unless_evicted(stream, handshake, evicted).await
                {
                    failed(source, &error);
                }
            });
        }
    }

    /// The sessions that it carries now.
    pub fn sessions(&self) -> usize {
        self.sessions.count()
    }

    /// The connections of clients, and their bytes.
    pub fn client_traffic(&self) -> &Traffic {
        &self.clients
    }

    /// The connections to the next parties, and their bytes.
    pub fn next_traffic(&self) -> &Traffic {
        &self.next
    }

    async fn carry_unless_evicted(
        &self,
        stream: TcpStream,
        handshake: HalfOpenEntry,
        evicted: Evicted,
    ) -> Result<(), PathError> {
        tokio::select! {
            // A handshake that finishes at the moment of its eviction counts as finished.
            biased;
            carried = self.carry(stream, handshake) => carried,
            () = evicted.wait() => Ok(()),
        }
    }

    async fn carry(&self, stream: TcpStream, handshake: HalfOpenEntry) -> Result<(), PathError> {
        let handshake = Arc::new(handshake);
        let client = Box::new(Counted::new(Tcp::new(stream)?, &self.clients));
        let inspector = (self.inspector)(handshake.source());
        let middle = Relay::new(self.setup.clone(), inspector, Instant::now());
        let begun = Arc::downgrade(&handshake);
        let dial = |path: Path, hop: u8| async move {
            if let Some(handshake) = begun.upgrade() {
                handshake.mark_active();
            }
            let next = connect_tcp(&path.after(hop).address, DIAL_TIMEOUT).await?;
            Ok(Box::new(Counted::new(next, &self.next)) as Box<dyn levada_transport::Transport>)
        };
        let mut session = None;
        let admit = || {
            session = self.sessions.enter(handshake.source());
            drop(handshake);
            session.is_some()
        };
        relay(middle, client, Vec::new(), dial, admit).await
    }
}

#[cfg(test)]
mod tests {
    use levada_contexts::{Action, Piece};
    use levada_core::SystemRandom;
    use tokio::io::AsyncReadExt;

    use super::*;

    struct Pass;

    impl Inspector for Pass {
        fn record(&mut self, _: Piece<'_>) -> Action {
            Action::Pass
        }
    }

    #[tokio::test]
    async fn silent_connections_do_not_keep_a_middlebox_from_others() {
        let setup = HopSetup {
            key: Arc::new(SecretKey::generate(&SystemRandom).unwrap()),
            tickets: Arc::new(HopTickets::new(Duration::ZERO)),
            policy: Arc::new(|_, _| Ok(())),
        };
        let middlebox = Middlebox::with_limits(setup, Box::new(|_| Box::new(Pass)), [4, 4], 4);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serve = middlebox.clone().serve(listener, std::future::pending(), trace_failures());
        let serving = tokio::spawn(serve);
        let mut silent = Vec::new();
        for _ in 0..4 {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let _fifth = TcpStream::connect(address).await.unwrap();
        // The oldest is closed in its favour, and the others stay.
        assert_eq!(silent[0].read(&mut [0]).await.unwrap(), 0);
        assert_eq!((middlebox.handshakes.count(), middlebox.sessions()), (4, 0));
        let kept = silent[1].try_read(&mut [0]).unwrap_err();
        assert_eq!(kept.kind(), std::io::ErrorKind::WouldBlock);
        serving.abort();
    }
}
